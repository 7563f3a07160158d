"""``gdkl reproduce``: run one of the paper's experiments and print our figures beside the paper's."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gdkl.cli.failures import PIPE_WIDTH, say
from gdkl.numerics import OptionError, resolve_device
from gdkl.paper import check_writable, read_result, uci, uci_table, write_result
from gdkl.training import ProgressDisplay


def _choices(text: str, allowed: tuple[str, ...], what: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in allowed]
    if unknown or not names:
        problem = f"unknown {what} {', '.join(unknown)}" if unknown else f"no {what} given"
        raise OptionError(f"{problem}: use {', '.join(allowed)}.")
    return names


def reproduce(
    experiment: Annotated[str, typer.Argument(help="Which experiment: uci.")],
    datasets: Annotated[str, typer.Option(help="Comma-separated.")] = ",".join(uci.DATASETS),
    methods: Annotated[str, typer.Option(help=f"Comma-separated, of {', '.join(uci.Method)}.")] = ",".join(
        uci.MAIN_METHODS
    ),
    seeds: Annotated[int, typer.Option(help="Splits 0 … N−1.", min=1)] = 10,
    data_dir: Annotated[Path | None, typer.Option(help="Where the dataset files are.")] = None,
    output: Annotated[Path, typer.Option(help="Where result files go.")] = Path("runs"),
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    gdkl_steps: Annotated[int, typer.Option(help="GDKL's gradient steps.", min=1)] = 7000,
    dkl_steps: Annotated[int, typer.Option(help="DKL's gradient steps.", min=1)] = 8000,
) -> None:
    """Run one of the paper's experiments, all seeds, and print our figures beside the paper's.

    Every dataset and method is one result file with seeds, settings and versions. A file that is already there with
    the same settings is kept, so that an interrupted run goes on where it stopped.
    """
    if experiment != "uci":
        raise OptionError(f"experiment {experiment!r} is not known: use uci.")
    place = resolve_device(device)
    protocol = uci.Protocol(seeds=seeds, gdkl_iterations=gdkl_steps, dkl_iterations=dkl_steps)
    check_writable(output / "uci")
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    results: list[dict[str, Any]] = []
    for name in _choices(datasets, uci.DATASETS, "dataset"):
        for method in _choices(methods, tuple(uci.Method), "method"):
            path = output / "uci" / f"{name}-{method}.json"
            if path.exists() and (found := read_result(path)).get("protocol") == asdict(protocol):
                say(f"{name} {method}: kept from {path}")
                results.append(found)
                continue
            say(f"{name} {method}: {seeds} splits on {place}")
            progress = ProgressDisplay(f"{name} {method}", sys.stderr)
            result = uci.run(name, uci.Method(method), protocol, data_dir=data_dir, device=place, callbacks=[progress])
            write_result(path, result)
            results.append(result)
    console.print(uci_table(results))
    console.print(f"Result files: {output / 'uci'}")
