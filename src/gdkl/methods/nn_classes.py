"""The same network with a softmax head: what a deep kernel is compared with."""

from __future__ import annotations

from torch import nn

from gdkl.objectives import ObjectiveValue, cross_entropy
from gdkl.training import ClassData, FittedNetwork, StudentOptions, fit_network


def fit_nn_classes(data: ClassData, options: StudentOptions) -> FittedNetwork:
    """Train the network and its head on the cross-entropy of all rows."""

    def loss(network: nn.Module, data: ClassData) -> ObjectiveValue:
        return cross_entropy(network(data.rows).mT, data.labels)

    return fit_network(data, options, loss)
