"""The column that is predicted: numbers or labels, and which of them by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gdkl.cli.arrow import arrow_compute
from gdkl.cli.columns import as_numbers, first_that_is_no_number, is_text, present
from gdkl.numerics import DataError, OptionError

REGRESSION, CLASSIFICATION = "regression", "classification"
TASKS = (REGRESSION, CLASSIFICATION)

#: Whole numbers of so few values may be labels: the user is told how to say so.
_FEW = 10


@dataclass(frozen=True)
class Target:
    """The target of every row.

    Attributes:
        task: Regression or classification.
        reason: What told the task.
        values: Numbers or labels, a Series; missing ones are null.
    """

    task: str
    reason: str
    values: Any


def read_target(name: str, cells: Any, decimal: str, task: str | None = None) -> Target:
    """Read the target of a fit, and decide what it asks for: text and two whole numbers are classes.

    Args:
        name: Of the column.
        cells: An Arrow column.
        decimal: The decimal mark.
        task: What the user wants; None to decide.

    Raises:
        DataError: If nothing can be learned of it.
    """
    check_task(task)
    numbers, labels = _both(cells, decimal)
    given = labels if numbers is None else numbers
    distinct = given.dropna().unique()
    if not len(distinct):
        raise DataError(f"the target {name!r} has missing cells only: give another with --target.")
    if len(distinct) == 1:
        raise DataError(
            f"the target {name!r} has one value only ({distinct[0]}): there is nothing to predict; give another with "
            "--target."
        )
    found = CLASSIFICATION if numbers is None or _are_classes(distinct) else REGRESSION
    wanted = task or found
    if wanted == REGRESSION:
        if numbers is None:
            row, text = first_that_is_no_number(cells, decimal) if is_text(cells) else (1, given.iloc[0])
            raise DataError(
                f"the target {name!r} is no number in row {row} ({str(text)!r}), which regression needs: correct the "
                "cells, or use --task classification."
            )
        few = len(distinct) <= _FEW and _are_whole(distinct)
        hint = "; --task classification if they are labels" if few else ""
        return Target(wanted, f"{name!r} has numbers, {len(distinct)} different ones{hint}", numbers.astype(float))
    counts = labels.value_counts()
    if 2 * len(counts) > labels.count():
        told = "" if task else "--task regression if they are numbers, "
        row, text = first_that_is_no_number(cells, decimal) if is_text(cells) else (0, "")
        where = f" (row {row}: {text!r})" if row else ""
        raise DataError(
            f"the target {name!r} has {len(counts)} different values in {labels.count()} rows{where}, too many for "
            f"classes: {told}correct the cells or give another with --target."
        )
    shown = ", ".join(f"{label} {count}" for label, count in counts.head(5).items()) + (", ..." * (len(counts) > 5))
    return Target(wanted, f"{name!r} has {len(counts)} classes: {shown}", labels)


def check_task(task: str | None) -> None:
    """Refuse a task that is none."""
    if task not in (None, *TASKS):
        raise OptionError(f"the task {task!r} is not known: use {' or '.join(TASKS)}.")


def _both(cells: Any, decimal: str) -> tuple[Any, Any]:
    """A column as numbers, None if it has others, and as labels."""
    import pyarrow as pa  # noqa: PLC0415  (help does not need it)

    compute = arrow_compute()
    if not is_text(cells):
        labels = cells.to_pandas()
        numeric = pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type) or pa.types.is_decimal(cells.type)
        return (labels.astype(float) if numeric else None), labels
    text = present(cells)
    numbers = as_numbers(text, decimal)
    if numbers is None:
        return None, text.to_pandas()
    try:
        whole = compute.cast(text, pa.int64())
    except pa.ArrowInvalid:
        # "true", "1.0": as the user wrote them.
        return numbers.to_pandas(), text.to_pandas()
    return numbers.to_pandas(), whole.to_pandas(integer_object_nulls=True)


def _are_whole(distinct: Any) -> bool:
    return all(float(value).is_integer() for value in distinct)


def _are_classes(distinct: Any) -> bool:
    return len(distinct) == 2 and _are_whole(distinct)


def numbers_to_score(name: str, cells: Any, decimal: str) -> Any:
    """Targets of test rows as numbers; missing ones are null."""
    numbers, _ = _both(cells, decimal)
    if numbers is None:
        row, text = first_that_is_no_number(cells, decimal) if is_text(cells) else (1, cells[0])
        raise DataError(
            f"the target {name!r} is no number in row {row} ({str(text)!r}), and the model is one of regression: "
            "give the column it was fitted to with --target."
        )
    return numbers


def labels_to_score(name: str, cells: Any, decimal: str, classes: Any) -> Any:
    """Labels of test rows, of the type that the model's classes have; missing ones are null.

    Raises:
        DataError: If there are labels that the model does not know.
    """
    import numpy as np  # noqa: PLC0415

    numbers, labels = _both(cells, decimal)
    known = {_plain(label): label for label in classes.tolist()}
    shown = labels if np.asarray(classes).dtype.kind not in "iuf" or numbers is None else numbers
    plain = [None if missing else _plain(label) for label, missing in zip(shown, shown.isna(), strict=True)]
    unknown = list(dict.fromkeys(label for label in plain if label is not None and label not in known))
    if unknown:
        listed = ", ".join(unknown[:5]) + (" ..." if len(unknown) > 5 else "")
        raise DataError(
            f"the target {name!r} has values that are no classes of the model: {listed}; its classes are "
            f"{', '.join(list(known)[:10])}. Give the column it was fitted to with --target, or leave these rows out."
        )
    values = np.array([None if label is None else known[label] for label in plain], dtype=object)
    return type(shown)(values, dtype=object)


def _plain(label: Any) -> str:
    """A label as text: whole numbers without a point, truth values in any spelling."""
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    text = str(label)
    return text.lower() if text.lower() in ("true", "false") else text
