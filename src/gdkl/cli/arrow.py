"""Arrow's functions, which it makes when it is imported: no type checker knows them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def arrow_compute() -> Any:
    """The module of functions on Arrow's columns; imported when it is asked for, as help does not need it."""
    return import_module("pyarrow.compute")
