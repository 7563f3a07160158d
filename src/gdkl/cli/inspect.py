"""``gdkl inspect``: what a model file holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gdkl.cli.answers import AsJson, number, print_json, size_of
from gdkl.cli.failures import show
from gdkl.cli.predict import ModelPath

if TYPE_CHECKING:
    from gdkl.cli.table_model import TableModel
    from gdkl.inputs import ColumnCode

#: Levels of a category that are shown.
_LEVELS = 6


def inspect(model_path: ModelPath, as_json: AsJson = False) -> None:
    """Show what a model file holds.

    Estimator and options, the target, each column with how it is read and its relevance, the weights of the mixture
    that predicts, rows and scores of the fit, versions, size.
    """
    from gdkl.cli.table_model import TableModel  # noqa: PLC0415  (models take seconds to import)

    model = TableModel(model_path)
    found = description(model)
    if as_json:
        print_json(found)
        return
    from rich.table import Table  # noqa: PLC0415  (help does not need it)

    typer.echo(f"{found['estimator']}, {found['task']} of {', '.join(map(repr, found['targets']))}")
    for line in _lines(found):
        typer.echo(line)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("column", no_wrap=True)
    table.add_column("read as")
    relevant = any(column["relevance"] is not None for column in found["columns"])
    if relevant:
        table.add_column("relevance", justify="right", no_wrap=True)
    for column in found["columns"]:
        table.add_row(*([column["name"], column["read_as"]] + [number(column["relevance"])] * relevant))
    show(table)


def description(model: TableModel) -> dict[str, Any]:
    """All that is known of a model, as JSON has it."""
    import numpy as np  # noqa: PLC0415

    from gdkl.estimators.model_file import read_model  # noqa: PLC0415

    estimator, noted = model.estimator, model.provenance
    relevance: Any = getattr(estimator, "relevance_", None)
    relevances = [None] * estimator.n_features_in_ if relevance is None else np.asarray(relevance).ravel().tolist()
    shape = getattr(estimator, "image_shape_", None)
    if shape is not None:
        read, relevances = [("images", " × ".join(map(str, shape)))], [None]
    elif model.columns is None:
        names = getattr(estimator, "feature_names_in_", [f"column {k}" for k in range(estimator.n_features_in_)])
        read = [(str(name), "number") for name in names]
    else:
        read = [(str(code.name), _in_words(code)) for code in model.columns]
    _, header = read_model(Path(model.path))
    usual = type(estimator)().get_params(deep=False)
    options = {name: value for name, value in header["options"].items() if value not in (None, usual[name])}
    outcome = header["outcome"] or {}
    return {
        "file": model.path,
        "bytes": Path(model.path).stat().st_size,
        "estimator": header["estimator"],
        "task": model.task,
        "targets": model.targets,
        "classes": estimator.classes_.tolist() if hasattr(estimator, "classes_") else None,
        "inference": header["attributes"].get("inference_"),
        "steps": outcome.get("steps"),
        "options": options,
        "weights": _weights(estimator),
        "columns": [
            {"name": name, "read_as": kind, "relevance": value}
            for (name, kind), value in zip(read, relevances, strict=True)
        ],
        "written_by": header["library_version"],
        "provenance": noted or None,
    }


def _weights(estimator: Any) -> dict[str, Any]:
    """Who speaks in the mixture; of several targets a number for each."""
    import numpy as np  # noqa: PLC0415

    weights = estimator.weights_
    return {str(name): np.asarray(weights.loc[name]).tolist() for name in weights.index}


def _in_words(code: ColumnCode) -> str:
    if code.left_out:
        return f"left out: {code.left_out}"
    levels = ", ".join(map(str, code.levels[:_LEVELS])) + (", ..." if len(code.levels) > _LEVELS else "")
    missing = ""
    if code.missing:
        missing = "; missing cells are a level" if code.kind == "category" else "; missing cells are marked"
    return code.kind + (f" of {len(code.levels)}: {levels}" if code.levels else "") + missing


def _lines(found: dict[str, Any]) -> list[str]:
    """What stands above the table of columns."""
    noted = found["provenance"] or {}
    lines = [f"file        {found['file']}, {size_of(found['bytes'])}, written by gdkl {found['written_by']}"]
    if found["classes"]:
        lines.append(f"classes     {', '.join(map(str, found['classes']))}")
    if noted:
        held_out = noted["held_out"]
        lines.append(f"fitted to   {noted['rows']} rows of {noted['data']}: {noted['command']}")
        scores = ", ".join(f"{name} {number(score['value'])}" for name, score in held_out["scores"].items())
        lines += [f"scores      {scores} ({held_out['rows']} held-out rows)"] if scores else []
        lines.append(f"versions    {', '.join(f'{name} {number}' for name, number in noted['versions'].items())}")
    inference = f"{found['inference']} inference" + (f", {found['steps']} steps" if found["steps"] else "")
    options = ", ".join(f"{name}={value}" for name, value in found["options"].items()) or "all as they come"
    speakers = ", ".join(
        f"{name} {number(share) if isinstance(share, float) else [round(one, 3) for one in share]}"
        for name, share in found["weights"].items()
    )
    return [*lines, f"training    {inference}", f"options     {options}", f"weights     {speakers}", ""]
