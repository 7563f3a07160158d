"""Functions to minimise on the unit cube: four that others use, and two whose structure no stationary kernel has."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gdkl.numerics import OptionError


@dataclass(frozen=True)
class Problem:
    """A function of rows ``(n, dim)`` in the unit cube, ``(n,)``, without noise, and its smallest value."""

    dim: int
    function: Callable[[Tensor], Tensor]
    optimum: float

    def regret(self, X: Tensor) -> Tensor:
        """How far each row's value is above the smallest."""
        return (self.function(X) - self.optimum).clamp_min(0.0)


def gated(X: Tensor) -> Tensor:
    """Five columns, of which the first decides which direction of the others matters, and on what scale.

    On one side values change slowly along z4 − z5, on the other quickly along z2 + z3; the minimum, zero, is there.
    """
    z = 2 * X - 1
    gate, one, other = torch.sigmoid(8 * z[:, 0]), z[:, 1] + z[:, 2] - 0.6, z[:, 3] - z[:, 4] + 0.4
    quick = one.square() + 0.3 * (1 - torch.cos(6 * one))
    return gate * quick + (1 - gate) * 2 * other.square() + 0.2 * (z[:, 0] - 0.7).square()


def helix(X: Tensor) -> Tensor:
    """Eight columns, of which three linear combinations matter: a valley that winds around the third of them.

    The direction in which values change turns along the valley; the minimum, zero, is at radius 0.6 and height 0.5.
    """
    p = (2 * X - 1) @ _directions().to(X)
    radius, angle, height = p[:, :2].norm(dim=-1), torch.atan2(p[:, 1], p[:, 0]), p[:, 2]
    return 4 * (radius - 0.6).square() + radius * (1 - torch.cos(angle - 4 * height)) + (height - 0.5).square()


def _directions() -> Tensor:
    """Three orthogonal directions of eight, ``(8, 3)``, along no column."""
    waves = torch.arange(8, dtype=torch.float64).unsqueeze(-1) * torch.tensor([1.0, 2.0, 3.0]) * math.pi / 4
    return 0.5 * torch.cos(waves + 0.3)


def _known(name: str, optimum: float, **options: Any) -> Problem:
    """One of BoTorch's test functions."""
    from botorch import test_functions  # noqa: PLC0415  (optional)

    function = getattr(test_functions, name)(**options).to(torch.float64)
    low, high = function.bounds
    return Problem(function.dim, lambda X: function(low + (high - low) * X), optimum)


#: By name. Levy's and Ackley's minima are off the centre of the cube.
_MAKERS: dict[str, Callable[[], Problem]] = {
    "branin": partial(_known, "Branin", 0.397887357729739),
    "hartmann6": partial(_known, "Hartmann", -3.32236801141551, dim=6),
    "ackley10": partial(_known, "Ackley", 0.0, dim=10, bounds=[(-5.0, 10.0)] * 10),
    "levy20": partial(_known, "Levy", 0.0, dim=20),
    "gated5": partial(Problem, 5, gated, 0.0),
    "helix8": partial(Problem, 8, helix, 0.0),
}
PROBLEMS = tuple(_MAKERS)


def problem(name: str) -> Problem:
    """A problem by its name.

    Example:
        >>> problem("gated5").regret(torch.tensor([[0.85, 0.65, 0.65, 0.4, 0.6]])).round(decimals=5)
        tensor([0.])
    """
    if name not in _MAKERS:
        raise OptionError(f"problem {name!r} is not known: use {', '.join(PROBLEMS)}.")
    return _MAKERS[name]()
