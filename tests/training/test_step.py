"""Steps: autograd through our rooms, and members shared by threads, against autograd through torch's own operations."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from torch import nn

from gdkl import infinite
from gdkl.gp import ClassLikelihood
from gdkl.guide import as_kernel_function, fit_guide
from gdkl.methods import fit_dkl, fit_gdkl
from gdkl.nets import MLP
from gdkl.numerics import NotPositiveDefiniteError, thread_pool
from gdkl.objectives import gaussian_term, guided
from gdkl.training import (
    AutogradStep,
    ClassData,
    GuidedSplits,
    Schedule,
    SplitSampler,
    StudentOptions,
    ThreadedStep,
    TrainingData,
    build_deep_kernel,
    fit,
)

BETA = 0.7


def _net(columns):
    return MLP(columns, (9, 7, 4))


def _loss(student, data, split, p):
    q, y, noise = student.split_marginals(data, split)
    return guided(q, p, gaussian_term(q, y, noise), BETA)


def _problem(members, outputs, n, **options):
    torch.manual_seed(0)
    rows = torch.randn(members, n, 3, dtype=torch.float64)
    targets = torch.sin(rows[..., :1]) + 0.1 * torch.randn(members, n, outputs, dtype=torch.float64)
    data = TrainingData(rows, targets.mT.contiguous())
    guide = fit_guide(as_kernel_function(infinite.mlp()), data.rows, data.targets)
    split, p = GuidedSplits(guide, SplitSampler(n, members, seed=0))(0)
    student = build_deep_kernel(data, StudentOptions(Schedule(1), **{"feature_net": _net, **options})).train()
    with torch.no_grad():
        for parameter in (*student.kernel.parameters(), *student.noise.parameters()):
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return student, data, split, p


def _taken(student, step, *inputs):
    objective = step(*inputs)
    assert not objective.value.requires_grad
    return [objective.value, *objective.terms.values(), *(value.grad.clone() for value in student.parameters())]


def _plainly(student, data, split, p):
    """The objective by autograd through torch's own operations, member by member and output by output."""
    kernel = student.kernel.kernel
    network = student.network
    values = []
    for i in range(data.members):
        if network.count == 1:
            features = network.single(data.rows[0])
        else:
            state = {name: value[i] for name, value in network._state().items()}
            features = torch.func.functional_call(_net(3), state, (data.rows[i],))
        x1, x2 = features[split.observed[i]], features[split.held_out[i]]
        terms = []
        for o in range(data.outputs):
            scale, lengthscale = kernel.outputscale[i, o], kernel.base_kernel.lengthscale[i, o, 0, 0]
            noise = student.noise()[i, o]

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
def test_a_step_is_its_plain_reading(members, outputs, n):
    student, data, split, p = _problem(members, outputs, n)
    value = _plainly(student, data, split, p)
    student.zero_grad()
    value.sum().backward()
    expected = [value.detach(), *(parameter.grad.clone() for parameter in student.parameters())]
    steps = [AutogradStep(student, _loss)]
    steps += [ThreadedStep(student, _loss, threads) for threads in (2, 7) if members > 1]
    for step in steps:
        found = _taken(student, step, data, split, p)
        torch.testing.assert_close(found[1] + BETA * found[2], expected[0], rtol=1e-10, atol=1e-10)
        for one, other in zip([found[0], *found[3:]], expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def _with_batch_norm(columns):
    return nn.Sequential(MLP(columns, (6,)), nn.BatchNorm1d(6, dtype=torch.float32), nn.Tanh())


@pytest.mark.parametrize(
    "options",
    [{}, {"feature_net": _with_batch_norm}, {"base_kernel": gpytorch.kernels.ScaleKernel(gpytorch.kernels.RQKernel())}],
)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_groups_of_members_are_the_batch(options, threads):
    """Any network, any kernel: values, gradients and what batch norm keeps."""
    student, data, split, p = _problem(3, 2, 30, **options)
    buffers = {name: value.clone() for name, value in student.named_buffers()}
    expected = _taken(student, AutogradStep(student, _loss), data, split, p)
    after = {name: value.clone() for name, value in student.named_buffers()}
    student.load_state_dict(buffers, strict=False)
    with thread_pool(threads):
        found = _taken(student, ThreadedStep(student, _loss, threads), data, split, p)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    for name, value in student.named_buffers():
        torch.testing.assert_close(value, after[name])


def test_a_threaded_step_sees_what_the_optimiser_changes_and_threads_change_nothing():
    student, data, split, p = _problem(3, 1, 150)
    step = ThreadedStep(student, _loss, 2)
    optimiser = torch.optim.Adam(student.parameters(), lr=1e-2, fused=True)
    first = step(data, split, p).value
    optimiser.step()
    second = _taken(student, step, data, split, p)
    assert not torch.allclose(first, second[0])
    torch.testing.assert_close(second[0], AutogradStep(student, _loss)(data, split, p).value)
    with thread_pool(2):
        for one, other in zip(_taken(student, step, data, split, p), second, strict=True):
            assert torch.equal(one, other)


def test_a_matrix_without_a_factor_is_an_error_and_the_next_step_is_none_the_worse():
    student, data, split, p = _problem(2, 1, 150)
    broken = TrainingData(data.rows.clone(), data.targets)
    broken.rows[0, split.observed[0, 3], 0] = float("nan")
    step = ThreadedStep(student, _loss, 2)
    with thread_pool(2):
        before = step(data, split, p).value
        with pytest.raises(NotPositiveDefiniteError, match="deep kernel"):
            step(broken, split, p)
        assert torch.equal(step(data, split, p).value, before)


def test_a_network_of_lower_precision_than_the_algebra():
    student, data, split, p = _problem(2, 1, 150)
    expected = _taken(student, AutogradStep(student, _loss), data, split, p)
    student.network.float()
    single = TrainingData(data.rows.float(), data.targets)
    for step in (AutogradStep(student, _loss), ThreadedStep(student, _loss, 2)):
        found = _taken(student, step, single, split, p)
        assert found[0].dtype == torch.float64
        for ours, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(ours.double(), wanted, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize("method", ["gdkl", "dkl"])
def test_a_fit_by_several_threads_is_the_fit_by_one(method, monkeypatch):
    _, data, _, _ = _problem(3, 1, 310)
    guide = fit_guide(as_kernel_function(infinite.mlp()), data.rows, data.targets)
    found, used, before = [], [], torch.get_num_threads()

    class Recorder(ThreadedStep):
        def __init__(self, *arguments):
            used.append(torch.get_num_threads())
            super().__init__(*arguments)

    monkeypatch.setattr(fit, "ThreadedStep", Recorder)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            options = StudentOptions(Schedule(10), feature_net=_net)
            model = fit_gdkl(data, guide, options) if method == "gdkl" else fit_dkl(data, options)
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
        found.append((*model.marginals(data.rows), model.noise))
    assert used == [2]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)


def test_a_random_network_is_not_shared_by_threads(monkeypatch):
    """Dropout draws from one generator: the order of threads must not decide who draws what."""
    _, data, _, _ = _problem(2, 1, 310)
    monkeypatch.setattr(fit, "ThreadedStep", lambda *_: pytest.fail("members apart"))
    monkeypatch.setattr(fit, "member_threads", lambda data: 2)
    options = StudentOptions(Schedule(3), feature_net=lambda d: nn.Sequential(MLP(d, (6,)), nn.Dropout(0.2)))
    one, other = (fit_dkl(data, options).marginals(data.rows) for _ in range(2))
    assert torch.equal(one.mean, other.mean)


def test_class_data_keeps_its_labels():
    rows, labels = torch.randn(2, 6, 3), torch.tensor([[0, 1, 2, 0, 1, 2], [2, 1, 0, 2, 1, 0]])
    data = ClassData.make(rows, labels, 3, ClassLikelihood.DIRICHLET, torch.float64)
    index = torch.tensor([4, 1])
    some, one, more = data.take(index), data.member(1), data.member(0).repeat(3)
    assert torch.equal(some.labels, labels[:, index])
    assert torch.equal(some.label_noise, data.label_noise[..., index])
    assert torch.equal(one.labels, labels[1:])
    assert some.likelihood is one.likelihood is ClassLikelihood.DIRICHLET
    assert torch.equal(more.labels, labels[:1].expand(3, -1))
    assert more.rows.data_ptr() == data.rows.data_ptr()
    assert torch.equal(data.repeat(2).labels, labels.repeat(2, 1))
