"""What must hold for any network, over random architectures and random hard inputs."""

from __future__ import annotations

import json
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gdkl.infinite as inf

variances = st.floats(0.1, 3.0).map(lambda v: round(v, 3))
biases = st.one_of(st.just(0.0), st.floats(0.01, 1.0).map(lambda v: round(v, 3)))
parameters = st.floats(0.1, 1.5).map(lambda v: round(v, 3))


def activations() -> st.SearchStrategy[inf.InfiniteNetwork]:
    return st.one_of(
        st.sampled_from([inf.ReLU(), inf.Abs(), inf.GELU(), inf.SigmoidLike(), inf.Erf(), inf.Sign()]),
        st.builds(inf.LeakyReLU, parameters),
        st.builds(inf.ABReLU, parameters.map(lambda v: -v), parameters),
        st.builds(inf.Erf, parameters, parameters, parameters),
        st.builds(inf.Sin, parameters, parameters, parameters),
        st.builds(inf.Cos, parameters, parameters, parameters),
        st.builds(inf.RBF, parameters),
        st.builds(inf.Gaussian, parameters, parameters.map(lambda v: -v)),
    )


def linears() -> st.SearchStrategy[inf.InfiniteNetwork]:
    return st.builds(inf.Linear, variances, biases)


def same_size_convolutions() -> st.SearchStrategy[inf.InfiniteNetwork]:
    return st.builds(
        lambda size, mode, w, b: inf.Conv2d(size, 1, "same", mode, weight_var=w, bias_var=b),
        st.sampled_from([1, 2, 3, (1, 3)]),
        st.sampled_from(["zeros", "circular"]),
        variances,
        biases,
    )


def shrinking_layers() -> st.SearchStrategy[inf.InfiniteNetwork]:
    return st.one_of(
        st.builds(
            lambda stride, w, b: inf.Conv2d(2, stride, "same", weight_var=w, bias_var=b),
            st.sampled_from([1, 2, (2, 1)]),
            variances,
            biases,
        ),
        st.builds(
            lambda padding, count: inf.AvgPool2d(2, 2, padding, count_include_pad=count),
            st.sampled_from(["same", 1]),
            st.booleans(),
        ),
    )


@st.composite
def networks(draw: st.DrawFn, image: bool) -> inf.Sequential:
    layers: list[inf.InfiniteNetwork] = [draw(same_size_convolutions() if image else linears())]
    weights = same_size_convolutions() if image else linears()
    for _ in range(draw(st.integers(1, 3))):
        layers.append(draw(st.one_of(activations(), st.just(inf.LayerNorm(1e-6)))))
        choice = draw(st.integers(0, 2))
        if choice == 0:
            main = inf.Sequential(draw(activations()), draw(weights))
            layers.append(inf.Residual(main, draw(st.one_of(st.none(), weights))))
        elif choice == 1 and image:
            layers.append(draw(shrinking_layers()))
        else:
            layers.append(draw(weights))
    if image:
        layers.append(draw(st.sampled_from([inf.Flatten(), inf.GlobalAvgPool2d()])))
    return inf.Sequential(*layers, draw(linears()))


def inputs(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    x = torch.randn(3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.cat([x, x[:1], -x[:1], 2 * x[1:2], 0 * x[:1], 1e3 * x[2:], 1e-3 * x[2:]])


def check(net: inf.Sequential, x: torch.Tensor, kind: Any) -> None:
    K = net.kernel(x, kind=kind)
    assert torch.isfinite(K).all()
    assert torch.equal(K, K.T)
    assert torch.equal(K.diagonal(), net.diagonal(x, kind=kind))
    scale = K.diagonal().sqrt()
    outer = scale[:, None] * scale[None, :]
    # Correlations are correlations.
    assert torch.all(K.abs() <= outer * (1 + 1e-12))
    unit = torch.where(outer > 0, K / torch.where(outer > 0, outer, 1), 0)
    assert torch.linalg.eigvalsh(unit).min() >= -1e-10
    # Rows against a copy of themselves, one at a time.
    for i in (0, 4, 7):
        row = net.kernel(x[i : i + 1], x.clone(), kind=kind)[0]
        assert torch.all((row - K[i]).abs() <= 1e-9 * outer[i])
    # With gradients the whole recursion runs, whatever the fast way was.
    leaf = x.clone().requires_grad_()
    slow = net.kernel(leaf, kind=kind)
    assert torch.all((slow - K).abs() <= 1e-9 * outer)
    if slow.requires_grad:
        (gradient,) = torch.autograd.grad(slow.sum(), leaf, allow_unused=True)
        assert gradient is None or torch.isfinite(gradient).all()
    again = inf.from_spec(json.loads(json.dumps(net.to_spec())))
    assert torch.equal(again.kernel(x, kind=kind), K)


@settings(max_examples=40, deadline=None)
@given(
    net=networks(image=False),
    features=st.sampled_from([1, 3, 8]),
    seed=st.integers(0, 99),
    kind=st.sampled_from(["nngp", "ntk"]),
)
def test_dense_networks(net: inf.Sequential, features: int, seed: int, kind: str):
    check(net, inputs((features,), seed), kind)


@settings(max_examples=25, deadline=None)
@given(
    net=networks(image=True),
    channels=st.sampled_from([1, 2]),
    seed=st.integers(0, 99),
    kind=st.sampled_from(["nngp", "ntk"]),
)
def test_networks_on_images(net: inf.Sequential, channels: int, seed: int, kind: str):
    check(net, inputs((channels, 4, 3), seed), kind)
