"""Predictions from latent functions, as a graph, and the files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdkl.export.graph import Graph, Operand, Value, join, log1p
from gdkl.export.kernels import numbers
from gdkl.export.models import features, latents
from gdkl.export.rows import table_rows
from gdkl.gp import PREDICTION_SAMPLES, ClassLikelihood, base_samples
from gdkl.inputs import FloatArray, LinearTails, LogWarp, TableInput, TargetScaler, Warp, YeoJohnson
from gdkl.inputs.function_warp import LARGEST
from gdkl.numerics import ModelFileError
from gdkl.predictive.mixture import HERMITE_NODES
from gdkl.training import MOST_LOG_FACTOR, OUTLIER_VARIANCE, FittedModel, FittedNetwork, Stack

#: Samples of the latent functions that are in memory at a time.
_SAMPLES_AT_A_TIME = 64


def regressor_file(
    path: str | os.PathLike[str], table: TableInput, stack: Stack, target: TargetScaler, notes: Mapping[str, str]
) -> None:
    """Write a regressor: outputs ``mean`` and ``std`` of a new observation, in the target's units."""
    graph = Graph()
    rows = table_rows(graph, table).insert(0)
    means, variances = _mixture(stack, rows)
    weights, each = numbers(stack.component_weights()), list[tuple[Value, Value]]()
    for k, warp in enumerate(target.warps):
        scaled = means.take(k, axis=1) * target.std[k] + target.mean[k], variances.take(k, axis=1) * target.std[k] ** 2
        mean, variance = scaled if warp is None else _unwarped(*scaled, warp)
        weight = weights[:, k, None] / weights[:, k].sum()
        total = (weight * mean).sum(0)
        # Law of total variance.
        each.append((total, (weight * (variance + (mean - total).square)).sum(0).map("Sqrt")))
    for name, values in zip(("mean", "std"), zip(*each, strict=True), strict=True):
        if target.is_1d:
            graph.output(name, values[0], (None,))
        else:
            graph.output(name, join([value.insert(1) for value in values], axis=1), (None, len(values)))
    graph.write(path, notes)


def _mixture(stack: Stack, rows: Value) -> tuple[Value, Value]:
    """Means and variances ``(K, outputs, m)`` of new observations by each component, scaled."""
    factor: Operand = 1.0
    if stack.log_noise is not None:
        factor = latents(stack.log_noise, rows)[0].between(-MOST_LOG_FACTOR, MOST_LOG_FACTOR).map("Exp")
    means, variances = list[Value](), list[Value]()
    for model in stack.models.values():
        mean, variance = latents(model, rows)
        means.append(mean)
        variances.append(variance + factor * numbers(model.noise)[..., None])
    mean, variance = join(means, axis=0), join(variances, axis=0)
    if stack.outliers is None:
        return mean, variance
    return join([mean, mean], axis=0), join([variance, OUTLIER_VARIANCE * variance], axis=0)


def _unwarped(mean: Value, variance: Value, warp: Warp) -> tuple[Value, Value]:
    """Moments ``(K, m)`` behind a warp's inverse by the quadrature of `gdkl.predictive`."""
    nodes, weights = (part[:, None, None] for part in np.polynomial.hermite_e.hermegauss(HERMITE_NODES))
    weights = weights / weights.sum()
    median = _inverse(mean, warp)
    distance = _inverse(mean + nodes * variance.map("Sqrt"), warp) - median
    first = (weights * distance).sum(0)
    return median + first, ((weights * distance.square).sum(0) - first.square).between(0.0, None)


def _inverse(z: Value, warp: Warp) -> Value:
    """Targets of warped ones, as the warps' own ``inverse`` gives them."""
    if isinstance(warp, YeoJohnson):
        return _inverse_yeo_johnson(z, warp).between(-LARGEST, LARGEST)
    if isinstance(warp, LogWarp):
        return z.map("Exp").between(np.finfo(np.float64).tiny, LARGEST)
    if not isinstance(warp, LinearTails):
        raise ModelFileError("ONNX cannot run the functions of warp: fit with warp='auto', 'log' or None.")
    ends = [None if end is None else float(warp.forward(np.array([end]))[0]) for end in (warp.low, warp.high)]
    inside = z.between(*ends)
    y = _inverse(inside, warp.warp)
    beyond = z - inside
    for end, choose in zip(ends, ("Min", "Max"), strict=True):
        if end is not None:
            slope = float(np.exp(-warp.log_derivative(warp.inverse(np.array([end]))))[0])
            y = y + slope * z.graph.op(choose, beyond, 0.0)
    return y.between(-LARGEST, LARGEST)


def _inverse_yeo_johnson(z: Value, warp: YeoJohnson) -> Value:
    size, sign = z.map("Abs"), z.map("Sign")
    below, above = (
        (log1p(power * size) * (1 / power)).map("Exp") - 1.0 for power in warp.powers(np.array([-1.0, 1.0])).tolist()
    )
    negative = z.graph.op("Less", z, 0.0)
    return warp.centre + warp.spread * (sign * z.graph.op("Where", negative, below, above))


@dataclass(frozen=True)
class ClassAnswer:
    """What makes probabilities of latent functions: labels, likelihood, temperature of the whole, seed of samples."""

    classes: NDArray[Any]
    likelihood: ClassLikelihood
    temperature: float
    seed: int


def classifier_file(
    path: str | os.PathLike[str], table: TableInput, stack: Stack, answer: ClassAnswer, notes: Mapping[str, str]
) -> None:
    """Write a classifier: outputs ``label`` and ``probabilities``, columns in the order of the classes."""
    graph, classes = Graph(), answer.classes
    rows = table_rows(graph, table).insert(0)
    samples = base_samples(PREDICTION_SAMPLES, len(classes), answer.seed).numpy()
    weights = numbers(stack.weights)[:, 0]
    temperatures = np.ones(len(weights)) if stack.temperatures is None else numbers(stack.temperatures)
    parts = list[Value]()
    for model, weight, temperature in zip(stack.models.values(), weights, temperatures, strict=True):
        probs = graph.op("ReduceMean", _probabilities(model, rows, answer.likelihood, samples), axes=[0], keepdims=0)
        parts.append(float(weight) * _tempered(probs, float(temperature)).insert(0))
    probs = graph.op("Transpose", _tempered(join(parts, axis=0).sum(0), answer.temperature), perm=[1, 0])
    best = graph.op("ArgMax", probs, axis=1, keepdims=0)
    labels = classes.astype(object) if classes.dtype.kind in "UO" else classes
    labels = labels.astype(np.int64) if labels.dtype.kind in "iu" else labels
    labels = labels.astype(np.float64) if labels.dtype.kind == "f" else labels
    kind = str if labels.dtype.kind == "O" else labels.dtype.type
    graph.output("label", graph.constant(labels).take(best, axis=0), (None,), kind)
    graph.output("probabilities", probs, (None, len(classes)))
    graph.write(path, notes)


def _probabilities(
    model: FittedModel | FittedNetwork, rows: Value, likelihood: ClassLikelihood, samples: FloatArray
) -> Value:
    """Of each class by each member, ``(members, classes, m)``."""
    graph = rows.graph
    if type(model) is FittedNetwork:
        logits = graph.op("Softmax", features(model.embed, rows), axis=2)
        return graph.op("Transpose", logits, perm=[0, 2, 1])
    mean, variance = latents(model, rows)
    if likelihood is ClassLikelihood.GAUSSIAN:
        return graph.op("Softmax", 2.0 * mean / (variance + numbers(model.noise)[..., None]), axis=1)
    deviation = variance.map("Sqrt")
    blocks = samples.reshape(-1, _SAMPLES_AT_A_TIME, samples.shape[-1])

    def step(block: Value) -> Value:
        f = block.insert(1).insert(-1) * deviation + mean
        return f.graph.op("Softmax", f, axis=2).sum(0)

    return graph.accumulate(0.0 * mean, blocks, step) * (1 / len(samples))


def _tempered(probs: Value, temperature: float) -> Value:
    """Probabilities ``(classes, m)`` with their logarithms divided by a temperature, normalised."""
    return probs.graph.op("Softmax", probs.map("Log") * (1 / temperature), axis=0)
