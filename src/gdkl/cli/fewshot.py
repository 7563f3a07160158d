"""``gdkl reproduce fewshot``: the runs still to make, one after the other or several at a time, and the table."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed
from rich.console import Console

from gdkl.cli.failures import PIPE_WIDTH, say
from gdkl.numerics import OptionError
from gdkl.paper import check_writable, fewshot, fewshot_table
from gdkl.paper.fewshot_data import PAPER_DRAW, SIZES, Draw, paper_indices
from gdkl.paper.fewshot_mean import mean_of_seeds
from gdkl.training import ProgressDisplay


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
    protocol: fewshot.Protocol,
    together: bool,
    validation: bool = False,
) -> Iterator[fewshot.Run]:
    """All runs, sizes in order, one a seed or all seeds of one as a batch."""
    for n in sizes:
        if draw == PAPER_DRAW:
            paper_indices(n)
        for method in methods:
            batches = [tuple(range(seeds))] if together else [(seed,) for seed in range(seeds)]
            for batch in batches:
                yield fewshot.Run(fewshot.Method(method), n, batch, draw, protocol, validation)


def reproduce_fewshot(
    runs: Sequence[fewshot.Run], *, data_dir: Path | None, output: Path, device: torch.device, jobs: int
) -> None:
    """Make the runs whose results are not there yet, and print all results beside the paper's."""
    folder = output / "fewshot"
    check_writable(folder)
    todo = [run for run in runs if run.finished(folder) is None]
    if len(todo) < len(runs):
        say(f"{len(runs) - len(todo)} of {len(runs)} runs: kept from {folder}")
    if jobs == 1:
        for run in todo:
            _one(run, folder, data_dir, device)
    else:
        # A small network keeps a GPU waiting for the next kernel: several processes fill the gaps.
        Parallel(n_jobs=jobs, pre_dispatch="n_jobs")(delayed(_one)(run, folder, data_dir, device) for run in todo)
    results: list[dict[str, Any]] = [result for run in runs for result in run.finished(folder) or []]
    results += _means(runs, folder)
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(fewshot_table(results))
    console.print(f"Result files: {folder}")


def _means(runs: Sequence[fewshot.Run], folder: Path) -> list[dict[str, Any]]:
    """What the seeds say together, where all of them are there; the guide alone is one model whatever the seed."""
    groups: dict[tuple[str, int], list[tuple[dict[str, Any], Path]]] = {}
    for run in runs:
        if run.method is fewshot.Method.NNGP:
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


def _one(run: fewshot.Run, folder: Path, data_dir: Path | None, device: torch.device) -> None:
    name = f"n={run.n} {run.method} seed {','.join(map(str, run.seeds))}"
    say(f"{name}: on {device}")
    progress = ProgressDisplay(name, sys.stderr)
    [first, *_] = fewshot.complete(run, folder, data_dir=data_dir, device=device, callbacks=[progress])
    test = first["splits"][0]["test"]
    say(
        f"{name}: LL {test['log_likelihood']:.3f}, accuracy {100 * test['accuracy']:.1f} %, ECE {test['ece']:.3f}, "
        f"{first['fit_seconds']:.0f} s"
    )
