"""Any DataFrame in: mixed tables through fit, predict, files and other libraries."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import classifier_cases
import numpy as np
import pandas as pd
import pytest
import regressor_cases

import gdkl
from gdkl import GDKLClassifier, GdklError, GDKLRegressor, NNGPClassifier, NNGPRegressor
from gdkl.numerics import DataWarning
from mixed_table import mixed

GDKL_DATA = os.environ.get("GDKL_DATA")
FRAME, Y = mixed(80)
LABELS = np.where(np.median(Y) < Y, "dear", "cheap")
quiet = pytest.mark.filterwarnings("ignore::gdkl.numerics.DataWarning")


@quiet
@pytest.mark.parametrize("name", regressor_cases.MAKERS)
def test_every_regressor_reads_a_mixed_table_and_its_file(name, tmp_path):
    model = regressor_cases.MAKERS[name]().fit(FRAME[:60], Y[:60])
    assert model.n_features_in_ == FRAME.shape[1]
    assert list(model.feature_names_in_) == list(FRAME.columns)
    p = model.predict(FRAME[60:])
    model.save(tmp_path / "model.gdkl")
    again = gdkl.load(tmp_path / "model.gdkl")
    np.testing.assert_array_equal(again.predict(FRAME[60:]), p)
    assert again.kind_.input.names == list(FRAME.columns)
    np.testing.assert_array_equal(again.kind_.input.groups, model.kind_.input.groups)


@quiet
@pytest.mark.parametrize("name", classifier_cases.MAKERS)
def test_every_classifier_reads_a_mixed_table_and_its_file(name, tmp_path):
    model = classifier_cases.MAKERS[name]().fit(FRAME[:60], LABELS[:60])
    p = model.predict_proba(FRAME[60:])
    assert np.isfinite(p).all()
    model.save(tmp_path / "model.gdkl")
    np.testing.assert_array_equal(gdkl.load(tmp_path / "model.gdkl").predict_proba(FRAME[60:]), p)


@quiet
def test_shortened_tails_survive_the_file(tmp_path):
    X = FRAME.assign(size=np.exp(FRAME["size"] / 4))
    model = GDKLRegressor(n_iter=3, random_state=0).fit(X, Y)
    assert model.kind_.input.tails[1, 0] > 0
    model.save(tmp_path / "model.gdkl")
    np.testing.assert_array_equal(gdkl.load(tmp_path / "model.gdkl").predict(X), model.predict(X))


@quiet
def test_the_categories_are_learned_from():
    numbers = FRAME[["size", "garden", "rooms"]]
    alone, whole = (NNGPRegressor().fit(X[:60], Y[:60]).score(X[60:], Y[60:]) for X in (numbers, FRAME))
    assert whole > alone + 0.1


def test_a_frame_of_numbers_is_read_as_its_array():
    X, y = regressor_cases.table(40)
    frame = pd.DataFrame(X, columns=list("abcd"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        model = NNGPRegressor().fit(frame, y)
    values = np.asarray(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        np.testing.assert_array_equal(model.predict(values), model.predict(frame))
        with pytest.raises(GdklError, match="X has NaN"):
            model.predict(np.full((2, 4), np.nan))
    np.testing.assert_array_equal(NNGPRegressor().fit(values, y).predict(values), model.predict(frame))
    np.testing.assert_array_equal(model.predict(frame.astype(str)), model.predict(frame))
    with pytest.warns(DataWarning, match="fit saw hardly any, are filled in with the median, .*: 'b'"):
        p = model.predict(frame.assign(b=np.nan))
    np.testing.assert_allclose(p, model.predict(frame.assign(b=frame["b"].median())), rtol=1e-12)


@quiet
def test_unseen_levels_and_missing_cells_are_predicted():
    model = NNGPRegressor().fit(FRAME, Y)
    new = FRAME[:5].assign(city="Lima", heating=None, size=np.nan, grade="top", zone=99)
    assert np.isfinite(model.predict(new)).all()
    np.testing.assert_array_equal(model.predict(new.assign(city="Rome")), model.predict(new))


def test_new_rows_unlike_those_of_fit_are_told_of():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        model = NNGPRegressor().fit(FRAME, Y)
    with pytest.warns(DataWarning, match="Most cells have levels that fit hardly saw .*: 'city'"):
        model.predict(FRAME.assign(city=FRAME["city"].str.upper()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        model.predict(FRAME.assign(city=FRAME["city"].where(FRAME.index > 2, "Lima")))


@quiet
def test_columns_must_be_those_of_fit():
    model = NNGPRegressor().fit(FRAME, Y)
    bad = {
        "yet now missing: - city - size": FRAME.drop(columns=["city", "size"]),
        "same order": FRAME[FRAME.columns[::-1]],
        "unseen at fit time: - town": FRAME.rename(columns={"city": "town"}),
        "no DataFrame": FRAME.to_numpy(),
    }
    for message, X in bad.items():
        with pytest.raises(GdklError, match=message) as caught:
            model.predict(X)
        assert len(str(caught.value).splitlines()) == 1


def test_a_model_of_an_array_refuses_text():
    X, y = regressor_cases.table(20)
    with pytest.raises(GdklError, match=r"not numeric: 'city'\. Pass a DataFrame to fit"):
        NNGPRegressor().fit(X, y).predict(pd.DataFrame(X[:, :3]).assign(city="Ghent").rename(columns=str))


@quiet
def test_long_frames_are_encoded_in_parts(monkeypatch):
    model = NNGPRegressor().fit(FRAME, Y)
    expected = model.predict(FRAME)
    monkeypatch.setattr(
        "gdkl.estimators.regression.row_parts",
        lambda table: [(at, table.iloc[at : at + 7]) for at in range(0, len(table), 7)],
    )
    np.testing.assert_allclose(model.predict(FRAME), expected, rtol=1e-10)
    with pytest.raises(GdklError, match="row 33"):
        model.predict(FRAME.assign(size=np.where(np.arange(80) == 33, np.inf, 1.0)))


@quiet
def test_a_sparse_fit_reads_a_mixed_table():
    model = gdkl.GDKLRegressor(inference="sparse", n_inducing=8, n_iter=5, random_state=0).fit(FRAME, Y)
    assert np.isfinite(model.predict(FRAME)).all()


@quiet
@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_tables_of_other_libraries_are_read_as_pandas(library):
    module = pytest.importorskip(library)
    frame = FRAME[["size", "city", "garden", "heating", "sold"]]
    other = module.Table.from_pandas(frame) if library == "pyarrow" else module.from_pandas(frame)
    for X in (frame, other):
        model = NNGPRegressor().fit(X, Y)
        np.testing.assert_array_equal(model.feature_names_in_, list(frame.columns))
        np.testing.assert_allclose(model.predict(other), model.predict(frame), rtol=1e-9)
    if library == "pyarrow":
        # Lists, which nothing is learned from, and missing booleans, in columns that stay Arrow's.
        flags = module.array([None, True, False, True] * 20)
        more = other.append_column("flag", flags).append_column("parts", module.array([[1]] * 80))
        arrow, plain = more.to_pandas(types_mapper=pd.ArrowDtype), more.to_pandas()
        p, q = (NNGPRegressor().fit(X, Y).predict(plain) for X in (arrow, plain))
        # The search for relevances ends where rounding lets it.
        np.testing.assert_allclose(p, q, rtol=1e-6)
    else:
        # An Enum has an order; a Categorical has none.
        kinds = {"city": module.Enum(["Bonn", "Ghent", "Oslo"]), "heating": module.Categorical}
        model = NNGPClassifier(random_state=0).fit(other.cast(kinds), LABELS)
        assert [code.kind for code in model.kind_.input.encoder.columns[1::2]] == ["ordered category", "category"]
        assert np.isfinite(model.predict_proba(other)).all()


@quiet
def test_recombined_rows_have_one_level_of_each_category():
    model = GDKLClassifier(n_iter=2, random_state=0).fit(FRAME, LABELS)
    assert model.kind_.augmentation("auto", exact=True, recombines=True).recombine == tuple(model.kind_.input.groups)


TABLES = {
    "apartments": "m2_price",
    "fifa": "value_eur",
    "bikeshare": "bikers",
    "credit_balance": "Balance",
    "fertil2": "children",
    "bwght2": "bwght",
    "mlb": "salary",
    "nba": "wage",
    "nettfa": "nettfa",
    "wage1": "wage",
    "imports85": "price",
    "hr": "status",
    "german": "risk",
    "titanic": "survived",
    "default": "default",
    "loanapp": "approve",
    "heart": "diameter narrowing",
    "ionosphere": "y",
}


@quiet
@pytest.mark.parametrize("name", TABLES)
def test_real_tables(name):
    if not GDKL_DATA or not (Path(GDKL_DATA) / "tables" / f"{name}.csv.gz").is_file():
        pytest.skip(f"GDKL_DATA names no folder with tables/{name}.csv.gz")
    frame = pd.read_csv(Path(GDKL_DATA) / "tables" / f"{name}.csv.gz").sample(frac=1, random_state=0)
    X, y = frame.drop(columns=TABLES[name]), frame[TABLES[name]]
    classes = list(TABLES).index(name) > list(TABLES).index("imports85")
    make = NNGPClassifier if classes else NNGPRegressor
    if y.isna().any():
        with pytest.raises(GdklError, match=f"y has NaN.* in {y.isna().sum()} rows"):
            make().fit(X, y)
        X, y = X[y.notna()], y.dropna()
    cut = min(300, len(X) * 3 // 4)
    model = make().fit(X[:cut], y[:cut])
    new = slice(cut, cut + 500)
    if classes:
        common = y[:cut].value_counts(normalize=True)
        base = common.reindex(y[new]).to_numpy()
        assert model.predict_distribution(X[new]).log_prob(y[new].to_numpy()).mean() > np.log(base).mean() - 0.02
    else:
        mean, std = model.predict(X[new], return_std=True)
        assert np.isfinite(mean).all()
        assert (np.isfinite(std) & (std > 0)).all()
        assert y[new].corr(pd.Series(mean, y[new].index), method="spearman") > 0.05
