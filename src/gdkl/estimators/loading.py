"""From a model file back to a fitted estimator.

Parts that only the user's code can build (a custom network, kernel or guide) are rebuilt by factories that the
caller passes; trained values come from the file.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from gdkl import infinite
from gdkl.estimators.base import RegressorBase
from gdkl.estimators.class_files import unpack_classifier, unpack_scaler
from gdkl.estimators.classifier_base import ClassifierBase
from gdkl.estimators.classifier_baselines import DKLClassifier, NNClassifier, NNGPClassifier
from gdkl.estimators.gdkl_classifier import GDKLClassifier
from gdkl.estimators.guided_classifier import GuidedClassifier
from gdkl.estimators.model_file import read_model
from gdkl.estimators.parts import guide_kernel
from gdkl.estimators.regressors import DKLRegressor, GDKLRegressor, GPRegressor, NNGPRegressor
from gdkl.estimators.saving import GUIDE, SCALES
from gdkl.estimators.scaling import Scaler
from gdkl.gp import (
    ExactPosterior,
    GPyTorchKernel,
    KernelFunction,
    ScaledKernel,
    SparsePosterior,
    rbf_kernel,
    softplus_rbf_kernel,
)
from gdkl.guide import as_kernel_function
from gdkl.methods import FittedModel, FittedNetwork
from gdkl.methods.deep_kernel import batch_kernel
from gdkl.methods.nn_classes import WithHead
from gdkl.nets import MLP, ImageFeatures, Members, WideResNet
from gdkl.numerics import GdklError, ModelFileError, OptionError, resolve_device, resolve_dtype
from gdkl.training import TrainingOutcome

#: Parts that a factory can rebuild.
PARTS = ("feature_net", "base_kernel", "guide")

Factories = Mapping[str, Any]

_KINDS: tuple[type[RegressorBase] | type[ClassifierBase], ...] = (
    GDKLRegressor,
    DKLRegressor,
    NNGPRegressor,
    GPRegressor,
    GDKLClassifier,
    DKLClassifier,
    NNGPClassifier,
    NNClassifier,
)
_ESTIMATORS = {kind.__name__: kind for kind in _KINDS}


def load(path: str | os.PathLike[str], factories: Factories | None = None) -> Any:
    """Read a model that `save` wrote.

    Args:
        path: The file.
        factories: Functions that rebuild custom parts, by the option's name: ``{"feature_net": f, "base_kernel": g,
            "guide": h}``. A network's factory may take the number of columns. What a factory returns only gives the
            architecture; trained values come from the file.

    Returns:
        The fitted estimator.

    Raises:
        ModelFileError: If the file is no model, damaged, of a newer format, or needs a factory that was not passed.
    """
    factories = dict(factories or {})
    unknown = sorted(set(factories) - set(PARTS))
    if unknown:
        raise OptionError(f"factories has unknown parts {unknown}: the names are {', '.join(PARTS)}.")
    tensors, header = read_model(Path(path))
    try:
        return _unpack(tensors, header, factories)
    except GdklError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise ModelFileError(
            f"{path} cannot be rebuilt: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''} "
            "If it needs factories, check that they build the same architecture as when the model was fitted."
        ) from error


def _unpack(tensors: dict[str, Tensor], header: dict[str, Any], factories: Factories) -> Any:
    kind = _ESTIMATORS.get(str(header["estimator"]))
    if kind is None:
        raise ModelFileError(f"the file holds a {header['estimator']!r}, which this version of gdkl does not know.")
    columns = int(header["shape"]["columns"])
    options = {name: _unpack_option(name, value, factories, columns) for name, value in header["options"].items()}
    estimator = kind(**options)
    try:
        device = resolve_device(estimator.device)
    except OptionError:
        device = torch.device("cpu")
    tensors = {name: value.to(device) for name, value in tensors.items()}
    names = header["history_columns"]
    logged = zip(*(tensors[f"history.{name}"].tolist() for name in names), strict=True) if names else ()
    history = [dict(zip(names, row, strict=True)) for row in logged]
    outcome = None if header["outcome"] is None else TrainingOutcome(**header["outcome"])
    estimator.n_features_in_ = int(header["n_features_in"])
    # Files from before there was a choice do not say.
    if header.get("inference") is not None:
        estimator.inference_ = header["inference"]
    if isinstance(estimator, GDKLClassifier) and header.get("beta") is not None:
        estimator.beta_ = float(header["beta"])
    if header["feature_names_in"] is not None:
        estimator.feature_names_in_ = np.asarray(header["feature_names_in"], dtype=object)
    if isinstance(estimator, ClassifierBase):
        seed, temperature = unpack_classifier(estimator, header)
        model = _unpack_model(tensors, header, options, factories, columns, estimator)
        model.history, model.outcome = history, outcome
        estimator._adopt(model, unpack_scaler(tensors, header), seed, temperature)
        return estimator
    scaler = Scaler(
        **{name: tensors[f"scaler.{name}"].cpu().numpy() for name in SCALES["Scaler"]},
        y_is_1d=bool(header["y_is_1d"]),
    )
    model = _unpack_model(tensors, header, options, factories, columns, estimator)
    model.history, model.outcome = history, outcome
    estimator._adopt(cast(FittedModel, model), scaler)
    return estimator


def _unpack_model(
    tensors: dict[str, Tensor],
    header: dict[str, Any],
    options: dict[str, Any],
    factories: Factories,
    columns: int,
    estimator: RegressorBase | ClassifierBase,
) -> FittedModel | FittedNetwork:
    embed = _unpack_network(tensors, header, factories, columns)
    if "kernel" not in header:
        return FittedNetwork(cast(Members, embed), int(header["shape"]["outputs"]))
    model = FittedModel(embed, _unpack_posterior(tensors, header, options, factories, estimator))
    # Files from before guides had a share have none, and predict as they did.
    described = header.get("guide_model")
    if described is not None:
        posterior = _unpack_posterior(_under(GUIDE, tensors), described, options, factories, estimator)
        model.guide, model.guide_share = FittedModel(nn.Identity(), posterior), float(described["share"])
    return model


def _unpack_posterior(
    tensors: dict[str, Tensor],
    header: dict[str, Any],
    options: dict[str, Any],
    factories: Factories,
    estimator: RegressorBase | ClassifierBase,
) -> ExactPosterior | SparsePosterior:
    kernel = _unpack_kernel(tensors, header, options, factories, estimator)
    features, noise, weights = (tensors[f"posterior.{name}"] for name in ("features", "noise", "weights"))
    if "posterior.reduction" in tensors:
        return SparsePosterior(kernel, features, noise, weights, tensors["posterior.reduction"])
    factor = _unpack_factor(tensors["posterior.factor"], int(header["shape"]["n"]))
    return ExactPosterior(kernel, features, noise, factor, weights)


def _unpack_factor(packed: Tensor, n: int) -> Tensor:
    lower = torch.tril_indices(n, n, device=packed.device)
    factor = packed.new_zeros(*packed.shape[:-1], n, n)
    factor[..., lower[0], lower[1]] = packed
    return factor


def _unpack_option(name: str, value: Any, factories: Factories, columns: int) -> Any:
    if isinstance(value, list):
        return tuple(cast("list[Any]", value))
    if not isinstance(value, dict):
        return value
    if value["kind"] == "infinite":
        return infinite.from_spec(value["spec"])
    return _make(name, factories, columns, str(value.get("type")))


def _make(name: str, factories: Factories, columns: int, original: str) -> Any:
    """Call the user's factory for a custom part, or hand over a part that was passed as it is."""
    if name not in factories:
        raise ModelFileError(
            f"the model was fitted with a custom {name} ({original}): pass "
            f"gdkl.load(path, factories={{{name!r}: function that builds it}})."
        )
    factory = factories[name]
    if isinstance(factory, (nn.Module, infinite.InfiniteNetwork)):
        return deepcopy(factory)
    if name == "guide" and not _takes_nothing(factory):
        # A guide that is a plain function k(x1, x2) may be passed as itself.
        return factory
    if not callable(factory):
        raise ModelFileError(f"factories[{name!r}] must be a function that builds the {name}.")
    build = cast("Callable[..., Any]", factory)
    return build() if name != "feature_net" or _takes_nothing(build) else build(columns)


def _takes_nothing(function: Any) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    return not any(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def _unpack_network(
    tensors: dict[str, Tensor], header: dict[str, Any], factories: Factories, columns: int
) -> nn.Module:
    description = header["network"]
    if description["kind"] == "identity":
        return nn.Identity()
    networks = [_build(description, factories, columns) for _ in range(int(header["shape"]["members"]))]
    embed = Members(networks)
    # The file's own tensors: a network may be in another precision than what stands on it.
    embed.load_state_dict(_under("network.", tensors), assign=True)
    embed.requires_grad_(False)
    return embed.eval()


def _build(description: dict[str, Any], factories: Factories, columns: int) -> nn.Module:
    """A network of the architecture that the file describes; what it cannot describe, a factory builds."""
    kind = description["kind"]
    if kind == "mlp":
        return MLP(description["in_features"], description["widths"])
    if kind == "wide_resnet":
        return WideResNet(
            description["depth"], description["widen_factor"], in_channels=int(description["in_channels"])
        )
    if kind == "images":
        inner = _build(description["network"], factories, columns)
        return ImageFeatures(inner, tuple(description["image_shape"]), resolve_dtype(description["dtype"]))
    if kind == "with_head":
        inner = _build(description["network"], factories, columns)
        return WithHead(inner, nn.Linear(description["features"], description["classes"]))
    module = _make("feature_net", factories, columns, "network")
    if not isinstance(module, nn.Module):
        raise ModelFileError("factories['feature_net'] must return a torch.nn.Module.")
    return module


def _unpack_kernel(
    tensors: dict[str, Tensor],
    header: dict[str, Any],
    options: dict[str, Any],
    factories: Factories,
    estimator: RegressorBase | ClassifierBase,
) -> KernelFunction:
    if header["kernel"] == "scaled":
        if isinstance(estimator, GuidedClassifier):
            function = estimator._kernel_function(guide_kernel(estimator.guide_))
        else:
            function = as_kernel_function(guide_kernel(options["guide"]))
        return ScaledKernel(function, tensors["kernel.scale"])
    shape = (int(header["shape"]["members"]), int(header["shape"]["outputs"]))
    given = options.get("base_kernel")
    # Files from before there was a choice do not say; a kernel of the user's own has its own.
    if given is None and header.get("parametrisation") == "softplus":
        kernel: Kernel = softplus_rbf_kernel(shape)
    elif given is None:
        ard = int(header["shape"]["columns"]) if options.get("ard") else None
        kernel = rbf_kernel(shape, ard_num_dims=ard)
    else:
        kernel = batch_kernel(given, shape)
    function = GPyTorchKernel(kernel).to(tensors["posterior.features"])
    function.load_state_dict(_under("kernel.", tensors))
    function.requires_grad_(False)
    return function


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
