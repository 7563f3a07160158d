"""The options of every estimator that trains a network: steps, network, kernel, members, when to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpytorch.kernels import Kernel
from torch import nn

from gdkl.estimators.parts import FeatureNet, check_base_kernel, network_builder
from gdkl.estimators.validation import check_number
from gdkl.methods import DeepKernelOptions
from gdkl.numerics import OptionError
from gdkl.training import Callback, EarlyStopping, Schedule, StepReport, as_callbacks

_INFERENCES = ("auto", "exact")


class StudentOptions:
    """Checks the options and hands them to a method."""

    n_iter: int
    learning_rate: float
    weight_decay: float
    feature_net: FeatureNet
    base_kernel: Kernel | None
    inference: str
    n_members: int
    tol: float | None
    patience: int | None
    callbacks: Sequence[Callback | Callable[[StepReport], bool | None]] | None

    def _check_options(self) -> None:
        check_number("n_iter", self.n_iter, low=1, strict=False, integer=True)
        check_number("learning_rate", self.learning_rate, low=0, strict=True)
        check_number("weight_decay", self.weight_decay, low=0, strict=False)
        check_number("n_members", self.n_members, low=1, strict=False, integer=True)
        # A network with a softmax head has neither a kernel nor inference over functions.
        inference = getattr(self, "inference", "auto")
        if inference not in _INFERENCES:
            raise OptionError(f"inference={inference!r} is not known: use one of {', '.join(_INFERENCES)}.")
        if (self.tol is None) != (self.patience is None):
            raise OptionError("tol and patience go together: give both to stop early, or neither.")
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
