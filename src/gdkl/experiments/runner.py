"""Runs the cells of an experiment that its results file lacks, and only those."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gdkl.datasets import DATA_VARIABLE
from gdkl.estimators.together import UnequalShapesError
from gdkl.experiments.availability import unavailable
from gdkl.experiments.parallel import in_parallel
from gdkl.experiments.results import Line, Results, check_writable, grouped
from gdkl.experiments.spec import Cell, Spec
from gdkl.experiments.tables import score_of
from gdkl.experiments.trial import Place, checkpoint_folder, class_scores, predictions_file, run_cells
from gdkl.numerics import DataError, OptionError, resolve_device


def run(
    spec: Spec,
    cells: Sequence[Cell],
    output: Path,
    *,
    data_dir: Path | None = None,
    device: str = "auto",
    jobs: int | None = None,
    backend: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> list[Line]:
    """Run the missing cells; a kill at any moment loses at most the cells under way.

    Cells whose dataset has no copy here, or whose estimator does not exist, are passed over with a line that says so,
    unless there are no others. Under ``torchrun`` all processes train each cell together, and the first one stores it.

    Args:
        spec: The experiment.
        cells: What is wanted, from `Spec.cells`.
        output: Folder of results files.
        data_dir: Folder with local datasets.
        device: Where to compute.
        jobs: Cells at a time, each in a process of its own; None for one, or for all that a backend has.
        backend: Where several at a time run, as `gdkl.experiments.parallel` takes it; None for this machine. Workers
            write to ``output``, which all machines of a cluster must share.
        say: Called with a line on what happens; with several jobs it must be a module's function.

    Returns:
        Lines of the cells, then those of means over seeds.
    """
    from gdkl.training import local_device, process_group  # noqa: PLC0415  (reading results does not need it)

    # Workers of a cluster have another working folder and other variables.
    output = output.absolute()
    data_dir = _data_folder(data_dir)
    check_writable(output)
    local = local_device(resolve_device(device))
    results = Results(output / f"{spec.runs}.jsonl")
    stored = results.by_key()
    missing = [cell for cell in cells if cell.key not in stored]
    alone = backend is None and jobs in (None, 1)
    with process_group(local) as world:
        if world.size > 1 and not alone:
            raise OptionError("--jobs is for one process: torchrun starts several that train each cell together.")
        first = world.rank == 0
        place = Place(data_dir, str(local), output / spec.runs, int(alone and first), world.size)
        kept = len(cells) - len(missing)
        if kept and first:
            say(f"{kept} of {len(cells)} cells: kept from {results.path}")
        tasks = _tasks(spec, _runnable(spec, missing, data_dir, kept, say if first else _silent))
        if alone:
            for task in tasks:
                _run_task(spec, task, results.path, place, say if first else _silent, write=first)
        else:
            from joblib import delayed  # noqa: PLC0415

            # A small network leaves a GPU idle between kernels: several processes fill the gaps.
            calls = (delayed(_run_task)(spec, task, results.path, place, say) for task in tasks)
            in_parallel(calls, backend or "loky", jobs)
        if not first:
            return []
        stored = results.by_key()
        lines = [stored[cell.key] for cell in cells if cell.key in stored]
        return lines + (_ensembles(cells, stored, results, place.scratch) if spec.ensembles else [])


def _silent(line: str) -> None:
    pass


def _data_folder(data_dir: Path | None) -> Path | None:
    found = data_dir or os.environ.get(DATA_VARIABLE)
    return Path(found).expanduser().absolute() if found else None


def _runnable(
    spec: Spec, cells: Sequence[Cell], data_dir: Path | None, kept: int, say: Callable[[str], None]
) -> list[Cell]:
    """The cells that can be run here; an error if there is none, and no earlier result either."""
    reasons = unavailable(spec, cells, data_dir)
    passed_over = {cell.key for own in reasons.values() for cell in own}
    if cells and len(passed_over) == len(cells) and not kept:
        raise DataError(" ".join(reasons))
    for reason, own in reasons.items():
        names = [dict.fromkeys(getattr(cell, field) for cell in own) for field in ("dataset", "method")]
        say(f"{': '.join(map(', '.join, names))}: not run: {reason}")
    return [cell for cell in cells if cell.key not in passed_over]


def _tasks(spec: Spec, cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells that train as one batch, together; the others each on its own."""
    return grouped(cells, lambda cell: (replace(cell, split=None) if spec.methods[cell.method].together else cell).key)


def _run_task(
    spec: Spec, cells: Sequence[Cell], path: Path, place: Place, say: Callable[[str], None], write: bool = True
) -> None:
    results = Results(path)
    if place.processes == 1:
        # Another command may have been quicker.
        stored = results.by_key()
        cells = [cell for cell in cells if cell.key not in stored]
    if not cells:
        return
    name = str(cells[0]) if len(cells) == 1 else f"{cells[0].dataset} {cells[0].method}, {len(cells)} splits"
    say(f"{name}: on {place.device}, process {os.getpid()}")
    try:
        lines = run_cells(spec, cells, place)
    except UnequalShapesError:
        # Few rows of a table with many columns: another column is constant in each draw of them.
        say(f"{name}: one by one, for other columns vary in each split")
        for cell in cells:
            _run_task(spec, [cell], path, place, say, write)
        return
    except Exception as error:
        if not spec.reference:
            raise
        say(f"{name}: not run: {' '.join(str(error).split()) or type(error).__name__}")
        return
    if not write:
        return
    for cell, line in zip(cells, lines, strict=True):
        results.append(line)
        shutil.rmtree(checkpoint_folder(cell, place), ignore_errors=True)
        say(f"{cell}: {_summary(spec, line)}")
        for warning in line["details"].get("warnings", ()):
            say(f"{cell}: warning: {warning}")


def _summary(spec: Spec, line: Line) -> str:
    """The scores of a line in words."""
    what = "" if line["scored"] == "test" else f" ({line['scored']})"
    found = [(column, score_of(line, column)) for column in spec.columns]
    scores = [f"{column.title} {score:.{column.digits}f}" for column, score in found if score is not None]
    return f"{', '.join(scores)}{what}, {line['seconds']['fit']:.1f} s"


def _ensembles(cells: Sequence[Cell], stored: dict[str, Line], results: Results, scratch: Path) -> list[Line]:
    """Lines of the mean of all seeds' predictions, where those are stored; computed once."""
    lines: list[Line] = []
    finished = [cell for cell in cells if cell.key in stored]
    for members in grouped(finished, lambda cell: replace(cell, seed=0).key):
        if len(members) < 2:
            continue
        mean = replace(members[0], seed=tuple(int(cell.seed) for cell in members))  # pyright: ignore[reportArgumentType]
        if mean.key not in stored:
            line = _mean_line(mean, [stored[cell.key] for cell in members], members, scratch)
            if line is None:
                continue
            results.append(line)
            stored[mean.key] = line
        lines.append(stored[mean.key])
    return lines


def _mean_line(mean: Cell, lines: Sequence[Line], members: Sequence[Cell], scratch: Path) -> Line | None:
    files = [predictions_file(cell, scratch) for cell in members]
    if not all(file.is_file() for file in files):
        return None
    loaded = [np.load(file, allow_pickle=False) for file in files]
    labels = loaded[0]["labels"]
    scores = {
        view: class_scores(np.mean([arrays[view].astype(np.float64) for arrays in loaded], axis=0), labels)
        for view in loaded[0].files
        if view != "labels"
    }
    return {
        **mean.identity(),
        "key": mean.key,
        "scores": scores,
        "seconds": {"fit": round(sum(line["seconds"]["fit"] for line in lines), 3)},
        "versions": lines[0]["versions"],
        "details": {"note": "mean of the seeds' probabilities"},
    }
