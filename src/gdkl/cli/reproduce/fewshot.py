"""``gdkl reproduce fewshot``: the runs still to make, one after the other or several at a time, and the table."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from joblib import Parallel, delayed

from gdkl.cli.failures import say
from gdkl.cli.reproduce.options import (
    RUNS,
    Algebra,
    DataDir,
    Depth,
    Device,
    Guide,
    Networks,
    Output,
    WidenFactor,
    names_in,
    number,
    several,
    show,
)
from gdkl.numerics import OptionError, resolve_device
from gdkl.paper import check_writable, fewshot_table
from gdkl.paper import fewshot as experiment
from gdkl.paper.fewshot_data import PAPER_DRAW, SIZES, Draw, paper_indices
from gdkl.paper.fewshot_mean import VIEWS, mean_of_seeds
from gdkl.training import ProgressDisplay

_USUAL = experiment.Protocol()


def fewshot(
    methods: Annotated[str, several(experiment.Method)] = ",".join(experiment.Method),
    sizes: Annotated[
        str, typer.Option(help="Numbers of labelled images, comma-separated.", metavar="NUMBERS")
    ] = ",".join(map(str, SIZES)),
    seeds: Networks = 3,
    draw: Annotated[str, typer.Option(help="Which images: paper, or a seed.", metavar="NAME")] = PAPER_DRAW,
    data_dir: DataDir = None,
    output: Output = RUNS,
    device: Device = "auto",
    gdkl_steps: Annotated[int, number("GDKL's gradient steps.", 1)] = _USUAL.gdkl_iterations,
    dkl_steps: Annotated[int, number("Gradient steps of DKL and of the network.", 1)] = _USUAL.other_iterations,
    beta: Annotated[
        float | None,
        number(
            "GDKL's weight of the KL term.",
            0.0,
            default="3, and 800 / images where that is less; twice that with --augment",
        ),
    ] = _USUAL.beta,
    guide: Guide = _USUAL.guide,
    guide_scale: Annotated[
        float,
        number("The guide's output scale as the student sees it; 0 for the guide's own best.", 0.0),
    ] = _USUAL.guide_scale or 0.0,
    parametrisation: Annotated[
        experiment.Parametrisation,
        typer.Option(help=f"Of the student's kernel: {', '.join(experiment.Parametrisation)}.", metavar="NAME"),
    ] = _USUAL.parametrisation,
    stratified: Annotated[
        bool,
        typer.Option("--stratified/--random-splits", help="Halves with as many images of each class, or random ones."),
    ] = _USUAL.stratified,
    both_ways: Annotated[
        bool, typer.Option("--both-ways/--one-way", help="Hold out each half of a split in turn, or one alone.")
    ] = _USUAL.both_ways,
    augment: Annotated[
        bool,
        typer.Option(
            "--augment/--as-they-are",
            help="Move and mirror the images at random at every step, or train on them alone.",
        ),
    ] = _USUAL.augment,
    validation: Annotated[
        bool, typer.Option("--validation", help="Score 5000 other training images, to choose settings by.")
    ] = False,
    depth: Depth = _USUAL.depth,
    widen_factor: WidenFactor = _USUAL.widen_factor,
    algebra: Algebra = _USUAL.algebra,
    jobs: Annotated[int, number("Runs at a time, each a process.", 1)] = 1,
    together: Annotated[bool, typer.Option("--together", help="Train the seeds as one batch.")] = False,
) -> None:
    """The paper's: 50 to 800 images of CIFAR-10, exact inference.

    One result file a method, number of images and seed; one with other settings in its place is renamed. A run that is
    killed goes on from its checkpoint.
    """
    place = resolve_device(device)
    protocol = experiment.Protocol(
        gdkl_iterations=gdkl_steps,
        other_iterations=dkl_steps,
        beta=beta,
        guide=guide,
        guide_scale=guide_scale or None,
        stratified=stratified,
        parametrisation=parametrisation,
        both_ways=both_ways,
        augment=augment,
        depth=depth,
        widen_factor=widen_factor,
        algebra=algebra,
    )
    chosen = names_in(methods, experiment.Method, "method")
    runs = list(plan(chosen, parse_sizes(sizes), seeds, parse_draw(draw), protocol, together, validation))
    folder = output / "fewshot"
    check_writable(folder)
    todo = [run for run in runs if run.finished(folder) is None]
    if len(todo) < len(runs):
        say(f"{len(runs) - len(todo)} of {len(runs)} runs: kept from {folder}")
    if jobs == 1:
        for run in todo:
            _one(run, folder, data_dir, place)
    else:
        # A small network keeps a GPU waiting for the next kernel: several processes fill the gaps.
        Parallel(n_jobs=jobs, pre_dispatch="n_jobs")(delayed(_one)(run, folder, data_dir, place) for run in todo)
    results: list[dict[str, Any]] = [result for run in runs for result in run.finished(folder) or []]
    results += _means(runs, folder)
    show(fewshot_table(results), folder)


def parse_sizes(text: str) -> list[int]:
    """Numbers of images, comma-separated."""
    try:
        sizes = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise OptionError(f"sizes={text!r} must be numbers of images: {','.join(map(str, SIZES))}.")
    return sizes


def parse_draw(text: str) -> Draw:
    """The paper's own subsets, or a seed."""
    if text == PAPER_DRAW:
        return PAPER_DRAW
    if not text.isdecimal():
        raise OptionError(f"draw={text!r} must be 'paper' or a seed, a whole number of at least 0.")
    return int(text)


def plan(
    methods: Sequence[str],
    sizes: Sequence[int],
    seeds: int,
    draw: Draw,
    protocol: experiment.Protocol,
    together: bool,
    validation: bool = False,
) -> Iterator[experiment.Run]:
    """All runs, sizes in order, one a seed or all seeds of one as a batch."""
    for n in sizes:
        if draw == PAPER_DRAW:
            paper_indices(n)
        for method in methods:
            batches = [tuple(range(seeds))] if together else [(seed,) for seed in range(seeds)]
            for batch in batches:
                yield experiment.Run(experiment.Method(method), n, batch, draw, protocol, validation)


def _means(runs: Sequence[experiment.Run], folder: Path) -> list[dict[str, Any]]:
    """What the seeds say together, where all of them are there; the guide alone is one model whatever the seed."""
    groups: dict[tuple[str, int], list[tuple[dict[str, Any], Path]]] = {}
    for run in runs:
        if run.method is experiment.Method.NNGP:
            continue
        found = groups.setdefault((str(run.method), run.n), [])
        for result in run.finished(folder) or []:
            found.append((result, run.path(folder, result["seed"])))
    means = [
        mean_of_seeds([result for result, _ in group], [path for _, path in group])
        for group in groups.values()
        if group
    ]
    return [mean for mean in means if mean is not None]


def _one(run: experiment.Run, folder: Path, data_dir: Path | None, device: torch.device) -> None:
    name = f"n={run.n} {run.method} seed {','.join(map(str, run.seeds))}"
    scored = "validation" if run.validation else "test"
    say(f"{name}: on {device}; trained, then scored on ten views of each {scored} image")
    progress = ProgressDisplay(name, sys.stderr)
    for aside in experiment.put_aside(run, folder):
        say(f"{name}: a result with other settings is now {aside}")
    [first, *_] = experiment.complete(run, folder, data_dir=data_dir, device=device, callbacks=[progress])
    views = ((scored if view == "test" else view, first["splits"][0][view]) for view in VIEWS)
    scores = "; ".join(
        f"{view} LL {score['log_likelihood']:.3f}, accuracy {100 * score['accuracy']:.1f} %, ECE {score['ece']:.3f}"
        for view, score in views
    )
    say(f"{name}: {scores}; {first['fit_seconds']:.0f} s of training")
