"""Results for people and for machines: a table of scores or one JSON object on standard output."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gdkl.cli.failures import show

if TYPE_CHECKING:
    from gdkl.cli.scores import Score

#: The option of every command that has an answer.
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object in place of text.")]

#: What the column of baselines is.
BASELINE = "Baseline: their mean, or the shares of their classes, as the prediction of every row."


def print_json(answer: Mapping[str, Any]) -> None:
    """Print one JSON object; what is no finite number is null."""
    typer.echo(json.dumps(_finite(answer), indent=2, ensure_ascii=False, allow_nan=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    return value


def print_scores(scores: Sequence[Score], lines: Sequence[str] = ()) -> None:
    """Print scores as a table, with lines under it."""
    from rich.table import Table  # noqa: PLC0415  (help does not need it)

    compared = any(score.baseline is not None for score in scores)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("score", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("±", justify="right", no_wrap=True)
    if compared:
        table.add_column("baseline", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for score in scores:
        cells = [score.value, score.error, score.baseline] if compared else [score.value, score.error]
        table.add_row(score.label, *map(number, cells), score.better)
    show(table, lines)


def number(value: float | None) -> str:
    """A number with four digits that count; empty for None.

    Example:
        >>> [number(value) for value in (0.123456, 12345.678, -8.1, 0.0, None)]
        ['0.1235', '12350', '-8.1', '0', '']
    """
    if value is None:
        return ""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    rounded = round(value, 3 - math.floor(math.log10(abs(value))))
    return f"{rounded:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{rounded:.0f}"


def size_of(count: float) -> str:
    """Bytes in words.

    Example:
        >>> size_of(1_234_567), size_of(900)
        ('1.2 MB', '0.9 kB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count / 1e3:.1f} kB"
