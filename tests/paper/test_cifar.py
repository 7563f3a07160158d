"""All of CIFAR in small: synthetic images, a tiny network, two methods, killed and resumed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from gdkl import datasets
from gdkl.cli.app import app
from gdkl.datasets import ImageSet
from gdkl.numerics import OptionError
from gdkl.paper import cifar, cifar_table
from gdkl.training import Callback, RotatingCheckpoint

CPU = torch.device("cpu")
TINY = cifar.Protocol(epochs=3, batch_size=16, depth=10, widen_factor=1, dropout=0.1, learning_rate=0.05)


def images(n, seed, classes=10, side=8):
    """Images whose class shows in the brightness of two channels."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    X = rng.integers(0, 60, (n, 3, side, side))
    X[:, 0] += (19 * (y % 5))[:, None, None]
    X[:, 1] += (90 * (y // 5))[:, None, None]
    return X.astype(np.uint8), y.astype(np.int64)


@pytest.fixture
def synthetic(monkeypatch):
    def load(name, data_dir=None):
        X, y = images(80, int(name.endswith("test")))
        return ImageSet(X, y, tuple("abcdefghij"), name)

    monkeypatch.setattr(datasets, "load_images", load)


def task(holdout=0):
    return cifar.load_task("cifar10", holdout, None)


@pytest.mark.parametrize("method", cifar.Method)
def test_a_run_is_trained_scored_and_written(method, synthetic, tmp_path):
    run = cifar.Run("cifar10", method, 0, TINY)
    result = cifar.complete(run, tmp_path, data_dir=None, device=CPU)
    assert run.finished(tmp_path) == result
    assert {"accuracy", "log_likelihood", "ece", "mean_confidence"} <= set(result["splits"][0]["test"])
    assert result["splits"][0]["mirrored"] != result["splits"][0]["test"]
    with np.load(run.path(tmp_path).with_suffix(".npz")) as stored:
        assert stored["test"].shape == (80, 10)
    assert not list(tmp_path.glob("*.checkpoint"))
    assert run.finished(tmp_path / "elsewhere") is None
    assert replace(run, protocol=replace(TINY, epochs=4)).finished(tmp_path) is None
    assert "gdkl" in result["versions"]
    assert cifar_table([result]).row_count == 1


def test_it_learns():
    # Crops of images of 16 pixels keep most of them; of 8 they would not.
    made = cifar.Task("cifar10", *images(320, 0, side=16), *images(100, 1, side=16), 10)
    run = cifar.Run("cifar10", cifar.Method.GDKL, 0, replace(TINY, epochs=8, dropout=0.0, learning_rate=0.1))
    result, _ = cifar.run_task(run, made, device=CPU)
    assert result["splits"][0]["test"]["accuracy"] > 0.5


class KilledError(Exception):
    pass


class KillAt(Callback):
    def __init__(self, step):
        self.step = step

    def on_step(self, report):
        if report.step == self.step:
            raise KilledError


def test_a_killed_run_goes_on_to_the_same_result(synthetic, tmp_path):
    run = cifar.Run("cifar10", cifar.Method.GDKL, 0, TINY)
    whole, _ = cifar.run_task(run, task(), device=CPU)
    checkpoint = RotatingCheckpoint(tmp_path / "run", "one", every_seconds=None, every_steps=4)
    with pytest.raises(KilledError):
        cifar.run_task(run, task(), device=CPU, callbacks=[KillAt(10)], checkpoint=checkpoint)
    resumed, _ = cifar.run_task(run, task(), device=CPU, checkpoint=checkpoint)
    assert resumed["splits"] == whole["splits"]


def test_held_out_images_are_scored_and_not_trained_on(synthetic):
    whole, part = task(), task(20)
    assert len(part.train_labels) + len(part.test_labels) == len(whole.train_labels)
    seen = {image.tobytes() for image in part.train_images}
    assert not any(image.tobytes() in seen for image in part.test_images)
    assert np.bincount(part.test_labels).tolist() == [2] * 10


def test_settings_of_the_other_method_do_not_count():
    dkl = cifar.Run("cifar10", cifar.Method.DKL, 0, TINY)
    assert dkl.settings == replace(dkl, protocol=replace(TINY, beta=7.0)).settings
    assert "kl_weight" not in cifar.Run("cifar10", cifar.Method.GDKL, 0, TINY).settings["protocol"]


@pytest.mark.parametrize("wrong", [{"algebra": "float16"}, {"epochs": 0}, {"guide_scale": 0.0}, {"holdout": -1}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(OptionError, match=next(iter(wrong))):
        cifar.Protocol(**wrong)


def test_the_command(synthetic, tmp_path):
    options = "--epochs 1 --batch-size 16 --depth 10 --widen-factor 1 --methods gdkl,dkl --device cpu --holdout 20"
    command = ["reproduce", "cifar", "--output", str(tmp_path), *options.split()]
    runner = CliRunner()
    result = runner.invoke(app, command)
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "cifar" / "cifar10-gdkl-holdout20-epochs1-scale25-beta0.1-seed0.json").read_text())
    assert written["protocol"]["holdout"] == 20
    assert 0 < written["best_temperature"] < 100
    again = runner.invoke(app, command)
    assert "kept from" in again.output
