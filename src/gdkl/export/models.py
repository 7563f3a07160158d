"""Latent functions of fitted models, as a graph: feature networks, and posteriors over their features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from gdkl.export.graph import Value
from gdkl.export.kernels import covariances, numbers
from gdkl.gp import SparsePosterior
from gdkl.gp.solver import RELATIVE_VARIANCE_FLOOR
from gdkl.nets import MLP, ColumnScale, Members, WithHead
from gdkl.numerics import ModelFileError
from gdkl.training import FittedModel, FittedNetwork

#: Layers without parameters, and the operator that each is.
_ELEMENTWISE: dict[type[nn.Module], str] = {nn.ReLU: "Relu", nn.Tanh: "Tanh", nn.Sigmoid: "Sigmoid"}


def features(embed: nn.Module, rows: Value) -> Value:
    """What a network makes of rows ``(1, m, d)``: ``(members, m, p)``, or the rows themselves."""
    if not isinstance(embed, Members):
        return rows if isinstance(embed, nn.Identity) else _refuse(embed)
    several = embed.count > 1
    networks = [embed.select(slice(k, k + 1)).single if several else embed.single for k in range(embed.count)]
    return _layer(networks, rows)


def latents(model: FittedModel | FittedNetwork, rows: Value) -> tuple[Value, Value]:
    """Means and variances ``(members, outputs, m)`` of the functions at rows ``(1, m, d)``."""
    if type(model) is not FittedModel:
        raise ModelFileError(
            "ONNX files are of Gaussian processes and of classifiers' networks, not of networks with a Gaussian head "
            "or codes: keep the model with save(path)."
        )
    posterior, graph = model.posterior, rows.graph
    new = features(model.embed, rows).insert(1)
    cross, prior = covariances(posterior.kernel, new, posterior.features.unsqueeze(-3))
    mean = graph.op("Squeeze", cross @ numbers(posterior.weights)[..., None], np.array([-1]))
    if isinstance(posterior, SparsePosterior):
        known = ((cross @ numbers(posterior.reduction)) * cross).sum(-1)
    else:
        known = (cross @ _inverse_factor(posterior.factor)).square.sum(-1)
    return mean, graph.op("Max", prior - known, RELATIVE_VARIANCE_FLOOR * prior)


def _inverse_factor(factor: Tensor) -> np.ndarray:
    """L⁻ᵀ: ONNX has products and no solves."""
    factor = factor.detach().to("cpu", torch.float64)
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype)
    return torch.linalg.solve_triangular(factor.mT, identity, upper=True).numpy()


def _layer(members: Sequence[nn.Module], x: Value) -> Value:
    """The same layer of each member, of ``(members or 1, m, d)``."""
    first = members[0]
    if type(first) in (MLP, WithHead, nn.Sequential):
        for layers in zip(*(_parts(network) for network in members), strict=True):
            x = _layer(layers, x)
        return x
    if type(first) is nn.Linear:
        weight = np.stack([numbers(layer.weight).T for layer in members if isinstance(layer, nn.Linear)])
        x = x @ weight
        if cast("Tensor | None", first.bias) is None:
            return x
        return x + np.stack([numbers(layer.bias)[None] for layer in members if isinstance(layer, nn.Linear)])
    if type(first) is ColumnScale:
        return x * np.stack([numbers(layer.factors)[None] for layer in members if isinstance(layer, ColumnScale)])
    if type(first) in _ELEMENTWISE:
        return x.map(_ELEMENTWISE[type(first)])
    return x if type(first) in (nn.Identity, nn.Dropout) else _refuse(first)


def _parts(network: nn.Module) -> list[nn.Module]:
    if isinstance(network, MLP):
        return list(network.layers)
    if isinstance(network, WithHead):
        return [network.network, network.head]
    return list(network.children())


def _refuse(module: nn.Module) -> Value:
    raise ModelFileError(
        f"ONNX files are of networks of Linear, ReLU, Tanh and Sigmoid layers, not of {type(module).__name__}: fit "
        "with such a feature_net, or keep the model with save(path)."
    )
