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
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from gdkl import infinite
from gdkl.estimators.base import EstimatorBase, Fit
from gdkl.estimators.baselines import DLVKLClassifier, DLVKLRegressor, DUEClassifier, DUERegressor, NNRegressor
from gdkl.estimators.classifiers import DKLClassifier, GDKLClassifier, NNClassifier, NNGPClassifier
from gdkl.estimators.factories import guide_kernel
from gdkl.estimators.kinds import ImageKind, Kind, TableKind
from gdkl.estimators.model_file import read_model
from gdkl.estimators.presets import Preset
from gdkl.estimators.regressors import DKLRegressor, GDKLRegressor, GPRegressor, NNGPRegressor
from gdkl.estimators.saving import ATTRIBUTES, LOG_NOISE, OTHER
from gdkl.gp import (
    ExactPosterior,
    GPyTorchKernel,
    KernelFunction,
    ScaledKernel,
    SparsePosterior,
    rbf_kernel,
    softplus_rbf_kernel,
)
from gdkl.inputs import ColumnCode, ImageInput, TableEncoder, TableInput, TargetScaler, warp_from_spec
from gdkl.methods import STUDENT
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
)
from gdkl.numerics import GdklError, ModelFileError, OptionError, resolve_device, resolve_dtype
from gdkl.training import (
    CodedModel,
    FittedModel,
    FittedNetwork,
    GaussianNetwork,
    Stack,
    TrainingOutcome,
    batch_kernel,
)

if TYPE_CHECKING:
    from gpytorch.kernels import Kernel

#: Parts that a factory can rebuild.
PARTS = ("feature_net", "base_kernel", "guide", "warp")

Factories = Mapping[str, Any]

_KINDS: tuple[type[EstimatorBase], ...] = (
    GDKLRegressor,
    DKLRegressor,
    NNGPRegressor,
    GPRegressor,
    DUERegressor,
    DLVKLRegressor,
    NNRegressor,
    GDKLClassifier,
    DKLClassifier,
    NNGPClassifier,
    NNClassifier,
    DUEClassifier,
    DLVKLClassifier,
)
_ESTIMATORS = {kind.__name__: kind for kind in _KINDS}


def load(path: str | os.PathLike[str], factories: Factories | None = None) -> Any:
    """Read a model that `save` wrote.

    Args:
        path: The file.
        factories: Functions that rebuild custom parts, by the option's name: ``{"feature_net": f, "base_kernel": g,
            "guide": h}``; of a warp the pair itself, ``{"warp": (f, inverse)}``. A network's factory may take the
            number of columns. What a factory returns only gives the architecture; trained values come from the file.

    Returns:
        The fitted estimator.

    Raises:
        ModelFileError: If the file is no model, damaged, of another format, or needs a factory that was not passed.
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


def _unpack(tensors: dict[str, Tensor], header: dict[str, Any], factories: Factories) -> EstimatorBase:
    made = _ESTIMATORS.get(str(header["estimator"]))
    if made is None:
        raise ModelFileError(f"the file holds a {header['estimator']!r}, which this version of gdkl does not know.")
    kind = _unpack_kind(tensors, header["input"])
    columns = kind.input.columns
    options = {name: _unpack_option(name, value, factories, columns) for name, value in header["options"].items()}
    estimator: Any = made(**options)
    options["base_kernel"] = options.get("base_kernel") or estimator._default_kernel()
    estimator.kind_ = kind
    for name, value in header["attributes"].items():
        if name in ATTRIBUTES:
            setattr(estimator, name, value)
    if header["feature_names_in"] is not None:
        estimator.feature_names_in_ = np.asarray(header["feature_names_in"], dtype=object)
    try:
        device = resolve_device(estimator.device)
    except OptionError:
        device = torch.device("cpu")
    tensors = {name: value.to(device) for name, value in tensors.items()}
    if "target" in header:
        mean, std = (tensors[f"target.{name}"].cpu().numpy() for name in ("mean", "std"))
        warps = [warp_from_spec(spec, options.get("warp")) for spec in header["target"]["warps"]]
        estimator.target_ = TargetScaler(mean, std, bool(header["target"]["is_1d"]), tuple(warps))
    else:
        _unpack_classes(estimator, header)
    guide = estimator.__dict__.get("guide_", options.get("guide"))
    model = _unpack_model(tensors, header, options, factories, kind, guide)
    others: dict[str, FittedModel] = {}
    for number, described in enumerate(header["others"]):
        own = _under(f"{OTHER}{number}.", tensors)
        embed = _unpack_network(own, described, factories, kind)
        posterior = _unpack_posterior(own, described["model"], options, kind, guide)
        noise = own.get("predictive_noise")
        others[described["name"]] = FittedModel(embed, posterior, predictive_noise=noise)
    saved, stack = header["attributes"], None
    log_noise = others.pop(LOG_NOISE, None)
    if "weights" in tensors:
        models = others | {str(header.get("name", STUDENT)): cast(FittedModel, model)}
        stack = Stack(models, tensors["weights"], log_noise, tensors.get("temperatures"), tensors.get("outliers"))
    estimator._adopt(Fit(model, stack, float(saved.get("temperature_", 1.0)), saved.get("beta_")))
    return estimator


def _unpack_network(tensors: dict[str, Tensor], header: dict[str, Any], factories: Factories, kind: Kind) -> nn.Module:
    if header["network"]["kind"] == "identity":
        return nn.Identity()
    members = range(int(header["model"]["members"]))
    embed = Members([_build(header["network"], factories, kind.input.columns) for _ in members])
    # The file's own tensors: a network may be in another precision than what stands on it.
    embed.load_state_dict(_under("network.", tensors), assign=True)
    return embed.requires_grad_(False).eval()


def _unpack_kind(tensors: dict[str, Tensor], described: dict[str, Any]) -> Kind:
    mean, std = (tensors[f"input.{name}"].cpu().numpy() for name in ("mean", "std"))
    if described["kind"] == "table":
        columns, tails = described.get("columns"), tensors.get("input.tails")
        encoder = None if columns is None else TableEncoder(tuple(ColumnCode(**column) for column in columns))
        kept = tensors["input.kept"].cpu().numpy()
        return TableKind(TableInput(mean, std, kept, encoder, None if tails is None else tails.cpu().numpy()))
    shape = tuple(int(size) for size in described["image_shape"])
    return ImageKind(ImageInput(mean, std, shape, bool(described["integers"]), bool(described["unit"])))


def _unpack_classes(estimator: Any, header: dict[str, Any]) -> None:
    labels = header["classes"]
    estimator.classes_ = np.asarray(labels["labels"], dtype=np.dtype(labels["dtype"]))
    if header["guide_report"] is not None:
        estimator.guide_report_ = pd.DataFrame(**header["guide_report"])
    if header["guide"] is not None:
        estimator.guide_ = infinite.from_spec(header["guide"])
    elif "guide" in header["options"]:
        estimator.guide_ = guide_kernel(estimator.guide)


def _unpack_model(
    tensors: dict[str, Tensor],
    header: dict[str, Any],
    options: dict[str, Any],
    factories: Factories,
    kind: Kind,
    guide: Any,
) -> FittedModel | FittedNetwork:
    described, embed = header["model"], _unpack_network(tensors, header, factories, kind)
    names = header["history_columns"]
    logged = zip(*(tensors[f"history.{name}"].tolist() for name in names), strict=True) if names else ()
    history = [dict(zip(names, row, strict=True)) for row in logged]
    outcome = None if header["outcome"] is None else TrainingOutcome(**header["outcome"])
    if "kernel" not in described:
        known = cast(Members, embed), int(described["outputs"]), history, outcome
        if "mean_noise" not in tensors:
            return FittedNetwork(*known)
        return GaussianNetwork(*known, mean_noise=tensors["mean_noise"], floor=float(described["floor"]))
    posterior = _unpack_posterior(tensors, described, options, kind, guide)
    if "code_samples" in tensors:
        return CodedModel(embed, posterior, history, outcome, samples=tensors["code_samples"])
    return FittedModel(embed, posterior, history, outcome, predictive_noise=tensors.get("predictive_noise"))


def _unpack_posterior(
    tensors: dict[str, Tensor], described: dict[str, Any], options: dict[str, Any], kind: Kind, guide: Any
) -> ExactPosterior | SparsePosterior:
    kernel = _unpack_kernel(tensors, described, options, kind, guide)
    features, noise, weights = (tensors[f"posterior.{name}"] for name in ("features", "noise", "weights"))
    if "posterior.reduction" in tensors:
        return SparsePosterior(kernel, features, noise, weights, tensors["posterior.reduction"])
    packed, n = tensors["posterior.factor"], int(described["n"])
    lower = torch.tril_indices(n, n, device=packed.device)
    factor = packed.new_zeros(*packed.shape[:-1], n, n)
    factor[..., lower[0], lower[1]] = packed
    return ExactPosterior(kernel, features, noise, factor, weights)


def _unpack_kernel(
    tensors: dict[str, Tensor], described: dict[str, Any], options: dict[str, Any], kind: Kind, guide: Any
) -> KernelFunction:
    if described["kernel"] == "scaled":
        own = guide_kernel(guide) if described["spec"] is None else infinite.from_spec(described["spec"])
        return ScaledKernel(kind.kernel(own), tensors["kernel.scale"])
    shape = (int(described["members"]), int(described["outputs"]))
    given = options.get("base_kernel")
    if given is not None:
        kernel: Kernel = batch_kernel(given, shape)
    elif described["positive"] == "softplus":
        kernel = softplus_rbf_kernel(shape)
    else:
        kernel = rbf_kernel(shape, ard_num_dims=kind.input.columns if options.get("ard") else None)
    function = GPyTorchKernel(kernel).to(tensors["posterior.features"])
    function.load_state_dict(_under("kernel.", tensors))
    function.requires_grad_(False)
    return function


def _unpack_option(name: str, value: Any, factories: Factories, columns: int) -> Any:
    if isinstance(value, list):
        return tuple(cast("list[Any]", value))
    if not isinstance(value, dict):
        return value
    if value["kind"] == "preset":
        fields = {key: _unpack_option(key, entry, {}, columns) for key, entry in value["fields"].items()}
        return Preset(**fields)
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
    if isinstance(factory, (tuple, list)):
        # The pair of functions of a warp.
        return cast(Any, factory)
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


def _build(description: dict[str, Any], factories: Factories, columns: int) -> nn.Module:
    """A network of the architecture that the file describes; what it cannot describe, a factory builds."""
    kind = description["kind"]
    if kind in ("mlp", "residual_mlp"):
        return (MLP if kind == "mlp" else ResidualMLP)(description["in_features"], description["widths"])
    if kind == "wide_resnet":
        sizes = (description["depth"], description["widen_factor"])
        return WideResNet(*sizes, in_channels=int(description["in_channels"]))
    if kind == "images":
        inner = _build(description["network"], factories, columns)
        return ImageFeatures(inner, tuple(description["image_shape"]), resolve_dtype(description["dtype"]))
    if kind == "spectral":
        names = ("columns", "coefficient", "power_iterations")
        return SpectralNetwork(_build(description["network"], factories, columns), **{n: description[n] for n in names})
    if kind == "gaussian_encoder":
        inner = _build(description["network"], factories, columns)
        return GaussianEncoder(inner, int(description["columns"]), int(description["codes"]))
    if kind == "column_scale":
        return ColumnScale(torch.ones(columns))
    if kind == "scaled_columns":
        return nn.Sequential(ColumnScale(torch.ones(columns)), _build(description["network"], factories, columns))
    if kind == "with_head":
        inner = _build(description["network"], factories, columns)
        return WithHead(inner, nn.Linear(description["features"], description["classes"]))
    module = _make("feature_net", factories, columns, "network")
    if not isinstance(module, nn.Module):
        raise ModelFileError("factories['feature_net'] must return a torch.nn.Module.")
    return module


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
