"""Deep kernel learning: deep kernel + marginal likelihood over all rows. The baseline that overfits."""

from __future__ import annotations

from gdkl.objectives import ObjectiveValue, marginal_likelihood
from gdkl.training import MATRIX_NAME, DeepKernel, FittedModel, StudentOptions, TrainingData, fit_exact


def fit_dkl(data: TrainingData, options: StudentOptions) -> FittedModel:
    """Train a deep kernel by evidence."""

    def loss(student: DeepKernel, data: TrainingData) -> ObjectiveValue:
        return marginal_likelihood(
            student.gram(data.rows), data.targets, data.row_noise(student.noise()), name=MATRIX_NAME
        )

    return fit_exact(data, options, loss)
