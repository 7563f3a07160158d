"""``gdkl demo``: all four regressors on embedded data, with a table, pictures and a page to read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gdkl._version import __version__
from gdkl.cli.failures import INTERRUPTED, say
from gdkl.cli.publish import check_folder, publish

if TYPE_CHECKING:
    from rich.console import Console

#: Steps of the paper's protocol.
FULL_STEPS = {"GDKL": 7000, "DKL": 8000}

PAGE = "index.html"
PICTURES = ("figure1.png", "bands.png", "calibration.png", "training.png")


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the page and the pictures.")
    ] = Path("demo"),
    steps: Annotated[
        int, typer.Option("--steps", metavar="N", min=1, help="Gradient steps of DKL; GDKL takes a seventh.")
    ] = 1000,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, max=2**32 - 2, help="Seed of data, weights and splits.")
    ] = 0,
) -> None:
    """Fit four models to embedded data; write pictures and a page.

    GDKL, DKL, NNGP and GP on two datasets; their scores are printed. Nothing is downloaded. The folder is written at
    the end and as a whole: a demo that is interrupted leaves none.
    """
    from rich.console import Console  # noqa: PLC0415  (help does not need it)

    check_folder(output, (PAGE, *PICTURES))
    out = Console()
    for line in _announcement(steps):
        out.print(line, highlight=False, soft_wrap=True)
    try:
        publish(output, _make_files(out, steps, seed))
    except KeyboardInterrupt:
        say("gdkl demo: interrupted; nothing was written.")
        raise typer.Exit(INTERRUPTED) from None
    out.print(f"Written to {output}: open {output / PAGE} in a browser.", markup=False, highlight=False, soft_wrap=True)


def _announcement(steps: int) -> list[str]:
    """What the user should know before it starts."""
    return [
        f"gdkl {__version__} demo: four regressors on two embedded datasets.",
        f"GDKL trains for {max(1, steps // 7)} steps and DKL for {steps}; the paper's protocol takes "
        f"{FULL_STEPS['GDKL']} and {FULL_STEPS['DKL']}, so scores here are not its scores.",
        "NNGP and GP are fitted by evidence until it converges, without a number of steps.",
    ]


def _make_files(out: Console, steps: int, seed: int) -> dict[str, bytes]:
    from rich.markup import escape  # noqa: PLC0415

    from gdkl.cli.demo_page import demo_page, draw_pictures, score_table  # noqa: PLC0415  (models and plots are slow)
    from gdkl.cli.demo_study import Study, diabetes_problem, run_study, toy_problem  # noqa: PLC0415

    studies: list[Study] = []
    for problem in (toy_problem(seed), diabetes_problem(seed)):
        out.print(f"\n[bold]{problem.name}[/bold]: {escape(problem.description)}", highlight=False, soft_wrap=True)
        study = run_study(problem, steps, seed, say)
        out.print(score_table(study))
        studies.append(study)
    say("Drawing the pictures ...")
    pictures = draw_pictures(studies, seed)
    notes = _announcement(steps)[1:]
    page = demo_page(studies, pictures, notes, steps=steps, seed=seed)
    return {PAGE: page.encode(), **pictures}
