"""``gdkl reproduce classes``: small tables, classified by GDKL and what it is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch

from gdkl.cli.failures import say
from gdkl.cli.reproduce.options import RUNS, Device, Output, Splits, names_in, number, several, show
from gdkl.numerics import resolve_device
from gdkl.paper import check_writable, classes_table, first_splits, kept_line, made_before, standing, write_result
from gdkl.paper import classes as experiment
from gdkl.paper.results import versions

_Result = dict[str, Any]


def classes(
    datasets: Annotated[str, several(experiment.DATASETS)] = ",".join(experiment.DATASETS),
    methods: Annotated[str, several(experiment.Method)] = ",".join(experiment.Method),
    seeds: Splits = 5,
    output: Output = RUNS,
    device: Device = "auto",
    gdkl_steps: Annotated[int | None, number("GDKL's gradient steps.", 1, default="the estimator's own")] = None,
    dkl_steps: Annotated[
        int | None,
        number("Gradient steps of DKL and of the network.", 1, default="the estimators' own"),
    ] = None,
) -> None:
    """Our own: classification of three small tables.

    Beside scikit-learn's own methods, on data that come with it. Models are fitted to a fifth and to three fifths of
    the rows. A result of more splits serves a command that asks for fewer; one of fewer splits is gone on with if it is
    of the same versions.
    """
    place = resolve_device(device)
    chosen = [experiment.Method(name) for name in names_in(methods, experiment.Method, "method")]
    tables = names_in(datasets, experiment.DATASETS, "dataset")
    folder = output / "classification"
    check_writable(folder)
    results: list[_Result] = []
    for name in tables:
        for part in experiment.PARTS:
            protocol = experiment.Protocol(part, seeds, gdkl_steps, dkl_steps)
            results += _complete(name, protocol, chosen, folder, place)
    show(classes_table(results), folder, standing(results))


def _complete(
    name: str,
    protocol: experiment.Protocol,
    methods: Sequence[experiment.Method],
    folder: Path,
    device: torch.device,
) -> list[_Result]:
    """Results of all methods on a part of a dataset; what is not there yet is made and written."""
    paths = {method: folder / f"{name}-{round(100 * protocol.part)}-{method}.json" for method in methods}
    there = {method: _found(path, name, method, protocol) for method, path in paths.items()}
    done = {method for method, found in there.items() if found and len(found["splits"]) >= protocol.seeds}
    ready: dict[experiment.Method, _Result] = {}
    results: list[_Result] = []
    for method, path in paths.items():
        found = there[method]
        if found is not None and method in done:
            say(f"{name} {protocol.part:.0%} {method}: {kept_line(path, found, protocol.seeds)}")
            results.append(first_splits(found, protocol.seeds))
            continue
        if method not in ready:
            # GDKL and its student are one fit; the student's file is written in its turn.
            student = experiment.Method.GDKL_STUDENT
            pair = method is experiment.Method.GDKL and student in paths and student not in done
            asked = {method: there[method], **({student: there[student]} if pair else {})}
            ready |= _go_on(name, method, asked, protocol, device)
        write_result(path, ready[method])
        results.append(ready[method])
    return results


def _go_on(
    name: str,
    method: experiment.Method,
    asked: Mapping[experiment.Method, _Result | None],
    protocol: experiment.Protocol,
    device: torch.device,
) -> dict[experiment.Method, _Result]:
    """Fit a method to the splits that the results of those asked do not have yet."""
    # A file has one word on its versions, which holds for all of its splits.
    alike = {
        one: found["splits"] if found and found["versions"] == versions(device) else [] for one, found in asked.items()
    }
    first = min(map(len, alike.values()))
    more = f", {first} of them are there" if first else ""
    say(f"{name} {protocol.part:.0%} {method}: {protocol.seeds} splits on {device}{more}")
    fresh = experiment.run_fitted(name, method, tuple(asked), protocol, device=device, first_seed=first)
    return {one: {**fresh[one], "splits": [*alike[one][:first], *fresh[one]["splits"]]} for one in asked}


def _found(path: Path, name: str, method: experiment.Method, protocol: experiment.Protocol) -> _Result | None:
    """A result with the same settings and the options that its method has now; one without a word of them counts."""
    found = made_before(path, name, method, asdict(protocol))
    if found is None or "options" not in found:
        return found
    return found if found["options"] == experiment.current_options(name, method, protocol) else None
