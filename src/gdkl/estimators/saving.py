"""From a fitted estimator to what a model file holds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gdkl import infinite
from gdkl.estimators.model_file import write_model
from gdkl.estimators.presets import Preset
from gdkl.gp import GPyTorchKernel, KernelFunction, ScaledKernel, SparsePosterior, is_softplus_rbf
from gdkl.guide import InfiniteKernelFunction
from gdkl.inputs import ImageInput, TableInput
from gdkl.nets import (
    MLP,
    ColumnScale,
    GaussianEncoder,
    ImageFeatures,
    Members,
    ResidualMLP,
    SpectralNetwork,
    WideResNet,
    WithHead,
    scales_columns,
)
from gdkl.numerics import ModelFileError, NotFittedError
from gdkl.training import CodedModel, FittedModel, FittedNetwork, GaussianNetwork

if TYPE_CHECKING:
    from gdkl.estimators.base import EstimatorBase

#: Mark of a part that only the user's code can build.
CUSTOM = "custom"

#: Name of the model of the logarithm of a factor on the noise, among the other models.
LOG_NOISE = "log noise"

#: What the names of the tensors of other models in a mixture begin with, before the number of the model.
OTHER = "other."

#: Attributes of estimators that are plain JSON values, saved where they are set.
ATTRIBUTES = (
    "n_features_in_",
    "inference_",
    "beta_",
    "temperature_",
    "sampling_seed_",
    "target_names_",
    "provenance_",
)


def save(estimator: EstimatorBase, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to one file."""
    if not hasattr(estimator, "model_"):
        raise NotFittedError(f"this {type(estimator).__name__} is not fitted yet: call fit(X, y) before save.")
    tensors, header = _pack(cast(Any, estimator))
    write_model(path, tensors, header)


def _pack(estimator: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    model: FittedModel | FittedNetwork = estimator.model_
    attributes = vars(estimator)
    tensors: dict[str, Tensor] = {f"network.{name}": value for name, value in model.embed.state_dict().items()}
    for column in estimator.history_.columns:
        tensors[f"history.{column}"] = torch.tensor(estimator.history_[column].to_list(), dtype=torch.float64)
    names = attributes.get("feature_names_in_")
    header: dict[str, Any] = {
        "estimator": type(estimator).__name__,
        "options": {name: _pack_option(name, value) for name, value in estimator.get_params(deep=False).items()},
        "attributes": {name: attributes[name] for name in ATTRIBUTES if name in attributes},
        "feature_names_in": None if names is None else [str(name) for name in names],
        "history_columns": [str(column) for column in estimator.history_.columns],
        "input": _pack_input(estimator.kind_.input, tensors),
        "network": _network(model.embed),
        "outcome": None if model.outcome is None else vars(model.outcome),
    }
    if isinstance(model, FittedModel):
        header["model"] = _pack_posterior(model, tensors)
    else:
        header["model"] = {"members": model.embed.count, "outputs": model.outputs}
    if isinstance(model, GaussianNetwork):
        tensors["mean_noise"] = model.mean_noise
        header["model"] |= {"floor": model.floor}
    header["others"] = []
    for number, (name, other) in enumerate(_others(estimator).items()):
        own = {f"network.{key}": value for key, value in other.embed.state_dict().items()}
        described = {"name": name, "network": _network(other.embed), "model": _pack_posterior(other, own)}
        header["others"].append(described)
        tensors |= {f"{OTHER}{number}.{key}": value for key, value in own.items()}
    if isinstance(model, FittedModel):
        tensors["weights"] = estimator.stack_.weights
        header["name"] = next(reversed(estimator.stack_.models))
        named = {"temperatures": estimator.stack_.temperatures, "outliers": estimator.stack_.outliers}
        tensors |= {name: value for name, value in named.items() if value is not None}
    if "target_" in attributes:
        target = estimator.target_
        tensors |= {"target.mean": torch.as_tensor(target.mean), "target.std": torch.as_tensor(target.std)}
        header["target"] = {"is_1d": target.is_1d, "warps": [warp and warp.to_spec() for warp in target.warps]}
    else:
        report, guide = attributes.get("guide_report_"), attributes.get("guide_")
        header["classes"] = _pack_labels(estimator.classes_)
        header["guide_report"] = None if report is None else report.to_dict("split", index=False)
        header["guide"] = guide.to_spec() if isinstance(guide, infinite.InfiniteNetwork) else None
    # Copies: safetensors refuses tensors that share memory, as expanded ones do. A plain clone of an expanded tensor
    # with one entry keeps its stride of 0, and its bytes could not be read.
    tensors = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()
    }
    return tensors, header


def _others(estimator: Any) -> dict[str, FittedModel]:
    """Models that predictions are a mixture of, beside the estimator's own."""
    stack = estimator.stack_
    noise = {} if stack.log_noise is None else {LOG_NOISE: stack.log_noise}
    return {name: model for name, model in stack.models.items() if model is not estimator.model_} | noise


def _network(embed: nn.Module) -> dict[str, Any]:
    return _describe(embed.template) if isinstance(embed, Members) else {"kind": "identity"}


def _pack_input(scales: TableInput | ImageInput, tensors: dict[str, Tensor]) -> dict[str, Any]:
    tensors |= {"input.mean": torch.as_tensor(scales.mean), "input.std": torch.as_tensor(scales.std)}
    if isinstance(scales, ImageInput):
        return {
            "kind": "images",
            "image_shape": list(scales.image_shape),
            "integers": scales.integers,
            "unit": scales.unit,
        }
    tensors["input.kept"] = torch.as_tensor(scales.kept)
    if scales.tails is not None:
        tensors["input.tails"] = torch.as_tensor(scales.tails)
    return {"kind": "table", "columns": scales.encoder and [vars(column) for column in scales.encoder.columns]}


def _pack_posterior(model: FittedModel, tensors: dict[str, Tensor]) -> dict[str, Any]:
    posterior = model.posterior
    members, outputs, n = posterior.weights.shape
    tensors |= {
        "posterior.features": posterior.features,
        "posterior.noise": posterior.noise,
        "posterior.weights": posterior.weights,
    }
    if model.predictive_noise is not None:
        tensors["predictive_noise"] = model.predictive_noise
    if isinstance(model, CodedModel):
        tensors["code_samples"] = model.samples
    if isinstance(posterior, SparsePosterior):
        tensors["posterior.reduction"] = posterior.reduction
    else:
        # Only the triangle that holds anything.
        lower = torch.tril_indices(n, n)
        tensors["posterior.factor"] = posterior.factor[..., lower[0], lower[1]]
    kernel = posterior.kernel
    softplus = isinstance(kernel, GPyTorchKernel) and is_softplus_rbf(kernel.kernel)
    if isinstance(kernel, ScaledKernel):
        tensors["kernel.scale"] = kernel.scale
    elif isinstance(kernel, GPyTorchKernel):
        tensors |= {f"kernel.{name}": value for name, value in kernel.state_dict().items()}
    return {
        "members": members,
        "outputs": outputs,
        "n": n,
        "kernel": "scaled" if isinstance(kernel, ScaledKernel) else "gpytorch",
        "spec": _spec(kernel),
        "positive": "softplus" if softplus else "exp",
    }


def _spec(kernel: KernelFunction) -> Any:
    """The infinite network behind a scaled kernel; None for any other kernel, and for one of images."""
    inner = kernel.kernel if isinstance(kernel, ScaledKernel) else None
    plain = isinstance(inner, InfiniteKernelFunction) and inner.image_shape is None
    return cast(InfiniteKernelFunction, inner).network.to_spec() if plain else None


def _pack_option(name: str, value: Any) -> Any:
    """An option as JSON; parts that only code can build become a mark."""
    if name == "callbacks" or (name == "random_state" and not isinstance(value, (int, np.integer))):
        return None
    if isinstance(value, Preset):
        fields = {field: _pack_option(field, entry) for field, entry in value.set_fields().items()}
        return {"kind": "preset", "fields": fields}
    if isinstance(value, infinite.InfiniteNetwork):
        return {"kind": "infinite", "spec": value.to_spec()}
    if name == "warp" and isinstance(value, (list, tuple)):
        return {"kind": CUSTOM, "type": "pair of functions"}
    if isinstance(value, (list, tuple)):
        return [_pack_option(name, entry) for entry in cast("list[Any]", value)]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (torch.device, torch.dtype)):
        return str(value).removeprefix("torch.")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return {"kind": CUSTOM, "type": type(value).__name__}


def _pack_labels(classes: NDArray[Any]) -> dict[str, Any]:
    """Labels as JSON with the type that they had."""
    kind = classes.dtype.kind
    if kind not in "iufbUO" or not all(isinstance(label, (bool, int, float, str)) for label in classes.tolist()):
        raise ModelFileError(
            f"labels of type {classes.dtype} cannot be saved: fit with labels that are numbers, strings or booleans."
        )
    return {"dtype": "object" if kind == "O" else classes.dtype.str, "labels": classes.tolist()}


def _describe(module: nn.Module) -> dict[str, Any]:
    """What it takes to build a network of this architecture again."""
    if type(module) in (MLP, ResidualMLP):
        kind = "mlp" if type(module) is MLP else "residual_mlp"
        return {"kind": kind, "in_features": module.in_features, "widths": list(cast(MLP, module).widths)}
    if type(module) is WideResNet:
        names = ("depth", "widen_factor", "in_channels")
        return {"kind": "wide_resnet"} | {name: getattr(module, name) for name in names}
    if isinstance(module, ImageFeatures):
        return {
            "kind": "images",
            "image_shape": list(module.image_shape),
            "dtype": str(module.dtype).removeprefix("torch."),
            "network": _describe(module.network),
        }
    if isinstance(module, SpectralNetwork):
        names = ("columns", "coefficient", "power_iterations")
        own = {name: getattr(module, name) for name in names}
        return {"kind": "spectral", "network": _describe(module.network)} | own
    if isinstance(module, GaussianEncoder):
        own = {"columns": module.columns, "codes": module.codes}
        return {"kind": "gaussian_encoder", "network": _describe(module.network)} | own
    if isinstance(module, ColumnScale):
        return {"kind": "column_scale"}
    if scales_columns(module):
        return {"kind": "scaled_columns", "network": _describe(cast(nn.Sequential, module)[1])}
    if isinstance(module, WithHead):
        head = cast(nn.Linear, module.head)
        return {
            "kind": "with_head",
            "features": head.in_features,
            "classes": head.out_features,
            "network": _describe(module.network),
        }
    return {"kind": CUSTOM}
