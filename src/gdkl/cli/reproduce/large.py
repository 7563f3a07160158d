"""``gdkl reproduce large``: tables of thousands of rows, by GDKL with inducing points and what it is compared with."""

from __future__ import annotations

from typing import Annotated

import typer

from gdkl.cli.failures import say
from gdkl.cli.reproduce.options import RUNS, DataDir, Device, Output, names_in, several, show
from gdkl.numerics import resolve_device
from gdkl.paper import check_writable, large_table
from gdkl.paper import large as experiment

_USUAL = experiment.Protocol()


def large(
    datasets: Annotated[str, several(experiment.DATASETS)] = ",".join(experiment.DATASETS),
    methods: Annotated[str, several(experiment.Method)] = ",".join(experiment.Method),
    seeds: Annotated[
        int, typer.Option(min=1, help=f"Number of splits, seeds from {_USUAL.first_seed} on.")
    ] = _USUAL.seeds,
    data_dir: DataDir = None,
    output: Output = RUNS,
    device: Device = "auto",
    epochs: Annotated[int, typer.Option(min=1, help="Times that every row is seen.")] = _USUAL.epochs,
    batch_size: Annotated[int, typer.Option(min=2, help="Rows a step.")] = _USUAL.batch_size,
    beta: Annotated[float, typer.Option(min=0.0, help="GDKL's weight of the KL term.")] = _USUAL.beta,
    exact_rows: Annotated[int, typer.Option(min=4, help="Rows that exact GDKL is trained on.")] = _USUAL.exact_rows,
    gdkl_steps: Annotated[int, typer.Option(min=1, help="Exact GDKL's gradient steps.")] = _USUAL.exact_steps,
) -> None:
    """Our own: regression on 8000 to 46000 rows, inducing points.

    A result file is written after every split, and a command goes on after the splits that a file has: one that was
    interrupted, and one that asks for more splits.
    """
    place = resolve_device(device)
    protocol = experiment.Protocol(
        seeds=seeds,
        epochs=epochs,
        batch_size=batch_size,
        beta=beta,
        exact_rows=exact_rows,
        exact_steps=gdkl_steps,
    )
    chosen = [experiment.Method(name) for name in names_in(methods, experiment.Method, "method")]
    tables = names_in(datasets, experiment.DATASETS, "dataset")
    folder = output / "large"
    check_writable(folder)
    results = [
        experiment.run(
            name, method, protocol, folder / f"{name}-{method}.json", data_dir=data_dir, device=place, say=say
        )
        for name in tables
        for method in chosen
    ]
    show(large_table(results), folder)
