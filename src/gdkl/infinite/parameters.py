"""Parameters of layers, checked: numbers and whole numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gdkl.numerics import OptionError


def finite_number(value: float, name: str, *, least: float = -math.inf) -> float:
    """A parameter as a float, refused if it is not finite or too small."""
    try:
        if isinstance(value, str | bytes | bool | np.bool_):
            raise TypeError("not a number, though float() would take it")
        number = float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise OptionError(f"{name} must be a number; got {value!r}.") from error
    if not math.isfinite(number) or number < least:
        bound = "finite" if least == -math.inf else f"finite and at least {least:g}"
        raise OptionError(f"{name} must be {bound}; got {value!r}.")
    return number


def whole_number(value: Any, name: str, *, least: int) -> int:
    """A parameter as an int, from any whole number that is not too small."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value != int(value) or value < least:
        raise OptionError(f"{name} must be a whole number of at least {least}; got {value!r}.")
    return int(value)
