"""The guided step at once: values and gradients of the step read plainly, for one member and for several."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from gdkl.methods.guided_step import guided_step
from torch import nn

from gdkl import infinite
from gdkl.gp import Marginals, Split
from gdkl.guide import as_kernel_function, fit_guide
from gdkl.methods.gdkl import guided_splits
from gdkl.nets import MLP
from gdkl.numerics import NotPositiveDefiniteError, shared_by_threads
from gdkl.objectives import guided
from gdkl.training import Schedule, SplitSampler, StudentOptions, TrainingData, build_deep_kernel

BETA = 0.7


def _net(columns):
    return MLP(columns, (9, 7, 4))


def _problem(members, outputs, n, **options):
    torch.manual_seed(0)
    rows = torch.randn(members, n, 3, dtype=torch.float64)
    targets = torch.sin(rows[..., :1]) + 0.1 * torch.randn(members, n, outputs, dtype=torch.float64)
    data = TrainingData(rows, targets.mT.contiguous())
    guide = fit_guide(as_kernel_function(infinite.mlp()), data.rows, data.targets)
    split, p = next(guided_splits(guide, SplitSampler(n, members, seed=0)))
    model = build_deep_kernel(data, StudentOptions(Schedule(1), **{"feature_net": _net, **options}))
    with torch.no_grad():
        for parameter in (*model.kernel.parameters(), *model.noise.parameters()):
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model, data, split, p


def _gradients(model, value, weights):
    model.zero_grad()
    (weights * value).sum().backward()
    return [value.detach(), *(parameter.grad.clone() for parameter in model.parameters())]


def _plainly(model, data, split, p):
    """The objective by autograd through torch's own operations, member by member and output by output."""
    kernel = model.kernel.kernel
    network = model.network
    values = []
    for i in range(data.members):
        if network.count == 1:
            features = network.single(data.rows[0])
        else:
            state = {name: value[i] for name, value in zip(network._parameter_names, network.stacked, strict=True)}
            features = torch.func.functional_call(_net(3), state, (data.rows[i],))
        x1, x2 = features[split.observed[i]], features[split.held_out[i]]
        terms = []
        for o in range(data.outputs):
            scale, lengthscale = kernel.outputscale[i, o], kernel.base_kernel.lengthscale[i, o, 0, 0]
            noise = model.noise()[i, o]

            def k(a, b, scale=scale, lengthscale=lengthscale):
                return scale * torch.exp(-0.5 * (a[:, None] - b[None]).square().sum(-1) / lengthscale**2)

            C = torch.linalg.cholesky(k(x1, x1) + noise * torch.eye(len(x1), dtype=torch.float64))
            A = torch.linalg.solve_triangular(C, k(x1, x2), upper=False)
            v = torch.linalg.solve_triangular(C, data.targets[i, o, split.observed[i], None], upper=False)
            q = torch.distributions.Normal((A.mT @ v)[:, 0], (scale - A.square().sum(0)).sqrt())
            guide = torch.distributions.Normal(p.mean[i, o], p.variance[i, o].sqrt())
            y = data.targets[i, o, split.held_out[i]]
            ell = 0.5 * (torch.log(2 * torch.pi * noise) + ((y - q.mean).square() + q.variance) / noise)
            terms.append(ell + BETA * torch.distributions.kl_divergence(q, guide))
        values.append(torch.stack(terms).mean())
    return torch.stack(values)


@pytest.mark.parametrize("n", [20, 150])
@pytest.mark.parametrize(("members", "outputs"), [(1, 1), (1, 2), (3, 1), (2, 2)])
def test_the_step_at_once_is_the_plain_reading(members, outputs, n):
    model, data, split, p = _problem(members, outputs, n)
    weights = torch.linspace(0.5, 2, members).double()
    ours = guided_step(model, data, split, p, BETA)
    expected = _gradients(model, _plainly(model, data, split, p), weights)
    torch.testing.assert_close(ours.terms["ell"] + BETA * ours.terms["kl"], expected[0], rtol=1e-10, atol=1e-10)
    for one, other in zip(_gradients(model, ours.value, weights), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    # And the way that any other network and kernel goes.
    q, y, noise = model.split_marginals(data, split)
    by_rooms = _gradients(model, guided(q, p, y, noise, BETA).value, weights)
    for one, other in zip(by_rooms, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n", [130, 151])
def test_two_threads_that_share_a_step_give_its_plain_reading_and_the_same_bits_as_one(n):
    model, data, split, p = _problem(1, 1, n)
    one = torch.ones(1, dtype=torch.float64)
    expected = _gradients(model, _plainly(model, data, split, p), one)
    results = []
    for threads in (1, 2, 2):
        with shared_by_threads(threads):
            results.append(_gradients(model, guided_step(model, data, split, p, BETA).value, one))
    for values in zip(*results, expected, strict=True):
        torch.testing.assert_close(values[0], values[-1], rtol=1e-10, atol=1e-10)
        assert torch.equal(values[0], values[1])
        assert torch.equal(values[0], values[2])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_matrix_without_a_factor_is_an_error_and_the_next_step_is_none_the_worse(threads):
    model, data, split, p = _problem(1, 1, 150)
    broken = TrainingData(data.rows.clone(), data.targets)
    broken.rows[0, split.observed[0, 3], 0] = float("nan")
    with shared_by_threads(threads):
        before = guided_step(model, data, split, p, BETA).value
        with pytest.raises(NotPositiveDefiniteError, match="deep kernel"):
            guided_step(model, broken, split, p, BETA)
        assert torch.equal(guided_step(model, data, split, p, BETA).value, before)


def test_numbers_out_of_range_go_the_long_way():
    model, data, split, p = _problem(1, 1, 150)
    with torch.no_grad():
        model.kernel.kernel.raw_outputscale.fill_(-800.0)
    assert not torch.isfinite(guided_step(model, data, split, p, BETA).value)


def test_threads_change_nothing_and_members_are_strangers():
    model, data, split, p = _problem(3, 1, 150)
    ones = torch.ones(3, dtype=torch.float64)
    results = []
    for threads in (1, 2):
        with shared_by_threads(threads):
            results.append(_gradients(model, guided_step(model, data, split, p, BETA).value, ones))
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))
    changed = TrainingData(data.rows, data.targets.clone())
    changed.targets[1] = -changed.targets[1]
    other = _gradients(model, guided_step(model, changed, split, p, BETA).value, ones)
    for before, after in zip(results[0], other, strict=True):
        assert torch.equal(before[[0, 2]], after[[0, 2]])
    assert float(other[0][1]) != float(results[0][0][1])


def test_a_network_of_lower_precision_than_the_algebra():
    """Single precision for the network alone: the same step to its rounding, at once and by the rooms."""
    model, data, split, p = _problem(2, 1, 150)
    expected = _gradients(model, guided_step(model, data, split, p, BETA).value, torch.ones(2))
    model.network.float()
    single = TrainingData(data.rows.float(), data.targets)
    q, y, noise = model.split_marginals(single, split)
    for value in (guided_step(model, single, split, p, BETA).value, guided(q, p, y, noise, BETA).value):
        assert value.dtype == torch.float64
        for ours, wanted in zip(_gradients(model, value, torch.ones(2)), expected, strict=True):
            torch.testing.assert_close(ours.double(), wanted, rtol=2e-2, atol=1e-3)


def _tanh(columns):
    return nn.Sequential(nn.Linear(columns, 4), nn.Tanh())


@pytest.mark.parametrize(
    "options",
    [{"feature_net": _tanh}, {"base_kernel": gpytorch.kernels.MaternKernel()}],
)
def test_other_students_are_left_to_the_rooms(options):
    model, data, split, p = _problem(1, 1, 20, **options)
    assert guided_step(model, data, split, p, BETA) is None


def test_outside_training_nothing_is_computed_at_once():
    model, data, split, p = _problem(1, 1, 20)
    assert guided_step(model.eval(), data, Split(*split), Marginals(*p), BETA) is None
    with torch.no_grad():
        assert guided_step(model.train(), data, split, p, BETA) is None
