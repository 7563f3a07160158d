"""Splits with the guide's marginals: pools, resumed runs, prefetching, rows that join late."""

from __future__ import annotations

import math
import threading
from dataclasses import replace

import pytest
import torch

from gdkl import infinite
from gdkl.gp import Split
from gdkl.guide import as_kernel_function, fit_guide
from gdkl.methods import fit_gdkl
from gdkl.numerics import NotPositiveDefiniteError
from gdkl.training import (
    Callback,
    Checkpoint,
    GuidedSplits,
    Schedule,
    SplitSampler,
    StudentOptions,
    TrainingData,
)


@pytest.fixture(params=[1, 2])
def threads(request):
    """With two, the guide's marginals of few rows are prefetched."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def _data(n=16, members=1):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(members, n, 3, dtype=torch.float64, generator=generator)
    return TrainingData(rows, torch.sin(rows[..., :1]).mT.contiguous())


def _guide(data):
    return fit_guide(as_kernel_function(infinite.mlp()), data.rows, data.targets)


@pytest.mark.usefixtures("threads")
def test_a_pool_of_splits_comes_again_in_another_order():
    data = _data()
    splits = GuidedSplits(_guide(data), SplitSampler(16, 1, seed=0), pool=5)
    found = [splits(step) for step in range(15)]
    keys = [tuple(split.observed.flatten().tolist()) for split, _ in found]
    fresh = GuidedSplits(_guide(data), SplitSampler(16, 1, seed=0))
    for step, (split, p) in enumerate(found[:5]):
        expected = fresh(step)
        assert torch.equal(split.observed, expected.split.observed)
        assert torch.equal(p.mean, expected.p.mean)
    assert len(set(keys)) == 5
    assert set(keys[:5]) == set(keys[5:10]) == set(keys[10:])
    assert keys[:5] != keys[5:10] or keys[:5] != keys[10:]
    means = {key: p.mean for key, (_, p) in zip(keys[:5], found[:5], strict=True)}
    assert all(torch.equal(p.mean, means[key]) for key, (_, p) in zip(keys, found, strict=True))


def test_a_pool_of_splits_is_kept_in_one_block():
    # Small tensors apart, among large ones that come and go, made a process grow by gigabytes.
    splits = GuidedSplits(_guide(_data()), SplitSampler(16, 1, seed=0), pool=5)
    again = [splits(step) for step in range(10)][5:]
    assert len({p.mean.untyped_storage().data_ptr() for _, p in again}) == 1
    assert len({split.observed.untyped_storage().data_ptr() for split, _ in again}) == 1


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("start", [3, 5, 7, 12])
@pytest.mark.parametrize("pool", [None, 5])
def test_a_resumed_run_sees_the_splits_of_the_unbroken_one(start, pool):
    whole, rest = (GuidedSplits(_guide(_data()), SplitSampler(16, 1, seed=0), pool=pool) for _ in range(2))
    unbroken = [whole(step) for step in range(20)]
    for step in range(start, 20):
        found = rest(step)
        assert torch.equal(unbroken[step].split.observed, found.split.observed)
        assert torch.equal(unbroken[step].p.mean, found.p.mean)


def test_splits_are_of_each_members_own_rows_with_further_rows_behind():
    rows = torch.tensor([[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]])
    sampler = SplitSampler(5, 2, seed=0, rows=rows, further=range(10, 14), further_each=3)
    observed, held_out = sampler.draw(20)
    assert observed.shape == (20, 2, 2)
    assert held_out.shape == (20, 2, 6)
    for member in range(2):
        labelled = torch.cat([observed[:, member], held_out[:, member, :3]], dim=-1).sort(dim=-1).values
        assert (labelled == rows[member]).all()
        assert set(held_out[:, member, 3:].flatten().tolist()) == {10, 11, 12, 13}


def test_prefetched_marginals_are_those_of_the_callers_thread():
    data, found = _data(), []
    before = torch.get_num_threads()
    for count in (1, 2):
        torch.set_num_threads(count)
        try:
            splits = GuidedSplits(_guide(data), SplitSampler(16, 1, seed=0))
            found.append([splits(step) for step in range(150)])
            assert any(one.name.startswith("guide") for one in threading.enumerate()) == (count == 2)
        finally:
            torch.set_num_threads(before)
        del splits
        assert not any(one.name.startswith("guide") for one in threading.enumerate())
    for one, other in zip(*found, strict=True):
        assert torch.equal(one.split.observed, other.split.observed)
        torch.testing.assert_close(one.p, other.p, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("threads")
def test_an_error_of_the_guide_reaches_the_caller():
    broken = replace(_guide(_data()), gram=torch.full((1, 16, 16), math.nan, dtype=torch.float64))
    with pytest.raises(NotPositiveDefiniteError):
        GuidedSplits(broken, SplitSampler(16, 1, seed=0))(0)


def test_an_ensemble_shares_one_guide_and_has_splits_of_its_own():
    """At a size where each member's marginals are computed on their own."""
    guide = _guide(_data(n=140))
    split, p = GuidedSplits(guide, SplitSampler(140, 3, seed=0))(0)
    for member in range(3):
        alone = guide.posterior(Split(split.observed[member : member + 1], split.held_out[member : member + 1]))
        torch.testing.assert_close(p.mean[member], alone.mean[0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(p.variance[member], alone.variance[0], rtol=1e-12, atol=1e-12)
    assert not torch.equal(split.observed[0], split.observed[1])


class KilledError(Exception):
    pass


class KillAt(Callback):
    def __init__(self, step):
        self.step = step

    def on_step(self, report):
        if report.step == self.step:
            raise KilledError


@pytest.mark.parametrize("killed_at", [3, 15])
def test_a_fit_to_some_of_the_rows_resumes(killed_at, tmp_path):
    data = _data(n=20)
    guide, used = _guide(data), torch.arange(15)[None]

    def fit(checkpoint=None, callbacks=()):
        options = StudentOptions(Schedule(20), split_pool=4, checkpoint=checkpoint, callbacks=callbacks)
        return fit_gdkl(data, guide, options, mu=1.0, used=used)

    whole = fit()
    saved = Checkpoint(tmp_path, every_seconds=0)
    with pytest.raises(KilledError):
        fit(saved.for_run("a"), [KillAt(killed_at)])
    resumed = fit(saved.for_run("a"))
    assert resumed.history[0]["step"] == killed_at + 1
    torch.testing.assert_close(resumed.marginals(data.rows), whole.marginals(data.rows), rtol=1e-10, atol=1e-10)
