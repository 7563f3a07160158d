"""The paper's smaller tables: ablations, the guide's depth, a plain network, calibration and time per step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gdkl.experiments import data
from gdkl.experiments.draws import PAPER_DRAW, SIZES
from gdkl.experiments.spec import PAPER_ROWS, Cell, Column, Method, PaperTable, Quick, Spec
from gdkl.experiments.specs import FEWSHOT, UCI

_PAPER = {"base": "paper"}


def _guided(about: str, beta: float | None = None, **preset: float) -> Method:
    options = {} if beta is None else {"beta": beta}
    return Method(about, "GDKLRegressor", options, _PAPER | preset, together=True)


OBJECTIVES = replace(
    UCI,
    name="objectives",
    about="The paper's: what each part of the objective does, on Boston, Energy and Concrete",
    methods={
        **{name: UCI.methods[name] for name in ("nngp", "distillation", "predictive", "gdkl")},
        **{f"beta_{beta:g}": _guided(f"β = {beta:g} in place of 1", beta) for beta in (0.0, 0.1, 0.3, 3.0, 10.0)},
        "fixed_split": _guided("one split of the rows for all steps in place of a fresh one each", split_pool=1),
        "unlabelled": _guided("with points without labels, μ = 1", mu=1.0),
    },
    default_methods=0,
    compared="gdkl",
    paper=PaperTable("Table 4", {"test": ("app_tab:objectives",)}),
    runs_of=UCI.name,
)

NN = replace(
    FEWSHOT,
    name="nn",
    about="The paper's: a plain network beside GDKL on 50 to 800 labelled images of CIFAR-10",
    methods={name: FEWSHOT.methods[name] for name in ("nn", "gdkl")},
    paper=PaperTable(
        "Table 5",
        {"test": ("app_tab:comparison_nn",)},
        rows={"nn": "NN", "gdkl": "GDKL (Ours)"},
        cell="{dataset}.n{size}.{score}",
        split=PAPER_DRAW,
    ),
    runs_of=FEWSHOT.name,
)

RELIABILITY = replace(
    FEWSHOT,
    name="reliability",
    about="The paper's: calibration on 50 to 800 labelled images of CIFAR-10",
    columns=(
        Column("ECE", "ece"),
        Column("MCE", "mce"),
        Column("Brier", "brier"),
        Column("mean confidence", "mean_confidence"),
    ),
    # The paper has these as a picture alone.
    paper=PaperTable("Figure 4", split=PAPER_DRAW),
    runs_of=FEWSHOT.name,
)

_FEW = {"inference": "exact", "augment": False}
_LONG = {"depth": 28, "widen_factor": 5, "base": "paper"}


def _by_guide(about: str, guide: str) -> Method:
    return replace(FEWSHOT.methods["gdkl"], about=about, options={**FEWSHOT.methods["gdkl"].options, "guide": guide})


SHALLOW_GUIDE = replace(
    FEWSHOT,
    name="shallow-guide",
    about="The paper's: a guide of one or four residual blocks, and one that sees half the resolution, on CIFAR-10",
    methods={
        "nngp_1": Method("the guide alone, one block per group", "NNGPClassifier", {"guide": "wide_resnet_1"}),
        "nngp_4": Method("the guide alone, four blocks per group", "NNGPClassifier", {"guide": "wide_resnet_4"}),
        "nngp_half": Method("four blocks, images of 16 × 16", "NNGPClassifier", {"guide": "wide_resnet_4_half"}),
        "gdkl_1": _by_guide("GDKL with a guide of one block per group", "wide_resnet_1"),
        "gdkl_4": _by_guide("GDKL with a guide of four blocks per group", "wide_resnet_4"),
        "gdkl_half": _by_guide("GDKL with four blocks, which see images of 16 × 16", "wide_resnet_4_half"),
    },
    paper=PaperTable(
        "Table 2",
        {"test": ("app_tab:shallower_NNGP",)},
        rows={
            "nngp_1": "NNGP - One Res. Block",
            "nngp_4": "NNGP - Four Res. Blocks",
            "gdkl_1": "GDKL - One Res. Block",
            "gdkl_4": "GDKL - Four Res. Blocks",
        },
        cell="{dataset}.n{size}.{score}",
        split=PAPER_DRAW,
    ),
)

_STEPS = {"n_iter": 150}  # the first 50 warm up


def few_images_timed(cell: Cell, data_dir: Path | None, validation: int) -> data.Part:
    """As for the few-shot experiment, with a hundred test images: what is measured is training."""
    part = data.few_images(cell, data_dir, validation)
    return replace(part, X_test=part.X_test[:100], y_test=part.y_test[:100])


_TRAINED = ("gdkl", "dkl", "due", "dlvkl", "nn")

TIMING = Spec(
    "timing",
    "The paper's: seconds per step on 50 to 800 images of CIFAR-10; run it alone, on a GPU",
    few_images_timed,
    ("cifar10",),
    {
        "gdkl": Method("the guided objective", "GDKLClassifier", _FEW | {"guide": "wide_resnet_4"}, _LONG | _STEPS),
        "dkl": Method("deep kernel by evidence", "DKLClassifier", _FEW, _LONG | _STEPS),
        "due": Method("deep kernel, spectral normalisation", "DUEClassifier", _FEW, _LONG | _STEPS),
        "dlvkl": Method(
            "deep kernel, stochastic encoder", "DLVKLClassifier", {"likelihood": "dirichlet"}, _LONG | _STEPS
        ),
        "nn": Method("the network with a softmax head", "NNClassifier", {"augment": False}, _LONG | _STEPS),
        "nngp": Method("the guide alone: its kernel and its fit, once", "NNGPClassifier", {"guide": "wide_resnet_4"}),
    },
    (
        Column("s per step", "per_step", "seconds", 4, paper="seconds_per_iteration", methods=_TRAINED),
        Column("s once", "fit", "seconds", 2, paper="seconds_per_iteration", methods=("nngp",)),
    ),
    sizes=SIZES,
    draws=(PAPER_DRAW,),
    seeds=5,
    paper=PaperTable(
        "Table 3",
        {"seconds": ("app_tab:calc_time",)},
        rows={**PAPER_ROWS, "nngp": "NNGP (One Time)"},
        cell="{dataset}.n{size}.{score}",
        split=PAPER_DRAW,
    ),
    quick=Quick(
        "1 of 5 runs, 50 and 100 images, WRN-10-2 in place of WRN-28-5",
        sizes=(50, 100),
        changes=("preset.depth=10", "preset.widen_factor=2", "guide=dense"),
    ),
)
