"""The options of every estimator that trains a network: steps, network, kernel, members, when to stop."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import nn

from gdkl.estimators.parts import FeatureNet, check_base_kernel, network_builder
from gdkl.estimators.resuming import FitCheckpoints, check_checkpoint_dir
from gdkl.estimators.validation import check_number
from gdkl.methods import DeepKernelOptions, SparseOptions, prefers_exact
from gdkl.numerics import OptionError, resolve_dtype
from gdkl.training import Callback, CheckpointWarning, EarlyStopping, Schedule, StepReport, as_callbacks

_INFERENCES = ("auto", "exact", "sparse")


#: Inducing points and rows a batch of tables, where the user does not say.
TABLE_POINTS = 128
TABLE_BATCH = 512

#: Rate of q(u) over that of the network, with Adam.
_VARIATIONAL_RATE = 5.0

#: Steps on which the learning rate climbs, at least; of a short run half.
_WARM_UP_STEPS = 50


class StudentOptions:
    """Checks the options and hands them to a method."""

    n_iter: int
    learning_rate: float
    weight_decay: float
    feature_net: FeatureNet
    base_kernel: Kernel | None
    inference: str
    n_inducing: int | None
    batch_size: int | None
    n_members: int
    tol: float | None
    patience: int | None
    callbacks: Sequence[Callback | Callable[[StepReport], bool | None]] | None
    random_state: Any
    _checkpoints: FitCheckpoints | None

    def _check_options(self) -> None:
        check_number("n_iter", self.n_iter, low=1, strict=False, integer=True)
        check_number("learning_rate", self.learning_rate, low=0, strict=True)
        check_number("weight_decay", self.weight_decay, low=0, strict=False)
        check_number("n_members", self.n_members, low=1, strict=False, integer=True)
        # A network with a softmax head has neither a kernel nor inference over functions.
        inference = getattr(self, "inference", "auto")
        if inference not in _INFERENCES:
            raise OptionError(f"inference={inference!r} is not known: use one of {', '.join(_INFERENCES)}.")
        # Half of a batch informs the guide about the other.
        for name, low in (("n_inducing", 1), ("batch_size", 2)):
            if (value := getattr(self, name, None)) is not None:
                check_number(name, value, low=low, strict=False, integer=True)
        if (self.tol is None) != (self.patience is None):
            raise OptionError("tol and patience go together: give both to stop early, or neither.")
        check_checkpoint_dir(getattr(self, "checkpoint_dir", None), inference, self.random_state)
        network_builder(self.feature_net)
        check_base_kernel(getattr(self, "base_kernel", None))
        as_callbacks(self.callbacks)

    def _schedule(self) -> Schedule:
        """The published schedule; an estimator with another overrides this."""
        return Schedule(int(self.n_iter), self.learning_rate)

    def _options(
        self, seed: int, callbacks: Sequence[Callback], feature_net: Callable[[int], nn.Module] | None = None
    ) -> DeepKernelOptions:
        if self.tol is not None and self.patience is not None:
            callbacks = [*callbacks, EarlyStopping(self.tol, self.patience)]
        return DeepKernelOptions(
            schedule=self._schedule(),
            feature_net=network_builder(self.feature_net) if feature_net is None else feature_net,
            base_kernel=getattr(self, "base_kernel", None),
            weight_decay=self.weight_decay,
            seed=seed,
            callbacks=callbacks,
        )

    def _is_sparse(
        self,
        rows: int,
        outputs: int,
        device: torch.device,
        dtype: torch.dtype,
        *,
        guided: bool,
        rows_a_step: int | None = None,
    ) -> bool:
        """Whether inducing points take the place of exact inference; remembered as ``inference_``."""
        if self.inference == "auto":
            exact = prefers_exact(
                rows,
                outputs,
                self.n_members,
                int(self.n_iter),
                guided=guided,
                device=device,
                dtype=dtype,
                rows_a_step=rows_a_step,
            )
        else:
            exact = self.inference == "exact"
        self.inference_ = "exact" if exact else "sparse"
        if exact and getattr(self, "checkpoint_dir", None) is not None:
            warnings.warn(
                f"inference='auto' is exact for {rows} rows, and keeps nothing in checkpoint_dir: a fit that is killed "
                "starts anew. inference='sparse' keeps its state there.",
                CheckpointWarning,
                stacklevel=2,
            )
        return not exact

    def _sparse_options(
        self,
        options: DeepKernelOptions,
        rows: int,
        algebra: torch.dtype,
        *,
        points: int = TABLE_POINTS,
    ) -> SparseOptions:
        """The options of exact training as those of training with inducing points."""
        schedule = options.schedule
        return SparseOptions(
            # Untrained features lie close together: at the full rate the first steps would take them, and with them
            # every correlation, out of the kernel's reach.
            schedule=replace(schedule, warm_up=max(schedule.warm_up, min(0.5, _WARM_UP_STEPS / schedule.n_iter))),
            n_inducing=min(points, rows) if self.n_inducing is None else int(self.n_inducing),
            members=int(self.n_members),
            feature_net=options.feature_net,
            base_kernel=options.base_kernel,
            weight_decay=options.weight_decay,
            variational_rate=1.0 if options.momentum is not None else _VARIATIONAL_RATE,
            momentum=options.momentum,
            algebra=algebra,
            seed=options.seed,
            callbacks=options.callbacks,
            checkpoint=None if self._checkpoints is None else self._checkpoints.of(rows),
        )


def sparse_precisions(dtype: str) -> tuple[torch.dtype, torch.dtype]:
    """Of the network and of the algebra over batches: networks lose nothing in float32, and are twice as fast."""
    algebra = resolve_dtype(dtype)
    return (torch.float32 if dtype == "auto" else algebra), algebra
