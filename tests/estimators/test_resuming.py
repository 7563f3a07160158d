"""A fit that was killed goes on as if it had not been; another fit does not take its place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from long_fit import fit, table
from preset_options import make
from torch.utils.data import DataLoader, Sampler, TensorDataset

import gdkl
from gdkl import DKLClassifier, DKLRegressor, GDKLClassifier, GDKLRegressor, infinite
from gdkl.numerics import DataError, OptionError
from gdkl.training import Checkpoint, CheckpointWarning

FEW = {"n_iter": 30, "inference": "sparse", "n_inducing": 8, "batch_size": 50, "random_state": 0}


class KilledError(Exception):
    pass


def kill_at(step):
    def killer(report):
        if report.step == step:
            raise KilledError

    return killer


def every_step(folder):
    return Checkpoint(folder, every_seconds=0)


@pytest.mark.parametrize(
    "steps", [pytest.param(1, marks=pytest.mark.long), 17, pytest.param(39, marks=pytest.mark.long)]
)
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
    "list": (GDKLRegressor, lambda: ([(X[i : i + 50], Y[i : i + 50]) for i in range(0, 300, 50)],)),
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
    kind_of, data = KINDS[kind]
    options = {**FEW, "batch_size": None} if kind == "list" else FEW
    # A new process has random numbers of its own.
    torch.seed()
    with pytest.raises(KilledError):
        make(kind_of, **options, callbacks=[every_step(tmp_path), kill_at(20)]).fit(*data())
    assert len(list(tmp_path.iterdir())) == 2
    resumed = make(kind_of, **options, callbacks=[every_step(str(tmp_path))]).fit(*data())
    assert resumed.history_["step"].iloc[0] == 21
    whole = make(kind_of, **options).fit(*data())
    score = (lambda model: model.predict_proba(X)) if "classes" in kind else (lambda model: model.predict(X))
    np.testing.assert_array_equal(score(resumed), score(whole))
    assert not list(tmp_path.iterdir())


def first_step(tmp_path, data, **options):
    steps = []
    make(
        GDKLRegressor,
        **{**FEW, **options},
        callbacks=[every_step(tmp_path), lambda report: bool(steps.append(report.step))],
    ).fit(*data)
    return steps[0]


def test_other_data_or_settings_start_anew_and_leave_it_alone(tmp_path):
    with pytest.raises(KilledError):
        make(GDKLRegressor, **FEW, callbacks=[every_step(tmp_path), kill_at(20)]).fit(X, Y)
    changed = X.copy()
    changed[200, 1] += 1e-9
    for data in ((changed, Y), (X, Y + 1e-6 * X[:, 0]), (X[:280], Y[:280]), (dataset(),)):
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
        make(GDKLRegressor, **{**FEW, "batch_size": None}, callbacks=[every_step(tmp_path), kill_at(20)]).fit(data)
    return sorted(file.name for file in tmp_path.iterdir())


def test_the_same_rows_in_another_order_are_gone_on_with_and_told_of(tmp_path):
    one, other = (np.random.default_rng(seed).permutation(300).tolist() for seed in (0, 1))
    broken_off(tmp_path, in_order(one))
    with pytest.warns(CheckpointWarning, match=r"in another order .*00000020.checkpoint.* resumes .*same seed") as told:
        assert first_step(tmp_path, (in_order(other),), batch_size=None) == 21
    assert told[0].filename == __file__
    assert not list(tmp_path.iterdir())


def test_other_batches_start_anew_and_are_told_of(tmp_path):
    order = list(range(300))
    kept = broken_off(tmp_path, in_order(order))
    for data in (in_order(order[:250]), in_order([*order, 7]), in_order(order, batch_size=60)):
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

    with pytest.raises(KeyboardInterrupt):
        make(GDKLRegressor, **FEW, callbacks=[every_step(tmp_path), interrupt]).fit(X, Y)
    assert first_step(tmp_path, (X, Y)) == 11


def test_folders_and_options_that_do_not_serve_are_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot write checkpoints to .*file: .*Give another folder"):
        make(GDKLRegressor, **FEW, callbacks=[every_step(tmp_path / "file")]).fit(X, Y)
    with pytest.raises(OptionError, match="folder=3 of a Checkpoint is not allowed"):
        make(GDKLRegressor, **FEW, callbacks=[every_step(3)]).fit(X, Y)
    with pytest.raises(OptionError, match="Checkpoint needs a random_state"):
        make(GDKLRegressor, **{**FEW, "random_state": None}, callbacks=[every_step(tmp_path)]).fit(X, Y)
    made = make(GDKLRegressor, **FEW, callbacks=[every_step(tmp_path / "new" / "folder")]).fit(X, Y)
    assert not list((tmp_path / "new" / "folder").iterdir())
    made.save(tmp_path / "model.gdkl")
    assert gdkl.load(tmp_path / "model.gdkl").callbacks is None


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_read_only_folder_is_refused_before_training(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match="Permission denied"):
        make(GDKLRegressor, **FEW, callbacks=[every_step(tmp_path)]).fit(X, Y)


def test_a_function_that_another_process_cannot_identify_is_refused(tmp_path):
    with pytest.raises(OptionError, match="defined in a module, not lambdas"):
        make(
            GDKLRegressor,
            **FEW,
            feature_net=lambda columns: torch.nn.Linear(columns, 2),
            callbacks=[every_step(tmp_path)],
        ).fit(X, Y)


@pytest.mark.parametrize("killed_at", [9, 20])
def test_an_exact_regressor_resumes_before_and_after_its_held_out_rows_join(killed_at, tmp_path):
    options = {"n_iter": 30, "random_state": 0, "device": "cpu"}
    with pytest.raises(KilledError):
        GDKLRegressor(**options, callbacks=[every_step(tmp_path), kill_at(killed_at)]).fit(X[:40], Y[:40])
    resumed = GDKLRegressor(**options, callbacks=[every_step(tmp_path)]).fit(X[:40], Y[:40])
    assert resumed.history_["step"].iloc[0] == killed_at + 1
    whole = GDKLRegressor(**options).fit(X[:40], Y[:40])
    np.testing.assert_allclose(resumed.predict(X), whole.predict(X), rtol=1e-9)
    assert resumed.noise_ == pytest.approx(whole.noise_, rel=1e-9)
    assert not list(tmp_path.iterdir())


def test_an_exact_classifier_resumes(tmp_path):
    options = {"n_iter": 30, "random_state": 0, "device": "cpu"}
    with pytest.raises(KilledError):
        GDKLClassifier(**options, callbacks=[every_step(tmp_path), kill_at(20)]).fit(X[:40], LABELS[:40])
    resumed = GDKLClassifier(**options, callbacks=[every_step(tmp_path)]).fit(X[:40], LABELS[:40])
    assert resumed.history_["step"].iloc[0] == 21
    whole = GDKLClassifier(**options).fit(X[:40], LABELS[:40])
    np.testing.assert_allclose(resumed.predict_proba(X), whole.predict_proba(X), atol=1e-9)
