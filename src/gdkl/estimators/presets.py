"""Presets: every tuned number of a fit, in one place, each with the measurement that chose it.

`defaults` gives the library's own values for a regime (which method, what kind of data, which inference, how many
rows), `published` the paper's protocol for the same regime. What a user sets in a `Preset` replaces either.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from sklearn.base import BaseEstimator

from gdkl.gp import NOISE_START
from gdkl.numerics import OptionError

PAPER = "paper"


class Preset(BaseEstimator):
    """The numbers of a fit. A field that is None takes the default of the data at hand (see the module).

    Reachable from a grid search as ``preset__learning_rate`` where ``preset=Preset()`` was passed.

    Args:
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
        objective: "guided", or the paper's ablations "distillation" and "predictive".
        beta: Weight of the KL term; the estimator's own option comes first.
        try_less_guide: Whether a held-out fifth of few images decides if β / 30 serves better.
        guide_scale: Output scale of the guide over a Gram matrix of mean diagonal one; "auto" to have it fitted.
        guide_share: Weight of the guide in predicted probabilities; the estimator's own option comes first.
        label_noise: Whether the guide of a mini-batch sees labels with their own Dirichlet variances.
        kl_weight: Weight of KL(q(u) ‖ p(u)) in DKL's evidence bound.
        n_inducing: Inducing points; the estimator's own option comes first.
        calibrate: Whether rows that the model has not learned set the noise (regression) or the temperature (classes).
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

    def __init__(
        self,
        *,
        n_iter: int | None = None,
        learning_rate: float | None = None,
        decay: str | None = None,
        milestones: tuple[float, ...] | None = None,
        warm_up: float | None = None,
        beta2: float | None = None,
        optimizer: str | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        kernel_rate: float | None = None,
        variational_rate: float | None = None,
        batch_size: int | None = None,
        split_pool: int | None = None,
        stratified: bool | None = None,
        symmetric_splits: bool | None = None,
        start_at_guide: bool | None = None,
        noise_start: float | str | None = None,
        objective: str | None = None,
        beta: float | None = None,
        try_less_guide: bool | None = None,
        guide_scale: float | str | None = None,
        guide_share: float | None = None,
        label_noise: bool | None = None,
        kl_weight: float | None = None,
        n_inducing: int | None = None,
        calibrate: bool | None = None,
        depth: int | None = None,
        widen_factor: int | None = None,
        dropout: float | None = None,
        positive: str | None = None,
        graph: bool | None = None,
        compile: bool | None = None,
    ):
        self.n_iter = n_iter
        self.learning_rate = learning_rate
        self.decay = decay
        self.milestones = milestones
        self.warm_up = warm_up
        self.beta2 = beta2
        self.optimizer = optimizer
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.kernel_rate = kernel_rate
        self.variational_rate = variational_rate
        self.batch_size = batch_size
        self.split_pool = split_pool
        self.stratified = stratified
        self.symmetric_splits = symmetric_splits
        self.start_at_guide = start_at_guide
        self.noise_start = noise_start
        self.objective = objective
        self.beta = beta
        self.try_less_guide = try_less_guide
        self.guide_scale = guide_scale
        self.guide_share = guide_share
        self.label_noise = label_noise
        self.kl_weight = kl_weight
        self.n_inducing = n_inducing
        self.calibrate = calibrate
        self.depth = depth
        self.widen_factor = widen_factor
        self.dropout = dropout
        self.positive = positive
        self.graph = graph
        self.compile = compile

    @classmethod
    def paper(cls, **overrides: Any) -> Self:
        """The published protocol with some fields replaced."""
        preset = cls(**overrides)
        preset.published_ = True
        return preset

    #: Set by `paper`; not a parameter, so that a grid search does not offer it.
    published_: bool = False

    def __sklearn_clone__(self) -> Self:
        copy = type(self)(**self.get_params(deep=False))
        copy.published_ = self.published_
        return copy

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:  # scikit-learn's own signature
        set_fields = ", ".join(f"{name}={value!r}" for name, value in self.set_fields().items())
        return f"Preset{'.paper' if self.published_ else ''}({set_fields})"

    def set_fields(self) -> dict[str, Any]:
        """The fields that the user has set."""
        return {name: value for name, value in self.get_params(deep=False).items() if value is not None}


@dataclass(frozen=True)
class Regime:
    """What default numbers depend on; chosen once per fit.

    Attributes:
        method: "gdkl", "dkl" or "nn".
        n_classes: Number of classes; 0 for regression.
        images: Whether rows are images.
        exact: Whether inference is exact (or full-batch, for a network).
        rows: Number of training rows.
        cuda: Whether training runs on a GPU.
        augmented: Whether images are cropped and mirrored at random in training.
        own_guide: Whether the user gave a guide.
    """

    method: str
    n_classes: int
    images: bool
    exact: bool
    rows: int
    cuda: bool = False
    augmented: bool = False
    own_guide: bool = False


#: Valid whatever the regime, unless it says otherwise: the paper's schedule for exact training.
_BASE: dict[str, Any] = {
    "n_iter": 500,
    "learning_rate": 1e-2,
    "decay": "steps",
    "milestones": (0.6, 0.8),
    "warm_up": 0.0,
    "beta2": 0.999,
    "optimizer": "adam",
    "momentum": 0.9,
    "weight_decay": 0.0,
    "kernel_rate": 1.0,
    # Whitened values of q(u) go from 0 to some units, which takes Adam hundreds of steps at a network's rate.
    "variational_rate": 5.0,
    "batch_size": 0,
    "split_pool": 0,
    "stratified": False,
    "symmetric_splits": False,
    "start_at_guide": False,
    "noise_start": NOISE_START,
    "objective": "guided",
    "beta": 1.0,
    "try_less_guide": False,
    "guide_scale": "auto",
    "guide_share": 0.0,
    "label_noise": False,
    "kl_weight": 1.0,
    "n_inducing": 128,
    "calibrate": False,
    "depth": 28,
    "widen_factor": 5,
    "dropout": 0.3,
    "positive": "exp",
    "graph": False,
    "compile": False,
}

#: q(u) starts at its prior; with the small noise that exact training starts from, the quickest way down would be to
#: shrink the kernel to nothing.
_SPARSE_NOISE_START = 0.5

#: Steps on which the learning rate rises with inducing points: untrained features lie close together, and at the full
#: rate the first steps would take them out of the kernel's reach.
_SPARSE_WARM_UP_STEPS = 50


def defaults(regime: Regime) -> dict[str, Any]:
    """The library's own numbers for a regime; results are in docs/results."""
    values = dict(_BASE)
    values |= _DEFAULTS[regime.method, regime.n_classes > 0](regime)
    if not regime.exact:
        values |= {"noise_start": _SPARSE_NOISE_START}
        values.setdefault("batch_size", 512)
    return values


def _regression_gdkl(regime: Regime) -> dict[str, Any]:
    # The cosine leaves no steps at a rate too small to matter, a shorter Adam memory follows gradients that shrink a
    # thousandfold as the noise falls: the published LL on Boston, Energy and Concrete (ten splits) in 2000 of 7000
    # steps. Kernel and noise go faster than the network, which waits for them.
    common = {"n_iter": 2000, "decay": "cosine", "warm_up": 0.05, "beta2": 0.99, "calibrate": True}
    if regime.exact:
        # Splits that come back after 500 steps are as good as new ones, and the guide's marginals, a quarter of a
        # step's work at 927 rows, are computed once for each.
        return common | {"learning_rate": 3e-2, "kernel_rate": 3.0, "split_pool": 512, "noise_start": "guide"}
    # The guide knows 2000 rows at most, the student all: on kin8nm, power and protein (a tenth of the training rows
    # for trial) β of 0.1 and more cost accuracy.
    return common | {"beta": 0.01, "batch_size": 512}


def _regression_dkl(regime: Regime) -> dict[str, Any]:
    return {"n_iter": 8000, "weight_decay": 1e-4, "batch_size": 0 if regime.exact else 512}


def _regression_nn(regime: Regime) -> dict[str, Any]:
    return {"n_iter": 2000, "weight_decay": 1e-4}


def _classes_gdkl(regime: Regime) -> dict[str, Any]:
    if regime.images:
        return _image_network(regime) | (_few_images_gdkl(regime) if regime.exact else _many_images_gdkl(regime))
    if not regime.exact:
        # Protein in thirds and pol: a guide that has seen 2000 rows steadies its student at 0.001 (NLL 0.894 to 0.711
        # and 0.134 to 0.052) and holds it back above.
        return {"beta": 1e-3, "batch_size": 512, "calibrate": True}
    # Digits, wine and breast cancer on tuning splits: the mixture with three quarters of the guide is best in five of
    # six cells; more than 256 rows make a step of many classes slow, and no better.
    return {
        "beta": 3.0,
        "guide_share": 0.75,
        "batch_size": 256,
        "stratified": True,
        "start_at_guide": True,
        "calibrate": True,
    }


def _few_images_gdkl(regime: Regime) -> dict[str, Any]:
    return _few_images() | {
        # CIFAR-10, 50 to 800 images of a validation draw: 3 is better than 1 up to 200 images and worse at 800;
        # twice as much where the student sees the images augmented.
        "beta": (2.0 if regime.augmented else 1.0) * min(3.0, 800.0 / regime.rows),
        "try_less_guide": True,
        # The student's best scale is the same for 50 and 800 images, where the guide's own falls from 1000 to 16.
        "guide_scale": "auto" if regime.own_guide else 64.0,
        # One pass of the network, which is what takes time, serves both halves.
        "symmetric_splits": True,
        "guide_share": -1.0,
        "calibrate": True,
    }


def _many_images_gdkl(regime: Regime) -> dict[str, Any]:
    return {"beta": 0.1, "batch_size": 256, "n_inducing": max(10, regime.n_classes), "calibrate": True}


def _few_images() -> dict[str, Any]:
    # SGD and GPyTorch's softplus, as published: a plain gradient step of an exponential grows with the square of the
    # parameter, and output scales end at 7.5 in place of 2.3 on 200 images of CIFAR-10.
    return {"optimizer": "sgd", "positive": "softplus"}


def _image_network(regime: Regime) -> dict[str, Any]:
    # With 50 to 800 images of CIFAR-10 the small network, a fifteenth of the work, predicts as well as the paper's;
    # one core takes 16 s for a batch of 256 with the large one.
    small = regime.exact or not regime.cuda
    return {"depth": 10, "widen_factor": 2} if small else {"depth": 28, "widen_factor": 5}


def _classes_dkl(regime: Regime) -> dict[str, Any]:
    values: dict[str, Any] = {"weight_decay": 5e-4}
    if regime.images:
        values |= _image_network(regime) | (_few_images() if regime.exact else _many_images_gdkl(regime))
        values["calibrate"] = False
    elif not regime.exact:
        values |= {"batch_size": 512}
    return values


def _classes_nn(regime: Regime) -> dict[str, Any]:
    network = _image_network(regime) | {"optimizer": "sgd"} if regime.images else {}
    return {"weight_decay": 5e-4} | network


_DEFAULTS: dict[tuple[str, bool], Callable[[Regime], dict[str, Any]]] = {
    ("gdkl", False): _regression_gdkl,
    ("dkl", False): _regression_dkl,
    ("nn", False): _regression_nn,
    ("gdkl", True): _classes_gdkl,
    ("dkl", True): _classes_dkl,
    ("nn", True): _classes_nn,
}

#: Epochs and batch size of the paper on all of CIFAR.
_PAPER_EPOCHS, _PAPER_BATCH = 200, 256


def published(regime: Regime) -> dict[str, Any]:
    """The paper's protocol for a regime (its appendix on experimental details), nothing calibrated."""
    values = dict(_BASE)
    values["weight_decay"] = 0.0 if regime.method == "gdkl" else 5e-4 if regime.n_classes else 1e-4
    if regime.n_classes == 0:
        return values | {"n_iter": 7000 if regime.method == "gdkl" else 8000, "batch_size": 0 if regime.exact else 512}
    values |= {"optimizer": "sgd", "positive": "softplus"}
    if regime.exact:
        return values | {"n_iter": 6000 if regime.method == "gdkl" else 7000}
    return values | {
        "n_iter": _PAPER_EPOCHS * max(1, regime.rows // _PAPER_BATCH),
        "batch_size": _PAPER_BATCH,
        "learning_rate": 0.1,
        "milestones": (0.5, 0.75),
        "weight_decay": 5e-4,
        "variational_rate": 1.0,
        "positive": "exp",
        "noise_start": _SPARSE_NOISE_START,
        "beta": 0.1,
        "guide_scale": 25.0,
        "label_noise": True,
        "n_inducing": 200 if regime.n_classes > 10 else 10,
    }


def resolve(preset: Preset | str | None, regime: Regime, **options: Any) -> Preset:
    """All numbers of a fit, none of them None.

    Args:
        preset: What the user passed.
        regime: What defaults depend on.
        **options: Values of the estimator's own options that have a field here; None leaves the preset's.

    Example:
        >>> regime = Regime("gdkl", n_classes=0, images=False, exact=True, rows=500)
        >>> resolve(None, regime).n_iter, resolve("paper", regime).n_iter, resolve(None, regime, n_iter=5).n_iter
        (2000, 7000, 5)
    """
    check_preset(preset)
    given = preset.set_fields() if isinstance(preset, Preset) else {}
    paper = preset == PAPER or (isinstance(preset, Preset) and preset.published_)
    values = (published if paper else defaults)(regime)
    values |= given | {name: value for name, value in options.items() if value is not None}
    if not regime.exact and "warm_up" not in given and values["optimizer"] == "adam":
        values["warm_up"] = max(values["warm_up"], min(0.5, _SPARSE_WARM_UP_STEPS / values["n_iter"]))
    if values["optimizer"] == "sgd" and "variational_rate" not in given:
        values["variational_rate"] = 1.0
    return Preset(**values)


def check_preset(preset: Any) -> None:
    """Refuse what is no preset, or has fields out of range.

    Raises:
        OptionError: If it is not.
    """
    if preset is None or preset == PAPER:
        return
    if not isinstance(preset, Preset):
        raise OptionError(f"preset={preset!r} is not known: use None, 'paper' or gdkl.Preset(...).")
    for name, value in preset.set_fields().items():
        _check_field(name, value)


#: Fields that take one of some words.
_WORDS = {
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
    "beta": (0, False),
    "guide_scale": (0, True),
    "guide_share": (0, False),
    "kl_weight": (0, False),
    "n_inducing": (1, False),
    "depth": (10, False),
    "widen_factor": (1, False),
    "dropout": (0, False),
}
_BELOW_ONE = ("warm_up", "beta2", "momentum", "dropout")
_WHOLE = ("n_iter", "batch_size", "split_pool", "n_inducing", "depth", "widen_factor")
_ALSO_WORDS = {"noise_start": "guide", "guide_scale": "auto"}


def _check_field(name: str, value: Any) -> None:
    if name in _WORDS:
        if value not in _WORDS[name]:
            raise OptionError(f"preset {name}={value!r} is not known: use one of {', '.join(_WORDS[name])}.")
        return
    if name not in _AT_LEAST or _ALSO_WORDS.get(name) == value:
        return
    low, strict = _AT_LEAST[name]
    number = not isinstance(value, (bool, str)) and math.isfinite(float(value))
    if not number or value < low or (strict and value == low) or (name in _BELOW_ONE and value >= 1):
        bound = f"{'above' if strict else 'of at least'} {low}{' and below 1' if name in _BELOW_ONE else ''}"
        raise OptionError(f"preset {name}={value!r} is not allowed: use a number {bound}.")
    if name in _WHOLE and int(value) != value:
        raise OptionError(f"preset {name}={value!r} is not allowed: use a whole number.")
