"""From a fitted estimator to what a model file holds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from gdkl import infinite
from gdkl.estimators.class_files import pack_classifier
from gdkl.estimators.class_inputs import ImageScaler
from gdkl.estimators.model_file import write_model
from gdkl.estimators.scaling import Scaler
from gdkl.gp import GPyTorchKernel, ScaledKernel, SparsePosterior, is_softplus_rbf
from gdkl.methods import FittedModel
from gdkl.methods.nn_classes import WithHead
from gdkl.nets import MLP, ImageFeatures, Members, WideResNet
from gdkl.numerics import NotFittedError

if TYPE_CHECKING:
    from gdkl.estimators.base import RegressorBase
    from gdkl.estimators.classifier_base import ClassifierBase
    from gdkl.estimators.common import EstimatorBase

#: Mark of a part that only the user's code can build.
CUSTOM = "custom"

#: What the names of the guide's own tensors begin with, where it takes part in predictions.
GUIDE = "guide."

#: The arrays of each scaler.
SCALES = {
    "Scaler": ("x_mean", "x_std", "kept", "y_mean", "y_std"),
    "TableScaler": ("mean", "std", "kept"),
    "ImageScaler": ("mean", "std"),
}


def save(estimator: EstimatorBase, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to one file."""
    if not hasattr(estimator, "model_"):
        raise NotFittedError(f"this {type(estimator).__name__} is not fitted yet: call fit(X, y) before save.")
    tensors, header = _pack(cast(Any, estimator))
    write_model(path, tensors, header)


def _pack(estimator: RegressorBase | ClassifierBase) -> tuple[dict[str, Tensor], dict[str, Any]]:
    model, scaler = estimator.model_, estimator.scaler_
    tensors: dict[str, Tensor] = {f"network.{name}": value for name, value in model.embed.state_dict().items()}
    for name in SCALES[type(scaler).__name__]:
        tensors[f"scaler.{name}"] = torch.as_tensor(getattr(scaler, name))
    for column in estimator.history_.columns:
        tensors[f"history.{column}"] = torch.tensor(estimator.history_[column].to_list(), dtype=torch.float64)
    outcome = model.outcome
    header: dict[str, Any] = {
        "estimator": type(estimator).__name__,
        "options": {name: _pack_option(name, value) for name, value in estimator.get_params(deep=False).items()},
        "n_features_in": int(estimator.n_features_in_),
        "feature_names_in": _names(estimator),
        "history_columns": [str(column) for column in estimator.history_.columns],
        "network": _pack_network(model.embed),
        "outcome": None if outcome is None else vars(outcome),
        "inference": getattr(estimator, "inference_", None),
        "beta": getattr(estimator, "beta_", None),
    }
    if isinstance(model, FittedModel):
        _pack_posterior(model, tensors, header)
        if model.guide is not None:
            own: dict[str, Tensor] = {}
            described: dict[str, Any] = {"share": model.guide_share}
            _pack_posterior(model.guide, own, described)
            tensors |= {f"{GUIDE}{name}": value for name, value in own.items()}
            header["guide_model"] = described
    else:
        header["shape"] = {"members": model.embed.count, "outputs": model.classes}
    if isinstance(scaler, Scaler):
        header["y_is_1d"] = scaler.y_is_1d
    else:
        pack_classifier(cast(Any, estimator), header)
    # What a network's factory gets: kept columns, or the channels of images, of which the scaler has a mean each.
    header["shape"]["columns"] = len(scaler.mean) if isinstance(scaler, ImageScaler) else int(scaler.kept.sum())
    # Copies: safetensors refuses tensors that share memory, as expanded ones do. A plain clone of an expanded tensor
    # with one entry keeps its stride of 0, and its bytes could not be read.
    tensors = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()
    }
    return tensors, header


def _pack_posterior(model: FittedModel, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    posterior = model.posterior
    members, outputs, n = posterior.weights.shape
    tensors |= {
        "posterior.features": posterior.features,
        "posterior.noise": posterior.noise,
        "posterior.weights": posterior.weights,
    }
    if isinstance(posterior, SparsePosterior):
        tensors["posterior.reduction"] = posterior.reduction
    else:
        # Only the triangle that holds anything.
        lower = torch.tril_indices(n, n)
        tensors["posterior.factor"] = posterior.factor[..., lower[0], lower[1]]
    kernel = posterior.kernel
    if isinstance(kernel, ScaledKernel):
        tensors["kernel.scale"] = kernel.scale
    elif isinstance(kernel, GPyTorchKernel):
        tensors |= {f"kernel.{name}": value for name, value in kernel.state_dict().items()}
    header["shape"] = {"members": members, "outputs": outputs, "n": n}
    header["kernel"] = "scaled" if isinstance(kernel, ScaledKernel) else "gpytorch"
    if isinstance(kernel, GPyTorchKernel) and is_softplus_rbf(kernel.kernel):
        header["parametrisation"] = "softplus"


def _names(estimator: RegressorBase | ClassifierBase) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _pack_option(name: str, value: Any) -> Any:
    """An option as JSON; parts that only code can build become a mark."""
    # A model that is read elsewhere has no use for the folder that it was trained in.
    if name == "checkpoint_dir" or (name in ("callbacks", "random_state") and not isinstance(value, (int, np.integer))):
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
    return _describe(embed.template) if isinstance(embed, Members) else {"kind": "identity"}


def _describe(module: nn.Module) -> dict[str, Any]:
    """What it takes to build a network of this architecture again."""
    if type(module) is MLP:
        return {"kind": "mlp", "in_features": module.in_features, "widths": list(module.widths)}
    if type(module) is WideResNet:
        return {
            "kind": "wide_resnet",
            "depth": module.depth,
            "widen_factor": module.widen_factor,
            "in_channels": module.in_channels,
        }
    if isinstance(module, ImageFeatures):
        return {
            "kind": "images",
            "image_shape": list(module.image_shape),
            "dtype": str(module.dtype).removeprefix("torch."),
            "network": _describe(module.network),
        }
    if isinstance(module, WithHead):
        head = cast(nn.Linear, module.head)
        return {
            "kind": "with_head",
            "features": head.in_features,
            "classes": head.out_features,
            "network": _describe(module.network),
        }
    return {"kind": CUSTOM}
