"""Each wrong input is one line that says what to do, a GdklError and a ValueError."""

from __future__ import annotations

import gpytorch
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from preset_options import make
from regressor_cases import MAKERS, table
from sklearn.exceptions import NotFittedError
from torch import nn

import gdkl
from gdkl import GdklError, GDKLRegressor, NNGPRegressor
from gdkl.training import Callback

X, Y = table(20)


def _with(value, at=(3, 1)):
    changed = X.copy()
    changed[at] = value
    return changed


def _targets_with(value):
    changed = Y.copy()
    changed[3] = value
    return changed


class Infinite(nn.Linear):
    def forward(self, input):
        return super().forward(input) / 0


class Whole(nn.Linear):
    def forward(self, input):
        return super().forward(input).long()


class Flat(nn.Linear):
    def forward(self, input):
        return super().forward(input)[:, 0]


BAD_DATA = {
    "nan in X": (_with(np.nan), Y, r"X has NaN or infinite.*row 3, column 1.*(drop|impute)"),
    "infinity in X": (_with(np.inf), Y, "X has NaN or infinite"),
    "nan in y": (X, _targets_with(np.nan), "y has NaN or infinite.*row 3"),
    "infinity in y": (X, _targets_with(-np.inf), "y has NaN or infinite"),
    "names as the only column": (
        pd.DataFrame({"name": [f"n{i}" for i in range(20)]}),
        Y,
        "no column to learn from: 'name'",
    ),
    "infinity in a DataFrame": (pd.DataFrame(_with(np.inf)), Y, "X has NaN or infinite.*row 3, column 1"),
    "infinity and text": (pd.DataFrame(_with(np.inf), columns=list("abcd")).assign(e="x"), Y, "column 'b'.*row 3"),
    "a complex column": (pd.DataFrame(X + 1j), Y, "Complex data not supported"),
    "missing targets": (
        X,
        pd.Series(Y).astype("Float64").mask(Y > 100),
        r"y has NaN.* in \d+ rows .*: drop these rows.$",
    ),
    "None as a target": (X, [None, *Y[1:]], "y has NaN.* in 1 row .first: row 0"),
    "text as objects": (np.full((20, 2), "a", dtype=object), Y, "text.*DataFrame"),
    "text in an array": (np.full((20, 2), "a"), Y, "text.*encode"),
    "one dimension": (X[:, 0], Y, "1-D.*reshape"),
    "three dimensions": (X[None], Y, "3-D"),
    "no columns": (X[:, :0], Y, "0 feature"),
    "no rows": (X[:0], Y[:0], "0 sample"),
    "short y": (X, Y[:-1], "20 rows and y has 19"),
    "y of three dimensions": (X, Y[:, None, None], "shape"),
    "y as text": (X, np.array(["a"] * 20), "y is not numeric.*classifier"),
    "no y": (X, None, "requires y"),
    "complex X": (X + 1j, Y, "Complex data not supported"),
    "nothing": (None, Y, "X is NoneType"),
    "a dictionary": ({"a": [1, 2]}, Y, "X is dict"),
    "a sparse matrix": (scipy.sparse.csr_matrix(X), Y, "sparse.*toarray"),
    "targets too large for a variance": (X, Y * 1e160, "other units"),
    "targets too small for a variance": (X, Y * 1e-162, "other units"),
    "complex y": (X, Y + 1j, "Complex data not supported"),
}


@pytest.mark.parametrize("case", BAD_DATA)
@pytest.mark.parametrize("name", ["gdkl", "gp"])
def test_bad_data(case, name):
    rows, targets, message = BAD_DATA[case]
    with pytest.raises(GdklError, match=f"(?i){message}") as caught:
        MAKERS[name]().fit(rows, targets)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value).splitlines()) == 1


BAD_OPTIONS = {
    "beta": (-1.0, "beta=-1.0.*at least 0"),
    "n_iter": (0, "n_iter=0.*at least 1"),
    "n_members": (2.5, "n_members=2.5.*whole number"),
    "learning_rate": (0.0, "learning_rate=0.0.*above 0"),
    "weight_decay": (float("nan"), "weight_decay"),
    "inference": ("magic", "inference='magic'.*auto, exact"),
    "device": ("toaster", "device='toaster'.*cpu"),
    "dtype": ("float16", "dtype='float16'.*float64"),
    "guide": (7, "guide=7.*infinite network"),
    "base_kernel": ("rbf", "base_kernel='rbf'.*GPyTorch"),
    "feature_net": ("mlp", "feature_net='mlp'.*widths"),
    "preset": ("best", "preset='best'.*'paper'"),
    "verbose": ("yes", "verbose='yes'.*whole number"),
    "random_state": ("a", "random_state='a'.*generator"),
    "callbacks": (5, "callbacks=5.*list"),
}


@pytest.mark.parametrize("option", BAD_OPTIONS)
def test_bad_options(option):
    value, message = BAD_OPTIONS[option]
    with pytest.raises(GdklError, match=message) as caught:
        make(GDKLRegressor, **{"n_iter": 5, option: value}).fit(X, Y)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("feature_net", "message"),
    [
        (Infinite(4, 2), "NaN or infinite features"),
        (Flat(4, 2), r"shape \(20, p\); got \(20,\)"),
        (nn.Linear(7, 2), "feature_net failed on 20 rows of 4 columns"),
        (lambda: nn.Linear(4, 2), "feature_net must be called with one number.*too many positional arguments"),
        (nn.Sequential(nn.Linear(4, 2), nn.Unflatten(1, (1, 2))), "shape"),
        (nn.LSTM(4, 2), "must return a tensor; got tuple"),
        (Whole(4, 2), "of int64"),
        (lambda columns: "net", "must return a torch.nn.Module"),
        ([4, 0], "positive whole numbers"),
        ([], "positive whole numbers"),
    ],
)
def test_bad_networks(feature_net, message):
    with pytest.raises(GdklError, match=message) as caught:
        GDKLRegressor(n_iter=5, feature_net=feature_net).fit(X, Y)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value).splitlines()) == 1


class Never(Callback):
    every = 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"callbacks": [5]}, "callbacks has 5"),
        ({"callbacks": [Callback]}, "callbacks has <class"),
        ({"callbacks": [Never()]}, "every=0"),
        ({"guide": gpytorch.kernels.RBFKernel}, "guide=<class"),
        ({"base_kernel": gpytorch.kernels.RBFKernel(ard_num_dims=3), "feature_net": [4]}, "base_kernel failed on 4"),
        ({"feature_net": [True]}, "positive whole numbers"),
        ({"device": "mps"}, "device='mps' has no float64"),
        ({"random_state": -1}, "random_state=-1"),
    ],
)
def test_more_bad_options(options, message):
    with pytest.raises(GdklError, match=message) as caught:
        GDKLRegressor(**{"n_iter": 5, **options}).fit(X, Y)
    assert len(str(caught.value).splitlines()) == 1


def test_ard_must_be_a_boolean():
    with pytest.raises(GdklError, match="ard='no'"):
        gdkl.GPRegressor(ard="no").fit(X, Y)
    with pytest.raises(GdklError, match="base_kernel failed on 4"):
        gdkl.GPRegressor(base_kernel=gpytorch.kernels.RBFKernel(ard_num_dims=3)).fit(X, Y)


def test_bad_input_at_predict():
    model = MAKERS["nngp"]().fit(X, Y)
    with pytest.raises(GdklError, match="X has 3 features, but NNGPRegressor is expecting 4"):
        model.predict(X[:, :3])
    with pytest.raises(GdklError, match="NaN"):
        model.predict(_with(np.nan))
    with pytest.raises(GdklError, match="not both"):
        model.predict(X, return_std=True, return_cov=True)
    with pytest.raises(GdklError, match="n_samples"):
        model.sample_y(X, 0)


def test_column_names_must_agree():
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = MAKERS["nngp"]().fit(frame, Y)
    with pytest.raises(GdklError, match="feature names should match"):
        model.predict(frame.rename(columns={"a": "z"}))


@pytest.mark.parametrize("call", ["predict", "predict_distribution", "sample_y"])
def test_not_fitted(call):
    with pytest.raises(gdkl.GdklError, match="not fitted") as caught:
        getattr(MAKERS["gdkl"](), call)(X)
    assert isinstance(caught.value, NotFittedError)


def test_unknown_arguments_of_fit_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword"):
        MAKERS["gdkl"]().fit(X, Y, weights=np.ones(20))


def test_a_kernel_with_a_batch_shape_is_refused():
    kernel = gpytorch.kernels.RBFKernel(batch_shape=torch.Size([2]))
    with pytest.raises(GdklError, match="batch shape"):
        MAKERS["gdkl"](base_kernel=kernel).fit(X, Y)


def test_memory_is_checked_before_it_is_taken(monkeypatch):
    monkeypatch.setattr("gdkl.numerics.memory.available_memory", lambda device: 1000)
    with pytest.raises(GdklError, match="GiB") as caught:
        MAKERS["gp"]().fit(X, Y)
    assert isinstance(caught.value, MemoryError)


def test_masked_cells_are_not_read_as_numbers():
    masked = np.ma.masked_greater(X, 20)
    for rows, targets in ((masked, Y), (X, np.ma.masked_greater(Y, 100))):
        with pytest.raises(GdklError, match="masked cells are not read: drop"):
            NNGPRegressor().fit(rows, targets)
    with pytest.raises(GdklError, match="masked cells"):
        NNGPRegressor().fit(X, Y).predict(masked)
    assert NNGPRegressor().fit(np.ma.masked_array(X), Y).n_features_in_ == 4


def test_an_empty_table_is_named():
    for frame, message in [
        (pd.DataFrame(), "X has no columns"),
        (pd.DataFrame({"a": [], "b": []}), "0 sample"),
    ]:
        with pytest.raises(GdklError, match=message):
            NNGPRegressor().fit(frame, [])
