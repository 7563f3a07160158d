"""All of CIFAR in small: synthetic images, a tiny network, two methods, killed and resumed."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from gdkl import datasets
from gdkl.cli.app import app
from gdkl.datasets import ImageSet
from gdkl.numerics import OptionError
from gdkl.paper import cifar, cifar_table, published
from gdkl.training import Callback, RunCheckpoint

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
    checkpoint = RunCheckpoint(tmp_path / "run", "one", every_seconds=None, every_steps=4)
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


@pytest.mark.parametrize(
    "wrong", [{"algebra": "float16"}, {"epochs": 0}, {"guide_scale": 0.0}, {"holdout": -1}, {"holdout": 60000}]
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(OptionError, match=next(iter(wrong))):
        cifar.Protocol(**wrong)


def test_the_command(synthetic, tmp_path):
    options = "--epochs 1 --batch-size 16 --depth 10 --widen-factor 1 --methods gdkl,dkl --device cpu --holdout 20"
    command = ["reproduce", "cifar", "--output", str(tmp_path), *options.split()]
    runner = CliRunner()
    result = runner.invoke(app, command)
    assert result.exit_code == 0, result.output
    file = tmp_path / "cifar" / "cifar10-gdkl-holdout20-epochs1-scale25-beta0.09-seed0.json"
    written = json.loads(file.read_text())
    assert written["protocol"]["holdout"] == 20
    assert 0 < written["best_temperature"] < 100
    again = runner.invoke(app, command)
    assert "kept from" in again.output
    assert again.stdout == result.stdout
    mirrored = written["splits"][0]["mirrored"]
    [row] = [line for line in result.stdout.splitlines() if " gdkl " in line]
    for text in ("epochs 1", "20 training images", f"{mirrored['log_likelihood']:.3f}"):
        assert text in row


def made_result(seed, accuracy, mirrored, **settings):
    protocol = json.loads(json.dumps(asdict(replace(cifar.Protocol(), **settings))))
    protocol.pop("kl_weight")
    views = {"test": {"accuracy": accuracy, "log_likelihood": -0.25, "ece": 0.02}}
    if mirrored is not None:
        views["mirrored"] = {"accuracy": mirrored, "log_likelihood": -0.125, "ece": 0.01}
    return {
        "dataset": "cifar10",
        "method": "gdkl",
        "seed": seed,
        "protocol": protocol,
        "fit_seconds": 100,
        "seconds_per_step": 0.02,
        "splits": [{"seed": seed, **views}],
    }


def rows_of(results):
    console = Console(width=300, file=io.StringIO())
    console.print(cifar_table(results))
    lines = [line for line in console.file.getvalue().splitlines() if "cifar10" in line]
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]


def test_the_table_has_both_views_of_the_images_beside_the_papers():
    [row] = rows_of([made_result(0, 0.94, 0.95), made_result(1, 0.96, 0.95)])
    assert row[:5] == ["cifar10", "gdkl", "–", "test", "2"]
    paper = [f"{published('cifar_full', 'gdkl', f'cifar10.{name}').mean:.2f}" for name in ("acc", "ll", "ece")]
    assert [cell.split(" ±")[0] for cell in row[6:11:2]] == paper
    assert row[5:10:2] == ["95.00 ± 1.41", "-0.250 ± 0.000", "0.020 ± 0.000"]
    assert row[11:14] == ["95.00 ± 0.00", "-0.125 ± 0.000", "0.010 ± 0.000"]
    assert row[14:] == ["100", "20.0"]


def test_a_view_that_a_seed_lacks_has_no_mean():
    [row] = rows_of([made_result(0, 0.94, 0.95), made_result(1, 0.96, None)])
    assert row[5] == "95.00 ± 1.41"
    assert row[11:14] == ["–", "–", "–"]


def test_trials_of_other_settings_are_no_seeds_of_one():
    trials = [made_result(0, 0.9, 0.9, holdout=5000, epochs=40, beta=beta) for beta in (0.05, 0.2)]
    rows = rows_of([*trials, made_result(1, 0.8, 0.8, holdout=5000, epochs=40, beta=0.2), made_result(0, 0.95, 0.95)])
    assert [row[2:6] for row in rows] == [
        ["epochs 40, beta 0.05", "5000 training images", "1", "90.00"],
        ["epochs 40, beta 0.2", "5000 training images", "2", "85.00 ± 7.07"],
        ["–", "test", "1", "95.00"],
    ]
