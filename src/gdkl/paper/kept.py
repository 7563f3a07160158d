"""What a result file already has of what a command asks for.

Splits are numbered, and those of more seeds begin with those of fewer. So a file of ten splits answers a command that
asks for two of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gdkl.paper.results import read_result


def made_before(
    path: Path, dataset: str, method: str, protocol: Mapping[str, Any], usual: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """Content of a result file that was made with the same settings, whatever the number of its splits.

    Args:
        path: Of the file, which need not be there.
        dataset: Whose result it has to be.
        method: Of which method.
        protocol: Settings; "seeds", the number of splits, does not count.
        usual: Settings that a file had which does not name them: it is from before there was a choice.
    """
    if not path.exists():
        return None
    found = read_result(path)
    before, now = (
        {**settings, "seeds": None} for settings in ({**(usual or {}), **found.get("protocol", {})}, protocol)
    )
    return found if (found.get("dataset"), found.get("method"), before) == (dataset, method, now) else None


def first_splits(result: Mapping[str, Any], count: int) -> dict[str, Any]:
    """A result as it would be with fewer splits.

    Example:
        >>> first_splits({"method": "nngp", "splits": [{"seed": 0}, {"seed": 1}]}, 1)
        {'method': 'nngp', 'splits': [{'seed': 0}]}
    """
    return {**result, "splits": list(result["splits"])[:count]}


def kept_line(path: Path, result: Mapping[str, Any], count: int) -> str:
    """Tells the user that a file serves, and how much of it.

    Example:
        >>> kept_line(Path("wine.json"), {"splits": [{}, {}, {}]}, 2)
        'kept from wine.json, the first 2 of its 3 splits'
        >>> kept_line(Path("wine.json"), {"splits": [{}, {}, {}]}, 3)
        'kept from wine.json'
    """
    there = len(result["splits"])
    return f"kept from {path}" + (f", the first {count} of its {there} splits" if there > count else "")
