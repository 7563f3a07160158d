"""Presets: every number of a fit that users may want to change, and how it comes about.

`gdkl.estimators.regimes` has the library's own values for a regime (which method, what kind of data, which inference,
how many rows) and the paper's protocol for the same regime. What a user sets in a `Preset` replaces either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from gdkl.calibration import held_out_count
from gdkl.estimators.regimes import SPARSE_WARM_UP_STEPS, Regime, defaults, published
from gdkl.numerics import OptionError

PAPER = "paper"

#: A field that the user leaves to the regime. Typed so that a resolved preset has numbers and no None.
_OPEN: Any = None


@dataclass(kw_only=True, repr=False, unsafe_hash=True)
class Preset:
    """The numbers of a fit. A field that is None takes the default of the data at hand (see the module).

    Reachable from a grid search as ``preset__learning_rate`` where ``preset=Preset()`` was passed.

    Attributes:
        base: None for the library's own values, "paper" for the published protocol.
        n_iter: Gradient steps; the estimator's own option of that name comes first.
        learning_rate: Its highest value.
        decay: "cosine", or "steps": tenfold at each milestone.
        milestones: Parts of training after which the rate falls.
        warm_up: Part of training in which the rate rises linearly.
        beta2: Adam's second-moment decay.
        optimizer: "adam" or "sgd".
        momentum: Of SGD.
        weight_decay: On the network's weights alone.
        kernel_rate: Learning rate of kernel and noise over that of the network.
        variational_rate: Learning rate of q(u) over that of the network.
        batch_size: Rows per step; 0 for all rows (exact inference).
        split_pool: Random splits that are drawn before they come again in another order; 0 for fresh ones always.
        stratified: Whether both halves of a split have as many rows of each class.
        symmetric_splits: Whether each half of a split is held out in turn.
        start_at_guide: Whether the kernel starts at the guide's scale and the features' mean distance.
        noise_start: First noise variance; "guide" for the guide's own where that is larger than the published one.
        noise_floor: Smallest noise variance, of targets with unit variance.
        objective: "guided", or, without calibration, the paper's ablations "distillation" and "predictive".
        beta: Weight of the KL term; the estimator's own option comes first.
        mu: Weight of the KL term at points without labels, between and around the rows (regression).
        try_less_guide: Whether a held-out fifth of few images decides if β / 30 serves better.
        guide_scale: Output scale of the guide over a Gram matrix of mean diagonal one; "auto" to have it fitted.
        guide_share: Weight of the guides in predictions; the estimator's own option comes first.
        label_noise: Whether the guide of a mini-batch sees labels with their own Dirichlet variances.
        kl_weight: Weight of KL(q(u) ‖ p(u)) in the evidence bounds of DKL, DUE and DLVKL.
        code_weight: Weight of the KL of DLVKL's codes from their prior.
        code_size: Dimensions of DLVKL's codes.
        spectral_coefficient: Largest norm of DUE's layers.
        power_iterations: Per step, by which DUE follows these norms.
        n_inducing: Inducing points; the estimator's own option comes first.
        calibrate: Whether rows that the model has not learned set the noise (regression) or the temperature (classes).
        widths: Of the layers of the default perceptron, the features last.
        residual: Whether layers of a perceptron that keep the width are residual blocks.
        depth: Of the default wide ResNet.
        widen_factor: Of the default wide ResNet.
        dropout: Of the default wide ResNet.
        positive: "exp" or "softplus": how the default kernel's hyperparameters are kept positive.
        graph: Whether a step over mini-batches is recorded as one CUDA graph.
        compile: Whether `torch.compile` fuses the network.

    Example:
        >>> Preset(learning_rate=0.02).get_params()["learning_rate"]
        0.02
    """

    base: str | None = None
    n_iter: int = _OPEN
    learning_rate: float = _OPEN
    decay: str = _OPEN
    milestones: tuple[float, ...] = _OPEN
    warm_up: float = _OPEN
    beta2: float = _OPEN
    optimizer: str = _OPEN
    momentum: float = _OPEN
    weight_decay: float = _OPEN
    kernel_rate: float = _OPEN
    variational_rate: float = _OPEN
    batch_size: int = _OPEN
    split_pool: int = _OPEN
    stratified: bool = _OPEN
    symmetric_splits: bool = _OPEN
    start_at_guide: bool = _OPEN
    noise_start: float | str = _OPEN
    noise_floor: float = _OPEN
    objective: str = _OPEN
    beta: float = _OPEN
    mu: float = _OPEN
    try_less_guide: bool = _OPEN
    guide_scale: float | str = _OPEN
    guide_share: float | str = _OPEN
    label_noise: bool = _OPEN
    kl_weight: float = _OPEN
    code_weight: float = _OPEN
    code_size: int = _OPEN
    spectral_coefficient: float = _OPEN
    power_iterations: int = _OPEN
    n_inducing: int = _OPEN
    calibrate: bool = _OPEN
    widths: tuple[int, ...] = _OPEN
    residual: bool = _OPEN
    depth: int = _OPEN
    widen_factor: int = _OPEN
    dropout: float = _OPEN
    positive: str = _OPEN
    graph: bool = _OPEN
    compile: bool = _OPEN

    @classmethod
    def paper(cls, **overrides: Any) -> Self:
        """The published protocol with some fields replaced."""
        return cls(base=PAPER, **overrides)

    def __repr__(self) -> str:
        return f"Preset({', '.join(f'{name}={value!r}' for name, value in self.set_fields().items())})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All fields, as scikit-learn's estimators give their options."""
        return dict(vars(self))

    def set_params(self, **fields: Any) -> Self:
        """Set some fields, as scikit-learn's estimators set their options."""
        unknown = sorted(set(fields) - set(vars(self)))
        if unknown:
            raise OptionError(f"a preset has no field {unknown[0]!r}: its fields are {', '.join(vars(self))}.")
        vars(self).update(fields)
        return self

    def set_fields(self) -> dict[str, Any]:
        """The fields that the user has set."""
        return {name: value for name, value in vars(self).items() if value is not None}


def resolve(preset: Preset | str | None, regime: Regime, **options: Any) -> Preset:
    """All numbers of a fit, none of them None.

    Args:
        preset: What the user passed.
        regime: What defaults depend on.
        **options: Values of the estimator's own options that have a field here; None leaves the preset's.

    Example:
        >>> regime = Regime("gdkl", n_classes=0, images=False, exact=True, rows=500)
        >>> resolve(None, regime).n_iter, resolve("paper", regime).n_iter, resolve(None, regime, n_iter=5).n_iter
        (70, 7000, 5)
    """
    check_preset(preset)
    given = preset.set_fields() if isinstance(preset, Preset) else {}
    base = preset if isinstance(preset, str) else given.pop("base", None)
    values = (published if base == PAPER else defaults)(regime)
    values |= given | {name: value for name, value in options.items() if value is not None}
    if not regime.exact and "warm_up" not in given and values["optimizer"] == "adam":
        values["warm_up"] = max(values["warm_up"], min(0.5, SPARSE_WARM_UP_STEPS / values["n_iter"]))
    if values["optimizer"] == "sgd" and "variational_rate" not in given:
        values["variational_rate"] = 1.0
    if "n_inducing" not in given and options.get("n_inducing") is None:
        # Rows may be held out of those that are trained on.
        held_out = held_out_count(regime.rows) if values["calibrate"] else 0
        values["n_inducing"] = max(1, min(values["n_inducing"], regime.rows - held_out))
    named = "beta" in given or options.get("beta") is not None
    values["try_less_guide"] &= not named or "try_less_guide" in given
    return Preset(**values)


def check_preset(preset: Any) -> None:
    """Refuse what is no preset, or has fields out of range.

    Raises:
        OptionError: If it is not.
    """
    if preset is None or (isinstance(preset, str) and preset == PAPER):
        return
    if not isinstance(preset, Preset):
        raise OptionError(f"preset={preset!r} is not known: use None, 'paper' or gdkl.Preset(...).")
    for name, value in preset.set_fields().items():
        _check_field(name, value)


#: Fields that take one of some words.
_WORDS = {
    "base": (PAPER,),
    "decay": ("cosine", "steps"),
    "optimizer": ("adam", "sgd"),
    "objective": ("guided", "distillation", "predictive"),
    "positive": ("exp", "softplus"),
}
#: Smallest value of each number, and whether it must lie above it; whole numbers are named beside.
_AT_LEAST = {
    "n_iter": (1, False),
    "learning_rate": (0, True),
    "warm_up": (0, False),
    "beta2": (0, True),
    "momentum": (0, False),
    "weight_decay": (0, False),
    "kernel_rate": (0, True),
    "variational_rate": (0, True),
    "batch_size": (0, False),
    "split_pool": (0, False),
    "noise_start": (0, True),
    "noise_floor": (0, True),
    "beta": (0, False),
    "mu": (0, False),
    "guide_scale": (0, True),
    "guide_share": (0, False),
    "kl_weight": (0, False),
    "code_weight": (0, False),
    "code_size": (1, False),
    "spectral_coefficient": (0, True),
    "power_iterations": (1, False),
    "n_inducing": (1, False),
    "depth": (10, False),
    "widen_factor": (1, False),
    "dropout": (0, False),
}
_BELOW_ONE = ("warm_up", "beta2", "momentum", "dropout")
_WHOLE = (
    "n_iter",
    "batch_size",
    "split_pool",
    "n_inducing",
    "depth",
    "widen_factor",
    "code_size",
    "power_iterations",
)
_FLAGS = (
    "stratified",
    "symmetric_splits",
    "start_at_guide",
    "try_less_guide",
    "label_noise",
    "calibrate",
    "residual",
    "graph",
    "compile",
)
_ALSO_WORDS = {"noise_start": "guide", "guide_scale": "auto", "guide_share": "auto"}


def _check_field(name: str, value: Any) -> None:
    if name in _WORDS:
        if value not in _WORDS[name]:
            raise OptionError(f"preset {name}={value!r} is not known: use one of {', '.join(_WORDS[name])}.")
        return
    if name in _FLAGS and not _is_flag(value):
        raise OptionError(f"preset {name}={value!r} is not allowed: use True or False.")
    if name not in _AT_LEAST or (isinstance(value, str) and _ALSO_WORDS.get(name) == value):
        return
    low, strict = _AT_LEAST[name]
    number = math.nan if isinstance(value, (bool, str)) else float(value)
    fine = math.isfinite(number) and number >= low and not (strict and number == low)
    if not fine or (name in _BELOW_ONE and number >= 1):
        bound = f"{'above' if strict else 'of at least'} {low}{' and below 1' if name in _BELOW_ONE else ''}"
        raise OptionError(f"preset {name}={value!r} is not allowed: use a number {bound}.")
    if name == "guide_share" and number > 1:
        raise OptionError(f"preset guide_share={value!r} is not allowed: use a number from 0 to 1, or 'auto'.")
    if name in _WHOLE and int(number) != number:
        raise OptionError(f"preset {name}={value!r} is not allowed: use a whole number.")


def _is_flag(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))
