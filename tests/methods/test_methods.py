"""Methods as compositions: the student's split posterior and objectives against the textbook, members as strangers."""

from __future__ import annotations

import math
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import dense
from gdkl import infinite
from gdkl.gp import NOISE_FLOOR, NOISE_START, GPyTorchKernel
from gdkl.guide import as_kernel_function, fit_guide
from gdkl.methods import fit_dkl, fit_gdkl, fit_gp, fit_nngp
from gdkl.nets import MLP
from gdkl.numerics import DataError
from gdkl.objectives import SplitObjective
from gdkl.training import GuidedSplits, Schedule, SplitSampler, StudentOptions, TrainingData, build_deep_kernel


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
        split = GuidedSplits(_guide(data), SplitSampler(16, members, seed=0))(0).split
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


def test_fits_leave_threads_as_they_were():
    before = torch.get_num_threads()
    data = _data(1)
    fit_gdkl(data, _guide(data), _options())
    assert torch.get_num_threads() == before
    assert not [one for one in threading.enumerate() if one.name.startswith(("guide", "thread_map"))]


def test_kernel_and_noise_may_go_at_a_rate_of_their_own():
    data = _data(1)
    options = replace(_options(), schedule=Schedule(1), kernel_rate=4.0)
    slow, fast = (fit_gdkl(data, _guide(data), replace(options, kernel_rate=rate)) for rate in (1.0, 4.0))
    torch.manual_seed(0)
    start = math.log(math.expm1(NOISE_START - NOISE_FLOOR))

    def raw(model):
        return math.log(math.expm1(float(model.noise) - NOISE_FLOOR))

    assert raw(fast) - start == pytest.approx(4 * (raw(slow) - start), rel=1e-3)
