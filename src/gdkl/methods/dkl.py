"""Deep kernel learning: deep kernel + marginal likelihood over all rows. The baseline that overfits."""

from __future__ import annotations

from collections.abc import Callable

from gdkl.methods.data import TrainingData
from gdkl.methods.deep_kernel import DeepKernel, DeepKernelOptions, train_deep_kernel
from gdkl.methods.fitted import FittedModel
from gdkl.objectives import ObjectiveValue, marginal_likelihood


def fit_dkl(data: TrainingData, options: DeepKernelOptions) -> FittedModel:
    """Train a deep kernel by evidence."""

    def make_loss(model: DeepKernel) -> Callable[[int], ObjectiveValue]:
        def loss(step: int) -> ObjectiveValue:
            return marginal_likelihood(model.gram(data), data.targets, model.noise(), name="the deep kernel's matrix")

        return loss

    return train_deep_kernel(data, options, make_loss, guided=False)
