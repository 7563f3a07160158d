"""Tables of every kind of column become numbers: against pandas' own encodings and numbers worked out by hand."""

from __future__ import annotations

import datetime
import json
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdkl.inputs import ColumnCode, TableEncoder, TableInput
from gdkl.inputs.encoding import LEVEL_ROWS, MOST_LEVELS
from gdkl.numerics import DataError, DataWarning
from mixed_table import N, mixed


def fitted(frame):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return TableEncoder.fit(frame)


def code_of(values, dtype=None):
    return ColumnCode.fit("a", pd.Series(values, dtype=dtype))


def test_categories_are_pandas_dummies():
    frame, _ = mixed()
    for name in ("city", "zone"):
        code = ColumnCode.fit(name, frame[name])
        expected = pd.get_dummies(frame[name])[list(code.levels)].to_numpy(float)
        np.testing.assert_array_equal(code.encode(frame[name]), expected)
    assert {type(level) for level in ColumnCode.fit("zone", frame["zone"]).levels} == {int}


def test_a_missing_category_is_a_level_and_two_levels_are_one_column():
    three = pd.Series(["a", "b", None, "a"] * 3)
    np.testing.assert_array_equal(code_of(three).encode(three)[:4], [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]])
    code = code_of(["a", "b", "a"] * 3)
    # What fit has not seen lies in the middle between both levels.
    np.testing.assert_array_equal(code.encode(pd.Series(["a", "b", "c", None]))[:, 0], [1, -1, 0, 0])


def test_unseen_and_rare_levels_are_zero_everywhere():
    code = code_of(["a"] * 5 + ["b"] * 4 + ["c"] * 3 + ["rare"] * (LEVEL_ROWS - 1))
    assert list(code.levels) == ["a", "b", "c"]
    np.testing.assert_array_equal(code.encode(pd.Series(["rare", "unseen", "c"])), [[0, 0, 0], [0, 0, 0], [0, 0, 1]])


def test_of_many_levels_the_most_frequent_are_kept():
    values = [f"v{i}" for i in range(30) for _ in range(3 + i)]
    assert set(code_of(values).levels) == {f"v{i}" for i in range(30 - MOST_LEVELS, 30)}


def test_missing_numbers_are_the_median_with_an_indicator():
    values = [1.0, None, 4.0, 9.0, None, None]
    for column in (pd.Series(values), pd.Series(values, dtype="Float64"), pd.Series(values, dtype=object)):
        encoded = ColumnCode.fit("a", column).encode(column)
        np.testing.assert_array_equal(encoded, [[1, 0], [4, 1], [4, 0], [9, 0], [4, 1], [4, 1]])
    few = pd.Series([1.0, None, 4.0, 9.0])
    np.testing.assert_array_equal(ColumnCode.fit("a", few).encode(few)[:, 0], [1, 4, 4, 9])


NUMBERS = {
    "decimals": ([Decimal("1.5"), Decimal(2), Decimal(4)], [1.5, 2, 4]),
    "booleans": ([True, None, False], [1, 0.5, 0]),
    "mixed numbers": ([True, 2.5, 1], [1, 2.5, 1]),
    "dates": ([datetime.date(1970, 1, 3), None, datetime.date(1970, 1, 5)], [2, 3, 4]),
    "durations": ([datetime.timedelta(hours=12), None, datetime.timedelta(2)], [0.5, 1.25, 2]),
    "times": (pd.to_datetime(["1970-01-02 06:00", None, "1970-01-03 07:00"]).tz_localize("+01:00"), [29, 41.5, 54]),
    "periods": (pd.period_range("1970-01", periods=3, freq="M"), [0, 31, 59]),
    "an ordered category": (pd.Categorical(["high", "low", None], ["low", "mid", "high"], ordered=True), [2, 0, 1]),
    "intervals": (pd.cut([1.0, 5.0, 9.0], [0, 3, 6, 10]), [0, 1, 2]),
    "many numbers as text": ([str(i / 2) for i in range(20)], np.arange(20) / 2),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_columns_that_are_numbers(case):
    values, expected = NUMBERS[case]
    column = pd.Series(values)
    encoded = ColumnCode.fit("a", column).encode(column)
    assert encoded.shape[1] == 1
    np.testing.assert_allclose(encoded[:, 0] * (24 if case == "times" else 1), expected, rtol=1e-12)


def test_what_cannot_be_learned_from_is_left_out_with_one_warning():
    frame, _ = mixed()
    frame["lists"] = [[i] for i in range(N)]
    with pytest.warns(DataWarning) as caught:
        encoder = TableEncoder.fit(frame)
    left_out = [str(w.message) for w in caught if "left out" in str(w.message)]
    assert len(left_out) == 1
    assert "'name' (values that hardly ever occur twice), 'empty' (only missing cells), 'lists' (neither" in left_out[0]
    assert any("days: 'sold'" in str(w.message) for w in caught)
    assert not {8, 9, 11} & set(encoder.groups.tolist())
    with pytest.raises(DataError, match="no column to learn from: 'name'"):
        TableEncoder.fit(frame[["name", "empty"]])


def test_groups_and_names_lead_back_to_the_columns():
    frame, _ = mixed()
    encoder = fitted(frame)
    rows = encoder.encode(frame)
    assert len(encoder.groups) == rows.shape[1]
    assert np.isfinite(rows).all()
    table = TableInput.fit([rows], encoder)
    assert table.names == list(frame.columns)
    widths = dict(zip(*np.unique(table.groups, return_counts=True), strict=True))
    assert widths == {0: 2, 1: 3, 2: 1, 3: 3, 4: 2, 5: 1, 6: 1, 7: 1, 10: 4}
    with pytest.warns(DataWarning, match="Constant"):
        array = TableInput.fit([np.stack([np.arange(5.0), np.ones(5), np.arange(5.0) ** 2], axis=1)])
    assert (array.groups.tolist(), array.names) == ([0, 2], [0, 1, 2])


def test_each_category_varies_as_much_as_a_number():
    frame, _ = mixed()
    encoder = fitted(frame)
    table = TableInput.fit([encoder.encode(frame)], encoder)
    variances = table.rows(encoder.encode(frame)).var(axis=0)
    sums = np.bincount(table.groups, variances)
    np.testing.assert_allclose(sums[[1, 2, 3, 5, 6, 7, 10]], 1)
    # A number and the indicator of its missing cells are two columns.
    np.testing.assert_allclose(sums[[0, 4]], 2)


def test_the_code_is_plain_json():
    frame, _ = mixed()
    frame["flag"] = pd.Series([0.5, True, "x"] * (N // 3), dtype=object)
    encoder = fitted(frame)
    text = json.dumps([vars(column) for column in encoder.columns], allow_nan=False)
    again = TableEncoder(tuple(ColumnCode(**column) for column in json.loads(text)))
    assert again == encoder
    np.testing.assert_array_equal(again.encode(frame), encoder.encode(frame))


def test_other_types_than_in_fit_are_read_or_refused_in_one_line():
    frame, _ = mixed()
    encoder = fitted(frame)
    # As a CSV file has them.
    text = frame.assign(sold=frame["sold"].astype(str), size=frame["size"].astype(object).map(str, na_action="ignore"))
    np.testing.assert_allclose(encoder.encode(text), encoder.encode(frame))
    for change, message in (
        ({"size": "large"}, r"'size' was read as number in fit and cannot be now \(.*'large'"),
        ({"sold": "soon"}, "'sold' was read as date"),
        ({"sold": 17}, r"'sold' was read as date in fit and cannot be now \(it has numbers\): convert"),
        ({"city": 3}, r"'city' was read as category in fit and cannot be now \(it has numbers\)"),
        ({"zone": "7"}, r"'zone' was read as category in fit and cannot be now \(it has text\)"),
        ({"city": [["Ghent"]] * N}, "'city' was read as category.*unhashable"),
        ({"size": np.inf}, r"infinite \(inf\) values in column 'size' \(first: row 100\)"),
    ):
        with pytest.raises(DataError, match=message) as caught:
            encoder.encode(frame.assign(**change), 100)
        assert len(str(caught.value).splitlines()) == 1
    # Nothing but missing cells has no type; numbers of a category may come as floats.
    assert np.isfinite(encoder.encode(frame.assign(**dict.fromkeys(frame.columns, np.nan)))).all()
    np.testing.assert_array_equal(encoder.encode(frame.astype({"zone": float})), encoder.encode(frame))


@given(st.lists(st.one_of(st.none(), st.text(max_size=2), st.integers(-2, 2), st.booleans()), min_size=4, max_size=40))
def test_any_objects_become_finite_numbers_and_each_row_alone_the_same(values):
    column = pd.Series(values, dtype=object)
    code = ColumnCode.fit("a", column)
    if code.left_out:
        return
    encoded = code.encode(column)
    assert encoded.shape == (len(values), code.width)
    assert np.isfinite(encoded).all()
    alone = [code.encode(column.iloc[i : i + 1]) for i in range(len(column))]
    np.testing.assert_array_equal(np.concatenate(alone), encoded)


def test_long_tails_are_shortened_where_asked_for():
    rng = np.random.default_rng(0)
    n = 400
    counts = np.where(rng.random(n) < 0.7, 0.0, np.exp(rng.normal(0, 2, n)))
    X = np.stack([rng.normal(size=n), np.exp(2 * rng.normal(size=n)), counts, rng.random(n) < 0.01], axis=1)
    plain, tamed = TableInput.fit([X]), TableInput.fit([X[:150], X[150:]], tame_tails=True)
    assert plain.tails is None
    assert (tamed.tails[1] > 0).tolist() == [False, True, True, False]
    np.testing.assert_allclose(tamed.rows(X)[:, [0, 3]], plain.rows(X)[:, [0, 3]])
    np.testing.assert_allclose(tamed.rows(X).std(axis=0), 1)
    quartiles = np.percentile(X[:, 1], [25, 50, 75])
    expected = np.arcsinh((X[:, 1] - quartiles[1]) / ((quartiles[2] - quartiles[0]) / 1.349))
    np.testing.assert_allclose(tamed.rows(X)[:, 1], (expected - expected.mean()) / expected.std())
    assert np.abs(plain.rows(X)[:, 1]).max() > 2 * np.abs(tamed.rows(X)[:, 1]).max()


def test_values_beyond_the_training_range_grow_as_a_logarithm():
    X = np.linspace(-2, 2, 50)[:, None]
    table = TableInput.fit([X], tame_tails=True)
    np.testing.assert_allclose(table.rows(X), TableInput.fit([X]).rows(X))
    new = np.array([[2.0], [2.0 + 1e-6], [3.0], [1e6], [-1e6]])
    seen = table.rows(new)[:, 0] * X.std() + X.mean()
    # A quarter of the range is one.
    np.testing.assert_allclose(seen, [2, 2 + 1e-6, 2 + np.log(2), 2 + np.log1p(1e6 - 2), -2 - np.log1p(1e6 - 2)])
