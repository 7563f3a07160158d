"""Deep kernel learning of labels: one deep kernel per class, by the evidence of the Dirichlet targets."""

from __future__ import annotations

import torch

from gdkl.objectives import ObjectiveValue, marginal_likelihood
from gdkl.training import MATRIX_NAME, ClassData, DeepKernel, FittedModel, StudentOptions, fit_exact


def fit_dkl_classes(data: ClassData, options: StudentOptions) -> FittedModel:
    """Train one deep kernel per class by evidence, with the variances that the labels carry.

    The evidence of the classes is summed, as they are independent processes over the same features: with their mean,
    gradient descent would take published steps divided by the number of classes.
    """

    def loss(student: DeepKernel, data: ClassData) -> ObjectiveValue:
        K = student.gram(data.rows) + torch.diag_embed(data.label_noise)
        mean, terms = marginal_likelihood(K, data.targets, student.noise(), name=MATRIX_NAME)
        return ObjectiveValue(data.outputs * mean, {name: data.outputs * term for name, term in terms.items()})

    return fit_exact(data, options, loss, row_noise=data.label_noise)
