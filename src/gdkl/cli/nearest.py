"""Which known name a user may have meant."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


def nearest(name: str, known: Collection[str]) -> str:
    """The known name that is nearest to one that is not known; empty if none is near.

    Example:
        >>> nearest("pirce", ["make", "price"])
        "did you mean 'price'"
        >>> nearest("Price", ["price", "prize"])
        "did you mean 'price'"
        >>> nearest("colour", ["make", "price"])
        ''
    """
    lower = {other.lower(): other for other in known}
    found = get_close_matches(name.lower(), lower, n=1)
    return f"did you mean {lower[found[0]]!r}" if found else ""


def or_known(name: str, known: Collection[str], most: int = 12) -> str:
    """The nearest known name, or the known names, the first few of many.

    Example:
        >>> or_known("colour", ["make", "price"])
        "there are 'make', 'price'"
    """
    listed = ", ".join(repr(other) for other in list(known)[:most]) + (" ..." if len(known) > most else "")
    return nearest(name, known) or f"there are {listed}"
