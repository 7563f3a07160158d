"""Random networks and images for the compiler: strides, paddings, branches, sizes from 5 to 40 pixels."""

from __future__ import annotations

import random

import torch

import gdkl.infinite as inf


def activation(r: random.Random, straight: bool) -> inf.InfiniteNetwork:
    kinds = [inf.ReLU, inf.ReLU, lambda: inf.LeakyReLU(0.2), lambda: inf.ABReLU(-0.5, 1.2), inf.Abs]
    if not straight:
        kinds += [inf.Erf, inf.SigmoidLike, inf.GELU, lambda: inf.Sin(1.0, 0.7, 0.3), lambda: inf.Gaussian(1.0, -0.4)]
    return r.choice(kinds)()


def variances(r: random.Random) -> dict[str, float]:
    return {"weight_var": round(r.uniform(0.5, 3.0), 2), "bias_var": r.choice([0.0, round(r.uniform(0.05, 0.5), 2)])}


def convolution(r: random.Random, size: tuple[int, int], *, keeps_size: bool = False) -> inf.Conv2d:
    """A convolution that fits images of a size."""
    while True:
        kernel = (r.randint(1, 4), r.randint(1, 4))
        stride = (1, 1) if keeps_size else r.choice([(1, 1), (1, 1), (2, 2), (2, 1), (3, 2)])
        padding = "same" if keeps_size else r.choice(["same", "same", "valid", 1, (2, 0)])
        layer = inf.Conv2d(kernel, stride, padding, r.choice(["zeros", "zeros", "circular"]), **variances(r))
        low_high = [padding, padding] if isinstance(padding, int) else [2, 0] if isinstance(padding, tuple) else [0, 0]
        if all(n + 2 * p >= k for n, p, k in zip(size, low_high, kernel, strict=True)):
            return layer


def size_behind(layer: inf.Conv2d, size: tuple[int, int]) -> tuple[int, int]:
    window = layer.window
    pads = window.pads(*size)
    h, w = (
        (n + low + high - k) // s + 1
        for n, (low, high), k, s in zip(size, pads, window.size, window.stride, strict=True)
    )
    return h, w


def architecture(r: random.Random, *, straight: bool = True) -> tuple[inf.Sequential, tuple[int, int, int]]:
    """A network and the shape of its images."""
    shape = (r.randint(1, 3), r.randint(5, 40), r.randint(5, 40))
    size = shape[1:]
    layers: list[inf.InfiniteNetwork] = []
    for _ in range(r.randint(1, 4)):
        conv = convolution(r, size)
        if r.random() < 0.4:
            shortcut = inf.Conv2d(conv.window.size, conv.window.stride, conv.window.padding, **variances(r))
            behind = size_behind(conv, size)
            main = inf.Sequential(
                activation(r, straight), conv, activation(r, straight), convolution(r, behind, keeps_size=True)
            )
            layers.append(inf.Residual(main, shortcut))
        else:
            layers.append(conv)
        size = size_behind(conv, size)
        if r.random() < 0.3:
            layers.append(inf.Residual(inf.Sequential(activation(r, straight), convolution(r, size, keeps_size=True))))
        if r.random() < 0.8:
            layers.append(activation(r, straight))
        if r.random() < 0.15:
            layers.append(inf.LayerNorm(1e-3))
    layers.append(inf.Flatten())
    if r.random() < 0.3:
        layers += [inf.Linear(1.5, 0.1), activation(r, straight)]
    return inf.Sequential(*layers, inf.Linear(1.0, 0.0)), shape


def images(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Plain images, and beside them an equal, an opposite, a scaled and an empty one."""
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(seed))
    return torch.cat([x, x[:1], -x[:1], 3 * x[1:2], 0 * x[:1]])


def error(K: torch.Tensor, reference: torch.Tensor, d1: torch.Tensor, d2: torch.Tensor) -> float:
    """Largest error relative to the diagonal scale of the reference."""
    scale = (d1.double()[:, None] * d2.double()[None, :]).sqrt()
    floor = scale.max() * 1e-6 + 1e-300
    return float(((K.double().cpu() - reference.cpu()).abs() / scale.cpu().clamp_min(float(floor))).max())
