"""What every infinite network must do, as a class to inherit from."""

from __future__ import annotations

import json
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import gdkl.infinite as inf

EPS = {torch.float64: 1e-14, torch.float32: 1e-5}


class NetworkContract(ABC):
    """Subclasses give a network and an input shape, and say where the kernel has no gradient."""

    shape: tuple[int, ...] = (5,)
    smooth_ntk = True
    kinds = ("nngp", "ntk")

    @abstractmethod
    def net(self) -> inf.InfiniteNetwork:
        """The network that is held to all of this."""

    def x(self, n: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(n, *self.shape, generator=generator, dtype=torch.float64).to(dtype)

    def hard(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """Identical, parallel, antipodal, zero, huge and tiny rows beside plain ones."""
        x = self.x(3, dtype=dtype)
        return torch.cat([x, x[:1], 3 * x[1:2], -x[:1], 0 * x[:1], 1e4 * x[2:], 1e-6 * x[2:]])

    @pytest.fixture(params=["nngp", "ntk"])
    def kind(self, request: pytest.FixtureRequest) -> str:
        if request.param not in self.kinds:
            pytest.skip("this network has no such kernel")
        return request.param

    @pytest.mark.parametrize("dtype", EPS, ids=str)
    def test_symmetric_exactly(self, kind: str, dtype: torch.dtype):
        K = self.net().kernel(self.hard(dtype), kind=kind)
        assert K.dtype == dtype
        assert torch.equal(K, K.T)
        assert torch.isfinite(K).all()

    @pytest.mark.parametrize("dtype", EPS, ids=str)
    def test_diagonal_is_the_diagonal(self, kind: str, dtype: torch.dtype):
        net, x = self.net(), self.hard(dtype)
        diagonal = net.diagonal(x, kind=kind)
        assert torch.equal(net.kernel(x, kind=kind).diagonal(), diagonal)
        # Against a copy the diagonal is not filled in but computed: it must come out the same.
        copied = net.kernel(x, x.clone(), kind=kind).diagonal()
        torch.testing.assert_close(copied, diagonal, rtol=EPS[dtype], atol=0)

    def test_symmetric_equals_cross(self, kind: str):
        net, x = self.net(), self.hard()
        self.close(net.kernel(x, kind=kind), net.kernel(x, x.clone(), kind=kind), x, kind)

    def close(self, a: Tensor, b: Tensor, x: Tensor, kind: str, tolerance: float = 1e-13) -> None:
        scale = self.net().diagonal(x, kind=kind).sqrt()
        floor = scale.max() * 1e-300 + 1e-300
        error = (a - b).abs() / (scale[:, None] * scale[None, :]).clamp_min(floor)
        assert float(error.max()) <= tolerance

    def test_batch_equals_loop(self, kind: str):
        net, x1, x2 = self.net(), self.x(3, seed=1), self.x(2, seed=2)
        looped = [[net.kernel(x1[i : i + 1], x2[j : j + 1], kind=kind)[0, 0] for j in range(2)] for i in range(3)]
        torch.testing.assert_close(
            net.kernel(x1, x2, kind=kind), torch.tensor(looped, dtype=torch.float64), rtol=1e-12, atol=1e-14
        )

    def test_transposed(self, kind: str):
        net, x1, x2 = self.net(), self.x(3, seed=1), self.x(2, seed=2)
        torch.testing.assert_close(
            net.kernel(x1, x2, kind=kind), net.kernel(x2, x1, kind=kind).T, rtol=1e-13, atol=1e-15
        )

    def test_positive_semidefinite(self, kind: str):
        net, x = self.net(), self.hard()
        K = net.kernel(x, kind=kind)
        # Scaled to unit diagonal, as rows of norm 1e4 would hide the others.
        scale = K.diagonal().sqrt()
        scale = torch.where(scale > 0, scale, 1)
        smallest = torch.linalg.eigvalsh(K / scale[:, None] / scale[None, :]).min()
        assert float(smallest) >= -1e-12

    def test_float32_agrees(self, kind: str):
        net, x = self.net(), self.hard(torch.float32)
        self.close(net.kernel(x, kind=kind).double(), net.kernel(x.double(), kind=kind), x.double(), kind, 2e-5)

    def test_arrays_give_arrays(self, kind: str):
        net, x = self.net(), self.x(3)
        K = net.kernel(x.numpy(), x[:2].numpy(), kind=kind)
        assert isinstance(K, np.ndarray)
        assert np.array_equal(K, net.kernel(x, x[:2], kind=kind).numpy())

    def test_gradient_is_right(self, kind: str):
        net, x = self.net(), self.x(3).requires_grad_()
        smooth = kind == "nngp" or self.smooth_ntk
        # Where rows coincide the NTK of a function with a kink has one too.
        rows = (torch.cat([x.detach(), x.detach()[:1]]) if smooth else self.x(2, seed=5)).requires_grad_()
        self.check_gradient(lambda a, b: net.kernel(a, b, kind=kind), x, rows)
        self.check_gradient(lambda a: net.kernel(a, kind=kind), rows)
        self.check_gradient(lambda a: net.diagonal(a, kind=kind), x)

    def check_gradient(self, function: Callable[..., Tensor], *inputs: Tensor) -> None:
        assert torch.autograd.gradcheck(function, inputs, fast_mode=True)

    @pytest.mark.parametrize("dtype", EPS, ids=str)
    def test_gradient_is_finite(self, kind: str, dtype: torch.dtype):
        x = self.hard(dtype).requires_grad_()
        K = self.net().kernel(x, kind=kind)
        (gradient,) = torch.autograd.grad(K.sum(), x, allow_unused=True)
        assert gradient is None or torch.isfinite(gradient).all()

    def test_gradient_does_not_change_values(self, kind: str):
        net, x = self.net(), self.hard()
        self.close(net.kernel(x, kind=kind), net.kernel(x.clone().requires_grad_(), kind=kind).detach(), x, kind)

    def test_spec_round_trip(self, kind: str):
        net, x = self.net(), self.x(3)
        again = inf.from_spec(json.loads(json.dumps(net.to_spec())))
        assert again.to_spec() == net.to_spec()
        assert torch.equal(again.kernel(x, kind=kind), net.kernel(x, kind=kind))

    def test_pickles(self):
        net, x = self.net(), self.x(3)
        assert torch.equal(pickle.loads(pickle.dumps(net)).kernel(x), net.kernel(x))
