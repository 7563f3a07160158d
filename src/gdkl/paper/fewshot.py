"""The paper's few-shot experiment: CIFAR-10 with 50 to 800 labelled images, exact inference, a wide ResNet.

One result file a run, that is a method, a number of images and a seed, and beside it the probabilities of the test
images. A run that is killed goes on from its checkpoint; one whose result is there is not made again.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gdkl.gp import ClassLikelihood, base_samples, class_log_probs, softplus_rbf_kernel
from gdkl.guide import Guide, fit_class_guide
from gdkl.methods import (
    ClassData,
    DeepKernelOptions,
    FittedModel,
    FittedNetwork,
    fit_dkl_classes,
    fit_gdkl_classes,
    fit_nn_classes,
    fit_nngp_classes,
    image_beta,
)
from gdkl.nets import ImageFeatures, RandomMoves, WideResNet, blocks_a_group, images_at_a_time
from gdkl.numerics import NumericsError, OptionError
from gdkl.paper.fewshot_data import PAPER_DRAW, Draw, FewShotTask, UInt8Array, load_task, normalise
from gdkl.paper.fewshot_guides import GuideName, guide_kernel
from gdkl.paper.fewshot_mean import views_probabilities, views_scores, write_probabilities
from gdkl.paper.image_runs import StepTimer, algebra_dtype, wait_for
from gdkl.paper.results import read_result, versions, write_result
from gdkl.predictive import FloatArray
from gdkl.training import Callback, Checkpoint, Schedule, seeded

#: Pixels that images are moved by at most where they are altered in training: as far as ten views of a test image are.
_MARGIN = 2

#: Samples of the latent functions in prediction.
PREDICTION_SAMPLES = 1024


class Method(StrEnum):
    """What `gdkl reproduce fewshot` can run."""

    GDKL = "gdkl"
    """The guided objective."""
    DKL = "dkl"
    """Deep kernel by evidence."""
    NNGP = "nngp"
    """The guide alone."""
    NN = "nn"
    """The network with a softmax head."""

    @property
    def guided(self) -> bool:
        """Whether a guide takes part."""
        return self in (Method.GDKL, Method.NNGP)


class Parametrisation(StrEnum):
    """How lengthscales and output scales are kept positive."""

    EXPONENTIAL = "exponential"
    """As in the rest of this library."""
    SOFTPLUS = "softplus"
    """GPyTorch's own, as in the published runs."""


@dataclass(frozen=True)
class Protocol:
    """The paper's settings.

    Attributes:
        gdkl_iterations: Student's steps; the paper counts 1000 more for its guide, ours is chosen without any.
        other_iterations: Steps of DKL and of the network.
        learning_rate: Where it starts; it falls tenfold at 60 % and at 80 % of the steps.
        momentum: Of stochastic gradient descent.
        weight_decay: Of DKL and of the network; GDKL has none.
        beta: Weight of the KL term; None for one by the number of images (`gdkl.methods.image_beta`).
        guide: The infinite network.
        guide_scale: Output scale of the guide that the student sees, over a Gram of mean diagonal one; None for the one
            at which the guide alone predicts held-out labels best. The guide's own optimum falls from a thousand at
            n = 50 to 16 at n = 800, the student's does not: see docs/method.md.
        start_at_guide: Whether the student's kernel starts from the guide's scale, where the paper's starts from 0.69.
        stratified: Whether halves of the training images have as many of each class; if not, they are random, as
            published.
        parametrisation: How the kernel's parameters are kept positive. Gradient descent, unlike Adam, feels it: with an
            exponential a step grows with the square of the parameter, and output scales end three times as large.
        both_ways: Whether each half of a split is held out in turn, for one pass of the network.
        augment: Whether the network sees each image moved by up to two pixels, and half of them mirrored, at every
            step; the guide speaks of the images as they are.
        depth: Of the wide ResNet.
        widen_factor: Of the wide ResNet.
        dropout: Of the wide ResNet.
        algebra: Precision of the Gaussian processes; the network is in bfloat16 on a GPU and in float32 elsewhere.
    """

    gdkl_iterations: int = 6000
    other_iterations: int = 7000
    learning_rate: float = 1e-2
    momentum: float = 0.9
    weight_decay: float = 5e-4
    beta: float | None = None
    guide: GuideName = GuideName.DENSE
    guide_scale: float | None = 64.0
    start_at_guide: bool = False
    stratified: bool = False
    parametrisation: Parametrisation = Parametrisation.SOFTPLUS
    both_ways: bool = True
    augment: bool = False
    depth: int = 28
    widen_factor: int = 5
    dropout: float = 0.3
    algebra: str = "float64"

    def __post_init__(self) -> None:
        algebra_dtype(self.algebra)
        blocks_a_group(self.depth)
        if self.beta is not None and not 0 <= self.beta < math.inf:
            raise OptionError(f"beta={self.beta!r} must be a finite number of at least 0.")
        if self.guide_scale is not None and not self.guide_scale > 0:
            raise OptionError(f"guide_scale={self.guide_scale!r} must be positive.")

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the Gaussian processes."""
        return algebra_dtype(self.algebra)


@dataclass(frozen=True)
class Run:
    """One method on one subset; several seeds where they train together, as one batch.

    Attributes:
        method: What is run.
        n: Number of labelled images.
        seeds: Of the initial weights, dropout and splits, one a member.
        draw: Which subset.
        protocol: Settings.
        validation: Whether other training images are scored in place of the test images, to choose settings by.
    """

    method: Method
    n: int
    seeds: tuple[int, ...]
    draw: Draw = PAPER_DRAW
    protocol: Protocol = Protocol()
    validation: bool = False

    @property
    def beta(self) -> float:
        """Weight of the KL term."""
        if self.protocol.beta is not None:
            return self.protocol.beta
        return image_beta(self.n, augmented=self.protocol.augment)

    def path(self, folder: Path, seed: int) -> Path:
        """Result file of one seed; trials of settings have theirs in its name."""
        guide = f"-{self.protocol.guide}" if self.method.guided else ""
        altered = "-augmented" if self.protocol.augment and self.method is not Method.NNGP else ""
        if not self.validation:
            return folder / f"draw-{self.draw}" / f"n{self.n}-{self.method}{guide}{altered}-seed{seed}.json"
        if self.method is Method.GDKL:
            guide += f"-scale{self.protocol.guide_scale or 0:g}-beta{self.beta:g}"
            guide += f"-{self.protocol.parametrisation}-{self.protocol.gdkl_iterations}"
            guide += "" if self.protocol.stratified else "-random"
            guide += "-both" if self.protocol.both_ways else ""
        return folder / f"validation-{self.draw}" / f"n{self.n}-{self.method}{guide}{altered}-seed{seed}.json"

    @property
    def settings(self) -> dict[str, Any]:
        """What a result depends on, beside its seed; a file with other settings is made anew."""
        protocol = json.loads(json.dumps(asdict(replace(self.protocol, beta=self.beta))))
        if self.method.guided:
            unused = ("other_iterations", "weight_decay")
        else:
            unused = ("gdkl_iterations", "beta", "guide", "guide_scale", "start_at_guide", "stratified")
        if self.method is Method.NNGP:
            unused += ("beta",)
        # What is off is not said, and files from before there was a choice stay as good as they were.
        unused += () if self.method is Method.GDKL and self.protocol.both_ways else ("both_ways",)
        unused += () if self.method is not Method.NNGP and self.protocol.augment else ("augment",)
        for name in unused:
            protocol.pop(name)
        scored = "validation" if self.validation else "test"
        return {"method": str(self.method), "n": self.n, "draw": self.draw, "scored": scored, "protocol": protocol}

    def finished(self, folder: Path) -> list[dict[str, Any]] | None:
        """Contents of the result files, if all are there with these settings."""
        found: list[dict[str, Any]] = []
        for seed in self.seeds:
            path = self.path(folder, seed)
            if not path.exists():
                return None
            result = read_result(path)
            if {key: result.get(key) for key in self.settings} != self.settings:
                return None
            found.append(result)
        return found


def put_aside(run: Run, folder: Path) -> list[Path]:
    """Rename what lies where a run's results will, made with other settings; those that are gone on with stay.

    Returns:
        The new names, in which a few digits stand for the settings.
    """
    renamed: list[Path] = []
    for seed in run.seeds:
        path = run.path(folder, seed)
        if not path.exists():
            continue
        result = read_result(path)
        settings = {key: result.get(key) for key in run.settings}
        if settings == run.settings:
            continue
        digits = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:6]
        for old in (path.with_suffix(".npz"), path):
            if old.exists():
                old.replace(old.with_name(f"{path.stem}.{digits}{old.suffix}"))
        renamed.append(path.with_name(f"{path.stem}.{digits}.json"))
    return renamed


def complete(
    run: Run,
    folder: Path,
    *,
    data_dir: Path | None,
    device: torch.device,
    callbacks: Sequence[Callback] = (),
    checkpoint_seconds: float = 60.0,
) -> list[dict[str, Any]]:
    """Make a run and write its result files, going on from a checkpoint if there is one.

    Args:
        run: What to do.
        folder: Where result files and checkpoints are.
        data_dir: Where the images are.
        device: Where to compute.
        callbacks: Called after each training step.
        checkpoint_seconds: Time between two checkpoints.

    Returns:
        Contents of the result files, one a seed.
    """
    task = load_task(run.n, run.draw, data_dir, validation=run.validation)
    first = run.path(folder, run.seeds[0])
    first.parent.mkdir(parents=True, exist_ok=True)
    name = json.dumps(
        {**run.settings, "seeds": run.seeds, "images": task.digest, "device": device.type}, sort_keys=True
    )
    checkpoint = Checkpoint(first.with_suffix(".checkpoint"), name, checkpoint_seconds)
    results, probabilities = run_task(run, task, device=device, callbacks=callbacks, checkpoint=checkpoint)
    for seed, result, probs in zip(run.seeds, results, probabilities, strict=True):
        path = run.path(folder, seed)
        write_probabilities(path, probs, task.test_labels)
        write_result(path, result)
    checkpoint.remove()
    return results


def run_task(
    run: Run,
    task: FewShotTask,
    *,
    device: torch.device,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | None = None,
) -> tuple[list[dict[str, Any]], list[dict[str, FloatArray]]]:
    """Train and score; the content of one result file a seed, and the probabilities that were scored.

    Raises:
        NumericsError: If training failed.
        KeyboardInterrupt: If the user stopped it: what is half done is no result.
    """
    protocol = run.protocol
    counter = StepTimer()
    data = _training_data(task, protocol, device)
    started = time.perf_counter()
    guide = None if not run.method.guided else _guide(run, data, task.train_images.shape[1:])
    wait_for(device)
    prepared = time.perf_counter()
    model = _fit(run, data, guide, task, [counter, *callbacks], checkpoint)
    wait_for(device)
    seconds = time.perf_counter() - prepared
    if model.outcome is not None:
        if model.outcome.interrupted:
            raise KeyboardInterrupt
        if model.outcome.failed:
            raise NumericsError(f"{run.method} at n={run.n} failed after {model.outcome.steps} steps: no result.")
    shared = {
        "experiment": "fewshot",
        "dataset": "cifar10",
        **run.settings,
        "trained_together": list(run.seeds),
        "training_images_sha256": task.digest,
        "versions": versions(device),
        "guide_fit": None if guide is None else _guide_summary(guide),
        "guide_seconds": round(prepared - started, 3),
        "fit_seconds": round(seconds, 2),
        "seconds_per_step": counter.seconds_per_step,
    }
    probabilities = _probabilities(model, task, run, device)
    results = [
        {**shared, "seed": seed, "splits": [{"seed": seed, **views_scores(views, task.test_labels)}]}
        for seed, views in zip(run.seeds, probabilities, strict=True)
    ]
    return results, probabilities


def _training_data(task: FewShotTask, protocol: Protocol, device: torch.device) -> ClassData:
    rows = _rows(task.train_images, device)
    labels = torch.as_tensor(task.train_labels, device=device)[None]
    return ClassData.make(rows[None], labels, task.classes, ClassLikelihood.DIRICHLET, protocol.dtype)


def _rows(images: Any, device: torch.device) -> Tensor:
    return torch.as_tensor(normalise(images)).flatten(1).to(device)


def _guide(run: Run, data: ClassData, image_shape: tuple[int, ...]) -> Guide:
    channels, height, width = image_shape
    kernel = guide_kernel(run.protocol.guide, (channels, height, width))
    # One seed whatever the run's: the guide is the experiment's, the seeds are the student's.
    guide = fit_class_guide(kernel, data.rows, data.labels, data.outputs, dtype=run.protocol.dtype)
    if run.protocol.guide_scale is None:
        return guide
    return replace(guide, scale=torch.full_like(guide.scale, run.protocol.guide_scale))


def _guide_summary(guide: Guide) -> dict[str, Any]:
    return {
        "own_scale": float(guide.own_scale[0]),
        "student_scale": float(guide.scale[0]),
        "noise": float(guide.noise[0]),
        "held_out_log_likelihood": float(guide.score[0]),
        "held_out_accuracy": float(guide.accuracy[0]),
        "curve": {f"{scale:g}": round(value, 4) for scale, value in guide.curve.items()},
    }


def _fit(
    run: Run,
    data: ClassData,
    guide: Guide | None,
    task: FewShotTask,
    callbacks: Sequence[Callback],
    checkpoint: Checkpoint | None,
) -> FittedModel | FittedNetwork:
    protocol = run.protocol
    if run.method is Method.NNGP and guide is not None:
        model: FittedModel | FittedNetwork = fit_nngp_classes(data, guide)
    else:
        data = data.repeat(len(run.seeds))
        steps = protocol.gdkl_iterations if run.method is Method.GDKL else protocol.other_iterations
        options = DeepKernelOptions(
            Schedule(steps, protocol.learning_rate),
            feature_net=_networks(run, task.train_images.shape[1:], data.rows.device),
            base_kernel=softplus_rbf_kernel() if protocol.parametrisation is Parametrisation.SOFTPLUS else None,
            weight_decay=0.0 if run.method is Method.GDKL else protocol.weight_decay,
            momentum=protocol.momentum,
            seed=run.seeds[0],
            callbacks=callbacks,
            checkpoint=checkpoint,
        )
        if guide is not None:
            model = fit_gdkl_classes(
                data,
                guide,
                options,
                beta=run.beta,
                start_at_guide=protocol.start_at_guide,
                stratified=protocol.stratified,
                both_ways=protocol.both_ways,
            )
        elif run.method is Method.DKL:
            model = fit_dkl_classes(data, options)
        else:
            model = fit_nn_classes(data, options)
    model.most_rows = images_at_a_time(data.rows.device)
    return model


def _networks(run: Run, image_shape: tuple[int, ...], device: torch.device) -> Callable[[int], nn.Module]:
    """Builds the members' networks in turn, each from its own seed, so that it starts alike alone and in a batch."""
    seeds = iter(run.seeds)
    protocol = run.protocol
    moves = RandomMoves(image_shape, _MARGIN, mirror=True) if protocol.augment else None

    def build(columns: int) -> nn.Module:
        with seeded(next(seeds), device):
            net = WideResNet(protocol.depth, protocol.widen_factor, protocol.dropout, in_channels=image_shape[0])
        if device.type == "cuda":
            net = net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        return ImageFeatures(net, image_shape, protocol.dtype, moves=moves)

    return build


def _probabilities(
    model: FittedModel | FittedNetwork, task: FewShotTask, run: Run, device: torch.device
) -> list[dict[str, FloatArray]]:
    """Class probabilities of the test images, of each seed, by the views that they are averaged over."""
    found = views_probabilities(
        task.test_images, lambda images: _class_probabilities(model, images, task.classes, run, device)
    )
    return [{view: probs[index] for view, probs in found.items()} for index in range(len(run.seeds))]


@torch.no_grad()
def _class_probabilities(
    model: FittedModel | FittedNetwork, images: UInt8Array, classes: int, run: Run, device: torch.device
) -> FloatArray:
    """Of each seed, ``(seeds, m, classes)``."""
    latents = model.marginals(_rows(images, device)[None])
    noise = model.noise.to(latents.mean)
    found: list[FloatArray] = []
    for index, seed in enumerate(run.seeds):
        # The guide alone is one model, whatever the number of seeds; they differ by their samples.
        member = min(index, latents.mean.shape[0] - 1)
        base = base_samples(PREDICTION_SAMPLES, classes, seed).to(latents.mean)
        one = type(latents)(latents.mean[member : member + 1], latents.variance[member : member + 1])
        log_probs = class_log_probs(one, ClassLikelihood.DIRICHLET, noise[member : member + 1], base)
        found.append(log_probs[0].T.double().exp().cpu().numpy())
    return np.stack(found)
