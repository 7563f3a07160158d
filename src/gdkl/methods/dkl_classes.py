"""Deep kernel learning of labels: a deep kernel a class, by the evidence of the Dirichlet targets."""

from __future__ import annotations

from collections.abc import Callable

from gdkl.gp import add_diagonal
from gdkl.methods.class_data import ClassData
from gdkl.methods.deep_kernel import DeepKernel, DeepKernelOptions, train_deep_kernel
from gdkl.methods.fitted import FittedModel
from gdkl.methods.gdkl_classes import condition_classes
from gdkl.objectives import ObjectiveValue, marginal_likelihood


def fit_dkl_classes(data: ClassData, options: DeepKernelOptions) -> FittedModel:
    """Train a deep kernel a class by evidence, with the variances that the labels carry.

    The evidence of the classes is summed, as they are independent processes over the same features: their mean would
    take gradient descent a class's share of each published step.
    """

    def make_loss(model: DeepKernel) -> Callable[[int], ObjectiveValue]:
        def loss(step: int) -> ObjectiveValue:
            K = add_diagonal(model.gram(data), data.label_noise)
            mean, terms = marginal_likelihood(K, data.targets, model.noise(), name="the deep kernel's matrix")
            return ObjectiveValue(data.outputs * mean, {name: data.outputs * term for name, term in terms.items()})

        return loss

    return train_deep_kernel(
        data,
        options,
        make_loss,
        # K, its distances, its sum with the noise, the factor and the inverse, each with a gradient of its size.
        guided=False,
        finish=lambda model, features: condition_classes(model, features, data),
    )
