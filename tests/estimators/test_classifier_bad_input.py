"""Each wrong input of a classifier is one line that says what to do, a GdklError and a ValueError."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from classifier_cases import MAKERS, images, table
from preset_options import make
from sklearn.exceptions import NotFittedError
from torch import nn
from torch.utils.data import TensorDataset

from gdkl import GDKLClassifier, GdklError, NNGPClassifier, infinite
from gdkl.numerics import DataWarning

X, Y = table(24)
IMAGES, IMAGE_LABELS = images()


def _labels_with(value, dtype=object):
    changed = Y.astype(dtype)
    changed[3] = value
    return changed


def _rows_with(value):
    changed = X.copy()
    changed[3, 1] = value
    return changed


BAD_DATA = {
    "one class": (X, np.zeros(24), r"one class only \(0\.0\).*two classes"),
    "labels with NaN": (X, _labels_with(np.nan, float), "y has NaN.*row 3.*drop"),
    "object labels with NaN": (X, _labels_with(np.nan), "y has NaN.*row 3"),
    "labels with None": (X, _labels_with(None), "None.*row 3"),
    "string labels with None": (X, np.array(["a", None] * 12, dtype=object), "None.*row 1"),
    "infinite labels": (X, _labels_with(np.inf, float), "infinity"),
    "fractions": (X, Y + 0.5 * (np.arange(24) % 2), "continuous.*one class label"),
    "labels of several types": (X, np.array([0, "a"] * 12, dtype=object), "(types|Unknown label)"),
    "labels in two columns": (X, np.stack([Y, Y], axis=1), "label"),
    "complex labels": (X, Y + 1j, "Complex data not supported"),
    "short y": (X, Y[:-1], "24 rows and y has 23"),
    "no y": (X, None, "requires y"),
    "an empty table": (X[:0], Y[:0], "0 sample"),
    "no columns": (X[:, :0], Y, "0 feature"),
    "empty images": (IMAGES[:0], IMAGE_LABELS[:0], "0 sample"),
    "images without pixels": (IMAGES[..., :0], IMAGE_LABELS, "0 sample"),
    "three rows": (X[:3], Y[:3], "at least 4 rows.*3 samples"),
    "nan in X": (_rows_with(np.nan), Y, "X has NaN or infinite.*row 3, column 1"),
    "one text": (pd.DataFrame({"city": ["Ghent"] * 24}), Y, "every column of X is constant"),
    "missing labels": (X, pd.Series(Y).astype("Int64").mask(Y == 1), r"None for labels in \d+ rows \(first.*drop"),
    "missing text": (X, pd.Series(Y).map({0: "a", 1: "b"}), r"None for labels in \d+ rows \(first: row 2\): drop"),
    "sparse": (scipy.sparse.csr_matrix(X), Y, "sparse.*toarray"),
    "three dimensions": (X[None], Y, "3-D"),
    "five dimensions": (IMAGES[None], IMAGE_LABELS, "5-D"),
    "constant columns": (np.ones((24, 2)), Y, "every column of X is constant"),
    "plain images": (np.ones((24, 1, 4, 4)), Y, "same plain colour"),
    "nan in images": (np.full((24, 1, 4, 4), np.nan), Y, "NaN or infinite.*image 0"),
    "pixels beyond 255": (IMAGES.astype(int) * 10, IMAGE_LABELS, "from 0 to 255"),
    "images of text": (np.full((24, 1, 4, 4), "a"), Y, "images of type"),
    "images and short y": (IMAGES, IMAGE_LABELS[:-1], "24 rows and y has 23"),
}


@pytest.mark.parametrize("case", BAD_DATA)
@pytest.mark.parametrize("name", ["gdkl", "nn"])
@pytest.mark.filterwarnings("ignore::gdkl.numerics.DataWarning")
def test_bad_data(case, name):
    rows, labels, message = BAD_DATA[case]
    with pytest.raises(GdklError, match=f"(?i){message}") as caught:
        MAKERS[name]().fit(rows, labels)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value).splitlines()) == 1


BAD_OPTIONS = {
    "beta": (-1.0, "beta=-1.0.*at least 0"),
    "n_iter": (0, "n_iter=0.*at least 1"),
    "n_members": (0, "n_members=0"),
    "likelihood": ("softmax", "likelihood='softmax'.*dirichlet, gaussian"),
    "calibrate": ("platt", "calibrate='platt'.*True or False"),
    "batch_size": (-1, "batch_size=-1.*at least 0"),
    "augment": ("mixup", "augment='mixup'.*True, False, 'crop' or 'auto'"),
    "optimizer": ("lion", "optimizer='lion'.*adam, sgd"),
    "momentum": (1.0, "momentum=1.0.*below 1"),
    "guide": ("best", "guide='best'.*'auto'"),
    "guide_scale": (0.0, "guide_scale=0.0.*above 0"),
    "guide_share": (1.5, "guide_share=1.5.*from 0 to 1"),
    "inference": ("magic", "inference='magic'.*auto, exact"),
    "device": ("toaster", "device='toaster'.*cpu"),
    "dtype": ("float16", "dtype='float16'.*float64"),
    "base_kernel": ("rbf", "base_kernel='rbf'.*GPyTorch"),
    "feature_net": ("mlp", "feature_net='mlp'.*widths"),
    "objective": ("best", "objective='best'.*guided"),
    "verbose": ("yes", "verbose='yes'.*whole number"),
    "random_state": ("a", "random_state='a'.*generator"),
    "callbacks": (5, "callbacks=5.*list"),
}


@pytest.mark.parametrize("option", BAD_OPTIONS)
def test_bad_options(option):
    value, message = BAD_OPTIONS[option]
    with pytest.raises(GdklError, match=message) as caught:
        make(GDKLClassifier, **{"n_iter": 5, option: value}).fit(X, Y)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value).splitlines()) == 1


@pytest.fixture(scope="module")
def of_images():
    with pytest.warns(DataWarning):
        return NNGPClassifier(random_state=0).fit(IMAGES, IMAGE_LABELS)


def test_images_of_another_size_are_refused(of_images):
    with pytest.raises(GdklError, match=r"shape \(2, 8, 7\).*fitted to \(2, 8, 8\).*resize"):
        of_images.predict(IMAGES[..., :7])
    with pytest.raises(GdklError, match=r"shape \(1, 8, 8\).*fitted to \(2, 8, 8\): pass images of as many channels"):
        of_images.predict(IMAGES[:, :1])
    with pytest.raises(GdklError, match=r"shape \(8, 8, 2\).*fitted to \(2, 8, 8\): move.*np.moveaxis\(X, -1, 1\)"):
        of_images.predict(IMAGES.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("shape", [(8, 8, 3), (28, 28, 1), (6, 9, 4), (32, 16, 4), (2, 2, 1)])
@pytest.mark.parametrize("kind", ["array", "tensor", "loader"])
def test_images_with_their_channels_last_are_refused_with_a_hint(shape, kind):
    values = np.random.default_rng(0).normal(size=(24, *shape))
    data = {
        "array": (values, IMAGE_LABELS),
        "tensor": (torch.as_tensor(values), IMAGE_LABELS),
        "loader": (TensorDataset(torch.as_tensor(values), torch.as_tensor(IMAGE_LABELS)),),
    }[kind]
    with pytest.raises(
        GdklError, match=r"\(height, width, channels\).*np.moveaxis\(X, -1, 1\).*permute\(0, 3, 1, 2\)"
    ) as told:
        GDKLClassifier(n_iter=2).fit(*data)
    assert len(str(told.value).splitlines()) == 1
    # What the hint says serves.
    small = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
    model = GDKLClassifier(n_iter=2, feature_net=lambda channels: small, inference="sparse", n_inducing=3)
    model.fit(np.moveaxis(values, -1, 1), IMAGE_LABELS)
    assert model.image_shape_ == (shape[2], *shape[:2])
    with pytest.raises(GdklError, match=r"fitted to .*np.moveaxis\(X, -1, 1\)"):
        model.predict(values)


@pytest.mark.parametrize(
    "shape", [(1, 8, 8), (3, 4, 4), (3, 8, 1), (4, 5, 3), (16, 4, 4), (64, 1, 1), (2, 128, 4), (5, 6, 6)]
)
def test_images_with_few_columns_are_not_taken_for_such(shape):
    values = np.random.default_rng(0).normal(size=(24, *shape))
    assert NNGPClassifier().fit(values, IMAGE_LABELS).image_shape_ == shape


def test_flat_images_are_refused_with_a_hint(of_images):
    with pytest.raises(GdklError, match=r"fitted to images of shape \(2, 8, 8\).*X.reshape\(-1, 2, 8, 8\)"):
        of_images.predict(IMAGES.reshape(24, -1))
    flat = IMAGES.reshape(24, -1).astype(float)
    with pytest.raises(GdklError, match=r"feature_net failed.*4 dimensions"):
        GDKLClassifier(n_iter=2, feature_net=nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten())).fit(flat, IMAGE_LABELS)
    conv = infinite.Sequential(infinite.Conv2d(3), infinite.Flatten(), infinite.Linear())
    with pytest.raises(GdklError, match="needs images"):
        NNGPClassifier(guide=conv).fit(flat, IMAGE_LABELS)


def test_images_scaled_in_another_way_are_refused(of_images):
    with pytest.raises(GdklError, match=r"float images up to .*divided by 255"):
        of_images.predict(IMAGES.astype(float))
    of_floats = NNGPClassifier(random_state=0).fit(IMAGES.astype(float), IMAGE_LABELS)
    with pytest.raises(GdklError, match="integer images, and the model was fitted to float images"):
        of_floats.predict(IMAGES)
    assert of_floats.predict(IMAGES.astype(np.float32)).shape == (24,)


def test_a_table_model_refuses_images():
    model = MAKERS["nngp"]().fit(X, Y)
    with pytest.raises(GdklError, match="fitted to a table of 4 columns"):
        model.predict(IMAGES)
    with pytest.raises(GdklError, match="X has 3 features, but NNGPClassifier is expecting 4"):
        model.predict(X[:, :3])


@pytest.mark.parametrize("call", ["predict", "predict_proba", "predict_distribution", "predict_log_proba"])
def test_not_fitted(call):
    with pytest.raises(GdklError, match="not fitted") as caught:
        getattr(MAKERS["gdkl"](), call)(X)
    assert isinstance(caught.value, NotFittedError)


def test_sample_weight_is_refused():
    with pytest.raises(GdklError, match="sample_weight is not supported"):
        MAKERS["gdkl"]().fit(X, Y, sample_weight=np.ones(24))


def test_a_temperature_needs_rows_to_hold_out():
    with pytest.raises(GdklError, match="at least two rows"):
        MAKERS["nn"](calibrate=True).fit(X[:4], ["a", "b", "c", "d"])


def test_bad_networks_over_images():
    floats = IMAGES.astype(np.float32) / 255
    with pytest.raises(GdklError, match=r"must return a tensor; got tuple|feature_net failed on \d+ images of"):
        GDKLClassifier(n_iter=2, feature_net=nn.LSTM(8, 2)).fit(floats, IMAGE_LABELS)
    with pytest.raises(GdklError, match=r"shape \(24, p\)"):
        GDKLClassifier(n_iter=2, feature_net=nn.Conv2d(2, 3, 3)).fit(floats, IMAGE_LABELS)
    assert torch.is_grad_enabled()
