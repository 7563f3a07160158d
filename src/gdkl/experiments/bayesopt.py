"""Bayesian optimisation: how near the minimum of a function different models lead, with as many evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gdkl.experiments.spec import Cell, Column, Method, Quick, Spec
from gdkl.numerics import MissingPackageError, OptionError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gdkl.experiments.data import Part
    from gdkl.experiments.results import Line
    from gdkl.experiments.trial import Place

_SURROGATES = "gdkl.experiments.surrogates"

#: Names in pictures, by which methods have the colours that they have everywhere.
_SHOWN: dict[str, str] = {"gdkl": "GDKL", "dkl": "DKL", "nngp": "NNGP", "botorch": "BoTorch"}


def _no_rows(cell: Cell, data_dir: Path | None, validation: int) -> Part:
    """Rows are chosen in the run."""
    raise OptionError("--validation is not an option of bayesopt: leave it out.")


def _run(spec: Spec, cell: Cell, place: Place) -> Line:
    """One optimisation."""
    if cell.settings.get("validation"):
        raise OptionError("--validation is not an option of bayesopt: leave it out.")
    try:
        from gdkl.experiments.surrogates import optimise  # noqa: PLC0415  (it imports BoTorch)
    except ModuleNotFoundError as error:
        raise MissingPackageError("BoTorch is not installed: pip install 'gdkl[botorch]'.") from error
    return optimise(spec, cell, place)


def _picture(lines: Sequence[Line]) -> Figure:
    """Regrets by evaluation."""
    from gdkl.plots import regret_figure  # noqa: PLC0415  (slow to import)

    panels: dict[str, dict[str, list[list[float]]]] = {}
    for line in lines:
        name = _SHOWN.get(line["method"], str(line["method"]))
        panels.setdefault(line["dataset"], {}).setdefault(name, []).append(line["details"]["regret"])
    return regret_figure(panels, {line["dataset"]: line["details"]["initial"] for line in lines})


BAYESOPT = Spec(
    "bayesopt",
    "Our own: Bayesian optimisation of six functions by log expected improvement, one row at a time",
    _no_rows,
    ("branin", "hartmann6", "ackley10", "levy20", "gated5", "helix8"),
    {
        "gdkl": Method("GDKLModel as it comes", "GDKLRegressor", {"warp": None}, {"little_noise": True}),
        "dkl": Method("deep kernel by evidence, 500 steps", "DKLRegressor", {"n_iter": 500}),
        "nngp": Method(
            "BoTorch's Gaussian process, its kernel of an infinite network",
            f"{_SURROGATES}:SingleTask",
            {"infinite_width": True},
        ),
        "botorch": Method("BoTorch's SingleTaskGP as it comes", f"{_SURROGATES}:SingleTask"),
        "random": Method("rows of a Sobol sequence", f"{_SURROGATES}:Random"),
    },
    (
        Column("log10 regret", "digits", digits=2, factor=-1),
        Column("simple regret", "regret", digits=4),
        Column("processor s per round", "seconds_per_round", digits=2),
    ),
    sizes=(30,),
    seeds=10,
    quick=Quick("2 of 10 seeds, Branin and Hartmann-6", seeds=2, datasets=2),
    error="error",
    compared="gdkl",
    run=_run,
    picture=_picture,
)
