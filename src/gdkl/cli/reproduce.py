"""``gdkl reproduce``: runs any declared experiment."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from gdkl.cli.failures import say, show
from gdkl.experiments import (
    SPECS,
    Spec,
    paired_lines,
    searched_settings,
    settings_by_method,
    spec_named,
    summary_tables,
    table,
    write_pictures,
)
from gdkl.experiments.overrides import parse_value
from gdkl.experiments.tables import flat
from gdkl.numerics import OptionError

HELP = (
    "Run an experiment: "
    + "; ".join(f"{spec.name} ({spec.about[0].lower()}{spec.about[1:]})" for spec in SPECS.values())
    + ".\n\nOnly cells (dataset, method, size, split, seed, settings) that the results file lacks are run, so an "
    "interrupted command continues where it stopped. Results of other settings stay. 'gdkl reproduce EXPERIMENT "
    "--list' shows datasets, methods and settings. torchrun may start the command on several GPUs."
)


def reproduce(
    context: typer.Context,
    experiment: Annotated[str | None, typer.Argument(help="One of the names above.", show_default=False)] = None,
    datasets: Annotated[str | None, typer.Option(metavar="NAMES", help="Comma-separated datasets.")] = None,
    methods: Annotated[str | None, typer.Option(metavar="NAMES", help="Comma-separated methods.")] = None,
    sizes: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Comma-separated numbers, or parts, of training rows.")
    ] = None,
    draws: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Comma-separated draws of training images: paper, or seeds.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, metavar="N", help="Number of splits or networks.")] = None,
    validation: Annotated[
        int,
        typer.Option(
            "--validation",
            "--holdout",
            min=0,
            metavar="N",
            help="Score N training rows that are held out, in place of the test rows.",
        ),
    ] = 0,
    search: Annotated[
        bool,
        typer.Option("--search", help="Run every combination of the settings that a method declares a search for."),
    ] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Replace a setting: an option of the estimator, epochs, "
            "train_rows, preset.FIELD, or METHOD:KEY for one method. May be repeated.",
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder with dataset files, before GDKL_DATA and the cache.")
    ] = None,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the results file.")] = Path("runs"),
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu or cuda.")] = "auto",
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Cells at a time, each in a process.")] = 1,
    listing: Annotated[bool, typer.Option("--list", help="Show datasets, methods and settings, and stop.")] = False,
) -> None:
    """Run an experiment; what the user reads is HELP."""
    if experiment is None:
        typer.echo(context.get_help())
        return
    spec = spec_named(experiment)
    if listing:
        _list(spec)
        return
    sets = chosen(datasets, spec.datasets, spec.default_datasets, "dataset")
    names = chosen(methods, spec.methods, spec.default_methods, "method")
    for text, allowed, option in ((sizes, spec.sizes, "--sizes"), (draws, spec.draws, "--draws")):
        if text is not None and not allowed:
            raise OptionError(f"{option} is not an option of {spec.name}: leave it out.")
    if search:
        settings = searched_settings(spec, names, changes or [], validation)
    else:
        settings = [settings_by_method(spec, names, changes or [], validation)]
    scored = "validation" if validation else "test"
    cells = [
        cell
        for some in settings
        for cell in spec.cells(sets, some, sizes=numbers(sizes), draws=numbers(draws), seeds=seeds, scored=scored)
    ]
    from gdkl.experiments.runner import run  # noqa: PLC0415  (it imports the estimators, which help does not need)

    lines = run(spec, cells, output, data_dir=data_dir, device=device, jobs=jobs, say=say)
    if lines and spec.reference:
        for found in summary_tables(spec, lines):
            show(found)
        for path in (*write_pictures(spec, lines, output), f"{output / spec.name}.jsonl"):
            typer.echo(f"Written: {path}")
    elif lines:
        notes = paired_lines(spec, lines) if spec.compared else []
        show(table(spec, lines), [*notes, f"Results: {output / spec.name}.jsonl"])


def chosen(text: str | None, known: Iterable[str], count: int, what: str) -> list[str]:
    """The names that the user gave, comma-separated, each once; the default ones if there are none.

    Example:
        >>> chosen("wine, digits", ("digits", "wine"), 0, "dataset"), chosen(None, ("digits", "wine"), 1, "dataset")
        (['wine', 'digits'], ['digits'])
    """
    allowed = list(known)
    if text is None:
        return allowed[: count or None]
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in allowed]
    if unknown or not names:
        problem = f"unknown {what} {', '.join(unknown)}" if unknown else f"no {what} given"
        raise OptionError(f"{problem}: use {', '.join(allowed)}.")
    return list(dict.fromkeys(names))


def numbers(text: str | None) -> list[Any]:
    """Comma-separated numbers; what is none stays a word.

    Example:
        >>> numbers("200, 0.5, paper")
        [200, 0.5, 'paper']
    """
    return [parse_value(part) for part in (text or "").split(",") if part.strip()]


def _list(spec: Spec) -> None:
    typer.echo(f"{spec.name}: {spec.about}")
    typer.echo(f"datasets: {', '.join(spec.datasets)}")
    if spec.sizes:
        typer.echo(f"sizes: {', '.join(map(str, spec.sizes))}")
    typer.echo(f"{'networks per draw' if spec.draws else 'splits'}: {spec.seeds}, from {spec.first_seed} on")
    for name, method in spec.methods.items():
        settings = ", ".join(f"{key}={value}" for key, value in flat(spec.settings(name, {})).items())
        searched = "".join(f"; --search {key} in {list(values)}" for key, values in method.search.items())
        typer.echo(f"{name}: {method.about}; {method.estimator.split(':')[-1]}({settings}){searched}")
