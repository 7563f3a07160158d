"""The plan of a fit: the three values that are chosen once (kind of input, inference, preset) and what follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel

from gdkl.estimators.factories import FeatureNet
from gdkl.estimators.kinds import Augmentation, Kind
from gdkl.estimators.presets import Preset
from gdkl.gp import softplus_rbf_kernel
from gdkl.inputs import TableInput
from gdkl.training import ALONE, Callback, Decay, RunCheckpoint, Schedule, StudentOptions, World


@dataclass(frozen=True)
class Plan:
    """What `fit` has decided before anything is trained.

    Attributes:
        kind: How rows are read, scaled, augmented and fed to network and guide.
        exact: Exact inference (or full batches, for a network) in place of inducing points and mini-batches.
        preset: Every number, none of them None.
        augmentation: What training sees besides the rows as they are.
        device: Where to train.
        network_dtype: Precision of rows and networks.
        algebra: Precision of the Gaussian processes.
        seed: Of everything that is random.
        members: Networks per fit.
        feature_net: The user's option.
        base_kernel: The user's option.
        callbacks: Progress, and the user's own.
        world: The processes that mini-batches are shared by.
        checkpoint: From a number of rows to the checkpoint of training on them; None to keep none.
    """

    kind: Kind
    exact: bool
    preset: Preset
    augmentation: Augmentation
    device: torch.device
    network_dtype: torch.dtype
    algebra: torch.dtype
    seed: int
    members: int
    feature_net: FeatureNet
    base_kernel: Kernel | None
    callbacks: Sequence[Callback]
    world: World = ALONE
    checkpoint: Callable[[int], RunCheckpoint] | None = None

    @property
    def batch_size(self) -> int:
        """Rows per step of mini-batches, of this process."""
        return int(self.preset.batch_size) // self.world.size

    def column_groups(self) -> torch.Tensor:
        """For each column that a model sees of a table, the number of the user's column: a category has several."""
        groups = np.unique(cast(TableInput, self.kind.input).groups, return_inverse=True)[1]
        return torch.as_tensor(groups, device=self.device)

    def schedule(self) -> Schedule:
        """Steps and learning rates."""
        p = self.preset
        return Schedule(
            int(p.n_iter),
            p.learning_rate,
            milestones=tuple(p.milestones),
            decay=Decay(p.decay),
            warm_up=p.warm_up,
            beta2=p.beta2,
        )

    def options(self, rows: int) -> StudentOptions:
        """How students are built and trained on so many rows.

        Args:
            rows: Rows that are trained on, which name the checkpoint.
        """
        p = self.preset
        kernel = self.base_kernel
        if kernel is None and p.positive == "softplus":
            kernel = softplus_rbf_kernel()
        values: dict[str, Any] = {
            "schedule": self.schedule(),
            "feature_net": self.kind.network(
                self.feature_net, p, self.algebra, self.augmentation, exact=self.exact, cuda=self.device.type == "cuda"
            ),
            "base_kernel": kernel,
            "noise_floor": p.noise_floor,
            "weight_decay": p.weight_decay,
            "kernel_rate": p.kernel_rate,
            "variational_rate": p.variational_rate,
            "momentum": p.momentum if p.optimizer == "sgd" else None,
            "split_pool": p.split_pool or None,
            "n_inducing": int(p.n_inducing),
            "members": self.members,
            "algebra": self.algebra,
            "compile": bool(p.compile),
            "graph": bool(p.graph),
            "seed": self.seed,
            "callbacks": self.callbacks,
            "world": self.world,
            "checkpoint": None if self.checkpoint is None else self.checkpoint(rows),
        }
        if not isinstance(p.noise_start, str):
            values["noise_start"] = p.noise_start
        return StudentOptions(**values)
