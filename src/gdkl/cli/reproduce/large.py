"""``gdkl reproduce large``: tables of thousands of rows, by GDKL with inducing points and what it is compared with."""

from __future__ import annotations

from typing import Annotated

from gdkl.cli.failures import say
from gdkl.cli.reproduce.options import RUNS, Beta, DataDir, Device, Output, names_in, number, several, show
from gdkl.numerics import resolve_device
from gdkl.paper import check_writable, large_table
from gdkl.paper import large as experiment

_USUAL = experiment.Protocol()


def large(
    datasets: Annotated[str, several(experiment.DATASETS)] = ",".join(experiment.DATASETS),
    methods: Annotated[str, several(experiment.Method)] = ",".join(experiment.Method),
    seeds: Annotated[int, number(f"Number of splits, seeds from {_USUAL.first_seed} on.", 1)] = _USUAL.seeds,
    data_dir: DataDir = None,
    output: Output = RUNS,
    device: Device = "auto",
    epochs: Annotated[int, number("Times that every row is seen.", 1)] = _USUAL.epochs,
    batch_size: Annotated[int, number("Rows a step.", 2)] = _USUAL.batch_size,
    beta: Beta = _USUAL.beta,
    exact_rows: Annotated[int, number("Rows that exact GDKL is trained on.", 4)] = _USUAL.exact_rows,
    gdkl_steps: Annotated[int, number("Exact GDKL's gradient steps.", 1)] = _USUAL.exact_steps,
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
