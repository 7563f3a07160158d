"""The student for any number of rows: a feature network, a base kernel, a noise, inducing points among the features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from gdkl.gp import (
    GPyTorchKernel,
    InducingPoints,
    Marginals,
    Noise,
    SparsePosterior,
    cluster_centres,
    rbf_kernel,
    start_kernel,
)
from gdkl.methods.deep_kernel import HISTORY_ROWS, batch_kernel, check_features, check_kernel
from gdkl.methods.fitted import FittedModel
from gdkl.methods.held_out_noise import most_probable_noise
from gdkl.nets import MLP, Members
from gdkl.numerics import DataError, OptionError, keep_freed_memory, limit_threads, tensor_bytes
from gdkl.objectives import ObjectiveValue
from gdkl.training import (
    ALONE,
    Ahead,
    Batch,
    BatchSource,
    Callback,
    GraphedStep,
    History,
    MiniBatchSettings,
    RotatingCheckpoint,
    Schedule,
    World,
    seeded,
    train_mini_batch,
)

#: Where the noise starts: near all of the targets' variance. q(u) starts at its prior, and with the small noise that
#: exact training starts from, the quickest way down would be to shrink the kernel to nothing.
NOISE_OF_START = 0.5

#: Rows whose features the inducing points start from: k-means needs several for each centre.
_START_ROWS, _START_ROWS_A_POINT = 2000, 10


@dataclass(frozen=True)
class SparseOptions:
    """How a deep kernel with inducing points is built and trained.

    Attributes:
        schedule: Steps and learning rates.
        n_inducing: Number of inducing points.
        members: Independent students that see the same batches.
        feature_net: Builds a network from the number of columns.
        base_kernel: Kernel over the features; None for a scaled RBF with one lengthscale.
        noise_start: Initial noise variance, one for all or one an output.
        output_scale: Where the default kernel's output scale starts.
        weight_decay: On the network's parameters alone.
        kernel_rate: Learning rate of kernel, noise and inducing locations as a multiple of the network's.
        variational_rate: Learning rate of q(u) as a multiple of the network's. Whitened values go from 0 to some units,
            which takes Adam hundreds of steps at a network's rate.
        momentum: Of stochastic gradient descent, which then takes Adam's place.
        nesterov: Whether that momentum looks ahead.
        clip: Largest norm that a gradient keeps; None for no limit.
        algebra: Precision of the Gaussian process; the network has that of the rows.
        compile: Whether `torch.compile` fuses the network's operations.
        graph: Whether a step is recorded as one CUDA graph and replayed, on a GPU.
        seed: Of the initial weights, dropout, batches and samples.
        callbacks: Called after each step.
        checkpoint: Where a run that may be killed keeps its state.
        world: Which of several processes this one is.
    """

    schedule: Schedule
    n_inducing: int
    members: int = 1
    feature_net: Callable[[int], nn.Module] = MLP
    base_kernel: Kernel | None = None
    noise_start: float | Tensor = NOISE_OF_START
    output_scale: float = 1.0
    weight_decay: float = 0.0
    kernel_rate: float = 1.0
    variational_rate: float = 1.0
    momentum: float | None = None
    nesterov: bool = False
    clip: float | None = None
    algebra: torch.dtype = torch.float64
    compile: bool = False
    graph: bool = False
    seed: int = 0
    callbacks: Sequence[Callback] = field(default=())
    checkpoint: RotatingCheckpoint | None = None
    world: World = ALONE

    def __post_init__(self) -> None:
        if self.n_inducing < 1:
            raise OptionError(f"n_inducing={self.n_inducing!r} must be at least 1.")


class SparseDeepKernel(nn.Module):
    """Network, kernel, noise and inducing points of all members.

    Args:
        network: Turns rows ``(members, b, d)`` into features ``(members, b, p)``.
        kernel: Kernel over features, one a member and output.
        noise: Noise variance, one a member and output; a softmax leaves it as it is.
        points: Inducing points and the Gaussian over their values.
    """

    def __init__(self, network: Members, kernel: GPyTorchKernel, noise: Noise, points: InducingPoints):
        super().__init__()
        self.network = network
        self.kernel = kernel
        self.noise = noise
        self.points = points

    def marginals(self, rows: Tensor) -> Marginals:
        """Latent marginals q(f) of a batch of rows ``(b, d)``, shape ``(members, outputs, b)``."""
        features = self.network(rows.expand(self.network.count, *rows.shape))
        return self.posterior().marginals(features)

    @torch.no_grad()
    def refresh_noise(self, held_out: Batch) -> None:
        """Set the noise to what rows say that the model has not learned from."""
        training = self.training
        self.eval()
        q = self.marginals(held_out.rows)
        self.noise.assign(most_probable_noise(q, held_out.targets[None], self.noise.floor))
        self.train(training)

    def posterior(self) -> SparsePosterior:
        """What the model believes now."""
        return self.points.posterior(self.kernel, self.noise())


def build_sparse_deep_kernel(source: BatchSource, outputs: int, options: SparseOptions) -> SparseDeepKernel:
    """Make the members' networks, and start kernel and inducing points from the features of some rows.

    Raises:
        DataError: If there are more inducing points than rows, or a part does not fit the rows.
    """
    if options.n_inducing > source.rows:
        raise DataError(
            f"n_inducing={options.n_inducing} is more than the {source.rows} rows that are trained on (others may be "
            "kept for the noise): use fewer inducing points, or inference='exact'."
        )
    wanted = max(_START_ROWS, _START_ROWS_A_POINT * options.n_inducing)
    rows = source.sample(min(wanted, source.rows), options.seed).rows
    members, shape = options.members, (options.members, outputs)
    networks = [options.feature_net(rows.shape[-1]).to(rows) for _ in range(members)]
    network = Members(networks).to(rows)
    like = torch.empty(0, dtype=options.algebra, device=rows.device)
    kernel = rbf_kernel(shape) if options.base_kernel is None else batch_kernel(options.base_kernel, shape)
    function, noise = GPyTorchKernel(kernel).to(like), Noise(shape, options.noise_start).to(like)
    check_features(network, rows[: min(len(rows), 64)].expand(members, -1, -1))
    features = _first_features(network, rows.expand(members, *rows.shape)).to(like)
    check_kernel(function, features[:, :2])
    start_kernel(function, features, options.output_scale)
    points = InducingPoints(cluster_centres(features, options.n_inducing, options.seed), outputs)
    return SparseDeepKernel(network, function, noise, points)


@torch.no_grad()
def _first_features(network: Members, rows: Tensor) -> Tensor:
    """Features as training will see them, which for an untrained batch norm is nothing like evaluation.

    Of a copy, whose statistics are thrown away.
    """
    copy = deepcopy(network).train()
    size = 512
    return torch.cat([copy(rows[:, start : start + size]) for start in range(0, rows.shape[1], size)], dim=1)


def train_sparse_deep_kernel(
    source: BatchSource,
    outputs: int,
    options: SparseOptions,
    prepare: Callable[[int, Batch], tuple[Tensor, ...]],
    make_loss: Callable[[SparseDeepKernel], Callable[..., ObjectiveValue]],
    *,
    held_out: Batch | None = None,
) -> FittedModel:
    """Build a deep kernel with inducing points and train it on an objective over batches.

    Args:
        source: Where batches come from.
        outputs: Number of latent functions.
        options: How to build and train.
        prepare: What the batch of a step needs that does not depend on the student: the guide's answer, samples.
        make_loss: From the deep kernel to its objective, a function of rows, targets and what was prepared for them.
        held_out: Rows that are not trained on, which the noise of predictions comes from; None to keep the learned one.
    """
    device = source.sample(2, options.seed).rows.device
    with ExitStack() as alone:
        if device.type == "cpu":
            alone.enter_context(limit_threads(source.batch_size))
            widest = max(source.batch_size, options.n_inducing)
            alone.enter_context(keep_freed_memory(tensor_bytes(outputs, widest, widest, dtype=options.algebra)))
        # Dropout draws from the global generator at every step, so the fit needs it for itself to be repeatable.
        alone.enter_context(seeded(options.seed, device))
        model = build_sparse_deep_kernel(source, outputs, options)
        if options.compile:
            _compile(model.network)
        loss = make_loss(model)
        if options.graph and device.type == "cuda":
            loss = GraphedStep(loss, list(model.parameters()))

        def inputs(step: int) -> tuple[Tensor, ...]:
            batch = source.batch(step)
            return batch.rows, batch.targets, *prepare(step, batch)

        ahead = Ahead(inputs, device)
        learned = [*model.kernel.parameters(), model.points.locations]
        learned += [parameter for parameter in model.noise.parameters() if parameter.requires_grad]
        groups = [
            {"params": list(model.network.parameters()), "weight_decay": options.weight_decay},
            {"params": learned, "rate": options.kernel_rate},
            {"params": [model.points.mean, model.points.raw_factor], "rate": options.variational_rate},
        ]
        history = History(every=max(1, -(-options.schedule.n_iter // HISTORY_ROWS)))
        outcome = train_mini_batch(
            model,
            groups,
            lambda step: loss(*ahead(step)),
            MiniBatchSettings(
                options.schedule,
                options.momentum,
                options.nesterov,
                options.clip,
                options.checkpoint,
                options.world,
            ),
            [history, *options.callbacks],
            steps_per_epoch=source.rows / (source.batch_size * options.world.size),
            extra_values=(lambda: {"noise": model.noise()}) if model.noise.raw.requires_grad else None,
        )
        if held_out is not None:
            model.refresh_noise(held_out)
    model.requires_grad_(False)
    check_features(model.network, source.sample(2, options.seed).rows.expand(options.members, -1, -1))
    with torch.no_grad():
        posterior = model.posterior().detach()
    return FittedModel(model.network, posterior, history.rows, outcome)


def _compile(network: Members) -> None:
    """Fuse the operations of a single network; several run through `torch.vmap` as they are."""
    if network.count == 1:
        network.single.compile()
