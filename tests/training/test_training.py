"""The training loop: schedule, callbacks, interrupts, numerical failure."""

from __future__ import annotations

import io
import os
import signal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gdkl.numerics import DataError, NumericsError, NumericsWarning, OptionError
from gdkl.objectives import ObjectiveValue
from gdkl.training import (
    AutogradStep,
    Callback,
    EarlyStopping,
    History,
    ProgressDisplay,
    Schedule,
    SplitSampler,
    StepReport,
    StudentOptions,
    train,
)


class Quadratic(nn.Module):
    def __init__(self):
        super().__init__()
        self.x = nn.Parameter(torch.tensor([3.0, -2.0], dtype=torch.float64))

    def loss(self, step):
        value = self.x.square()
        return ObjectiveValue(value, {"square": value})


def by_autograd(module, loss):
    """A step from an objective with a graph."""
    return AutogradStep(module, lambda _, number: loss(number))


def _train(module, n_iter, callbacks=(), loss=None):
    options = StudentOptions(Schedule(n_iter, 0.05), callbacks=callbacks)
    return train(module, [{"params": list(module.parameters())}], by_autograd(module, loss or module.loss), options)


def test_it_minimises_and_reports_every_step():
    module, history = Quadratic(), History()
    outcome = _train(module, 400, [history])
    assert outcome.steps == 400
    assert not outcome.interrupted
    assert float(module.x.detach().abs().max()) < 1e-3
    assert [row["step"] for row in history.rows] == list(range(1, 401))
    assert history.rows[0]["objective"] == pytest.approx((9 + 4) / 2)
    assert history.rows[0]["square"] == history.rows[0]["objective"]
    assert not module.training


@given(n_iter=st.integers(1, 10_000))
def test_rate_falls_tenfold_at_60_and_80_percent(n_iter):
    schedule = Schedule(n_iter)
    rates = [schedule.rate(step) for step in range(n_iter)]
    assert sum(rate > 9e-3 for rate in rates) == int(0.6 * n_iter)
    assert sum(rate < 2e-4 for rate in rates) == n_iter - int(0.8 * n_iter)


def test_bad_schedules_are_refused():
    with pytest.raises(OptionError, match="n_iter"):
        Schedule(0)
    with pytest.raises(OptionError, match="learning_rate"):
        Schedule(10, learning_rate=0.0)


def test_a_callback_can_stop_training_and_all_are_told_of_the_end():
    class Stopper(Callback):
        ended = 0

        def on_step(self, report: StepReport):
            return report.step == 7

        def on_end(self):
            self.ended += 1

    stopper, history = Stopper(), History()
    outcome = _train(Quadratic(), 100, [stopper, history])
    assert (outcome.steps, outcome.stopped) == (7, True)
    assert len(history.rows) == 7
    assert stopper.ended == 1


def test_early_stopping_waits_for_its_patience_and_then_stops():
    stopping = EarlyStopping(tol=1e-3, patience=20, window=5)
    answers = []
    for step in range(1, 200):
        objective = max(1.0 - 0.01 * step, 0.5)  # falls until step 50
        answers.append(bool(stopping.on_step(StepReport(step, 1000, {"objective": objective}))))
    first = answers.index(True) + 1
    assert 65 <= first <= 100


@pytest.mark.parametrize(("tol", "patience"), [(-1.0, 5), (float("nan"), 5), (0.1, 0)])
def test_early_stopping_refuses_nonsense(tol, patience):
    with pytest.raises(OptionError):
        EarlyStopping(tol, patience)


class PressCtrlC(Callback):
    def __init__(self, at):
        self.at = at

    def on_step(self, report):
        if report.step in self.at:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_training_after_the_step_with_a_usable_state():
    module = Quadratic()
    before = signal.getsignal(signal.SIGINT)
    outcome = _train(module, 1000, [PressCtrlC({10})])
    assert outcome.interrupted
    assert outcome.steps == 10
    assert bool(torch.isfinite(module.x).all())
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_raises_at_once():
    class Twice(Callback):
        def on_step(self, report):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        _train(Quadratic(), 1000, [Twice()])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_gradient_that_overflows_in_the_last_step_is_undone():
    module = Quadratic()

    def loss(step):
        value = module.x.square()
        if step == 9:
            # Finite in value, infinite in gradient.
            value = value + torch.sqrt(module.x * 0)
        return ObjectiveValue(value, {"square": value})

    with pytest.warns(NumericsWarning, match="a parameter is not finite after step 10"):
        assert _train(module, 10, loss=loss).rollbacks == 1
    assert bool(torch.isfinite(module.x).all())


@pytest.mark.parametrize("n_iter", [1, 7, 49, 50, 51, 99])
def test_the_last_step_counts(n_iter):
    """A buffer that is infinite on purpose, as a constraint's bound is, must not undo what was learned."""
    plain, bounded = Quadratic(), Quadratic()
    bounded.register_buffer("upper_bound", torch.tensor(torch.inf))
    states = []
    for module in (plain, bounded):
        _train(module, n_iter)
        states.append(module.x.detach().clone())
    assert torch.equal(*states)
    by_hand = torch.tensor([3.0, -2.0], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([by_hand])
    for step in range(n_iter):
        optimiser.param_groups[0]["lr"] = Schedule(n_iter, 0.05).rate(step)
        optimiser.zero_grad()
        by_hand.square().sum().backward()
        optimiser.step()
    torch.testing.assert_close(states[0], by_hand.detach())


def test_a_failure_before_anything_was_learned_is_an_error():
    module = Quadratic()

    def loss(step):
        return ObjectiveValue(module.x * torch.nan, {"bad": module.x * torch.nan})

    with pytest.raises(NumericsError, match="bad"):
        _train(module, 10, loss=loss)


def test_progress_away_from_a_terminal_is_plain_lines():
    stream = io.StringIO()
    _train(Quadratic(), 100, [ProgressDisplay("quadratic", stream)])
    lines = stream.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[-1].startswith("quadratic: step 100 of 100, objective ")
    assert "\x1b" not in stream.getvalue()


def test_progress_on_a_terminal_is_a_bar():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    _train(Quadratic(), 100, [ProgressDisplay("quadratic", stream)])
    assert "quadratic" in stream.getvalue()
    assert "100/100" in stream.getvalue()


@given(n=st.integers(2, 40), members=st.integers(1, 3), seed=st.integers(0, 100))
def test_splits_are_halves_that_share_nothing_and_miss_nothing(n, members, seed):
    split = SplitSampler(n, members, seed).draw(3)
    joined = torch.cat([split.observed, split.held_out], dim=-1).sort(dim=-1).values
    assert torch.equal(joined, torch.arange(n).expand(3, members, n))
    assert split.observed.shape[-1] == n // 2


def test_splits_of_given_rows_have_no_others():
    rows = torch.tensor([1, 2, 5, 7, 11])
    split, plain = (SplitSampler(5, 2, 3, rows=given).draw(4) for given in (rows.expand(2, -1), None))
    assert torch.equal(split.observed, rows[plain.observed])
    assert torch.equal(split.held_out, rows[plain.held_out])


def test_splits_of_some_rows_with_further_ones():
    split = SplitSampler(20, 2, 0, most=7, further=range(20, 25)).draw(50)
    assert split.observed.shape == (50, 2, 3)
    assert split.held_out.shape == (50, 2, 8)
    drawn, further = split.held_out.split(4, dim=-1)
    own = torch.cat([split.observed, drawn], dim=-1)
    assert own.unique().tolist() == list(range(20))
    assert all(len(set(rows.tolist())) == 7 for rows in own.flatten(0, 1))
    assert further.unique().tolist() == list(range(20, 25))
    # Rows that are there anyway are split as ever.
    plain, wide = SplitSampler(9, 1, 3).draw(4), SplitSampler(9, 1, 3, most=100).draw(4)
    assert torch.equal(plain.observed, wide.observed)
    assert torch.equal(plain.held_out, wide.held_out)


@given(seed=st.integers(0, 2**16), n=st.integers(2, 30), classes=st.integers(1, 5))
def test_halves_have_as_many_rows_of_each_class(seed, n, classes):
    labels = torch.randint(classes, (2, n), generator=torch.Generator().manual_seed(seed))
    split = SplitSampler(n, 2, seed, labels=labels).draw(3)
    assert split.observed.shape == (3, 2, n // 2)
    rows = torch.cat(split, dim=-1).sort(dim=-1).values
    assert bool((rows == torch.arange(n)).all())
    for member in range(2):
        for observed, held_out in zip(split.observed[:, member], split.held_out[:, member], strict=True):
            counts = [torch.bincount(labels[member][half], minlength=classes) for half in (observed, held_out)]
            assert int((counts[0] - counts[1]).abs().max()) <= 1


def test_stratified_splits_are_random_otherwise():
    labels = torch.tensor([[0, 0, 0, 1, 1]])
    observed = SplitSampler(5, 1, 0, labels=labels).draw(4000).observed
    counts = np.bincount(observed.flatten().numpy()) / 4000
    # Of class 0 one row or two, of class 1 one; each row of a class alike.
    np.testing.assert_allclose(counts[:3], counts[:3].mean(), atol=0.03)
    np.testing.assert_allclose(counts[3:], 0.5, atol=0.03)
    assert counts.sum() == 2


def test_splits_are_fresh_reproducible_and_uniform():
    sampler = SplitSampler(10, members=1, seed=0)
    first, second = sampler.draw(5), sampler.draw(5)
    assert not torch.equal(first.observed, second.observed)
    again = SplitSampler(10, members=1, seed=0).draw(10)
    assert torch.equal(again.observed, torch.cat([first.observed, second.observed]))
    counts = np.bincount(SplitSampler(10, members=1, seed=1).draw(4000).observed.flatten().numpy())
    # Each row is observed with probability one half: 2000 ± 32.
    assert np.abs(counts - 2000).max() < 5 * 32
    with pytest.raises(DataError, match="at least 2 rows"):
        SplitSampler(1, members=1, seed=0)
