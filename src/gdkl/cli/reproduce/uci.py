"""``gdkl reproduce uci``: the paper's experiment on Boston, Energy and Concrete."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated, Any

from gdkl.cli.failures import say
from gdkl.cli.reproduce.options import RUNS, DataDir, Device, Output, Splits, names_in, number, several, show
from gdkl.numerics import resolve_device
from gdkl.paper import check_writable, first_splits, kept_line, made_before, uci_table, write_result
from gdkl.paper import uci as experiment
from gdkl.training import ProgressDisplay

_PUBLISHED = experiment.Protocol()


def uci(
    datasets: Annotated[str, several(experiment.DATASETS)] = ",".join(experiment.DATASETS),
    methods: Annotated[str, several(experiment.Method, "the main table's")] = ",".join(experiment.MAIN_METHODS),
    seeds: Splits = _PUBLISHED.seeds,
    data_dir: DataDir = None,
    output: Output = RUNS,
    device: Device = "auto",
    gdkl_steps: Annotated[int, number("GDKL's gradient steps.", 1)] = _PUBLISHED.gdkl_iterations,
    dkl_steps: Annotated[int, number("DKL's gradient steps.", 1)] = _PUBLISHED.dkl_iterations,
) -> None:
    """The paper's: regression on Boston, Energy and Concrete.

    All splits of a dataset train as one batch. A result of more splits serves a command that asks for fewer; for more
    splits than a file has, all are made anew.
    """
    place = resolve_device(device)
    protocol = experiment.Protocol(seeds=seeds, gdkl_iterations=gdkl_steps, dkl_iterations=dkl_steps)
    chosen = [experiment.Method(name) for name in names_in(methods, experiment.Method, "method")]
    tables = names_in(datasets, experiment.DATASETS, "dataset")
    folder = output / "uci"
    check_writable(folder)
    results: list[dict[str, Any]] = []
    for name in tables:
        for method in chosen:
            path = folder / f"{name}-{method}.json"
            found = made_before(path, name, method, asdict(protocol), asdict(experiment.Protocol()))
            if found is not None and len(found["splits"]) >= seeds:
                say(f"{name} {method}: {kept_line(path, found, seeds)}")
                results.append(first_splits(found, seeds))
                continue
            say(f"{name} {method}: {seeds} splits on {place}")
            progress = ProgressDisplay(f"{name} {method}", sys.stderr)
            result = experiment.run(name, method, protocol, data_dir=data_dir, device=place, callbacks=[progress])
            write_result(path, result)
            results.append(result)
    show(uci_table(results), folder)
