"""What the experiments have in common: options that mean the same everywhere, names in a row, the table at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from gdkl.cli.failures import PIPE_WIDTH
from gdkl.numerics import OptionError
from gdkl.paper.fewshot_guides import GuideName


def number(what: str, least: float, *, most: float | None = None, default: bool | str = True) -> Any:
    """An option that takes a whole number, or a real one where its least is real."""
    metavar = "N" if isinstance(least, int) else "X"
    return typer.Option(min=least, max=most, metavar=metavar, help=what, show_default=default)


def several(allowed: Iterable[str], default: str = "all") -> Any:
    """An option that takes one or more of these names, comma-separated."""
    return typer.Option(help=f"Comma-separated: {', '.join(allowed)}.", show_default=default, metavar="NAMES")


DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Where the dataset files are; looked at before GDKL_DATA and the cache.", metavar="DIR", show_default=False
    ),
]
Output = Annotated[Path, typer.Option(help="Where result files go, in a folder of the experiment's.", metavar="DIR")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.", metavar="NAME")]
Splits = Annotated[int, number("Number of splits, seeds 0 … N−1.", 1)]
Networks = Annotated[int, number("Number of networks, seeds 0 … N−1.", 1)]
Beta = Annotated[float, number("GDKL's weight of the KL term.", 0.0)]

#: Of the two experiments on images.
Guide = Annotated[
    GuideName,
    typer.Option(help=f"The infinite network that guides: {', '.join(GuideName)}.", metavar="NAME"),
]
Depth = Annotated[int, typer.Option(metavar="N", help="Of the wide ResNet.")]
WidenFactor = Annotated[int, number("Of the wide ResNet.", 1)]
Algebra = Annotated[str, typer.Option(help="Precision of the Gaussian processes, float64 or float32.", metavar="NAME")]

#: Where result files go if the user does not say.
RUNS = Path("runs")


def names_in(text: str, allowed: Iterable[str], what: str) -> list[str]:
    """The names that the user gave, comma-separated.

    Example:
        >>> names_in("wine, digits", ("digits", "wine"), "dataset")
        ['wine', 'digits']
    """
    known = tuple(allowed)
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        problem = f"unknown {what} {', '.join(unknown)}" if unknown else f"no {what} given"
        raise OptionError(f"{problem}: use {', '.join(known)}.")
    # A name that is given twice is one experiment.
    return list(dict.fromkeys(names))


def show(table: Table, folder: Path, lines: Sequence[str] = ()) -> None:
    """Print the results, what is to be said of them, and where they are."""
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(table)
    for line in (*lines, f"Result files: {folder}"):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
