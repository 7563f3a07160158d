"""ONNX files of fitted models, run by onnxruntime, against the models' own predictions."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from gpytorch.kernels import MaternKernel
from torch import nn

import gdkl
from gdkl import (
    DKLClassifier,
    DKLRegressor,
    DLVKLRegressor,
    DUERegressor,
    GDKLClassifier,
    GDKLRegressor,
    GPRegressor,
    NNClassifier,
    NNGPClassifier,
    NNGPRegressor,
    NNRegressor,
    infinite,
)
from gdkl.export import answers, graph, kernels
from gdkl.inputs import LinearTails, LogWarp, YeoJohnson
from gdkl.numerics import GdklError
from gdkl.training import Stack
from mixed_table import mixed

N = 40


def session(content: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options)


def run(model: Any, folder: Path, X: Any) -> list[np.ndarray]:
    """Outputs at an array, or at a DataFrame with its missing cells of text as empty ones."""
    path = folder / "model.onnx"
    model.to_onnx(path)
    onnx.checker.check_model(path, full_check=True)
    running = session(path.read_bytes())
    if isinstance(X, np.ndarray):
        return running.run(None, {"X": X})
    feed = {}
    for given in running.get_inputs():
        cells = X[given.name]
        text = given.type == "tensor(string)"
        feed[given.name] = (
            cells.astype(object).where(cells.notna(), "").astype(str).to_numpy(dtype=object)
            if text
            else cells.to_numpy(dtype=np.float64, na_value=np.nan)
        )
    return running.run(None, feed)


def rows(n: int, columns: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, columns))


X = rows(N)
#: Near ones, far ones, the first of those of fit, and one in the middle.
NEW = np.concatenate([rows(20, seed=1), 40 * rows(5, seed=2), X[:5], np.zeros((1, 3))])


def targets(x: np.ndarray) -> np.ndarray:
    return np.sin(2 * x[:, 0]) + x[:, 1] ** 2 + 0.1 * rows(len(x), 1, seed=3)[:, 0]


def check_regressor(model: Any, folder: Path, new: Any, scale: Any, tolerance: float = 1e-6) -> None:
    mean, std = run(model, folder, new)
    own_mean, own_std = model.predict(new, return_std=True)
    assert mean.shape == own_mean.shape
    np.testing.assert_allclose(mean / scale, own_mean / scale, rtol=1e-8, atol=tolerance)
    np.testing.assert_allclose(std / scale, own_std / scale, rtol=1e-8, atol=tolerance)


REGRESSORS: dict[str, Any] = {
    "nngp": NNGPRegressor(),
    "relevance": NNGPRegressor(relevance=True),
    "other slopes": NNGPRegressor(guide=infinite.Sequential(infinite.Linear(2.0, 0.3), infinite.LeakyReLU(0.2))),
    "linear": NNGPRegressor(guide=infinite.Linear(2.0, 0.3)),
    "gp": GPRegressor(),
    "ard": GPRegressor(ard=True),
    "dkl": DKLRegressor(n_iter=3, random_state=0),
    "members": GDKLRegressor(preset="paper", n_iter=3, n_members=2, random_state=0),
    "own net": DKLRegressor(n_iter=3, random_state=0, feature_net=lambda d: nn.Sequential(nn.Linear(d, 4), nn.Tanh())),
    "sparse": GDKLRegressor(n_iter=3, inference="sparse", n_inducing=10, random_state=0),
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors_predict_the_same(name: str, tmp_path: Path) -> None:
    y = targets(X)
    # Features of inducing points are of a network in single precision.
    check_regressor(REGRESSORS[name].fit(X, y), tmp_path, NEW, y.std(), tolerance=1e-5 if name == "sparse" else 1e-6)


def test_several_outputs(tmp_path: Path) -> None:
    y = np.stack([targets(X), 100 - 20 * X[:, 2]], axis=1)
    check_regressor(GPRegressor().fit(X, y), tmp_path, NEW, y.std(axis=0))


def test_one_column_is_in_double_precision(tmp_path: Path) -> None:
    # With one column, or one output, onnxruntime would round factors of matrix products to single precision.
    y = targets(X)
    for model in (NNGPRegressor(), GPRegressor()):
        check_regressor(model.fit(X[:, :1], y), tmp_path, NEW[:, :1], y.std(), tolerance=1e-9)


def test_the_stack_with_every_part(tmp_path: Path) -> None:
    y = np.exp(targets(X))
    model = GDKLRegressor(n_iter=2, random_state=0, warp="log").fit(X, y)
    assert len(model.stack_.models) == 5
    check_regressor(model, tmp_path, NEW, y.std())
    # Noise that depends on the rows, and outliers, whatever the held-out rows said.
    noise = NNGPRegressor().fit(X, rows(N, 1, seed=4)[:, 0]).model_
    model.stack_ = replace(model.stack_, log_noise=noise, outliers=torch.tensor([0.1], dtype=torch.float64))
    model.target_ = replace(
        model.target_, warps=(LinearTails(YeoJohnson(1.0, 2.0, 0.3), float(y.min()), float(y.max())),)
    )
    check_regressor(model, tmp_path, NEW, y.std())


def expression(make: Any, *arrays: np.ndarray) -> np.ndarray:
    """What onnxruntime makes of an expression of arrays."""
    built = graph.Graph()
    inputs = [built.input(f"x{k}", np.float64, (None,)) for k in range(len(arrays))]
    built.output("y", make(*inputs), (None,))
    content = built.model({}).SerializeToString()
    return session(content).run(None, {f"x{k}": array for k, array in enumerate(arrays)})[0]


@pytest.mark.parametrize("power", [0.0, 1e-9, 0.4, 1.0, 2.0])
def test_inverses_of_warps(power: float) -> None:
    z = np.concatenate([np.linspace(-6, 6, 101), [-1e3, 1e3, 1e-12, -1e-12]])
    yeo_johnson = YeoJohnson(0.3, 2.0, power)
    for warp in (yeo_johnson, LinearTails(yeo_johnson, -4.0, 9.0), LinearTails(LogWarp(), None, 9.0), LogWarp()):
        np.testing.assert_allclose(
            expression(lambda value, warp=warp: answers._inverse(value, warp), z),
            warp.inverse(z),
            rtol=1e-9,
            atol=1e-12,
        )


def test_angles_have_all_digits() -> None:
    angle = np.concatenate([np.linspace(0, np.pi, 1001), [1e-8, 1e-6, 1e-4, np.pi - 1e-6]])
    found = expression(kernels._angle, np.cos(angle), np.sin(angle))
    np.testing.assert_allclose(found, angle, rtol=0, atol=1e-15)


CLASSIFIERS: dict[str, Any] = {
    "stack": GDKLClassifier(n_iter=2, random_state=0),
    "dirichlet": GDKLClassifier(n_iter=2, likelihood="dirichlet", random_state=0),
    "gaussian": DKLClassifier(n_iter=2, likelihood="gaussian", n_members=2, random_state=0),
    "sparse": GDKLClassifier(n_iter=2, inference="sparse", n_inducing=10, random_state=0),
    "nngp": NNGPClassifier(random_state=0),
    "network": NNClassifier(n_iter=2, n_members=2, random_state=0),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_predict_the_same(name: str, tmp_path: Path) -> None:
    classes: Any = {"sparse": [3, 1, 2], "gaussian": [True, False, True]}.get(name, ["low", "mid", "high"])
    labels = np.array(classes)[np.digitize(targets(X), [0.2, 1.2])]
    model = CLASSIFIERS[name].fit(X, labels)
    if name == "nngp":
        model.temperature_ = 1.7
    label, probs = run(model, tmp_path, NEW)
    np.testing.assert_allclose(probs, model.predict_proba(NEW), rtol=0, atol=1e-5 if name == "sparse" else 1e-9)
    assert label.tolist() == model.predict(NEW).tolist()


@pytest.fixture(scope="module")
def table() -> tuple[pd.DataFrame, np.ndarray]:
    frame, y = mixed(60)
    return frame.drop(columns="sold"), y


def test_tables_are_encoded(table: tuple[pd.DataFrame, np.ndarray], tmp_path: Path) -> None:
    frame, y = table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The stack's input, which tames tails, with a column that has some.
        frame = frame.assign(tail=np.exp(3 * rows(len(frame), 1)[:, 0]))
        model = GDKLRegressor(n_iter=1, random_state=0, warp=None).fit(frame, y)
        new = frame.iloc[:12].copy()
        new["city"] = ["Lima", None, "", *new["city"][3:]]
        new["heating"] = pd.Series(["coal", None, "gas", "oil"] * 3, index=new.index, dtype="category")
        new.loc[new.index[3], ["size", "rooms", "tax", "tail"]] = np.nan
        new["size"] = new["size"] * np.array([1, 1, 1, 1, 100, 1e6, -1e6, 1, 1, 1, 1, 1])
        new["tail"] = new["tail"] * np.array([1, 1e9, -1e9] * 4)
        mean, std = run(model, tmp_path, new)
        # An empty cell is missing.
        own_mean, own_std = model.predict(new.replace({"city": {"": None}}), return_std=True)
    assert np.ptp(mean[:3]) > 1e-3 * y.std()
    np.testing.assert_allclose(mean, own_mean, rtol=0, atol=1e-6 * y.std())
    np.testing.assert_allclose(std, own_std, rtol=0, atol=1e-6 * y.std())
    names = [given.name for given in session((tmp_path / "model.onnx").read_bytes()).get_inputs()]
    assert names == ["size", "city", "garden", "heating", "rooms", "grade", "tax", "zone", "tail"]


def test_columns_with_the_names_of_outputs(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=["mean", "v3", "std"])
    model = NNGPRegressor().fit(frame, targets(X))
    check_regressor(model, tmp_path, frame, 1.0)
    outputs = session((tmp_path / "model.onnx").read_bytes()).get_outputs()
    assert [output.name for output in outputs] == ["mean_", "std_"]


def test_a_loaded_model_gives_the_same_file(tmp_path: Path) -> None:
    model = NNGPRegressor(relevance=True).fit(pd.DataFrame(X, columns=list("abc")), pd.Series(targets(X), name="price"))
    model.save(tmp_path / "model.gdkl")
    for name, one in (("a", model), ("b", gdkl.load(tmp_path / "model.gdkl"))):
        one.to_onnx(tmp_path / f"{name}.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    notes = session((tmp_path / "a.onnx").read_bytes()).get_modelmeta().custom_metadata_map
    assert notes == {"estimator": "NNGPRegressor", "targets": '["price"]'}


class Own(nn.Linear):
    """A layer of the user's."""


REFUSED: dict[str, tuple[Any, str]] = {
    "kernel": (lambda: GPRegressor(base_kernel=MaternKernel()), "not of MaternKernel"),
    "network": (lambda: DKLRegressor(n_iter=1, feature_net=lambda d: Own(d, 2)), "not of Own"),
    "guide": (lambda: NNGPRegressor(guide=infinite.Sequential(infinite.Linear(), infinite.Erf())), "not of Sequential"),
    "head": (lambda: NNRegressor(n_iter=1), "Gaussian head"),
    "codes": (lambda: DLVKLRegressor(n_iter=1, n_inducing=5), "codes"),
    "spectral": (lambda: DUERegressor(n_iter=1, n_inducing=5), "not of SpectralNetwork"),
    "warp": (lambda: GDKLRegressor(preset="paper", n_iter=1, warp=(np.cbrt, lambda z: z**3)), "functions of warp"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_onnx_cannot_express_is_one_line(name: str, tmp_path: Path) -> None:
    make, words = REFUSED[name]
    model = make().fit(X, targets(X))
    path = tmp_path / "model.onnx"
    path.write_bytes(b"before")
    with pytest.raises(GdklError, match=words) as caught:
        model.to_onnx(path)
    assert "\n" not in str(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.onnx"]
    assert path.read_bytes() == b"before"


def test_dates_images_and_models_without_a_fit_are_refused(tmp_path: Path) -> None:
    path, (frame, y) = tmp_path / "model.onnx", mixed(20)
    with pytest.raises(GdklError, match="not fitted"):
        NNGPRegressor().to_onnx(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dated = NNGPRegressor().fit(frame, y)
    with pytest.raises(GdklError, match=r"dates and durations \('sold'\)"):
        dated.to_onnx(path)
    images = NNGPClassifier(random_state=0).fit(rows(8, 16).reshape(8, 1, 4, 4), [0, 1] * 4)
    with pytest.raises(GdklError, match="this one is of images"):
        images.to_onnx(path)
    twice = pd.DataFrame(X, columns=[1, "1", "b"])
    twice.columns = pd.Index(["a", "a", "b"])
    with pytest.raises(GdklError):
        NNGPRegressor().fit(twice, targets(X)).to_onnx(path)
    assert not list(tmp_path.iterdir())


def test_a_missing_package_and_a_file_too_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = NNGPRegressor().fit(X, targets(X))
    monkeypatch.setattr(graph, "_MOST_BYTES", 8 * N * N)
    with pytest.raises(GdklError, match="fewer rows"):
        model.to_onnx(tmp_path / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(GdklError, match=r"pip install 'gdkl\[onnx\]'"):
        model.to_onnx(tmp_path / "model.onnx")


def test_no_weight_of_an_unused_model(tmp_path: Path) -> None:
    # Weights that do not add up to one by rounding are divided by their sum, as predictions do.
    y = targets(X)
    model = NNGPRegressor().fit(X, y)
    model.stack_ = Stack(
        {"a": model.model_, "b": GPRegressor().fit(X, y).model_}, torch.tensor([[0.4], [0.2]]).double()
    )
    check_regressor(model, tmp_path, NEW, y.std())
