"""Deep kernel learning: deep kernel + marginal likelihood over all rows. The baseline that overfits."""

from __future__ import annotations

from gdkl.guide import informative
from gdkl.objectives import ObjectiveValue, marginal_likelihood
from gdkl.training import (
    MATRIX_NAME,
    DeepKernel,
    FittedModel,
    StudentOptions,
    TrainingData,
    condition_untrained,
    fit_exact,
)


def fit_dkl(data: TrainingData, options: StudentOptions) -> FittedModel:
    """Train a deep kernel by evidence; one whose targets all tell nothing of it stays as it starts."""
    tells = informative(data.targets).any(dim=0)
    if not bool(tells.any()):
        return condition_untrained(data, options)
    some = slice(None) if bool(tells.all()) else tells

    def loss(student: DeepKernel, data: TrainingData) -> ObjectiveValue:
        K, noise = student.gram(data.rows)[:, some], data.row_noise(student.noise())[:, some]
        return marginal_likelihood(K, data.targets[:, some], noise, name=MATRIX_NAME)

    return fit_exact(data, options, loss)
