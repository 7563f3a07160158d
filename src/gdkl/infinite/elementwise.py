"""Any activation, by quadrature: Hermite coefficients for each input, Mehler's expansion for each pair."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from gdkl.infinite.activation import Activation, Pair
from gdkl.infinite.network import Spec
from gdkl.infinite.state import safe_divide, safe_sqrt
from gdkl.numerics import NumericsWarning, OptionError

MAX_ORDER = 512
#: Distance of the nodes. An equidistant rule converges faster than any power for analytic functions under a Gaussian
#: weight, and unlike a Gauss rule of the same order it does not fold the higher coefficients into the lower ones. Zero
#: lies halfway between two of them: there a kink or a step, which most have at zero, does no more harm than a bend.
SPACING = 1 / 24
#: Relative error of the expansion at which a warning is given.
TOLERANCE = 1e-4

_NOT_OF_TORCH = "fn must be made of torch's operations, so that autograd finds its derivative; got {!r}."


def _hermite_projection(order: int) -> tuple[Tensor, Tensor]:
    """Nodes z and the matrix that takes φ(z) to E[φ(z)·h_m(z)], shape ``(order, nodes)``."""
    # Past its turning point 2√m a Hermite function falls faster than a Gaussian.
    reach = 2 * np.sqrt(order) + 8
    half = np.ceil(reach / SPACING)
    nodes = (np.arange(-half, half) + 0.5) * SPACING
    half_density = np.exp(-(nodes**2) / 4) / (2 * np.pi) ** 0.25
    # h_m·√density obeys the recursion of h_m and stays of order one.
    functions = np.zeros((order, nodes.size))
    functions[0] = half_density
    functions[1] = nodes * half_density
    for m in range(1, order - 1):
        functions[m + 1] = (nodes * functions[m] - np.sqrt(m) * functions[m - 1]) / np.sqrt(m + 1)
    return torch.from_numpy(nodes), torch.from_numpy(functions * half_density * SPACING)


def _normalised(a: Tensor) -> Tensor:
    """Coefficients over their root sum of squares; zero where all are zero."""
    return safe_divide(a, safe_sqrt(a.square().sum(0)), otherwise=0.0)


#: What an error is of: the function, or its derivative, which the NTK alone needs.
_Part: TypeAlias = Literal["φ", "φ'"]


class Elementwise(Activation):
    """An activation given as a function, for those that have no closed form.

    With normalised Hermite polynomials h_m and a_m(q) = E[φ(√q·z)·h_m(z)], found by quadrature for each input,
    E[φ(u)φ(v)] = Σ_m a_m(q1)·a_m(q2)·c^m: ``order`` multiplications per pair, positive semi-definite at any order.

    Functions with kinks or steps and very large variances need more terms and nodes than there are. The error is
    estimated for the pairs that occur, and a `NumericsWarning` tells, once per layer for φ and once for φ', when it
    exceeds 1e-4 of the kernel. A larger order gives more terms, but no closer nodes: a kink away from zero, as hardtanh
    has, costs some 1e-4 of the NNGP and, being a step of φ', some 1e-2 of the NTK at any order.

    Args:
        fn: Takes a tensor and returns a tensor of the same shape, in float64, made of torch's operations, so
            that autograd finds its derivative.
        order: Terms of the expansion. Smooth functions such as tanh, SiLU and softplus reach 1e-6 at the
            default for variances up to about 30; steeper ones and larger variances need more.

    Example:
        >>> Elementwise(torch.tanh).diagonal(torch.tensor([[1.0]]))
        tensor([0.3943])
    """

    def __init__(self, fn: Callable[[Tensor], Tensor], order: int = 96) -> None:
        if not callable(fn):  # pyright: ignore[reportUnnecessaryComparison]
            raise OptionError(f"fn must be a function of a tensor; got {fn!r}.")
        if not 2 <= order <= MAX_ORDER:
            raise OptionError(f"order must be from 2 to {MAX_ORDER}; got {order!r}.")
        self.fn, self.order = fn, int(order)
        self._nodes, self._projection = _hermite_projection(self.order)
        # What was warned of; copies of the layer share it: they would all say the same.
        self._warned: set[_Part] = set()

    def variance(self, q: Tensor) -> Tensor:
        """Σ_m a_m²."""
        return self._coefficients(q).square().sum(0)

    def deficit(self, pair: Pair) -> Tensor:
        """½·|â(q1) − â(q2)|² + Σ_m â_m(q1)·â_m(q2)·(1 − c^m) with â = a/|a|."""
        a, b = (_normalised(self._coefficients(q)) for q in (pair.q1, pair.q2))
        # 1 − c^m = t·(1 + c + … + c^(m−1)): Horner's scheme over the sums of all terms past each power.
        c = 1 - pair.t
        if "φ" not in self._warned and c.numel() > 0:
            self._check_terms(a, b, c, "φ")
        across = torch.zeros_like(pair.t)
        tail, along = torch.zeros_like(pair.t), torch.zeros_like(pair.t)
        for m in range(self.order + 1, -1, -1):
            across = across + (a[m] - b[m]).square() / 2
            if m > 0:
                tail = tail + a[m] * b[m]
                along = along * c + tail
        zero = (pair.q1 * pair.q2 == 0) & (self.variance(torch.zeros(1, dtype=pair.t.dtype)) == 0).to(pair.t.device)
        return torch.where(zero, 1, across + pair.t * along)

    def slope(self, pair: Pair) -> Tensor:
        """The same expansion for φ'."""
        a, b = (self._coefficients(q, derivative=True) for q in (pair.q1, pair.q2))
        c = 1 - pair.t
        if "φ'" not in self._warned and c.numel() > 0:
            self._check_terms(_normalised(a), _normalised(b), c, "φ'")
        total = torch.zeros_like(pair.t)
        for m in range(self.order + 1, -1, -1):
            total = total * c + a[m] * b[m]
        return total

    def _coefficients(self, q: Tensor, *, derivative: bool = False) -> Tensor:
        """a_m for every variance, shape ``(order, *q.shape)``."""
        points = safe_sqrt(q)[..., None] * self._nodes.to(q.device)
        values = self._slopes(points) if derivative else self._values(points)
        part: _Part = "φ'" if derivative else "φ"
        # What comes from an overflow in a layer before is not the function's doing.
        wrong = torch.isnan(values.detach()) & torch.isfinite(points.detach())
        if bool(wrong.any()):
            where = float(points.detach()[wrong][0]) + 0.0  # which takes the sign off a negative zero
            what = "the derivative of fn" if derivative else "fn"
            raise OptionError(f"fn must give a number for every number: {what} is NaN at {where:.3g}.")
        projection = self._projection.to(q.device)
        a = values @ projection.T
        # What the expansion leaves of E[φ²], in degrees of either parity, is put on the next two degrees: the
        # diagonal is exact at any order, and the error of a pair no larger than this rest.
        mirrored = values.flip(-1)
        rest = []
        for parity in (self.order % 2, 1 - self.order % 2):
            half = (values + mirrored if parity == 0 else values - mirrored) / 2
            left = (half.square() @ projection[0]) - a[..., parity::2].square().sum(-1)
            # Rounding leaves some 1e-16 where nothing is left.
            rest.append(safe_sqrt(torch.where(left > 1e-14 * half.square().amax(-1), left, 0)))
        if part not in self._warned and q.numel() > 0:
            self._check_nodes(values.detach(), part)
        return torch.movedim(torch.cat([a, torch.stack(rest, -1)], -1), -1, 0)

    def _check_nodes(self, values: Tensor, part: _Part) -> None:
        """Warn if the nodes lie too far apart, by what nodes three and nine times as far apart give."""
        projection = self._projection[:3].to(values.device)
        square = values.square()
        total = square @ projection[0]
        middle = self._nodes.numel() // 2

        def error(of: Tensor, against: Tensor) -> Tensor:
            fine, wide, wider = (
                # Zero, where most kinks and steps are, stays halfway between two nodes.
                (of[..., (first := (middle + step // 2) % step) :: step] @ against[first::step]) * step
                for step in (1, 3, 9)
            )
            # The next such step gains at least what the step before has gained.
            change, before = (wide - fine).abs(), (wider - wide).abs()
            return change * safe_divide(change, before, otherwise=1.0).clamp_max(1)

        # Of E[φ²], and of the squares of the first coefficients, as |φ| has a kink where φ² has none.
        errors = error(square, projection[0])
        for weights in projection:
            errors = errors + 2 * (values @ weights).abs() * error(values, weights)
        self._warn(
            safe_divide(errors, total, otherwise=0.0),
            part,
            "kinks and steps fall between the nodes of the integral, which a larger order does not mend. Use smaller "
            "variances or an activation with a closed form (ReLU, LeakyReLU, ABReLU, Abs and Sign have kinks or steps)",
        )

    def _check_terms(self, a: Tensor, b: Tensor, c: Tensor, part: _Part) -> None:
        """Warn if the terms are too few for some pair, by what the last two, which stand for the rest, give."""
        # Where the rest has degrees from the order to about twice the order, its terms c^m are between the two.
        a, b, power = a.detach()[-2:].abs(), b.detach()[-2:].abs(), c.detach().abs() ** self.order
        larger = f"a larger order (up to {MAX_ORDER}), " if self.order < MAX_ORDER else ""
        self._warn(
            (a * b).sum(0) * power * (1 - power),
            part,
            f"use {larger}smaller variances or an activation with a closed form",
        )

    def _warn(self, errors: Tensor, part: _Part, remedy: str) -> None:
        """Warn, once per layer and part, of errors above `TOLERANCE`."""
        error = float(errors.amax())
        if not error > TOLERANCE:
            return
        self._warned.add(part)
        where = " in its derivative, and so in the NTK" if part == "φ'" else ""
        warnings.warn(
            f"{self!r} is integrated with a relative error of about {error:.0e}{where}: {remedy}.",
            NumericsWarning,
            stacklevel=2,
        )

    def _values(self, points: Tensor) -> Tensor:
        try:
            values: Any = self.fn(points)
        except RuntimeError as error:
            # NumPy's functions take tensors, but not those that need a gradient.
            if points.requires_grad and "requires grad" in str(error):
                raise OptionError(_NOT_OF_TORCH.format(self.fn)) from error
            raise
        if not isinstance(values, Tensor) or values.shape != points.shape:
            raise OptionError("fn must return a tensor of the shape that it takes.")
        if points.requires_grad and not values.requires_grad:
            raise OptionError(_NOT_OF_TORCH.format(self.fn))
        return values

    def _slopes(self, points: Tensor) -> Tensor:
        keep = points.requires_grad
        with torch.enable_grad():
            if not keep:
                points.requires_grad_()
            (slopes,) = torch.autograd.grad(self._values(points).sum(), points, create_graph=keep)
        return slopes

    def function(self, x: Tensor) -> Tensor:
        """The function given."""
        return self.fn(x)

    def _own_spec(self) -> Spec:
        raise OptionError(
            "Elementwise holds a Python function, which a spec cannot: use an activation with a closed form, or "
            "kernel(), with out= for a matrix on disk."
        )

    def __repr__(self) -> str:
        return f"Elementwise({getattr(self.fn, '__name__', self.fn)!s}, order={self.order})"
