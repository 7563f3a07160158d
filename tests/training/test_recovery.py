"""Training that meets numbers that are not finite goes back, takes smaller steps, and stops after three times."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gdkl import DKLRegressor, GDKLClassifier, GDKLRegressor
from gdkl.numerics import NumericsError, NumericsWarning
from gdkl.objectives import ObjectiveValue
from gdkl.training import Callback, History, RunCheckpoint, Schedule, StudentOptions, train
from training.test_training import Quadratic, by_autograd

SCRIPT = Path(__file__).with_name("faulty_processes.py")


def run(module, steps, faults, **options):
    """Train on a square whose value is not a number in some steps."""

    def loss(step):
        value = module.x.square()
        terms = {"good": value, "bad": value * (torch.nan if step in faults else 0)}
        return ObjectiveValue(terms["good"] + terms["bad"], terms)

    given = StudentOptions(Schedule(steps, 0.05), **options)
    return train(module, [{"params": list(module.parameters())}], by_autograd(module, loss), given)


def by_hand(steps):
    """Adam on the square, from step numbers with what their learning rates are multiplied by."""
    x = torch.tensor([3.0, -2.0], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([x])
    for step, factor in steps:
        optimiser.param_groups[0]["lr"] = factor * Schedule(200, 0.05).rate(step)
        optimiser.zero_grad()
        x.square().sum().backward()
        optimiser.step()
    return x.detach()


def test_a_failure_goes_back_to_the_last_good_state_and_halves_the_learning_rate():
    module, history = Quadratic(), History()
    match = r"step 121 of 200 .*terms: bad\).*after step 100 with half the learning rate \(1 of at most 3 times\)"
    with pytest.warns(NumericsWarning, match=match):
        outcome = run(module, 200, {120}, callbacks=[history])
    assert (outcome.steps, outcome.rollbacks) == (200, 1)
    # What was learned in steps 101 to 120 is lost, and step 121 is not taken.
    expected = by_hand([*((step, 1) for step in range(100)), *((step, 0.5) for step in range(121, 200))])
    torch.testing.assert_close(module.x.detach(), expected, rtol=1e-12, atol=0)
    rates = {row["step"]: row["learning_rate"] for row in history.rows}
    assert 121 not in rates
    assert (rates[120], rates[122]) == (pytest.approx(0.05), pytest.approx(0.0025))


@pytest.mark.filterwarnings("ignore::gdkl.numerics.NumericsWarning")
@pytest.mark.parametrize("seed", range(5))
def test_faults_at_random_steps(seed):
    steps = sorted(random.Random(seed).sample(range(1, 200), 4))
    module = Quadratic()
    assert run(module, 200, set(steps[:3])).rollbacks == 3
    assert bool(torch.isfinite(module.x).all())
    match = rf"stopped at step {steps[3] + 1} of 200: the objective of step {steps[3] + 1} .*terms: bad\)"
    with pytest.raises(NumericsError, match=match) as caught:
        run(Quadratic(), 200, set(steps))
    assert len(str(caught.value).splitlines()) == 1


class KilledError(Exception):
    pass


class KillAt(Callback):
    def __init__(self, step):
        self.step = step

    def on_step(self, report):
        if report.step == self.step:
            raise KilledError


@pytest.mark.filterwarnings("ignore::gdkl.numerics.NumericsWarning")
@pytest.mark.parametrize("killed", [40, 62, 72, 110, 190])
def test_a_run_that_went_back_resumes_bit_by_bit(killed, tmp_path):
    def checkpoint(name):
        return RunCheckpoint(tmp_path / name, name, every_seconds=None, every_steps=7)

    whole, broken, resumed = Quadratic(), Quadratic(), Quadratic()
    assert run(whole, 200, {60, 100}, checkpoint=checkpoint("whole")).rollbacks == 2
    with pytest.raises(KilledError):
        run(broken, 200, {60, 100}, checkpoint=checkpoint("broken"), callbacks=[KillAt(killed)])
    assert run(resumed, 200, {60, 100}, checkpoint=checkpoint("broken")).rollbacks == 2
    assert torch.equal(whole.x, resumed.x)


class Faults(Callback):
    """Knows the step, for a network that fails in some."""

    def __init__(self, steps):
        self.left, self.step = set(steps), 0

    def on_step(self, report):
        self.step = report.step

    def __deepcopy__(self, memo):
        # Members are copies of a network, and share its faults.
        return self

    def strike(self):
        """Whether this step fails; each does once."""
        # A step that fails is not reported: those after it are one further.
        due = {step for step in self.left if step <= self.step}
        self.left -= due
        return bool(due)


class Faulty(nn.Module):
    """A user's network that divides by zero now and then."""

    def __init__(self, columns, faults):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(columns, 16), nn.Tanh(), nn.Linear(16, 4))
        self.faults = faults

    def forward(self, x):
        return self.inner(x) / (0 if self.training and torch.is_grad_enabled() and self.faults.strike() else 1)


def table(n=80):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (GDKLRegressor, {"preset": "paper"}),
        (GDKLRegressor, {"inference": "sparse", "n_inducing": 10}),
        (DKLRegressor, {"n_members": 2}),
        (DKLRegressor, {"inference": "sparse", "n_inducing": 10, "dtype": "float32"}),
        (GDKLClassifier, {"preset": "paper"}),
    ],
)
def test_a_network_that_fails_now_and_then_is_trained(kind, options):
    X, y = table()
    y = y > 0 if kind is GDKLClassifier else y
    faults = Faults(random.Random(1).sample(range(1, 40), 2))
    model = kind(
        n_iter=60, feature_net=lambda columns: Faulty(columns, faults), callbacks=[faults], random_state=0, **options
    )
    with pytest.warns(NumericsWarning, match="half the learning rate"):
        model.fit(X, y)
    assert not faults.left
    assert model.model_.outcome.rollbacks == 2
    assert model.n_iter_ == 60
    assert np.isfinite(model.predict_distribution(X).latent_variance).all()
    assert model.score(X, y) > 0.2


@pytest.mark.filterwarnings("ignore::gdkl.numerics.NumericsWarning")
@pytest.mark.parametrize("inference", ["exact", "sparse"])
def test_a_network_that_goes_on_failing_is_an_error_that_names_step_and_terms(inference):
    class Broken(Faulty):
        def forward(self, x):
            bad = self.training and torch.is_grad_enabled() and self.faults.step >= 20
            return self.inner(x) / (0 if bad else 1)

    X, y = table()
    faults = Faults([])
    model = GDKLRegressor(
        n_iter=60,
        inference=inference,
        n_inducing=10,
        feature_net=lambda columns: Broken(columns, faults),
        callbacks=[faults],
        preset="paper" if inference == "exact" else None,
        random_state=0,
    )
    with pytest.raises(NumericsError, match=r"stopped at step 24 of 60: .*(terms|matrix)") as caught:
        model.fit(X, y)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.long
@pytest.mark.parametrize("kind", ["once", "always"])
def test_processes_go_back_together(kind, tmp_path):
    """The second of two processes meets what is not finite: both go back, and both stop."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port)]
    subprocess.run([*launcher, SCRIPT, tmp_path, kind], env=environment, check=True, timeout=300, capture_output=True)
    one, other = (torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2))
    if kind == "always":
        assert "step 34 of 60" in one["error"]
        assert "failed in another process" in one["error"]
        assert "terms: ell" in other["error"]
        return
    assert one["rollbacks"] == other["rollbacks"] == 2
    for mine, theirs in zip(one["state"], other["state"], strict=True):
        assert torch.equal(mine, theirs)
        assert bool(torch.isfinite(mine).all())
