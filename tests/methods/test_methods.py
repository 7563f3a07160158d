"""Methods as compositions: the student's split posterior and objectives against the textbook, members as strangers."""

from __future__ import annotations

import math
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import dense
from gdkl import infinite
from gdkl.gp import NOISE_FLOOR, NOISE_START, GPyTorchKernel, Split
from gdkl.guide import as_kernel_function, fit_guide
from gdkl.methods import (
    SplitObjective,
    cost,
    fit_dkl,
    fit_gdkl,
    fit_gp,
    fit_nngp,
)
from gdkl.methods.gdkl import guided_splits
from gdkl.nets import MLP
from gdkl.numerics import DataError, GdklWarning, MemoryLimitError, NotPositiveDefiniteError
from gdkl.training import (
    Schedule,
    SplitSampler,
    StudentOptions,
    TrainingData,
    build_deep_kernel,
    exact_cost,
    prefers_exact,
)


def _data(members=1, outputs=1, n=16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(members, n, 3, dtype=torch.float64, generator=generator)
    rows[:, 4] = rows[:, 1]
    targets = torch.sin(rows[..., :1]) + 0.1 * torch.randn(
        members, n, outputs, dtype=torch.float64, generator=generator
    )
    return TrainingData(rows, targets.mT.contiguous())


def _guide(data):
    return fit_guide(as_kernel_function(infinite.mlp()), data.rows, data.targets)


def _options(n_iter=5, **options):
    return StudentOptions(Schedule(n_iter), feature_net=lambda columns: MLP(columns, (8, 4)), **options)


def _kernel_parameters(function: GPyTorchKernel, member, output):
    kernel = function.kernel
    return {
        "lengthscale": float(kernel.base_kernel.lengthscale[member, output].detach()),
        "scale": float(kernel.outputscale[member, output].detach()),
    }


@pytest.mark.parametrize("members", [1, 2])
def test_the_students_split_posterior_is_the_textbook_one(members):
    data = _data(members, outputs=2)
    torch.manual_seed(0)
    model = build_deep_kernel(data, _options())
    with torch.no_grad():
        model.kernel.kernel.raw_outputscale.uniform_(-1, 1)
        model.kernel.kernel.base_kernel.raw_lengthscale.uniform_(-2, 1)
        model.noise.raw.uniform_(-5, 0)
        split = next(guided_splits(_guide(data), SplitSampler(16, members, seed=0)))[0]
        q = model.split_marginals(data, split).q
        features = model.network(data.rows).numpy()
    for i in range(members):
        one, two = features[i][split.observed[i]], features[i][split.held_out[i]]
        for o in range(2):
            options = _kernel_parameters(model.kernel, i, o)
            mean, covariance = dense.posterior(
                dense.rbf(one, one, **options),
                dense.rbf(two, one, **options),
                dense.rbf(two, two, **options),
                data.targets[i, o, split.observed[i]].numpy(),
                float(model.noise()[i, o].detach()),
            )
            np.testing.assert_allclose(q.mean[i, o], mean, atol=1e-9)
            np.testing.assert_allclose(q.variance[i, o], np.diag(covariance), atol=1e-9)


def test_dkl_minimises_the_textbook_evidence():
    data = _data()
    torch.manual_seed(7)
    model = build_deep_kernel(data, _options())
    features = model.network(data.rows)[0].detach().numpy()
    K = dense.rbf(features, features, **_kernel_parameters(model.kernel, 0, 0))
    expected = -dense.log_evidence(K, data.targets[0, 0].numpy(), float(model.noise().detach())) / 16
    # The first logged objective is that of the same initial state.
    history = fit_dkl(data, _options(n_iter=1, seed=7)).history
    assert history[0]["objective"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("objective", list(SplitObjective))
def test_members_of_a_batch_are_strangers(objective):
    """What one member is taught must not reach another's weights."""
    first = _data(members=2)
    second = TrainingData(first.rows, first.targets.clone())
    second.targets[1] = -3 * second.targets[1] + 1
    predictions = [
        fit_gdkl(data, _guide(data), _options(n_iter=30), objective=objective).marginals(data.rows)
        for data in (first, second)
    ]
    torch.testing.assert_close(predictions[0].mean[0], predictions[1].mean[0], rtol=1e-8, atol=1e-8)
    assert not torch.allclose(predictions[0].mean[1], predictions[1].mean[1], atol=1e-2)


def test_more_training_lowers_every_split_objective():
    data = _data(n=30)
    for objective in SplitObjective:
        history = fit_gdkl(data, _guide(data), _options(n_iter=300), objective=objective).history
        values = [row["objective"] for row in history]
        assert np.mean(values[-50:]) < np.mean(values[:20]) - 0.01


def test_noise_starts_where_told():
    data = _data(members=2, outputs=2)
    start = torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=torch.float64)
    model = build_deep_kernel(data, _options(noise_start=start))
    torch.testing.assert_close(model.noise().detach(), start)


def test_the_guide_alone_predicts_as_its_textbook_posterior():
    data = _data()
    guide = _guide(data)
    model = fit_nngp(data, guide)
    new = torch.randn(1, 5, 3, dtype=torch.float64)
    network = infinite.mlp()
    factor = float(guide.scale / guide.normaliser)
    x, z = data.rows[0], new[0]
    mean, covariance = dense.posterior(
        factor * network.kernel(x).numpy(),
        factor * network.kernel(z, x).numpy(),
        factor * network.kernel(z).numpy(),
        data.targets[0, 0].numpy(),
        float(guide.noise),
    )
    q = model.marginals(new)
    np.testing.assert_allclose(q.mean[0, 0], mean, atol=1e-9)
    np.testing.assert_allclose(q.variance[0, 0], np.diag(covariance), atol=1e-9)


def test_plain_gp_finds_at_least_the_evidence_of_a_grid():
    data = _data(n=25)
    model = fit_gp(data)
    x, y = data.rows[0].numpy(), data.targets[0, 0].numpy()
    found = -model.history[-1]["objective"] * 25
    grid = [
        dense.log_evidence(dense.rbf(x, x, lengthscale=ls, scale=s), y, noise)
        for ls in np.geomspace(0.2, 20, 12)
        for s in np.geomspace(0.05, 50, 8)
        for noise in np.geomspace(1.1e-4, 1, 8)
    ]
    assert found > max(grid) - 1e-3


def test_data_of_the_wrong_shape_is_refused():
    with pytest.raises(DataError, match="do not fit"):
        TrainingData(torch.zeros(1, 4, 2), torch.zeros(1, 4))
    data = _data()
    with pytest.raises(DataError, match="feature_net"):
        build_deep_kernel(data, StudentOptions(Schedule(1), feature_net=lambda columns: nn.Linear(columns + 1, 2)))


@pytest.mark.parametrize("beside", [False, True])
def test_a_pool_of_splits_comes_again_in_another_order(beside):
    data = _data()
    sampler = SplitSampler(16, 1, seed=0)
    with ThreadPoolExecutor(1) as spare:
        splits = guided_splits(_guide(data), sampler, spare if beside else None, pool=5)
        found = [next(splits) for _ in range(15)]
    keys = [tuple(split.observed.flatten().tolist()) for split, _ in found]
    fresh = guided_splits(_guide(data), SplitSampler(16, 1, seed=0))
    for split, p in found[:5]:
        expected = next(fresh)
        assert torch.equal(split.observed, expected[0].observed)
        assert torch.equal(p.mean, expected[1].mean)
    assert len(set(keys)) == 5
    assert set(keys[:5]) == set(keys[5:10]) == set(keys[10:])
    assert keys[:5] != keys[5:10] or keys[:5] != keys[10:]
    means = {key: p.mean for key, (_, p) in zip(keys[:5], found[:5], strict=True)}
    assert all(torch.equal(p.mean, means[key]) for key, (_, p) in zip(keys, found, strict=True))


def test_a_pool_of_splits_is_kept_in_one_piece():
    # Small tensors apart, among large ones that come and go, made a process grow by gigabytes.
    data = _data()
    splits = guided_splits(_guide(data), SplitSampler(16, 1, seed=0), pool=5)
    again = [next(splits) for _ in range(10)][5:]
    assert len({p.mean.untyped_storage().data_ptr() for _, p in again}) == 1
    assert len({split.observed.untyped_storage().data_ptr() for split, _ in again}) == 1


@pytest.mark.parametrize("start", [3, 5, 7, 12])
@pytest.mark.parametrize("pool", [None, 5])
def test_a_resumed_run_goes_on_with_the_splits_it_would_have_seen(start, pool):
    data = _data()
    whole = guided_splits(_guide(data), SplitSampler(16, 1, seed=0), pool=pool)
    rest = guided_splits(_guide(data), SplitSampler(16, 1, seed=0), pool=pool, start=start)
    for _ in range(start):
        next(whole)
    for _ in range(8):
        assert torch.equal(next(whole)[0].observed, next(rest)[0].observed)


def test_a_spare_thread_changes_nothing():
    data = _data(1)
    with ThreadPoolExecutor(1) as pool:
        beside = guided_splits(_guide(data), SplitSampler(16, 1, seed=0), pool)
        inline = guided_splits(_guide(data), SplitSampler(16, 1, seed=0))
        for _ in range(80):
            (split, p), (other_split, other_p) = next(beside), next(inline)
            assert torch.equal(split.observed, other_split.observed)
            assert torch.equal(split.held_out, other_split.held_out)
            torch.testing.assert_close(p.mean, other_p.mean, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(p.variance, other_p.variance, rtol=1e-12, atol=1e-12)


def test_members_shared_by_threads_are_those_of_one_thread():
    data = _data(members=3, n=140)
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            model = fit_gdkl(data, _guide(data), _options(n_iter=10))
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
        results.append((*model.marginals(data.rows), model.noise))
    # A whole fit ends with algebra that torch may share by its own threads: equal to rounding, not to the last bit.
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)


def test_an_ensemble_shares_one_guide_and_has_splits_of_its_own():
    """The guide's answers for members of one data set, at a size where each is computed on its own."""
    one = _data(members=1, n=140)
    guide = _guide(one)
    split, p = next(guided_splits(guide, SplitSampler(140, 3, seed=0)))
    for member in range(3):
        own = Split(split.observed[member : member + 1], split.held_out[member : member + 1])
        alone = guide.posterior(own)
        torch.testing.assert_close(p.mean[member], alone.mean[0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(p.variance[member], alone.variance[0], rtol=1e-12, atol=1e-12)
    assert not torch.equal(split.observed[0], split.observed[1])


def test_an_error_of_the_guide_reaches_the_caller():
    data = _data(1)
    broken = replace(_guide(data), gram=torch.full((1, 16, 16), math.nan, dtype=torch.float64))
    with ThreadPoolExecutor(1) as pool, pytest.raises(NotPositiveDefiniteError):
        next(guided_splits(broken, SplitSampler(16, 1, seed=0), pool))


def test_fits_leave_threads_as_they_were():
    before = torch.get_num_threads()
    data = _data(1)
    fit_gdkl(data, _guide(data), _options())
    assert torch.get_num_threads() == before
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("guide")]


def test_kernel_and_noise_may_go_at_a_rate_of_their_own():
    data = _data(1)
    options = replace(_options(), schedule=Schedule(1), kernel_rate=4.0)
    slow, fast = (fit_gdkl(data, _guide(data), replace(options, kernel_rate=rate)) for rate in (1.0, 4.0))
    torch.manual_seed(0)
    start = math.log(math.expm1(NOISE_START - NOISE_FLOOR))

    def raw(model):
        return math.log(math.expm1(float(model.noise) - NOISE_FLOOR))

    assert raw(fast) - start == pytest.approx(4 * (raw(slow) - start), rel=1e-3)


def test_long_training_is_told_before_it_starts(monkeypatch):
    rows = torch.zeros(1, 3000, 1, dtype=torch.float64)
    data = TrainingData(rows, torch.zeros(1, 1, 3000, dtype=torch.float64))
    monkeypatch.setattr(cost, "_operations_per_second", lambda *_: 1e9)
    with pytest.warns(GdklWarning, match=r"3000 rows for 7000 steps will take about \d+ minutes"):
        cost.check_cost(data, 7000, guided=True)
    monkeypatch.setattr(cost, "_operations_per_second", lambda *_: 1e15)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cost.check_cost(data, 7000, guided=True)
    huge = TrainingData(torch.zeros(1, 1, 1).expand(1, 10**7, 1), torch.zeros(1, 1, 1).expand(1, 1, 10**7))
    with pytest.raises(MemoryLimitError, match="exact training on 10000000 rows"):
        cost.check_cost(huge, 1, guided=True)


def test_the_estimate_grows_with_the_cube_of_the_rows(monkeypatch):
    monkeypatch.setattr(cost, "_operations_per_second", lambda *_: 1e9)
    one, two = (
        exact_cost(TrainingData(torch.zeros(1, n, 1), torch.zeros(1, 1, n)), 10, guided=True).seconds
        for n in (2000, 4000)
    )
    assert two / one == pytest.approx(8, rel=1e-2)


def test_steps_of_a_part_of_the_rows_cost_what_that_part_costs(monkeypatch):
    monkeypatch.setattr(cost, "_operations_per_second", lambda *_: 1e10)
    monkeypatch.setattr(cost, "available_memory", lambda _: 64 * 2**30)
    zero = torch.zeros((), dtype=torch.float64)
    data = TrainingData(zero.expand(1, 4000, 1), zero.expand(1, 10, 4000))
    part = exact_cost(data, 500, guided=True, rows_a_step=256)
    # Steps of 256 rows cost what those of a table of 256 do; all rows are factored once, when training is over.
    small = exact_cost(TrainingData(zero.expand(1, 256, 1), zero.expand(1, 10, 256)), 500, guided=True)
    assert part.seconds - small.seconds == pytest.approx(8 / 3 * 4000**3 * 10 / 1e10)
    assert part.bytes == 5 * 10 * 4000**2 * 8
    assert exact_cost(data, 500, guided=True).seconds > 100 * part.seconds
    place = {"guided": True, "device": torch.device("cpu"), "dtype": torch.float64}
    assert not prefers_exact(4000, 10, 1, 500, **place)
    assert prefers_exact(4000, 10, 1, 500, **place, rows_a_step=256)
    # Not beyond what the factors of all rows take of memory, nor for ever.
    assert not prefers_exact(15_000, 10, 1, 500, **place, rows_a_step=256)
    assert not prefers_exact(4000, 10, 1, 10**6, **place, rows_a_step=256)
    # More rows a step than there are: all of them.
    assert exact_cost(data, 5, guided=True, rows_a_step=9000) == exact_cost(data, 5, guided=True)
