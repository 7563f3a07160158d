"""A fit that was killed goes on as if it had not been; another fit does not take its place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from long_fit import fit, table
from torch.utils.data import DataLoader, Sampler, TensorDataset

import gdkl
from gdkl import DKLClassifier, DKLRegressor, GDKLClassifier, GDKLRegressor, infinite
from gdkl.estimators import resuming
from gdkl.estimators.resuming import describe
from gdkl.nets import MLP
from gdkl.numerics import DataError, OptionError
from gdkl.training import CheckpointWarning

FEW = {"n_iter": 30, "inference": "sparse", "n_inducing": 8, "batch_size": 50, "random_state": 0}


class KilledError(Exception):
    pass


def kill_at(step):
    def killer(report):
        if report.step == step:
            raise KilledError

    return killer


@pytest.fixture(autouse=True)
def every_step(monkeypatch):
    monkeypatch.setattr(resuming, "EVERY_SECONDS", 0.0)


@pytest.mark.parametrize("steps", [1, 17, 39])
def test_killed_at_any_moment_it_ends_where_an_unbroken_fit_does(steps, tmp_path):
    X, _ = table()
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("long_fit.py")), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        # Sums round otherwise with another number of threads.
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == str(steps):
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = sorted(tmp_path.glob("*.checkpoint"))
    assert 1 <= len(kept) <= 2
    seen = []
    resumed = fit(tmp_path, callbacks=[lambda report: seen.append(report.step)])
    assert seen[0] > steps or steps == 39
    whole = fit()
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))
    assert resumed.noise_ == whole.noise_
    assert resumed.n_iter_ == 40
    assert not list(tmp_path.iterdir())


X, Y = table()
LABELS = (Y > 0).astype(int) + (X[:, 1] > 0)


def dataset():
    return TensorDataset(torch.as_tensor(X), torch.as_tensor(Y))


KINDS = {
    "dkl": (DKLRegressor, lambda: (X, Y)),
    "dataset": (GDKLRegressor, lambda: (dataset(),)),
    "list": (GDKLRegressor, lambda: ([(X[i : i + 50], Y[i : i + 50]) for i in range(0, 1200, 50)],)),
    "loader": (
        GDKLRegressor,
        lambda: (DataLoader(dataset(), batch_size=50, shuffle=True, generator=torch.Generator().manual_seed(1)),),
    ),
    "loader without a generator": (GDKLRegressor, lambda: (DataLoader(dataset(), batch_size=50, shuffle=True),)),
    "shuffled classes": (
        GDKLClassifier,
        lambda: (DataLoader(TensorDataset(*map(torch.as_tensor, (X, LABELS))), batch_size=50, shuffle=True),),
    ),
    "classes": (GDKLClassifier, lambda: (X, LABELS)),
    "dkl classes": (DKLClassifier, lambda: (X, LABELS)),
    "loader of classes": (GDKLClassifier, lambda: (TensorDataset(torch.as_tensor(X), torch.as_tensor(LABELS)),)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_is_gone_on_with(kind, tmp_path):
    make, data = KINDS[kind]
    options = {**FEW, "batch_size": None} if kind == "list" else FEW
    # A new process has random numbers of its own.
    torch.seed()
    with pytest.raises(KilledError):
        make(**options, checkpoint_dir=tmp_path, callbacks=[kill_at(20)]).fit(*data())
    assert len(list(tmp_path.iterdir())) == 2
    resumed = make(**options, checkpoint_dir=str(tmp_path)).fit(*data())
    assert resumed.history_["step"].iloc[0] == 21
    whole = make(**options).fit(*data())
    score = (lambda model: model.predict_proba(X)) if "classes" in kind else (lambda model: model.predict(X))
    np.testing.assert_array_equal(score(resumed), score(whole))
    assert not list(tmp_path.iterdir())


def test_both_fits_of_a_temperature_are_gone_on_with(tmp_path):
    options = {**FEW, "calibrate": "temperature"}
    reached = []

    def kill_in_the_second(report):
        reached.append(report.step)
        if len(reached) == 45:
            raise KilledError

    with pytest.raises(KilledError):
        GDKLClassifier(**options, checkpoint_dir=tmp_path, callbacks=[kill_in_the_second]).fit(X, LABELS)
    steps = []
    resumed = GDKLClassifier(**options, checkpoint_dir=tmp_path, callbacks=[lambda r: steps.append(r.step)])
    resumed.fit(X, LABELS)
    assert steps == list(range(16, 31))
    whole = GDKLClassifier(**options).fit(X, LABELS)
    assert resumed.temperature_ == whole.temperature_
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))


def first_step(tmp_path, data, **options):
    steps = []
    GDKLRegressor(
        **{**FEW, **options}, checkpoint_dir=tmp_path, callbacks=[lambda report: bool(steps.append(report.step))]
    ).fit(*data)
    return steps[0]


def test_other_data_or_settings_start_anew_and_leave_it_alone(tmp_path):
    with pytest.raises(KilledError):
        GDKLRegressor(**FEW, checkpoint_dir=tmp_path, callbacks=[kill_at(20)]).fit(X, Y)
    changed = X.copy()
    changed[600, 1] += 1e-9
    for data in ((changed, Y), (X, Y + 1e-6 * X[:, 0]), (X[:1100], Y[:1100]), (dataset(),)):
        assert first_step(tmp_path, data) == 1
    for options in (
        {"n_iter": 31},
        {"beta": 0.5},
        {"learning_rate": 0.02},
        {"random_state": 1},
        {"feature_net": [20, 10]},
        {"guide": infinite.mlp(1)},
        {"n_inducing": 9},
    ):
        assert first_step(tmp_path, (X, Y), **options) == 1
    assert len(list(tmp_path.iterdir())) == 2
    # What does not change the result does not stand in the way.
    assert first_step(tmp_path, (X, Y), verbose=1) == 21


class Foreign(Sampler):
    """An order that no seed of ours reaches."""

    def __init__(self, order):
        self.order = order

    def __iter__(self):
        return iter(self.order)

    def __len__(self):
        return len(self.order)


def in_order(order, batch_size=50):
    return DataLoader(dataset(), batch_size=batch_size, sampler=Foreign(order))


def broken_off(tmp_path, data):
    with pytest.raises(KilledError):
        GDKLRegressor(**{**FEW, "batch_size": None}, checkpoint_dir=tmp_path, callbacks=[kill_at(20)]).fit(data)
    return sorted(file.name for file in tmp_path.iterdir())


def test_the_same_rows_in_another_order_are_gone_on_with_and_told_of(tmp_path):
    one, other = (np.random.default_rng(seed).permutation(1200).tolist() for seed in (0, 1))
    broken_off(tmp_path, in_order(one))
    with pytest.warns(CheckpointWarning, match=r"in another order .*00000020.checkpoint.* goes on .*same seed") as told:
        assert first_step(tmp_path, (in_order(other),), batch_size=None) == 21
    assert told[0].filename == __file__
    assert not list(tmp_path.iterdir())


def test_other_batches_start_anew_and_are_told_of(tmp_path):
    order = list(range(1200))
    kept = broken_off(tmp_path, in_order(order))
    for data in (in_order(order[:1100]), in_order([*order, 7]), in_order(order, batch_size=60)):
        with pytest.warns(CheckpointWarning, match=r"does not yield the batches .*00000020.checkpoint.* starts anew"):
            assert first_step(tmp_path, (data,), batch_size=None) == 1
        assert sorted(file.name for file in tmp_path.iterdir()) == kept
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckpointWarning)
        # Other options, and arrays, are other fits: nothing was promised for them.
        assert first_step(tmp_path, (in_order(order),), batch_size=None, beta=0.5) == 1
        assert first_step(tmp_path, (X, Y), batch_size=None) == 1
        assert first_step(tmp_path, (in_order(order),), batch_size=None) == 21


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_fit_is_gone_on_with(tmp_path):
    def interrupt(report):
        if report.step == 10:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.warns(gdkl.numerics.InterruptedFitWarning):
        GDKLRegressor(**FEW, checkpoint_dir=tmp_path, callbacks=[interrupt]).fit(X, Y)
    assert first_step(tmp_path, (X, Y)) == 11


def test_folders_and_options_that_do_not_serve_are_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot write checkpoints to .*file: .*Give another folder"):
        GDKLRegressor(**FEW, checkpoint_dir=tmp_path / "file").fit(X, Y)
    with pytest.raises(OptionError, match="checkpoint_dir=3 is not allowed"):
        GDKLRegressor(**FEW, checkpoint_dir=3).fit(X, Y)
    with pytest.raises(OptionError, match="checkpoint_dir needs a random_state"):
        GDKLRegressor(**{**FEW, "random_state": None}, checkpoint_dir=tmp_path).fit(X, Y)
    with pytest.raises(OptionError, match="exact inference keeps no checkpoints"):
        GDKLClassifier(inference="exact", random_state=0, checkpoint_dir=tmp_path).fit(X, LABELS)
    made = GDKLRegressor(**FEW, checkpoint_dir=tmp_path / "new" / "folder").fit(X, Y)
    assert not list((tmp_path / "new" / "folder").iterdir())
    made.save(tmp_path / "model.gdkl")
    assert gdkl.load(tmp_path / "model.gdkl").checkpoint_dir is None


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_read_only_folder_is_refused_before_training(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match="Permission denied"):
        GDKLRegressor(**FEW, checkpoint_dir=tmp_path).fit(X, Y)


def test_options_are_told_apart_by_all_that_they_hold():
    def closed(width):
        return lambda columns: MLP(columns, (width,))

    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    other = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())

    class Builder:
        def __init__(self, width):
            self.width = width

        def __call__(self, columns):
            return MLP(columns, (self.width,))

    pairs = [
        (closed(3), closed(4)),
        (partial(MLP, widths=(3,)), partial(MLP, widths=(4,))),
        (Builder(3), Builder(4)),
        (net, other),
        ([3, 4], [3, 5]),
        (infinite.mlp(1), infinite.mlp(2)),
        (lambda columns: MLP(columns, (3,)), lambda columns: MLP(columns, (4,))),
    ]
    for one, another in pairs:
        assert describe(one) == describe(one)
        assert describe(one) != describe(another)
    assert describe(closed(3)) == describe(closed(3))
    assert describe((3, 4)) == describe([3, 4]) == describe(np.array([3, 4]))


@pytest.mark.parametrize("kind", [GDKLRegressor, GDKLClassifier])
def test_a_fit_that_is_exact_says_that_it_keeps_nothing(kind, tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 3))
    y = (X[:, 0] > 0).astype(int)
    model = kind(n_iter=2, random_state=0, device="cpu", checkpoint_dir=tmp_path / "kept")
    with pytest.warns(CheckpointWarning, match="exact for 30 rows.*keeps nothing in checkpoint_dir"):
        model.fit(X, y)
    assert model.inference_ == "exact"
