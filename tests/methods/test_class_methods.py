"""Methods for labels: where a student starts, and what its objectives are, where gradient descent feels their size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from torch import Tensor, nn

import dense
from gdkl import GdklError
from gdkl.gp import ClassLikelihood, Marginals, Split
from gdkl.guide import as_kernel_function, fit_class_guide
from gdkl.infinite import mlp
from gdkl.methods import fit_dkl_classes, fit_gdkl_classes
from gdkl.methods.gdkl_classes import start_at
from gdkl.nets import MLP, recombine
from gdkl.training import ClassData, Schedule, SplitSampler, StudentOptions, build_deep_kernel


def _data():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(1, 24, 3, generator=generator, dtype=torch.float64)
    labels = (rows[..., 0] > 0).long() + (rows[..., 1] > 0.5).long()
    return ClassData.make(rows, labels, 3, ClassLikelihood.DIRICHLET, torch.float64)


def _shrunk(columns):
    """Features that an untrained batch norm lets through a hundred times too small in evaluation."""
    net = nn.Sequential(MLP(columns, (8,)), nn.BatchNorm1d(8, affine=False, dtype=torch.float32))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.01)
    return net


def _options(net):
    return StudentOptions(Schedule(1), feature_net=net, momentum=0.9)


def test_a_student_starts_at_the_distances_that_training_sees():
    data = _data()
    model = build_deep_kernel(data, _options(_shrunk))
    before = {name: value.clone() for name, value in model.network.state_dict().items()}
    start_at(model, data, torch.tensor([5.0], dtype=torch.float64))
    after = model.network.state_dict()
    # Nothing but the kernel has changed, the statistics of batch norm neither: nobody has trained on these rows yet.
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert float(after["single.1.num_batches_tracked"]) == 0
    features = model.train().network(data.rows)[0].detach()
    distance = torch.cdist(features, features).sum() / (24 * 23)
    kernel = model.kernel.kernel
    assert float(distance) > 1
    torch.testing.assert_close(kernel.base_kernel.lengthscale.detach().flatten(), distance.double().expand(3))
    torch.testing.assert_close(kernel.outputscale.detach().flatten(), torch.full((3,), 5.0, dtype=torch.float64))


def test_dkl_minimises_the_evidence_of_all_classes_together():
    data = _data()
    options = replace(_options(lambda columns: MLP(columns, (8, 4))), seed=7)
    torch.manual_seed(7)
    model = build_deep_kernel(data, options)
    features = model.network(data.rows)[0].detach().numpy()
    kernel = model.kernel.kernel
    expected = 0.0
    for c in range(3):
        K = dense.rbf(
            features,
            features,
            lengthscale=float(kernel.base_kernel.lengthscale[0, c].detach()),
            scale=float(kernel.outputscale[0, c].detach()),
        )
        K = K + torch.diag(data.label_noise[0, c]).numpy()
        noise = float(model.noise()[0, c].detach())
        expected -= dense.log_evidence(K, data.targets[0, c].numpy(), noise) / 24
    history = fit_dkl_classes(data, options).history
    assert history[0]["objective"] == pytest.approx(expected, rel=1e-9)
    assert history[0]["data_fit"] + history[0]["complexity"] == pytest.approx(expected, rel=1e-9)


def test_a_guided_student_starts_from_its_guides_scale():
    data = _data()
    guide = fit_class_guide(as_kernel_function(mlp(1)), data.rows, data.labels, 3)
    model = build_deep_kernel(data, _options(_shrunk))
    start_at(model, data, guide.scale)
    torch.testing.assert_close(model.kernel.kernel.outputscale.detach(), guide.scale.expand(1, 3))


def test_recombined_rows_take_every_column_from_one_of_two_rows():
    rows = torch.arange(60, dtype=torch.float64).reshape(2, 10, 3)
    new = recombine(rows, 200, seed=0)
    assert new.shape == (2, 200, 3)
    for member in range(2):
        for column in range(3):
            assert set(new[member, :, column].tolist()) == set(rows[member, :, column].tolist())
        sources = ((new[member] - 30 * member) // 3).long()
        kinds = [len(set(row.tolist())) for row in sources]
        assert set(kinds) == {1, 2}
    assert torch.equal(new, recombine(rows, 200, seed=0))
    assert not torch.equal(new, recombine(rows, 200, seed=1))
    assert torch.equal(new, recombine(rows, 200, seed=0, groups=[2, 5, 9]))


def test_columns_of_one_group_are_recombined_as_one():
    levels = torch.eye(3, dtype=torch.float64)[torch.arange(12) % 3][None]
    rows = torch.cat([torch.arange(12.0, dtype=torch.float64)[None, :, None], levels], dim=-1)
    new = recombine(rows, 200, seed=0, groups=[0, 1, 1, 1])
    assert bool((new[..., 1:].sum(dim=-1) == 1).all())
    assert not torch.equal(new[0, :, 0] % 3, new[0, :, 1:].argmax(dim=-1).double())


def test_the_kl_counts_recombined_rows_and_the_labels_do_not():
    data = _data()
    guide = fit_class_guide(as_kernel_function(mlp(1)), data.rows, data.labels, 3)
    options = replace(_options(lambda columns: MLP(columns, (8, 4))), seed=7)
    plain, more = (fit_gdkl_classes(data, guide, options, recombined=groups).history[0] for groups in ((), range(3)))
    # The first split differs in nothing but the rows that were added to its held-out half.
    assert more["ell"] == pytest.approx(plain["ell"], rel=1e-9)
    assert more["kl"] != pytest.approx(plain["kl"], rel=1e-3)


@pytest.mark.parametrize("observed", [11, 12])
@pytest.mark.parametrize("kernel", [None, ScaleKernel(MaternKernel())])
@pytest.mark.parametrize("members", [1, 2])
def test_symmetric_splits_are_each_half_held_out_in_turn(observed: int, kernel: Kernel | None, members: int):
    data = _data().repeat(members)
    model = build_deep_kernel(data, replace(_options(MLP), base_kernel=kernel))
    drawn = SplitSampler(24, members, seed=3).draw(1)
    split = Split(drawn.observed[0, :, :observed], drawn.held_out[0])
    back = Split(split.held_out, split.observed)
    ways = [model.marginals(data.rows, data.targets, each, model.noise()) for each in (split, back)]
    expected = Marginals(*(torch.cat(values, dim=-1) for values in zip(*ways, strict=True)))
    found = model.symmetric_marginals(data.rows, data.targets, split, model.noise())
    gradients: list[Sequence[Tensor]] = []
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)
    for q in (found, expected):
        value = (q.mean.square() + q.variance).sum()
        gradients.append(torch.autograd.grad(value, list(model.parameters()), retain_graph=True))
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-7, atol=1e-9)


def test_the_guide_is_asked_about_each_half_in_turn():
    data = _data()
    guide = fit_class_guide(as_kernel_function(mlp()), data.rows, data.labels, 3, dtype=torch.float64)
    split = SplitSampler(23, 1, seed=3).draw(2)
    answer = replace(guide, symmetric_splits=True).posterior(split)
    assert answer.mean.shape == (2, 1, 3, 23)
    there, back = guide.posterior(split), guide.posterior(Split(split.held_out, split.observed))
    torch.testing.assert_close(answer.mean, torch.cat([there.mean, back.mean], dim=-1))
    torch.testing.assert_close(answer.variance, torch.cat([there.variance, back.variance], dim=-1))


def test_halves_are_not_held_out_in_turn_beside_recombined_rows():
    data = _data()
    guide = fit_class_guide(as_kernel_function(mlp()), data.rows, data.labels, 3, dtype=torch.float64)
    options = StudentOptions(Schedule(2), seed=5)
    with pytest.raises(GdklError, match="symmetric"):
        fit_gdkl_classes(data, guide, options, symmetric=True, recombined=range(3))
