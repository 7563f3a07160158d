"""From a fitted estimator to what a model file holds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from gdkl import infinite
from gdkl.estimators.model_file import write_model
from gdkl.gp import GPyTorchKernel, ScaledKernel
from gdkl.nets import MLP, Members
from gdkl.numerics import NotFittedError

if TYPE_CHECKING:
    from gdkl.estimators.base import RegressorBase

#: Mark of a part that only the user's code can build.
CUSTOM = "custom"


def save(estimator: RegressorBase, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to one file."""
    if not hasattr(estimator, "model_"):
        raise NotFittedError(f"this {type(estimator).__name__} is not fitted yet: call fit(X, y) before save.")
    tensors, header = _pack(estimator)
    write_model(path, tensors, header)


def _pack(estimator: RegressorBase) -> tuple[dict[str, Tensor], dict[str, Any]]:
    model, scaler = estimator.model_, estimator.scaler_
    posterior = model.posterior
    members, outputs, n = posterior.weights.shape
    lower = torch.tril_indices(n, n)
    tensors: dict[str, Tensor] = {
        "posterior.features": posterior.features,
        "posterior.noise": posterior.noise,
        # Only the triangle that holds anything.
        "posterior.factor": posterior.factor[..., lower[0], lower[1]],
        "posterior.weights": posterior.weights,
        **{f"network.{name}": value for name, value in model.embed.state_dict().items()},
    }
    for name in ("x_mean", "x_std", "kept", "y_mean", "y_std"):
        tensors[f"scaler.{name}"] = torch.as_tensor(getattr(scaler, name))
    for column in estimator.history_.columns:
        tensors[f"history.{column}"] = torch.tensor(estimator.history_[column].to_list(), dtype=torch.float64)
    kernel = posterior.kernel
    if isinstance(kernel, ScaledKernel):
        tensors["kernel.scale"] = kernel.scale
    elif isinstance(kernel, GPyTorchKernel):
        tensors.update({f"kernel.{name}": value for name, value in kernel.state_dict().items()})
    # Copies: safetensors refuses tensors that share memory, as expanded ones do. A plain clone of an expanded tensor
    # with one entry keeps its stride of 0, and its bytes could not be read.
    tensors = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()
    }
    outcome = model.outcome
    header: dict[str, Any] = {
        "estimator": type(estimator).__name__,
        "options": {name: _pack_option(name, value) for name, value in estimator.get_params(deep=False).items()},
        "shape": {"members": members, "outputs": outputs, "n": n, "columns": int(scaler.kept.sum())},
        "y_is_1d": scaler.y_is_1d,
        "n_features_in": int(estimator.n_features_in_),
        "feature_names_in": _names(estimator),
        "history_columns": [str(column) for column in estimator.history_.columns],
        "network": _pack_network(model.embed),
        "kernel": "scaled" if isinstance(kernel, ScaledKernel) else "gpytorch",
        "outcome": None if outcome is None else vars(outcome),
    }
    return tensors, header


def _names(estimator: RegressorBase) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _pack_option(name: str, value: Any) -> Any:
    """An option as JSON; parts that only code can build become a mark."""
    if name in ("callbacks", "random_state") and not isinstance(value, (int, np.integer)):
        return None
    if isinstance(value, infinite.InfiniteNetwork):
        return {"kind": "infinite", "spec": value.to_spec()}
    if isinstance(value, (list, tuple)):
        return [_pack_option(name, entry) for entry in cast("list[Any]", value)]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (torch.device, torch.dtype)):
        return str(value).removeprefix("torch.")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return {"kind": CUSTOM, "type": type(value).__name__}


def _pack_network(embed: nn.Module) -> dict[str, Any]:
    if not isinstance(embed, Members):
        return {"kind": "identity"}
    template = embed.template
    if type(template) is MLP:
        return {"kind": "mlp", "in_features": template.in_features, "widths": list(template.widths)}
    return {"kind": CUSTOM}
