"""Default numbers by regime, each with the measurement that chose it, and the published protocol beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gdkl.gp import NOISE_FLOOR, NOISE_START
from gdkl.nets import PAPER_WIDTHS


@dataclass(frozen=True)
class Regime:
    """What default numbers depend on; chosen once per fit.

    Attributes:
        method: "gdkl", "dkl", "due", "dlvkl", "nn", "nngp" or "gp".
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
    "noise_floor": NOISE_FLOOR,
    "objective": "guided",
    "beta": 1.0,
    "mu": 0.0,
    "try_less_guide": False,
    "guide_scale": "auto",
    "guide_share": 0.0,
    "label_noise": False,
    "kl_weight": 1.0,
    "code_weight": 1.0,
    "code_size": 50,
    # The choice of DUE's authors for images, from {1, 3} each.
    "spectral_coefficient": 3.0,
    "power_iterations": 1,
    "n_inducing": 128,
    "calibrate": False,
    "widths": PAPER_WIDTHS,
    "residual": False,
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
SPARSE_WARM_UP_STEPS = 50


def defaults(regime: Regime) -> dict[str, Any]:
    """The library's own numbers for a regime; results are in docs/results."""
    values = dict(_BASE)
    values |= _DEFAULTS[regime.method, regime.n_classes > 0](regime)
    if not regime.exact:
        values |= {"noise_start": _SPARSE_NOISE_START}
    return values


#: The cosine leaves no steps at a rate too small to matter, a shorter Adam memory follows gradients that shrink a
#: thousandfold as the noise falls.
_COSINE: dict[str, Any] = {"decay": "cosine", "warm_up": 0.05, "beta2": 0.99, "calibrate": True}

#: Students beside guides that know the relevances need few steps and narrow layers: 150 steps of 50 units are as good
#: as 200 of 100 on boston, concrete, pol, protein and bikeshare (500 rows, one split) and take less time. Kernel and
#: noise go faster than the network, which waits for them.
_IN_A_STACK: dict[str, Any] = _COSINE | {
    "n_iter": 150,
    "learning_rate": 3e-2,
    "widths": (50, 50, 50, 20),
    "kernel_rate": 3.0,
    "guide_share": "auto",
}


def _regression_gdkl(regime: Regime) -> dict[str, Any]:
    if regime.exact:
        return _IN_A_STACK | {
            # 70 steps of 256 rows are as good as 100 of all (44 tables, 500 rows, two splits: CRPS 0.1 % lower, LL
            # equal in the median), and those as 150 on twelve of them.
            "n_iter": 70,
            # With 500 rows 192 per step have a CRPS 0.2 % higher than all; with 2000 rows 512 have one 0.1 % lower, 256
            # one 0.4 % higher (20 tables, one split).
            "batch_size": max(192, regime.rows // 4),
            "split_pool": 64,
            "noise_start": "guide",
            # Intervals of noiseless tables hold everything with the published floor, and cost 1.5 nats.
            "noise_floor": 1e-6,
            # 0.3 and 1 are alike, and better than none on three tables of five.
            "mu": 1.0,
        }
    common = _COSINE | {"n_iter": 2000}
    # The guide knows 2000 rows at most, the student all: on kin8nm, power and protein (a tenth of the training rows
    # for trial) β of 0.1 and more cost accuracy.
    # μ: in a gap of 3000 rows in one dimension the latent deviation is 0.94 of the guide's, and 0.14 with 0.001. Scores
    # of elevators (4000 rows) gain by it; those of pol, kin8nm, protein and power differ less than between seeds.
    return common | {"beta": 0.01, "mu": 0.01, "batch_size": 512}


def _regression_dkl(regime: Regime) -> dict[str, Any]:
    return {"n_iter": 8000, "weight_decay": 1e-4, "batch_size": 0 if regime.exact else 512}


def _classes_gdkl(regime: Regime) -> dict[str, Any]:
    if regime.images:
        return _image_network(regime) | (_few_images_gdkl(regime) if regime.exact else _many_images_gdkl(regime))
    if not regime.exact:
        # Protein in thirds and pol: a guide that has seen 2000 rows steadies its student at 0.001 (NLL 0.894 to 0.711
        # and 0.134 to 0.052) and holds it back above.
        return {"beta": 1e-3, "batch_size": 512, "calibrate": True}
    # As for regression. On the seven tables of tables-classes (300 rows, one split) students alone have a mean NLL of
    # 0.396, 0.398 and 0.399 with β of 1, 3 and 0.3. More than 256 rows make a step of many classes slow, and no better.
    return _IN_A_STACK | {"batch_size": 256, "stratified": True, "start_at_guide": True}


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
        # A quarter for a guide that predicts held-out labels little better than chance, half for a better one.
        "guide_share": "auto",
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


#: DUE's network for tables, as its authors have it: nothing after the residual blocks brings rows together.
_RESIDUAL: dict[str, Any] = {"residual": True, "widths": (100, 100, 100, 100), "spectral_coefficient": 0.95}


def _due(regime: Regime) -> dict[str, Any]:
    values = (_classes_dkl if regime.n_classes else _regression_dkl)(regime)
    return values | ({} if regime.images else _RESIDUAL)


#: DLVKL's numbers as published; of the weights that the paper searches one with which few images were learned.
_CODES: dict[str, Any] = {"n_inducing": 200, "code_weight": 0.01}


def _dlvkl(regime: Regime) -> dict[str, Any]:
    if regime.images:
        return _image_network(regime) | _CODES | {"n_iter": 500, "weight_decay": 5e-4, "batch_size": 256}
    values = {"n_iter": 1000, "weight_decay": 1e-4, "batch_size": 512, "n_inducing": 100}
    # Boston, two splits: LL −2.22 and coverage 0.91 with 0.1, −2.89 and 0.76 with 0.03, −3.60 and 0.67 with the
    # published weight and points. Energy, whose targets have little noise: −1.8, −1.0, −0.8. Of labels and two columns
    # 0.1 draws the codes to their prior, and nothing is learned.
    return values | {"code_weight": 0.01 if regime.n_classes else 0.1}


def _regression_nn(regime: Regime) -> dict[str, Any]:
    # Boston, two or three splits: LL of one network −5.3, of five −2.15; −57 and −3.1 with 1000 steps, where variances
    # of training rows collapse. Energy, whose targets have little noise, wants more: −1.8, −0.93 and −0.72 with 500,
    # 1000 and 2000.
    return {"n_iter": 500, "weight_decay": 1e-4}


def _classes_nn(regime: Regime) -> dict[str, Any]:
    network = _image_network(regime) | {"optimizer": "sgd"} if regime.images else {}
    return {"weight_decay": 5e-4} | network


_DEFAULTS: dict[tuple[str, bool], Callable[[Regime], dict[str, Any]]] = {
    ("gdkl", False): _regression_gdkl,
    ("dkl", False): _regression_dkl,
    ("gdkl", True): _classes_gdkl,
    ("dkl", True): _classes_dkl,
    ("due", False): _due,
    ("due", True): _due,
    ("dlvkl", False): _dlvkl,
    ("dlvkl", True): _dlvkl,
    ("nn", False): _regression_nn,
    ("nn", True): _classes_nn,
    # No gradient steps: of the numbers here these use ``calibrate`` alone.
    ("nngp", False): lambda _: {},
    ("nngp", True): lambda _: {},
    ("gp", False): lambda _: {},
}

#: Epochs and batch size of the paper on all of CIFAR.
_PAPER_EPOCHS, _PAPER_BATCH = 200, 256

#: Rows up to which DLVKL takes the paper's protocol of few rows.
_PAPER_FEW = 2000


def published(regime: Regime) -> dict[str, Any]:
    """The paper's protocol for a regime (its appendix on experimental details), nothing calibrated."""
    values = dict(_BASE)
    values["weight_decay"] = 0.0 if regime.method == "gdkl" else 5e-4 if regime.n_classes else 1e-4
    # GPyTorch's own, as in the published code. On Energy it matters: softplus moves the lengthscale by at most the
    # learning rate per step, an exponential multiplies it (LL −0.35 and −0.30, ten splits, several networks).
    values["positive"] = "softplus"
    if regime.method == "due" and not regime.images:
        values |= _RESIDUAL
    # DLVKL's few rows are one batch, where other methods are exact.
    whole = regime.exact or (regime.method == "dlvkl" and regime.rows <= _PAPER_FEW)
    if regime.method == "dlvkl":
        values |= _CODES | {"batch_size": max(2, regime.rows), "noise_start": _SPARSE_NOISE_START}
    if regime.n_classes == 0:
        values["n_iter"] = 7000 if regime.method == "gdkl" else 8000
        return values if whole else values | {"batch_size": 512}
    values["optimizer"] = "sgd"
    if whole:
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
