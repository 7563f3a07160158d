"""Options that estimators share, as fields: the constructor, `get_params` and `clone` follow from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gdkl.estimators.factories import FeatureNet
from gdkl.estimators.presets import Preset
from gdkl.training import Callback, Checkpoint, StepReport

if TYPE_CHECKING:
    from gpytorch.kernels import Kernel


@dataclass(kw_only=True, eq=False, repr=False)
class CommonOptions:
    """What every estimator takes."""

    device: str = "auto"
    dtype: str = "auto"
    random_state: Any = None
    verbose: int = 0


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkOptions(CommonOptions):
    """What estimators with a network take."""

    n_iter: int | None = None
    feature_net: FeatureNet = None
    n_members: int = 1
    preset: Preset | str | None = None
    callbacks: Sequence[Callback | Checkpoint | Callable[[StepReport], bool | None]] | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class StudentOptions(NetworkOptions):
    """What estimators with a deep kernel take."""

    base_kernel: Kernel | None = None
    inference: str = "auto"
    n_inducing: int | None = None
