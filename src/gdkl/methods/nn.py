"""The same network with a Gaussian head, a mean and a variance for each target: alone, or a deep ensemble."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gdkl.gp import Marginals
from gdkl.objectives import ObjectiveValue, predictive
from gdkl.training import GaussianNetwork, StudentOptions, TrainingData, fit_network
from gdkl.training.gaussian_network import split_gaussian


def fit_nn(data: TrainingData, options: StudentOptions) -> GaussianNetwork:
    """Train networks and their heads on −log N(y; μ(x), σ²(x)) of all rows."""

    def gaussian(network: nn.Module, data: TrainingData) -> tuple[Tensor, Tensor]:
        return split_gaussian(network(data.rows).mT, options.noise_floor)

    def loss(network: nn.Module, data: TrainingData) -> ObjectiveValue:
        mean, variance = gaussian(network, data)
        return predictive(Marginals(mean, torch.zeros_like(mean)), data.targets, data.row_noise(variance))

    model = fit_network(data, options, loss, per_output=2)
    with torch.no_grad():
        noise = gaussian(model.embed, data)[1].mean(dim=-1)
    return GaussianNetwork(**vars(model), mean_noise=noise.double(), floor=options.noise_floor)
