"""The recursion of dense networks in 60 digits, straight from the definitions."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np

mp.mp.dps = 60


def _orthants(q1: Any, q2: Any, k: Any) -> tuple[Any, Any]:
    """√(q1·q2 − k²) and the angle; the angle is π/2 where a variance is zero."""
    if q1 * q2 == 0:
        return mp.mpf(0), mp.pi / 2
    c = max(min(k / mp.sqrt(q1 * q2), mp.mpf(1)), mp.mpf(-1))
    return mp.sqrt(max(q1 * q2 - k * k, mp.mpf(0))), mp.acos(c)


def _abrelu(q1: Any, q2: Any, k: Any, a: float, b: float) -> tuple[Any, Any]:
    root, theta = _orthants(q1, q2, k)
    a, b = mp.mpf(a), mp.mpf(b)
    # u and v are both positive with probability (π − θ)/2π, of opposite sign with θ/π.
    same = (root + (mp.pi - theta) * k) / (2 * mp.pi)
    differ = (theta * k - root) / (2 * mp.pi)
    slope = (a * a + b * b) * (mp.pi - theta) / (2 * mp.pi) + 2 * a * b * theta / (2 * mp.pi)
    return (a * a + b * b) * same + 2 * a * b * differ, slope


def _sign(q1: Any, q2: Any, k: Any) -> tuple[Any, Any]:
    return 1 - 2 * _orthants(q1, q2, k)[1] / mp.pi, mp.mpf(0)


def _erf(q1: Any, q2: Any, k: Any, *, a: float, b: float, c: float) -> tuple[Any, Any]:
    a, b, c = mp.mpf(a), mp.mpf(b), mp.mpf(c)
    P = (1 + 2 * b * b * q1) * (1 + 2 * b * b * q2)
    value = a * a * 2 / mp.pi * mp.asin(2 * b * b * k / mp.sqrt(P)) + c * c
    return value, 4 / mp.pi * a * a * b * b / mp.sqrt(P - (2 * b * b * k) ** 2)


def _sin(q1: Any, q2: Any, k: Any, *, a: float, b: float, c: float) -> tuple[Any, Any]:
    a, b, c = mp.mpf(a), mp.mpf(b), mp.mpf(c)
    near, far = mp.exp(-b * b / 2 * (q1 + q2 - 2 * k)), mp.exp(-b * b / 2 * (q1 + q2 + 2 * k))
    return a * a / 2 * (near - mp.cos(2 * c) * far), a * a * b * b / 2 * (near + mp.cos(2 * c) * far)


def _cos(q1: Any, q2: Any, k: Any, *, a: float, b: float, c: float) -> tuple[Any, Any]:
    a, b, c = mp.mpf(a), mp.mpf(b), mp.mpf(c)
    near, far = mp.exp(-b * b / 2 * (q1 + q2 - 2 * k)), mp.exp(-b * b / 2 * (q1 + q2 + 2 * k))
    return a * a / 2 * (near + mp.cos(2 * c) * far), a * a * b * b / 2 * (near - mp.cos(2 * c) * far)


def _rbf(q1: Any, q2: Any, k: Any, gamma: float) -> tuple[Any, Any]:
    value = mp.exp(-mp.mpf(gamma) * (q1 + q2 - 2 * k))
    return value, 2 * mp.mpf(gamma) * value


def _gaussian(q1: Any, q2: Any, k: Any, a: float, b: float) -> tuple[Any, Any]:
    a, b = mp.mpf(a), mp.mpf(b)
    D = (1 - 2 * b * q1) * (1 - 2 * b * q2) - 4 * b * b * k * k
    return a * a / mp.sqrt(D), 4 * a * a * b * b * k / D ** mp.mpf(1.5)


def _gelu(q1: Any, q2: Any, k: Any) -> tuple[Any, Any]:
    def value(k: Any) -> Any:
        P = (1 + q1) * (1 + q2)
        D = P - k * k
        linear = k / 4 + k * mp.asin(k / mp.sqrt(P)) / (2 * mp.pi)
        return linear + (q1 * q2 + k * k * (1 - q1 * q2) / P) / (2 * mp.pi * mp.sqrt(D))

    P = (1 + q1) * (1 + q2)
    D = P - k * k
    F = mp.mpf(1) / 4 + mp.asin(k / mp.sqrt(P)) / (2 * mp.pi)
    slope = F + k / (2 * mp.pi * mp.sqrt(D)) * (1 + (2 - q1 * q2) / P + k * k / (P * D))
    return value(k), slope


RULES: dict[str, Any] = {
    "relu": lambda q1, q2, k: _abrelu(q1, q2, k, 0, 1),
    "leaky_relu": lambda q1, q2, k, alpha: _abrelu(q1, q2, k, alpha, 1),
    "abrelu": _abrelu,
    "abs": lambda q1, q2, k: _abrelu(q1, q2, k, -1, 1),
    "sign": _sign,
    "erf": _erf,
    "sigmoid_like": lambda q1, q2, k: _erf(q1, q2, k, a=0.5, b=1 / mp.mpf("2.4020563531719796"), c=0.5),
    "sin": _sin,
    "cos": _cos,
    "rbf": _rbf,
    "gaussian": _gaussian,
    "gelu": _gelu,
}


def _pair(layers: list[dict[str, Any]], q1: Any, q2: Any, k: Any) -> tuple[Any, Any]:
    """NNGP and NTK of one pair."""
    ntk = mp.mpf(0)
    for layer in layers:
        if layer["op"] == "dense":
            w, b = mp.mpf(layer["w_var"]), mp.mpf(layer["b_var"])
            q1, q2, k = w * q1 + b, w * q2 + b, w * k + b
            ntk = k + w * ntk
        elif layer["op"] == "layer_norm":
            e = mp.mpf(layer["eps"])
            f1, f2 = mp.sqrt(q1 + e), mp.sqrt(q2 + e)
            q1, q2, k, ntk = q1 / f1**2, q2 / f2**2, k / (f1 * f2), ntk / (f1 * f2)
        else:
            rule = RULES[layer["name"]]
            parameters = {key: value for key, value in layer.items() if key not in ("op", "name")}
            value, slope = rule(q1, q2, k, **parameters)
            q1, q2 = rule(q1, q1, q1, **parameters)[0], rule(q2, q2, q2, **parameters)[0]
            k, ntk = value, ntk * slope
    return k, ntk


def dense_kernels(layers: list[dict[str, Any]], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """NNGP and NTK of all pairs of rows, each rounded once."""
    rows = [[mp.mpf(float(value)) for value in row] for row in x]
    n, d = x.shape
    nngp, ntk = np.zeros((n, n)), np.zeros((n, n))
    q = [sum(a * a for a in row) / d for row in rows]
    for i in range(n):
        for j in range(i, n):
            k = sum(a * b for a, b in zip(rows[i], rows[j], strict=True)) / d
            value, tangent = _pair(layers, q[i], q[j], k)
            nngp[i, j] = nngp[j, i] = float(value)
            ntk[i, j] = ntk[j, i] = float(tangent)
    return nngp, ntk
