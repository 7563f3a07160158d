"""Runs over mini-batches: killed and resumed, full disks, broken objectives, progress."""

from __future__ import annotations

import io
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from gdkl.numerics import DataError, NumericsError, NumericsWarning
from gdkl.objectives import ObjectiveValue
from gdkl.training import (
    Callback,
    CheckpointWarning,
    EpochProgress,
    RunCheckpoint,
    Schedule,
    StudentOptions,
    train,
)
from training.long_run import STEPS, fit, weights
from training.test_training import by_autograd

SCRIPT = Path(__file__).with_name("long_run.py")


class KilledError(Exception):
    pass


class KillAt(Callback):
    def __init__(self, step):
        self.step = step

    def on_step(self, report):
        if report.step == self.step:
            raise KilledError


def assert_equal(one, other):
    for mine, yours in zip(weights(one), weights(other), strict=True):
        assert torch.equal(mine, yours)


def start(folder):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, SCRIPT, folder], stdout=subprocess.PIPE, env=environment, text=True)


def kill_and_resume(folder, whole, step, delay):
    process = start(folder)
    for line in process.stdout:
        if line.strip() == str(step):
            # Some time after a step: in the next one, or in the middle of a save.
            time.sleep(delay)
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = sorted(folder.glob("*.checkpoint"))
    # Killed between a save and the removal of the oldest, there may be one more.
    assert 1 <= len(kept) <= 3
    assert_equal(fit(folder), whole)


def test_killed_at_a_random_moment_and_resumed_weights_are_equal(tmp_path):
    random.seed()
    kill_and_resume(tmp_path, fit(), random.randrange(1, STEPS - 1), 0.01 * random.random())


@pytest.mark.long
def test_killed_at_ten_random_moments(tmp_path):
    whole = fit()
    random.seed()
    for number in range(10):
        folder = tmp_path / str(number)
        folder.mkdir()
        kill_and_resume(folder, whole, random.randrange(1, STEPS - 1), 0.01 * random.random())


def test_resuming_needs_no_luck(tmp_path):
    whole = fit()
    for step in (1, 17, STEPS - 1):
        folder = tmp_path / str(step)
        folder.mkdir()
        with pytest.raises(KilledError):
            fit(folder, [KillAt(step)], every_steps=4)
        resumed = fit(folder)
        assert resumed.history[0]["step"] == 4 * (step // 4) + 1
        assert_equal(resumed, whole)


def test_two_are_kept_and_a_damaged_one_falls_back_with_a_warning(tmp_path):
    whole = fit()
    with pytest.raises(KilledError):
        fit(tmp_path, [KillAt(20)], every_steps=5)
    names = [file.name for file in sorted(tmp_path.iterdir())]
    assert names == ["run.00000015.checkpoint", "run.00000020.checkpoint"]
    newest = tmp_path / names[1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    with pytest.warns(CheckpointWarning, match=r"cannot resume from .*00000020\.checkpoint \(it is damaged\)"):
        resumed = fit(tmp_path)
    assert resumed.history[0]["step"] == 16
    assert_equal(resumed, whole)


def test_a_run_of_another_name_starts_anew(tmp_path):
    with pytest.raises(KilledError):
        fit(tmp_path, [KillAt(20)])
    other = RunCheckpoint(tmp_path / "run", run="another")
    module = nn.Linear(1, 1)
    assert other.restore(module, torch.optim.SGD(module.parameters(), 1.0), torch.device("cpu")) == 0
    other.remove()
    assert not list(tmp_path.iterdir())


def test_saves_go_by_steps_or_by_time(tmp_path, monkeypatch):
    by_steps = RunCheckpoint(tmp_path / "a", "run", every_seconds=None, every_steps=3)
    assert [step for step in range(1, 10) if by_steps.due(step)] == [3, 6, 9]
    by_time = RunCheckpoint(tmp_path / "a", "run", every_seconds=60)
    assert not by_time.due(3)
    now = by_time._saved_at + 61
    monkeypatch.setattr("time.monotonic", lambda: now)
    assert by_time.due(3)


def test_a_folder_that_cannot_be_written_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot write checkpoints to .*file"):
        fit(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_read_only_folder_is_refused_before_training(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match="Permission denied"):
        fit(tmp_path)


class FullDisk(Callback):
    """Lets no file grow beyond a few bytes, from one step to another."""

    def __init__(self, first, last):
        self.first, self.last = first, last

    def on_step(self, report):
        if report.step == self.first:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        if report.step == self.last:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path):
    whole = fit()
    try:
        with pytest.warns(CheckpointWarning, match=r"step 15 cannot be written .* run\.00000010\.checkpoint stays"):
            model = fit(tmp_path, [FullDisk(11, 21)], every_steps=5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert_equal(model, whole)
    assert [file.name for file in sorted(tmp_path.iterdir())] == [
        "run.00000055.checkpoint",
        "run.00000060.checkpoint",
    ]


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))


def run(module, loss, steps=300, **more):
    options = StudentOptions(Schedule(steps, milestones=()), **more)
    groups = [{"params": list(module.parameters())}]
    return train(module, groups, by_autograd(module, loss), options, steps_per_epoch=10)


def test_a_broken_objective_stops_naming_step_and_term_and_keeps_the_good_checkpoint(tmp_path):
    module = Small()

    def loss(step):
        factor = float("nan") if step >= 250 else 1.0
        terms = {"ell": module.weight.square(), "kl": factor * module.weight}
        return ObjectiveValue(sum(terms.values()), terms)

    checkpoint = RunCheckpoint(tmp_path / "run", "one", every_seconds=None, every_steps=100)
    match = (
        r"stopped at step 254 of 300: the objective of step 254 is not finite \(terms: kl\)\. .*half the learning rate"
    )
    with pytest.warns(NumericsWarning), pytest.raises(NumericsError, match=match):
        run(module, loss, checkpoint=checkpoint)
    assert [file.name for file in checkpoint.files()] == ["run.00000200.checkpoint", "run.00000100.checkpoint"]


def test_an_objective_that_is_broken_from_the_start_is_an_error():
    module = Small()
    with pytest.raises(NumericsError, match=r"step 1 is not finite \(terms: ell\)"):
        run(module, lambda step: ObjectiveValue(module.weight / 0, {"ell": module.weight / 0}))


def test_a_last_step_that_overflows_is_noticed():
    module = Small()

    def loss(step):
        # A root at zero: finite itself, with an infinite slope.
        zero = (module.weight - module.weight.detach()).sqrt()
        return ObjectiveValue(zero if step == 299 else module.weight, {})

    with pytest.warns(NumericsWarning, match="a parameter is not finite"):
        outcome = run(module, loss)
    assert outcome.rollbacks == 1
    assert bool(torch.isfinite(module.weight).all())


def test_progress_tells_epochs_speed_terms_and_time_left():
    stream = io.StringIO()
    module = Small()
    progress = EpochProgress("a run", rows_per_step=64, stream=stream, lines=3)
    run(
        module,
        lambda step: ObjectiveValue(module.weight.square(), {"ell": module.weight}),
        steps=30,
        callbacks=[progress],
    )
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("a run: step 20 of 30, epoch 2.0, ")
    for part in ("rows/s", "objective", "(ell ", "s left"):
        assert part in lines[1]
