"""The one program that layers emit: its analysis, its simplified form, and formulas recorded for a CPU."""

from __future__ import annotations

import pytest
import torch
from emulated import emulate

import gdkl.infinite as inf
from gdkl.infinite.buffers import BufferPool
from gdkl.infinite.covariance import CovarianceEngine
from gdkl.infinite.engines import engine_for
from gdkl.infinite.formulas import (
    ArcFraction,
    ArcPolynomial,
    ArcSine,
    Bump,
    ErrorFunction,
    ErrorLinear,
    Formula,
    Normalised,
    Wave,
)
from gdkl.infinite.fused.lower import lower
from gdkl.infinite.gram import Work
from gdkl.infinite.precise import PreciseEngine
from gdkl.infinite.program import Add, Affine, Apply, Convolve, Save, Sum, Swap, UnsupportedError, simplified
from gdkl.infinite.tape import Eager, Tape

FORMULAS = [
    *(arc(ratio) for arc in (ArcFraction, ArcPolynomial, ArcSine) for ratio in (1.0, 0.3)),
    *(ErrorFunction(2.0, 0.6, 0.1), Wave(1.5, 0.7, 0.3), Bump(0.8, 2.0), ErrorLinear(), Normalised(0.1)),
]


@pytest.mark.parametrize("formula", FORMULAS, ids=repr)
@pytest.mark.parametrize("keep", [False, True])
def test_a_tape_computes_its_formula(formula: Formula, keep: bool):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (4, 5))
    k, machine = x @ y.T / 6, Eager(x)
    first, second = (formula.factors(machine, x.square().mean(1)), formula.factors(machine, y.square().mean(1)))
    left, right = [factor[:, None] for factor in first], [factor[None, :] for factor in second]
    expected = 0.4 * formula.pair(machine, k, left, right) + 0.2
    pool, before = BufferPool(torch.float64, k.device), k.clone()
    result = Tape(formula, 0.4, 0.2, careful=False)(k, left, right, pool, keep=keep)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-14)
    if keep:
        torch.testing.assert_close(k, before, rtol=0, atol=0)


def test_the_approximations_of_one_function_agree():
    c = torch.linspace(-1, 1, 1001, dtype=torch.float64)
    one = [torch.ones_like(c)]
    exact = ArcSine(0.3).pair(Eager(c), c, one * 2, one * 2)
    for formula in (ArcFraction(0.3), ArcPolynomial(0.3)):
        assert (formula.pair(Eager(c), c, one, one) - exact).abs().max() < 3e-8


def test_simplified_programs_multiply_once():
    block = inf.Residual(inf.Sequential(inf.ReLU(), inf.Conv2d(3, 1, "same", weight_var=2.0)))
    net = inf.Sequential(inf.Conv2d(1, weight_var=3.0), block, inf.Flatten(), inf.Linear(4.0), inf.Linear(5.0, 0.1))
    ops = simplified(net.program(), (2, 8, 8), ArcPolynomial, least_eps=0.0)
    # An identity shortcut needs no Swap; the factors 1/64, 4 and 5 meet in one operation.
    assert [type(op) for op in ops] == [Convolve, Save, Apply, Convolve, Add, Sum, Affine]
    assert ops[0].w == 1.5
    assert ops[3].w == 1.0
    assert ops[-1] == Affine(20 / 64, 0.1)


@pytest.mark.parametrize("net", [inf.Identity(), inf.Linear(), inf.Linear(2.0, 0.5), inf.ABReLU(2.0, 2.0)], ids=repr)
def test_programs_of_next_to_nothing(net: inf.InfiniteNetwork):
    x = torch.tensor([[2.0], [-3.0]])
    w, b = {"Linear(weight_var=2.0, bias_var=0.5)": (2.0, 0.5), "ABReLU(a=2.0, b=2.0)": (4.0, 0.0)}.get(
        repr(net), (1.0, 0.0)
    )
    torch.testing.assert_close(net.kernel(x), w * x @ x.T + b)


def test_pairs_of_pixels_end_with_the_last_pooling_of_either_branch():
    pooled, plain = inf.AvgPool2d(3, 1, "same"), inf.Conv2d(1)
    for branches, expected in (((pooled, plain), [True, False, False, False, False]),
                               ((plain, pooled), [False, False, True, False, False])):  # fmt: skip
        program = inf.Residual(*branches).program()
        assert [type(op) for op in program.ops if not isinstance(op, Convolve)].count(Swap) == 1
        assert program.pairs_ahead() == expected


@pytest.mark.parametrize("first", [True, False])
def test_a_pooling_in_one_branch(first: bool):
    pooled, plain = inf.AvgPool2d(3, 1, "same"), inf.Conv2d(1, weight_var=1.0)
    net = inf.Sequential(inf.Residual(*((pooled, plain) if first else (plain, pooled))), inf.Flatten())
    parts = [inf.Sequential(layer, inf.Flatten()) for layer in (pooled, plain)]
    x = torch.randn(3, 2, 5, 4, dtype=torch.float64)
    torch.testing.assert_close(net.kernel(x), sum(part.kernel(x) for part in parts), rtol=1e-12, atol=1e-12)


def test_variances_are_replaced_where_they_are_positive():
    net = inf.Residual(inf.Sequential(inf.ReLU(), inf.Linear(2.0)), inf.Linear(3.0, 0.5))
    program = net.program()
    assert (program.variances("w"), program.variances("b")) == ([2.0, 3.0], [0.5])
    new = program.with_variances([4.0, 5.0], [0.6])
    assert [op for op in new.ops if isinstance(op, Affine)] == [Affine(4.0, 0.0), Affine(5.0, 0.6)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_all_engines_agree(dtype: torch.dtype):
    net, x = inf.wide_resnet(1), torch.randn(6, 2, 8, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    program = net.program()
    assert isinstance(engine_for(program, x, x, "nngp"), CovarianceEngine)
    results = []
    for engine in (PreciseEngine(program, x, x, "nngp"), CovarianceEngine(program, x, x)):
        K = torch.empty(6, 6, dtype=dtype)
        with torch.no_grad():
            engine.fill(K, symmetric=True, work=Work())
        results.append(K)
    results.append(torch.from_numpy(emulate(lower(program, x.shape[1:], dtype), x.numpy())[0]).to(dtype))
    tolerance = 2e-6 if dtype == torch.float32 else 1e-12
    for K in results[1:]:
        assert ((K - results[0]) / results[0].diagonal().max()).abs().max() <= tolerance


def test_engines_name_what_they_do_not_take():
    net = inf.Sequential(inf.Conv2d(3), inf.AvgPool2d(2), inf.Flatten())
    x = torch.zeros(1, 1, 8, 8)
    with pytest.raises(UnsupportedError, match="AvgPool2d"):
        CovarianceEngine(net.program(), x, x)
    with pytest.raises(UnsupportedError, match="Elementwise"):
        CovarianceEngine(inf.Elementwise(torch.tanh).program(), torch.zeros(1, 2), torch.zeros(1, 2))
