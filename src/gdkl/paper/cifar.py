"""The paper's experiment on all of CIFAR: GDKL and DKL with inducing points and a wide ResNet.

One result file a run, that is a dataset, a method and a seed. A run that is killed, or that a limit on time ends, goes
on from its checkpoint. With ``holdout`` some training images are kept from training and scored in place of the test
images: that is how β and the guide's scale are chosen.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gdkl import datasets
from gdkl.estimators.temperature import best_temperature
from gdkl.gp import ClassLikelihood, base_samples, class_log_probs
from gdkl.guide import fixed_class_guide, subset_size
from gdkl.methods import FittedModel, SparseOptions, fit_sparse_dkl_classes, fit_sparse_gdkl_classes
from gdkl.nets import ImageFeatures, WideResNet, blocks_a_group, images_at_a_time
from gdkl.numerics import NumericsError, OptionError
from gdkl.paper.fewshot_data import DEVIATIONS, MEANS, stratified_indices
from gdkl.paper.fewshot_guides import GuideName, guide_kernel
from gdkl.paper.fewshot_mean import views_probabilities, views_scores, write_probabilities
from gdkl.paper.image_runs import StepTimer, algebra_dtype, wait_for
from gdkl.paper.results import read_result, versions, write_result
from gdkl.predictive import FloatArray
from gdkl.training import ALONE, Callback, ImageBatches, RotatingCheckpoint, Schedule, World

DATASETS = ("cifar10", "cifar100")

#: Inducing points of the paper, by dataset.
INDUCING = {"cifar10": 10, "cifar100": 200}

#: Samples of the latent functions in prediction.
PREDICTION_SAMPLES = 320

#: Which training images are held out: one draw for all runs.
_HOLDOUT_SEED = 0

#: Training images of either dataset.
_TRAINING_IMAGES = 50_000


class Method(StrEnum):
    """What `gdkl reproduce cifar` can run."""

    GDKL = "gdkl"
    """The guided objective."""
    DKL = "dkl"
    """Deep kernel by the evidence bound."""


@dataclass(frozen=True)
class Protocol:
    """The paper's settings.

    Attributes:
        epochs: Times that every training image is seen.
        batch_size: Images a step.
        n_inducing: Inducing points; None for the paper's number.
        learning_rate: Where it starts; it falls tenfold at 50 % and at 75 % of the steps.
        momentum: Of stochastic gradient descent.
        weight_decay: Of the network.
        beta: GDKL's weight of the KL term, chosen on held-out training images (docs/reproduction.md); the paper: 0.1.
        guide: The infinite network, evaluated on the augmented images of each batch.
        guide_scale: Mean variance of the guide.
        label_noise: Whether the labels that the guide sees carry their own variances.
        kl_weight: DKL's weight of KL(q(u)‖p(u)) in the evidence bound.
        depth: Of the wide ResNet.
        widen_factor: Of the wide ResNet.
        dropout: Of the wide ResNet.
        algebra: Precision of the Gaussian processes; the network is in bfloat16 on a GPU and in float32 elsewhere.
        holdout: Training images that are held out and scored; 0 to train on all and score the test images.
    """

    epochs: int = 200
    batch_size: int = 256
    n_inducing: int | None = None
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    beta: float = 0.09
    guide: GuideName = GuideName.DENSE
    guide_scale: float = 25.0
    label_noise: bool = True
    kl_weight: float = 1.0
    depth: int = 28
    widen_factor: int = 5
    dropout: float = 0.3
    algebra: str = "float64"
    holdout: int = 0

    def __post_init__(self) -> None:
        algebra_dtype(self.algebra)
        blocks_a_group(self.depth)
        if not 0 <= self.beta < math.inf:
            raise OptionError(f"beta={self.beta!r} must be a finite number of at least 0.")
        if self.epochs < 1:
            raise OptionError(f"epochs={self.epochs!r} must be at least 1.")
        if not self.guide_scale > 0:
            raise OptionError(f"guide_scale={self.guide_scale!r} must be positive.")
        if not 0 <= self.holdout < _TRAINING_IMAGES:
            raise OptionError(
                f"holdout={self.holdout!r} must be a number from 0 to {_TRAINING_IMAGES - 1}: some of the "
                f"{_TRAINING_IMAGES} training images are to be learned from."
            )


@dataclass(frozen=True, eq=False)
class Task:
    """Images to learn from, and images to be scored on.

    Attributes:
        name: Of the dataset.
        train_images: uint8, ``(n, channels, height, width)``.
        train_labels: ``(n,)``.
        test_images: uint8.
        test_labels: Of them.
        classes: Number of classes.
    """

    name: str
    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]
    classes: int


@dataclass(frozen=True)
class Run:
    """One method on one dataset with one seed.

    Attributes:
        dataset: Its name.
        method: What is run.
        seed: Of the initial weights, dropout, batches, crops and samples.
        protocol: Settings.
    """

    dataset: str
    method: Method
    seed: int
    protocol: Protocol = Protocol()

    def path(self, folder: Path) -> Path:
        """Its result file; a trial of settings has them in its name."""
        held = ""
        if self.protocol.holdout:
            held = f"-holdout{self.protocol.holdout}-epochs{self.protocol.epochs}"
            if self.method is Method.GDKL:
                held += f"-scale{self.protocol.guide_scale:g}-beta{self.protocol.beta:g}"
        return folder / f"{self.dataset}-{self.method}{held}-seed{self.seed}.json"

    @property
    def settings(self) -> dict[str, Any]:
        """What a result depends on; a file with other settings is made anew."""
        protocol = json.loads(json.dumps(asdict(self.protocol)))
        unused = ("kl_weight",) if self.method is Method.GDKL else ("beta", "guide", "guide_scale", "label_noise")
        for name in unused:
            protocol.pop(name)
        return {"dataset": self.dataset, "method": str(self.method), "seed": self.seed, "protocol": protocol}

    def finished(self, folder: Path) -> dict[str, Any] | None:
        """Content of the result file, if it is there with these settings."""
        path = self.path(folder)
        if not path.exists():
            return None
        result = read_result(path)
        return result if {key: result.get(key) for key in self.settings} == self.settings else None


def load_task(name: str, holdout: int, data_dir: Path | None) -> Task:
    """The images of a dataset; held-out training images in place of the test images, if there are any."""
    if name not in DATASETS:
        raise OptionError(f"dataset {name!r} is not part of this experiment: use {', '.join(DATASETS)}.")
    train = datasets.load_images(name, data_dir)
    classes = len(train.class_names)
    if holdout:
        held = stratified_indices(train.y, holdout, _HOLDOUT_SEED)
        kept = np.setdiff1d(np.arange(len(train.y)), held)
        return Task(name, train.X[kept], train.y[kept], train.X[held], train.y[held], classes)
    test = datasets.load_images(f"{name}-test", data_dir)
    return Task(name, train.X, train.y, test.X, test.y, classes)


def complete(
    run: Run,
    folder: Path,
    *,
    data_dir: Path | None,
    device: torch.device,
    callbacks: Sequence[Callback] = (),
    checkpoint_seconds: float = 60.0,
    compile_network: bool = False,
    graph: bool = False,
    world: World = ALONE,
) -> dict[str, Any]:
    """Make a run and write its result file, going on from a checkpoint if there is one.

    Args:
        run: What to do.
        folder: Where result files and checkpoints are.
        data_dir: Where the images are.
        device: Where to compute.
        callbacks: Called after each training step.
        checkpoint_seconds: Time between two checkpoints.
        compile_network: Whether `torch.compile` fuses the network's operations.
        graph: Whether a step is recorded as one CUDA graph and replayed.
        world: Which of several processes this one is.

    Returns:
        Content of the result file.
    """
    task = load_task(run.dataset, run.protocol.holdout, data_dir)
    path = run.path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    name = json.dumps({**run.settings, "device": device.type, "processes": world.size}, sort_keys=True)
    checkpoint = RotatingCheckpoint(path.with_suffix(""), name, checkpoint_seconds)
    result, probs = run_task(
        run,
        task,
        device=device,
        callbacks=callbacks,
        checkpoint=checkpoint,
        compile_network=compile_network,
        graph=graph,
        world=world,
    )
    if world.rank == 0:
        write_probabilities(path, probs, task.test_labels)
        write_result(path, result)
        checkpoint.remove()
    return result


def run_task(
    run: Run,
    task: Task,
    *,
    device: torch.device,
    callbacks: Sequence[Callback] = (),
    checkpoint: RotatingCheckpoint | None = None,
    compile_network: bool = False,
    graph: bool = False,
    world: World = ALONE,
) -> tuple[dict[str, Any], dict[str, FloatArray]]:
    """Train and score; the content of a result file, and the probabilities that were scored.

    Raises:
        NumericsError: If training failed.
        KeyboardInterrupt: If the user stopped it: what is half done is no result.
    """
    protocol = run.protocol
    source = ImageBatches(
        torch.as_tensor(task.train_images),
        torch.as_tensor(task.train_labels),
        protocol.batch_size // world.size,
        run.seed,
        means=MEANS,
        deviations=DEVIATIONS,
        device=device,
        world=world,
    )
    per_epoch = source.rows // (source.batch_size * world.size)
    timer = StepTimer()
    options = SparseOptions(
        Schedule(protocol.epochs * per_epoch, protocol.learning_rate, milestones=(0.5, 0.75)),
        protocol.n_inducing or INDUCING[run.dataset],
        feature_net=lambda _: _network(protocol, task, device),
        weight_decay=protocol.weight_decay,
        momentum=protocol.momentum,
        algebra=algebra_dtype(protocol.algebra),
        compile=compile_network,
        graph=graph,
        seed=run.seed,
        callbacks=[timer, *callbacks],
        checkpoint=checkpoint,
        world=world,
    )
    started = time.perf_counter()
    model = _fit(run, source, task, options)
    wait_for(device)
    seconds = time.perf_counter() - started
    if model.outcome is not None and model.outcome.interrupted:
        raise KeyboardInterrupt
    if model.outcome is not None and model.outcome.failed:
        raise NumericsError(f"{run.method} on {run.dataset} failed after {model.outcome.steps} steps: no result.")
    started = time.perf_counter()
    probs = probabilities(model, source, task, run.seed)
    result = {
        "experiment": "cifar",
        **run.settings,
        "versions": versions(device),
        "processes": world.size,
        "compiled": compile_network,
        "graphed": graph,
        # Of this process: a run that went on from a checkpoint has trained before.
        "fit_seconds": round(seconds, 2),
        "predict_seconds": round(time.perf_counter() - started, 2),
        "seconds_per_step": timer.seconds_per_step,
        "steps_of_this_process": timer.steps,
        "splits": [{"seed": run.seed, **views_scores(probs, task.test_labels)}],
    }
    if protocol.holdout:
        # Says which way β has to go: below 1 where the predictions are not as sure as they may be.
        log_probs = torch.as_tensor(np.log(probs["test"])).T
        result["best_temperature"] = best_temperature(log_probs, torch.as_tensor(task.test_labels))
    return result, probs


def _fit(run: Run, source: ImageBatches, task: Task, options: SparseOptions) -> FittedModel:
    protocol = run.protocol
    if run.method is Method.DKL:
        return fit_sparse_dkl_classes(source, task.classes, options, kl_weight=protocol.kl_weight)
    channels, height, width = source.shape
    subset = source.sample(subset_size(source.rows), run.seed)
    guide = fixed_class_guide(
        guide_kernel(protocol.guide, (channels, height, width)),
        subset.rows,
        task.classes,
        protocol.guide_scale,
        label_noise=protocol.label_noise,
    )
    return fit_sparse_gdkl_classes(source, guide, options, beta=protocol.beta)


def _network(protocol: Protocol, task: Task, device: torch.device) -> nn.Module:
    shape = tuple(int(size) for size in task.train_images.shape[1:])
    net = WideResNet(protocol.depth, protocol.widen_factor, protocol.dropout, in_channels=shape[0])
    if device.type == "cuda":
        net = net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return ImageFeatures(net, shape, algebra_dtype(protocol.algebra))


def probabilities(model: FittedModel, source: ImageBatches, task: Task, seed: int) -> dict[str, FloatArray]:
    """Class probabilities ``(m, classes)`` of the scored images, by the views that they are averaged over."""
    return views_probabilities(task.test_images, lambda images: _probabilities(model, source, task, images, seed))


@torch.no_grad()
def _probabilities(
    model: FittedModel, source: ImageBatches, task: Task, images: NDArray[np.uint8], seed: int
) -> FloatArray:
    tests = ImageBatches(
        torch.as_tensor(images),
        torch.as_tensor(task.test_labels),
        2,
        seed,
        means=MEANS,
        deviations=DEVIATIONS,
        device=source.device,
        margin=0,
        flip=False,
    )
    base = base_samples(PREDICTION_SAMPLES, task.classes, seed)
    found: list[Tensor] = []
    for index in torch.arange(len(task.test_labels), device=source.device).split(images_at_a_time(source.device)):
        latents = model.marginals(tests.plain(index)[None])
        noise = model.noise.to(latents.mean)
        found.append(class_log_probs(latents, ClassLikelihood.DIRICHLET, noise, base.to(latents.mean))[0].T)
    return torch.cat(found).double().exp().cpu().numpy()
