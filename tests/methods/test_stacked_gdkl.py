"""The stack of guides and students: who learns what, who has which weight, and what the student knows in a gap."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gdkl.calibration import draw_folds
from gdkl.guide import as_kernel_function, fit_guide
from gdkl.infinite import mlp
from gdkl.methods import STUDENT, fit_gdkl, fit_stacked_gdkl
from gdkl.methods.guide_stack import fit_guides
from gdkl.training import Decay, Schedule, StudentOptions, TrainingData

FLOOR = 1e-6
OPTIONS = StudentOptions(Schedule(20), noise_floor=FLOOR)


def _data(n=40, d=2, noise=0.1):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(1, n, d, generator=generator, dtype=torch.float64)
    errors = noise * torch.randn(1, 1, n, generator=generator, dtype=torch.float64)
    return TrainingData(rows, torch.sin(2 * rows[..., 0]).unsqueeze(1) + errors)


@pytest.mark.parametrize("times", [1, 2])
def test_models_are_conditioned_on_all_rows_and_weights_sum_to_one(times):
    data = _data()
    stack = fit_stacked_gdkl(data, mlp(), OPTIONS, times=times)
    assert list(stack.models)[-1] == STUDENT
    assert {model.posterior.features.shape[1] for model in stack.models.values()} == {40}
    assert stack.models[STUDENT].members == 4 * times
    torch.testing.assert_close(stack.weights.sum(dim=0), torch.ones(1, dtype=torch.float64))
    torch.testing.assert_close(stack.component_weights().sum(dim=0), torch.ones(1, dtype=torch.float64))
    assert float(stack.weights.min()) > 0


def test_a_given_share_is_that_of_all_guides():
    stack = fit_stacked_gdkl(_data(), mlp(), OPTIONS, guide_share=0.25)
    torch.testing.assert_close(stack.weights[-1], torch.tensor([0.75], dtype=torch.float64))


def test_a_student_learns_nothing_from_the_targets_of_its_fold():
    data = _data()
    folds = draw_folds(data.rows[0], seed=0)
    several, changed = data.repeat(4), data.targets.repeat(4, 1, 1)
    for member, out in enumerate(folds.held_out):
        changed[member, :, out] += 3
    embedded = []
    for one in (several, replace(several, targets=changed)):
        used = one.take_each(folds.used)
        guide = replace(fit_guide(as_kernel_function(mlp()), used.rows, used.targets), targets=one.targets)
        model = fit_gdkl(one, guide, OPTIONS, mu=1.0, used=folds.used)
        embedded.append(model.embed(data.repeat(4).rows))
        assert not torch.equal(model.posterior.weights[0], model.posterior.weights[1])
    assert torch.equal(*embedded)


def test_columns_of_a_group_share_a_relevance_and_the_relevant_one_is_found():
    data = _data(n=80, d=4)
    folds = draw_folds(data.rows[0], seed=0)
    groups = torch.tensor([0, 1, 2, 2])
    stack = fit_guides(data, mlp(), folds, smooth=False, groups=groups, noise_floor=FLOOR)
    relevance = stack.multipliers
    torch.testing.assert_close(relevance[:, 2], relevance[:, 3])
    assert bool((relevance[:, 0] > 2 * relevance[:, 1:].max(dim=-1).values).all())


def test_a_kernel_that_is_no_network_is_taken_as_it_is():
    def linear(x1, x2):
        return 1 + x1 @ x2.mT

    stack = fit_stacked_gdkl(_data(), linear, OPTIONS, smooth=False)
    assert list(stack.models) == ["guide", STUDENT]


def test_the_student_is_unsure_in_a_gap_as_its_guides_are():
    x = torch.cat([torch.linspace(-2, -0.7, 40), torch.linspace(0.7, 2, 40)]).double()
    noise = 0.15 * torch.randn(80, generator=torch.Generator().manual_seed(0)).double()
    data = TrainingData(x[None, :, None], (torch.sin(3 * x) / 0.7 + noise)[None, None])
    options = StudentOptions(
        Schedule(200, 2e-2, decay=Decay.COSINE, warm_up=0.05, beta2=0.99),
        noise_floor=FLOOR,
        kernel_rate=3.0,
        split_pool=128,
    )
    gap = torch.linspace(-0.4, 0.4, 21).double()[None, :, None]

    def ratio(mu):
        stack = fit_stacked_gdkl(data, mlp(), options, mu=mu, smooth=False)
        found = {name: model.marginals(gap).variance.mean().sqrt() for name, model in stack.models.items()}
        student = found.pop(STUDENT)
        return float(student / torch.stack(list(found.values())).mean())

    with_points = ratio(1.0)
    assert 0.8 < with_points < 1.25
    assert ratio(0.0) < with_points
