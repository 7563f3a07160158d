"""What ``gdkl fit`` is told: by a TOML file, by options of the command line, which come first, or by nobody."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from gdkl.cli.columns import CATEGORY, check_kind
from gdkl.cli.nearest import or_known
from gdkl.cli.table_files import STANDARD
from gdkl.cli.target import CLASSIFICATION, REGRESSION, check_task
from gdkl.numerics import DataError, OptionError

#: Estimators by their short names and the task.
ESTIMATORS = {
    "gdkl": {REGRESSION: "GDKLRegressor", CLASSIFICATION: "GDKLClassifier"},
    "nngp": {REGRESSION: "NNGPRegressor", CLASSIFICATION: "NNGPClassifier"},
    "gp": {REGRESSION: "GPRegressor"},
    "dkl": {REGRESSION: "DKLRegressor", CLASSIFICATION: "DKLClassifier"},
    "nn": {CLASSIFICATION: "NNClassifier"},
}

_PICTURES = (".png", ".pdf", ".svg")

#: What columns of the TOML file are left out by.
DROP = "drop"


@dataclass(frozen=True)
class FitSettings:
    """Everything about a fit.

    Attributes:
        data: The table.
        target: The column that is predicted.
        model: The model file to write.
        picture: The picture to write; None for one beside the model, empty for none.
        task: Regression or classification; None to decide by the target.
        estimator: A short name.
        seed: Of splits and weights.
        holdout: Part of the rows that is held out and scored; 0 for none.
        refit: Whether the saved model is fitted to all rows after it was scored.
        drop_missing_target: Whether rows without a target are left out.
        options: Of the estimator; ``preset.NAME`` for a number of its preset.
        columns: How columns are read, ``drop`` for not at all; what is not named is read by what it holds.
    """

    data: str = ""
    target: str = ""
    model: str = "model.gdkl"
    picture: str | None = None
    task: str | None = None
    estimator: str = "gdkl"
    seed: int = 0
    holdout: float = 0.1
    refit: bool = True
    drop_missing_target: bool = False
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    columns: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        check_task(self.task)
        if self.estimator not in ESTIMATORS:
            raise OptionError(f"the estimator {self.estimator!r} is not known: use {', '.join(ESTIMATORS)}.")
        if not 0 <= self.holdout <= 0.5:
            raise OptionError(f"holdout {self.holdout!r} is not allowed: use 0.1 for a tenth, at most 0.5; 0 for none.")
        for name in (self.model, str(self.picture_file)):
            if self.data and name in (self.data, STANDARD):
                raise OptionError(f"{name} cannot be written: give another file with -o, or --picture.")
        if self.picture_file == Path(self.model):
            raise OptionError(f"{self.model} would be both the model and its picture: give another file with -o.")
        if self.picture_file is not None and self.picture_file.suffix.lower() not in _PICTURES:
            raise OptionError(f"a picture cannot be written to {self.picture_file}: use {', '.join(_PICTURES)}.")
        for name, kind in self.columns.items():
            if kind != DROP:
                check_kind(name, kind)

    @property
    def dropped(self) -> list[str]:
        """Columns that the user leaves out."""
        return [name for name, kind in self.columns.items() if kind == DROP]

    @property
    def picture_file(self) -> Path | None:
        """Where the picture goes."""
        if self.picture is None:
            return Path(self.model).with_suffix(".png")
        return Path(self.picture) if self.picture else None

    def class_name(self, task: str) -> str:
        """Name of the estimator's class.

        Raises:
            OptionError: If the estimator is not for this task.
        """
        known = ESTIMATORS[self.estimator]
        if task not in known:
            others = ", ".join(name for name, tasks in ESTIMATORS.items() if task in tasks)
            raise OptionError(f"the estimator {self.estimator!r} is not for {task}: use {others}.")
        return known[task]


def settings_from(
    config: str | None, given: Mapping[str, Any], drop: list[str], category: list[str], sets: list[str]
) -> FitSettings:
    """Put together what the user says.

    Args:
        config: A TOML file, or None.
        given: Options of the command line, by the settings' names; None where there is none.
        drop: Columns to leave out.
        category: Columns whose numbers are labels.
        sets: Options of the estimator, ``key=value``.
    """
    from gdkl.experiments.overrides import parse_value  # noqa: PLC0415

    values: dict[str, Any] = {} if config is None else _read(config)
    values |= {name: value for name, value in given.items() if value is not None}
    options: dict[str, Any] = dict(values.get("options", {}))
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise OptionError(f"--set {text!r} is not of the form key=value or preset.key=value.")
        options[key.strip()] = parse_value(value)
    columns: dict[str, str] = (
        dict(values.get("columns", {})) | dict.fromkeys(category, CATEGORY) | dict.fromkeys(drop, DROP)
    )
    values |= {"options": options, "columns": columns}
    settings = FitSettings(**values)
    if not settings.data:
        raise OptionError("there is no table to fit to: gdkl fit data.csv --target y, or gdkl fit --config fit.toml.")
    return settings


def _read(path: str) -> dict[str, Any]:
    """The settings of a TOML file."""
    try:
        with Path(path).open("rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror or error}): check the path.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is no TOML file ({error}): 'gdkl init data.csv' writes one.") from error
    known = {one.name: one for one in fields(FitSettings)}
    for name, value in found.items():
        if name not in known:
            raise OptionError(f"{path} has an unknown setting {name!r}: {or_known(name, list(known), 20)}.")
        wanted = _TYPES[name]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise OptionError(f"{path}: {name} = {value!r} is not allowed: {_EXPECTED[wanted]}.")
    # A table within the options, as TOML reads preset.learning_rate.
    options = found.get("options", {})
    if isinstance(preset := options.get("preset"), dict):
        rest = {name: value for name, value in options.items() if name != "preset"}
        found["options"] = rest | {f"preset.{name}": value for name, value in preset.items()}
    return found


_TYPES: dict[str, Any] = {
    **dict.fromkeys(("data", "target", "model", "picture", "task", "estimator"), str),
    **dict.fromkeys(("refit", "drop_missing_target"), bool),
    **dict.fromkeys(("options", "columns"), dict),
    "seed": int,
    "holdout": (int, float),
}
_EXPECTED: dict[Any, str] = {
    str: "give text in quotes",
    bool: "use true or false",
    dict: "write it as a table of its own",
    int: "give a whole number",
    (int, float): "give a number",
}
