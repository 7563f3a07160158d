"""The recursion of networks on images in 60 digits: every pixel pair of every pair of images."""

from __future__ import annotations

from itertools import product
from typing import Any

import exact
import mpmath as mp
import numpy as np

Grid = dict[tuple[int, int, int, int], Any]


class Cov:
    """K and T of two images over all pairs of pixels."""

    def __init__(self, size: tuple[int, int], K: Grid, T: Grid):
        self.size, self.K, self.T = size, K, T


#: Of every pair of images; the pairs (i, i) are what an activation needs beside (i, j).
Covs = dict[tuple[int, int], Cov]


def _pads(length: int, size: int, stride: int, padding: str) -> tuple[int, int]:
    """Low padding and output length."""
    if padding == "VALID":
        return 0, (length - size) // stride + 1
    out = -(-length // stride)
    return max((out - 1) * stride + size - length, 0) // 2, out


def _taps(
    layer: dict[str, Any], size: tuple[int, int], window: list[int]
) -> tuple[tuple[int, int], dict[Any, list[Any]]]:
    """For every output pixel the input pixels of its window; None outside the image."""
    (low_h, out_h), (low_w, out_w) = (
        _pads(size[i], window[i], layer["strides"][i], layer["padding"]) for i in range(2)
    )
    taps: dict[Any, list[Any]] = {}
    for h, w in product(range(out_h), range(out_w)):
        inside = []
        for a, b in product(range(window[0]), range(window[1])):
            i, j = h * layer["strides"][0] - low_h + a, w * layer["strides"][1] - low_w + b
            if layer["padding"] == "CIRCULAR":
                inside.append((i % size[0], j % size[1]))
            else:
                inside.append((i, j) if 0 <= i < size[0] and 0 <= j < size[1] else None)
        taps[h, w] = inside
    return (out_h, out_w), taps


def _layer(layer: dict[str, Any], covs: Covs) -> Covs:  # noqa: PLR0912
    size, op = covs[0, 0].size, layer["op"]
    if op == "residual":
        mains, shorts = covs, covs
        for inner in layer["main"]:
            mains = _layer(inner, mains)
        for inner in layer["shortcut"]:
            shorts = _layer(inner, shorts)
        return {
            pair: Cov(a.size, {p: a.K[p] + b.K[p] for p in a.K}, {p: a.T[p] + b.T[p] for p in a.K})
            for pair, a, b in ((pair, mains[pair], shorts[pair]) for pair in covs)
        }
    if op == "conv":
        out, taps = _taps(layer, size, layer["filter"])
        w, b = mp.mpf(layer["w_var"]) / (layer["filter"][0] * layer["filter"][1]), mp.mpf(layer["b_var"])

        def slide(grid: Grid) -> Grid:
            return {
                (*p, *r): w * sum(grid[(*x, *y)] for x, y in zip(taps[p], taps[r], strict=True) if x and y)
                for p in taps
                for r in taps
            }

        new = {}
        for pair, cov in covs.items():
            K = {p: value + b for p, value in slide(cov.K).items()}
            T = slide(cov.T)
            new[pair] = Cov(out, K, {p: K[p] + T[p] for p in K})
        return new
    if op in ("avgpool", "global_avg_pool"):
        if op == "avgpool":
            out, taps = _taps(layer, size, layer["window"])
        else:
            out, taps = (1, 1), {(0, 0): list(product(range(size[0]), range(size[1])))}
        count = len(next(iter(taps.values())))

        def mean(grid: Grid) -> Grid:
            return {
                (*p, *r): sum(grid[(*x, *y)] for x in taps[p] for y in taps[r] if x and y) / mp.mpf(count) ** 2
                for p in taps
                for r in taps
            }

        return {pair: Cov(out, mean(cov.K), mean(cov.T)) for pair, cov in covs.items()}
    if op == "flatten":
        pixels = list(product(range(size[0]), range(size[1])))
        return {
            pair: Cov(
                (1, 1),
                {(0, 0, 0, 0): sum(cov.K[(*p, *p)] for p in pixels) / len(pixels)},
                {(0, 0, 0, 0): sum(cov.T[(*p, *p)] for p in pixels) / len(pixels)},
            )
            for pair, cov in covs.items()
        }
    new = {}
    for (i, j), cov in covs.items():
        a, b = covs[i, i], covs[j, j]
        K, T = {}, {}
        for p in cov.K:
            q1, q2 = a.K[(*p[:2], *p[:2])], b.K[(*p[2:], *p[2:])]
            if op == "dense":
                w, bias = mp.mpf(layer["w_var"]), mp.mpf(layer["b_var"])
                K[p] = w * cov.K[p] + bias
                T[p] = K[p] + w * cov.T[p]
            elif op == "layer_norm":
                factor = 1 / mp.sqrt((q1 + mp.mpf(layer["eps"])) * (q2 + mp.mpf(layer["eps"])))
                K[p], T[p] = cov.K[p] * factor, cov.T[p] * factor
            else:
                parameters = {key: value for key, value in layer.items() if key not in ("op", "name")}
                K[p], slope = exact.RULES[layer["name"]](q1, q2, cov.K[p], **parameters)
                T[p] = cov.T[p] * slope
        new[i, j] = Cov(cov.size, K, T)
    return new


def image_kernels(layers: list[dict[str, Any]], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """NNGP and NTK of all pairs of images, shape (n, C, H, W)."""
    n, channels, height, width = x.shape
    pixels = list(product(range(height), range(width)))

    def start(i: int, j: int) -> Cov:
        K = {
            (*p, *r): sum(mp.mpf(float(x[i, c, *p])) * mp.mpf(float(x[j, c, *r])) for c in range(channels)) / channels
            for p in pixels
            for r in pixels
        }
        return Cov((height, width), K, dict.fromkeys(K, mp.mpf(0)))

    covs = {(i, j): start(i, j) for i in range(n) for j in range(i, n)}
    for layer in layers:
        covs = _layer(layer, covs)
    nngp, ntk = np.zeros((n, n)), np.zeros((n, n))
    for (i, j), cov in covs.items():
        nngp[i, j] = nngp[j, i] = float(cov.K[0, 0, 0, 0])
        ntk[i, j] = ntk[j, i] = float(cov.T[0, 0, 0, 0])
    return nngp, ntk
