"""Every estimator and every kind of input: a right answer or an error of one line, inputs unchanged, model intact."""

from __future__ import annotations

import copy
import functools
import re
from types import GeneratorType

import classifier_cases
import joblib
import numpy as np
import odd_inputs
import pandas as pd
import pytest
import regressor_cases
from odd_inputs import BAD, NEW, NEW_ROWS, SLOW, WELCOME, X, Y
from sklearn.base import is_classifier

from gdkl import GdklError

pytestmark = [
    # Constant columns, jitters and dates are warned of; NumPy's overflows and the like must not be heard of.
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("error::RuntimeWarning"),
]


def _estimators():
    """Makers of all estimators with few steps, and of their forms with inducing points."""
    found = {}
    for kind, makers in (("regressor", regressor_cases.MAKERS), ("classifier", classifier_cases.MAKERS)):
        for name, maker in makers.items():
            options = maker().get_params()
            cheap = {"n_iter": 2} if "n_iter" in options else {}
            cheap |= {"base": "paper"} if "preset" in options else {}
            found[f"{name} {kind}"] = functools.partial(maker, **cheap)
            if "inference" in options:
                more = {"inference": "sparse", "n_inducing": 4, "batch_size": 8}
                found[f"sparse {name} {kind}"] = functools.partial(maker, **cheap, **more)
    return found


ESTIMATORS = _estimators()

#: Labels of three classes by the size of the target.
LABELS = np.searchsorted(np.quantile(Y, [1 / 3, 2 / 3]), Y).astype(float)


@functools.cache
def plain(name):
    """The estimator fitted to the plain table, which tests leave as it is."""
    model = ESTIMATORS[name]()
    return model.fit(X, targets(model))


def targets(model):
    return LABELS if is_classifier(model) else Y


def predictions(model, rows):
    """What the estimator says of rows as two arrays, checked: means and deviations, or probabilities and variances."""
    p = model.predict_distribution(rows)
    if is_classifier(model):
        assert p.probs.min() >= 0
        np.testing.assert_allclose(p.probs.sum(axis=1), 1, atol=1e-9)
        assert np.isfinite(p.latent_mean).all()
        assert p.latent_variance.min() >= 0
        assert set(model.predict(rows).tolist()) <= set(model.classes_.tolist())
        return p.probs, p.latent_variance
    mean, std = model.predict(rows, return_std=True)
    np.testing.assert_array_equal(mean, p.mean)
    assert np.isfinite(p.mean).all()
    assert np.isfinite(p.variance).all()
    assert (p.variance > 0).all()
    assert (p.latent_variance >= 0).all()
    low, high = p.interval(0.9)
    assert np.isfinite(low).all()
    assert (high > low).all()
    return p.mean, std


def check_error(error, message):
    text = str(error)
    assert re.search(message, text, re.IGNORECASE), text
    assert len(text.splitlines()) == 1, text
    assert isinstance(error, ValueError), type(error)


def cells(kinds, quick=1):
    """Every kind with every estimator that it is a question for; one in so many is left to `make test` as well."""
    return [
        pytest.param(odd, name, id=f"{kind}, {name}", marks=[pytest.mark.long] if (row + column) % quick else [])
        for row, (kind, odd) in enumerate(kinds.items())
        for column, name in enumerate(ESTIMATORS)
        if odd.only is None or odd.only.rstrip("s") in name
    ]


def test_there_are_enough_cells():
    assert sum(len(cells(kinds)) for kinds in (BAD, WELCOME, NEW_ROWS)) >= 400


@pytest.mark.parametrize(("odd", "name"), cells(BAD, quick=9))
def test_bad_input(odd, name):
    # A model that was fitted before stays as it is.
    model = copy.deepcopy(plain(name))
    rows, y, new = odd.make(X, targets(model), NEW)
    before = digest(rows), digest(y)
    try:
        model.fit(rows, y)
    except GdklError as error:
        check_error(error, odd.fit)
        for mine, known in zip(predictions(model, NEW), known_predictions(name), strict=True):
            np.testing.assert_array_equal(mine, known)
    else:
        assert odd.either, "no error"
        predictions(model, new)
    assert (digest(rows), digest(y)) == before


@pytest.mark.parametrize(("odd", "name"), cells(WELCOME, quick=13))
def test_odd_input(odd, name):
    check_welcome(odd, name)


@pytest.mark.long
@pytest.mark.parametrize(("odd", "name"), cells(SLOW))
def test_large_odd_input(odd, name):
    check_welcome(odd, name)


def check_welcome(odd, name):
    model = ESTIMATORS[name]()
    rows, y, new = odd.make(X, targets(model), NEW)
    before = digest(rows), digest(y), digest(new)
    try:
        model.fit(rows, y)
    except GdklError as error:
        if not odd.either:
            raise
        check_error(error, odd.fit or "")
        return
    found = predictions(model, new)
    assert (digest(rows), digest(y), digest(new)) == before
    if odd.same:
        tolerance = 1e-9 if odd.same is True else odd.same
        for mine, known in zip(found, known_predictions(name), strict=True):
            np.testing.assert_allclose(mine.reshape(known.shape), known, rtol=tolerance, atol=tolerance)
    elif not is_classifier(model):
        # Targets may be in other units, and are still what predictions are like.
        values = np.asarray(y, dtype=float)
        spread = 3 * np.ptp(values)
        assert (found[0] > values.min() - spread).all()
        assert (found[0] < values.max() + spread).all()


@pytest.mark.parametrize(("odd", "name"), cells(NEW_ROWS, quick=9))
def test_odd_rows_to_predict(odd, name):
    model = plain(name)
    new = odd.make(X, None, NEW)[2]
    before = digest(new)
    try:
        found = predictions(model, new)
    except GdklError as error:
        if odd.predict is None:
            raise
        check_error(error, odd.predict)
    else:
        assert odd.predict is None or odd.either, "no error"
        assert len(found[0]) == len(new)
        if odd.same:
            for mine, known in zip(found, known_predictions(name), strict=True):
                np.testing.assert_allclose(mine, known, rtol=1e-9, atol=1e-9)
    assert digest(new) == before


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_whose_first_fit_failed_can_be_fitted(name):
    model = ESTIMATORS[name]()
    bad = odd_inputs.BAD["NaN as a target"].make(X, targets(model), NEW)
    with pytest.raises(GdklError):
        model.fit(bad[0][:, :2], bad[1])
    assert not hasattr(model, "n_features_in_")
    with pytest.raises(GdklError, match="not fitted"):
        model.predict(X)
    for mine, known in zip(predictions(model.fit(X, targets(model)), NEW), known_predictions(name), strict=True):
        np.testing.assert_array_equal(mine, known)


@functools.cache
def known_predictions(name):
    return predictions(plain(name), NEW)


def digest(values):
    """What identifies an input, whatever it is."""
    if isinstance(values, GeneratorType):
        return None
    if isinstance(values, np.ma.MaskedArray):
        return digest(values.data), digest(np.ma.getmaskarray(values))
    if isinstance(values, (pd.DataFrame, pd.Series)):
        # Their pickles change once they were read.
        return repr((values.to_numpy(dtype=object).tolist(), values.index.tolist(), str(values.dtypes)))
    return joblib.hash(values)
