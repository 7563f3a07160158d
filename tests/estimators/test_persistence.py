"""One safe file: the same predictions, no code executed, nothing damaged goes unnoticed."""

from __future__ import annotations

import json
import os
import stat

import gpytorch
import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch
from regressor_cases import MAKERS, table
from torch import nn

import gdkl
from gdkl import GdklError, infinite


def _same(a, b, X):
    p, q = a.predict_distribution(X), b.predict_distribution(X)
    np.testing.assert_allclose(q.mean, p.mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(q.variance, p.variance, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(q.latent_variance, p.latent_variance, rtol=1e-9, atol=1e-12)
    pd.testing.assert_frame_equal(a.history_, b.history_)
    assert type(a) is type(b)
    assert a.n_iter_ == b.n_iter_
    np.testing.assert_array_equal(a.noise_, b.noise_)


@pytest.mark.parametrize("outputs", [None, 1, 2])
@pytest.mark.parametrize("name", MAKERS)
def test_load_of_save_predicts_the_same(name, outputs, tmp_path):
    X, y = table(40, outputs=outputs)
    model = MAKERS[name]().fit(X, y)
    model.save(tmp_path / "model.gdkl")
    loaded = gdkl.load(tmp_path / "model.gdkl")
    _same(model, loaded, X)
    assert loaded.get_params() == model.get_params()
    assert loaded.n_features_in_ == 4
    assert os.listdir(tmp_path) == ["model.gdkl"]


@pytest.mark.parametrize(
    "options",
    [
        {"n_members": 2},
        {"feature_net": [7, 3]},
        {"dtype": "float32"},
        {"guide": infinite.mlp(hidden_layers=2, weight_var=2.0, bias_var=0.1, activation="erf"), "base": "paper"},
        {"random_state": np.random.RandomState(0)},
        {"learning_rate": 0.02, "calibrate": False},
        {"preset": "paper"},
    ],
)
def test_options_survive(options, tmp_path):
    X, y = table(30)
    model = MAKERS["gdkl"](**options).fit(X, y)
    model.save(tmp_path / "model.gdkl")
    _same(model, gdkl.load(tmp_path / "model.gdkl"), X)


def test_a_loaded_model_can_be_fitted_again(tmp_path):
    X, y = table(30)
    model = MAKERS["gdkl"]().fit(X, y)
    model.save(tmp_path / "model.gdkl")
    again = gdkl.load(tmp_path / "model.gdkl").fit(X, y)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_an_infinite_network_and_ard_survive(tmp_path):
    X, y = table(30)
    network = infinite.Sequential(
        infinite.Linear(weight_var=2.0, bias_var=0.5), infinite.Erf(), infinite.Linear(weight_var=1.0, bias_var=0.0)
    )
    for model in (gdkl.NNGPRegressor(guide=network), gdkl.GPRegressor(ard=True)):
        model.fit(X, y).save(tmp_path / "model.gdkl")
        _same(model, gdkl.load(tmp_path / "model.gdkl"), X)


def test_column_names_and_constant_columns_survive(tmp_path):
    X, y = table(30)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"]).assign(c=1.0)
    with pytest.warns(gdkl.numerics.DataWarning):
        model = MAKERS["gdkl"]().fit(frame, y)
    model.save(tmp_path / "model.gdkl")
    loaded = gdkl.load(tmp_path / "model.gdkl")
    _same(model, loaded, frame)
    with pytest.raises(GdklError, match="feature names"):
        loaded.predict(frame.rename(columns={"a": "z"}))


class Custom(nn.Module):
    def __init__(self, columns=4):
        super().__init__()
        self.layer = nn.Linear(columns, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        return torch.tanh(self.norm(self.layer(x)))


def plain_guide(a, b):
    return torch.exp(-torch.cdist(a, b))


CUSTOM = {
    "feature_net": (Custom, [Custom, lambda: Custom(4), Custom()]),
    "base_kernel": (
        lambda: gpytorch.kernels.MaternKernel(nu=1.5),
        [lambda: gpytorch.kernels.MaternKernel(nu=1.5), gpytorch.kernels.MaternKernel(nu=1.5)],
    ),
    "guide": (lambda: plain_guide, [lambda: plain_guide, plain_guide]),
}


@pytest.mark.parametrize("part", CUSTOM)
def test_custom_parts_are_rebuilt_by_factories(part, tmp_path):
    make, factories = CUSTOM[part]
    X, y = table(30)
    model = MAKERS["gdkl"](**{part: make()}).fit(X, y)
    model.save(tmp_path / "model.gdkl")
    for factory in factories:
        _same(model, gdkl.load(tmp_path / "model.gdkl", factories={part: factory}), X)
    with pytest.raises(GdklError, match=rf"custom {part}.*factories"):
        gdkl.load(tmp_path / "model.gdkl")


def test_a_custom_guide_of_an_nngp_is_rebuilt(tmp_path):
    X, y = table(30)
    model = gdkl.NNGPRegressor(guide=gpytorch.kernels.RBFKernel()).fit(X, y)
    model.save(tmp_path / "model.gdkl")
    _same(model, gdkl.load(tmp_path / "model.gdkl", factories={"guide": gpytorch.kernels.RBFKernel}), X)


def test_wrong_factories_are_refused(tmp_path):
    X, y = table(30)
    MAKERS["gdkl"](feature_net=Custom).fit(X, y).save(tmp_path / "model.gdkl")
    for factory, message in [
        (lambda: nn.Linear(4, 9), "same architecture"),
        (lambda: "net", "must return a torch.nn.Module"),
        ("net", "must be a function"),
    ]:
        with pytest.raises(GdklError, match=message):
            gdkl.load(tmp_path / "model.gdkl", factories={"feature_net": factory})
    with pytest.raises(GdklError, match=r"unknown parts.*net"):
        gdkl.load(tmp_path / "model.gdkl", factories={"net": Custom})


@pytest.fixture(scope="module")
def model_bytes(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.gdkl"
    X, y = table(8)
    MAKERS["gdkl"](feature_net=[2], n_iter=3).fit(X, y).save(path)
    return path.read_bytes()


def _refused(content, path):
    path.write_bytes(content)
    with pytest.raises(GdklError) as caught:
        gdkl.load(path)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("flip", [0x15, pytest.param(0xFF, marks=pytest.mark.long)])
def test_every_flipped_byte_is_noticed(model_bytes, tmp_path, stride, flip):
    """Every byte of the header and every seventh, or every, of the rest."""
    header = 8 + int.from_bytes(model_bytes[:8], "little")
    for position in [*range(header), *range(header, len(model_bytes), stride)]:
        damaged = bytearray(model_bytes)
        damaged[position] ^= flip
        _refused(bytes(damaged), tmp_path / "damaged.gdkl")


def test_every_cut_is_noticed(model_bytes, tmp_path):
    for length in [0, 1, 7, 8, 9, 100, len(model_bytes) // 2, len(model_bytes) - 1]:
        _refused(model_bytes[:length], tmp_path / "cut.gdkl")
    _refused(model_bytes + b"\0", tmp_path / "long.gdkl")


def test_other_files_are_no_models(tmp_path):
    _refused(b"a,b\n1,2\n" * 100, tmp_path / "table.csv")
    _refused(safetensors.torch.save({"x": torch.zeros(3)}), tmp_path / "other.safetensors")
    with pytest.raises(GdklError, match="cannot read"):
        gdkl.load(tmp_path / "nowhere.gdkl")
    with pytest.raises(GdklError, match="cannot read"):
        gdkl.load(tmp_path)


@pytest.mark.parametrize(("version", "remedy"), [(99, "upgrade gdkl"), (1, "read it with gdkl 0.1.0")])
def test_another_format_is_named_with_what_reads_it(version, remedy, model_bytes, tmp_path):
    tensors = safetensors.torch.load(model_bytes)
    length = int.from_bytes(model_bytes[:8], "little")
    header = json.loads(json.loads(model_bytes[8 : 8 + length])["__metadata__"]["gdkl"])
    header |= {"format_version": version, "library_version": "0.1.0"}
    path = tmp_path / "other.gdkl"
    path.write_bytes(safetensors.torch.save(tensors, metadata={"gdkl": json.dumps(header)}))
    with pytest.raises(GdklError, match=rf"format {version}.*{remedy}"):
        gdkl.load(path)


def test_saving_before_fit_or_into_nowhere_is_refused(tmp_path):
    with pytest.raises(GdklError, match="not fitted"):
        MAKERS["gdkl"]().save(tmp_path / "model.gdkl")
    X, y = table(8)
    model = MAKERS["nngp"]().fit(X, y)
    with pytest.raises(GdklError, match="cannot write"):
        model.save(tmp_path / "missing" / "model.gdkl")
    assert os.listdir(tmp_path) == []


def test_an_interrupted_save_leaves_the_old_file(tmp_path, monkeypatch):
    X, y = table(8)
    model = MAKERS["nngp"]().fit(X, y)
    path = tmp_path / "model.gdkl"
    model.save(path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GdklError, match="No space left"):
        model.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.gdkl"]


def test_a_saved_file_can_be_read_by_others(tmp_path):
    X, y = table(8)
    path = tmp_path / "model.gdkl"
    MAKERS["nngp"]().fit(X, y).save(path)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
