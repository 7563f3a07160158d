"""How a student is built and trained: one set of options for exact inference, inducing points and plain networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gdkl.gp import NOISE_FLOOR
from gdkl.nets import MLP, Members
from gdkl.numerics import OptionError
from gdkl.training.batches import ALONE, World
from gdkl.training.callbacks import Callback
from gdkl.training.checkpoint import RunCheckpoint
from gdkl.training.schedule import Schedule

if TYPE_CHECKING:
    from gpytorch.kernels import Kernel


@dataclass(frozen=True)
class StudentOptions:
    """How a student is built and trained.

    Attributes:
        schedule: Steps and learning rates.
        feature_net: Builds a network from the number of columns.
        base_kernel: Kernel over the features; None for a scaled RBF with one lengthscale.
        noise_start: Initial noise variance, one for all or one per member and output; None for the default of the
            inference.
        noise_floor: Smallest noise variance, of targets with unit variance.
        weight_decay: On the network's parameters alone: kernel and noise have no zero to be drawn to.
        kernel_rate: Learning rate of kernel, noise and inducing locations as a multiple of the network's.
        momentum: Of stochastic gradient descent; None for Adam.
        split_pool: Exact inference: random splits that guided training draws before it reuses them, in another order
            each time; None for a fresh split at every step, as published.
        n_inducing: Inducing points: how many.
        members: Inducing points: independent students that see the same batches.
        variational_rate: Inducing points: learning rate of q(u) as a multiple of the network's. Whitened values go
            from 0 to some units, which takes Adam hundreds of steps at a network's rate.
        algebra: Inducing points: precision of the Gaussian process; the network has that of the rows.
        compile: Inducing points: whether `torch.compile` fuses the network's operations.
        graph: Inducing points: whether a step on a GPU is captured as one CUDA graph and replayed.
        finish: Changes the trained networks, in evaluation mode, before anything is computed with them; None for none.
        seed: Of initial weights, dropout, splits and samples.
        callbacks: Called after each step.
        checkpoint: Where a run that may be killed saves its state; None for nowhere.
        world: Which of several processes this one is.
    """

    schedule: Schedule
    feature_net: Callable[[int], nn.Module] = MLP
    base_kernel: Kernel | None = None
    noise_start: float | Tensor | None = None
    noise_floor: float = NOISE_FLOOR
    weight_decay: float = 0.0
    kernel_rate: float = 1.0
    momentum: float | None = None
    split_pool: int | None = None
    n_inducing: int = 128
    members: int = 1
    variational_rate: float = 1.0
    algebra: torch.dtype = torch.float64
    compile: bool = False
    graph: bool = False
    finish: Callable[[Members], None] | None = None
    seed: int = 0
    callbacks: Sequence[Callback] = ()
    checkpoint: RunCheckpoint | None = None
    world: World = ALONE

    def __post_init__(self) -> None:
        if self.n_inducing < 1:
            raise OptionError(f"n_inducing={self.n_inducing!r} must be at least 1.")
        if self.momentum is not None and not 0 <= self.momentum < 1:
            raise OptionError(f"momentum={self.momentum!r} must be at least 0 and below 1.")
