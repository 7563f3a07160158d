"""The paper's own figures, to be shown beside ours."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Published(NamedTuple):
    """A cell of one of the paper's tables: mean and standard deviation over its runs."""

    mean: float
    std: float


@cache
def _tables() -> dict[str, dict[str, dict[str, list[float]]]]:
    return json.loads(files("gdkl.experiments").joinpath("published.json").read_text())


def published(table: str, method: str, cell: str) -> Published | None:
    """A cell of a table, or None where the paper has none.

    Args:
        table: "uci_test", "uci_train", "objectives", "fewshot" or "cifar_full".
        method: A method's name, as `gdkl reproduce` takes it.
        cell: Dataset and score, such as "boston.ll".

    Example:
        >>> published("uci_test", "gdkl", "boston.ll")
        Published(mean=-2.47, std=0.14)
    """
    values = _tables().get(table, {}).get(method, {}).get(cell)
    return None if values is None else Published(*values)
