"""``gdkl fit``: a table in, a model file, its scores on held-out rows and a picture out."""

from __future__ import annotations

import hashlib
import io
import platform
import shlex
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gdkl._version import __version__
from gdkl.cli.answers import BASELINE, AsJson, print_json, print_scores, size_of
from gdkl.cli.failures import say
from gdkl.cli.fit_settings import FitSettings, settings_from
from gdkl.cli.nearest import or_known
from gdkl.cli.table_files import STANDARD
from gdkl.cli.table_writing import check_output
from gdkl.numerics import OptionError, write_atomically

if TYPE_CHECKING:
    from gdkl.cli.scores import Score
    from gdkl.cli.training_table import TrainingTable


def fit(
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="CSV, gzipped CSV or Parquet; - for standard input.", show_default=False),
    ] = None,
    target: Annotated[str | None, typer.Option("--target", metavar="COLUMN", help="The column to predict.")] = None,
    model: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="The model file to write.  [default: model.gdkl]"),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            metavar="TASK",
            help="regression or classification. By default text and two whole numbers are classes.",
        ),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", metavar="COLUMN", help="A column to leave out. May be repeated.")
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option("--category", metavar="COLUMN", help="A column whose numbers are labels. May be repeated."),
    ] = None,
    drop_missing_target: Annotated[
        bool | None,
        typer.Option("--drop-missing-target", help="Leave out rows whose target is missing.", show_default=False),
    ] = None,
    estimator: Annotated[
        str | None,
        typer.Option(
            "--estimator",
            metavar="NAME",
            help="gdkl; nngp, its guide alone, in a second; gp; dkl; nn, for classes.  [default: gdkl]",
        ),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="An option of the estimator, or preset.FIELD. May be repeated."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", min=0, max=2**32 - 1, help="Of held-out rows and weights.  [default: 0]"),
    ] = None,
    holdout: Annotated[
        float | None,
        typer.Option("--holdout", metavar="PART", help="Part of the rows to score; 0 for none.  [default: 0.1]"),
    ] = None,
    refit: Annotated[
        bool | None,
        typer.Option(
            "--refit/--no-refit",
            help="Whether the saved model is fitted to all rows, after its scores.  [default: refit]",
            show_default=False,
        ),
    ] = None,
    picture: Annotated[
        str | None,
        typer.Option("--picture", metavar="FILE", help="The picture.  [default: beside the model, as .png]"),
    ] = None,
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Draw none.")] = False,
    config: Annotated[
        str | None,
        typer.Option(
            "--config", metavar="FILE", help="Settings in TOML, as gdkl init writes them; options come first."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit a model to a table and save it.

    A tenth of the rows is held out and predicted by a model of the others, which gives the scores. The model that is
    saved is then fitted to all rows. Any columns will do: numbers, text, dates, missing cells.
    """
    given = {
        **{"data": data, "target": target, "model": model, "task": task, "estimator": estimator, "seed": seed},
        **{"holdout": holdout, "refit": refit, "drop_missing_target": drop_missing_target},
        "picture": "" if no_picture else picture,
    }
    settings = settings_from(config, given, drop or [], category or [], sets or [])
    check_output(settings.model)
    if settings.picture_file is not None:
        check_output(str(settings.picture_file), "--picture")
    answer, scores = _run(settings)
    if as_json:
        print_json(answer)
        return
    held_out = answer["held_out"]
    lines = [f"Scores of {held_out['rows']} rows that were held out. {BASELINE}"]
    if scores:
        print_scores(scores, lines)
    files = " and ".join(name for name in (answer["model"], answer["picture"]) if name)
    typer.echo(
        f"Written: {files} ({size_of(answer['bytes'])}). "
        f"Next: gdkl predict {shlex.quote(settings.model)} NEW.csv -o predictions.csv"
    )


def _run(settings: FitSettings) -> tuple[dict[str, Any], list[Score]]:
    """Read, fit, score, fit again, write."""
    from gdkl.cli.training_table import held_out_rows, kinds_of_columns, read_training_table  # noqa: PLC0415

    started = time.perf_counter()
    table = read_training_table(settings)
    task, n = table.target.task, len(table.frame)
    name = settings.class_name(task)
    left_out = f", {table.missing} more have no target and are left out" if table.missing else ""
    kinds = ", ".join(f"{count} of {kind}" for kind, count in kinds_of_columns(table.frame).items())
    say(f"{table.name}: {n} rows{left_out}; {table.frame.shape[1]} columns ({kinds}).")
    say(f"Task: {task}, as {table.target.reason}.")
    held_out = held_out_rows(table.target, settings.holdout, settings.seed)
    scores: list[Score] = []
    prediction: Any = None
    scored: Any = None
    truth = table.target.values.to_numpy()[held_out]
    if len(held_out):
        from gdkl.cli.scores import scores_of  # noqa: PLC0415  (models take seconds to import)

        used = _others(n, held_out)
        say(f"Fitting {name} to {len(used)} rows, to score it on the other {len(held_out)} ...")
        scored = _fitted(name, settings, table, used)
        prediction = scored.predict_distribution(table.frame.iloc[held_out])
        scores = scores_of(prediction, truth)
    estimator, refitted = scored, scored is None or settings.refit
    if refitted:
        say(f"Fitting {name} to all {n} rows, for the model that is saved ...")
        estimator = _fitted(name, settings, table, _others(n, held_out[:0]))
    else:
        say(f"The model that is saved has learned from {n - len(held_out)} rows, not from those held out.")
    from gdkl.cli.scores import as_json  # noqa: PLC0415

    answer: dict[str, Any] = {
        "target": settings.target,
        "task": task,
        "estimator": name,
        "rows": n if refitted else n - len(held_out),
        "rows_without_target": table.missing,
        "columns": list(table.frame.columns),
        "held_out": {"rows": len(held_out), "scores": as_json(scores)},
        "seed": settings.seed,
    }
    estimator.provenance_ = answer | _origin(settings)
    # All that can fail is done before anything is written.
    drawn = _drawn(settings, estimator, prediction, truth)
    estimator.save(settings.model)
    if drawn is not None:
        write_atomically(settings.picture_file or "", lambda file: file.write(drawn))
    written = {
        "model": settings.model,
        "picture": None if drawn is None else str(settings.picture_file),
        "bytes": Path(settings.model).stat().st_size,
        "seconds": round(time.perf_counter() - started, 3),
    }
    return written | answer, scores


def _others(n: int, held_out: Any) -> Any:
    import numpy as np  # noqa: PLC0415

    return np.setdiff1d(np.arange(n), held_out)


def _fitted(name: str, settings: FitSettings, table: TrainingTable, rows: Any) -> Any:
    """An estimator with the user's options, fitted to some rows."""
    from gdkl import estimators  # noqa: PLC0415  (torch takes seconds to import)

    estimator: Any = getattr(estimators, name)()
    known: dict[str, Any] = estimator.get_params(deep=False)
    options = dict(settings.options)
    fields = {key.removeprefix("preset."): options.pop(key) for key in list(options) if key.startswith("preset.")}
    for key in options:
        if key not in known:
            raise OptionError(f"{name} has no option {key!r}: {or_known(key, list(known), 30)}.")
    if fields:
        if "preset" not in known:
            raise OptionError(f"{name} has no preset: leave preset.{next(iter(fields))} out.")
        lists = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
        options["preset"] = estimators.Preset(base=options.get("preset")).set_params(**lists)
    defaults: dict[str, Any] = {"random_state": settings.seed, "verbose": 1}
    if name == "NNGPRegressor":
        # One relevance per column costs a second and is a far better model.
        defaults["relevance"] = True
    estimator.set_params(**defaults | options)
    return estimator.fit(table.frame.iloc[rows], table.target.values.iloc[rows])


def _origin(settings: FitSettings) -> dict[str, Any]:
    """Where a model comes from."""
    digest = None
    if settings.data != STANDARD and Path(settings.data).is_file():
        with Path(settings.data).open("rb") as file:
            digest = hashlib.file_digest(file, hashlib.sha256).hexdigest()
    packages = ("torch", "gpytorch", "scikit-learn", "numpy", "scipy", "pandas")
    return {
        "command": shlex.join(["gdkl", *sys.argv[1:]]),
        "data": settings.data,
        "sha256": digest,
        "versions": {"gdkl": __version__, "python": platform.python_version()}
        | {one: version(one) for one in packages},
    }


def _drawn(settings: FitSettings, estimator: Any, prediction: Any, truth: Any) -> bytes | None:
    """The picture, if it is wanted and there is anything to draw."""
    if settings.picture_file is None:
        return None
    from gdkl.cli.fit_picture import fit_figure  # noqa: PLC0415  (matplotlib is slow to import)

    figure = fit_figure(estimator, prediction, truth, settings.target)
    if figure is None:
        return None
    drawn = io.BytesIO()
    figure.savefig(drawn, format=settings.picture_file.suffix.lstrip(".").lower())
    return drawn.getvalue()
