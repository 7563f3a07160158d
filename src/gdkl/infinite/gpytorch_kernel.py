"""Infinite-width networks as GPyTorch kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel
from torch import Tensor

from gdkl.infinite.arrays import read_inputs
from gdkl.infinite.gram import Work
from gdkl.infinite.network import InfiniteNetwork, kernel_matrix
from gdkl.infinite.precise import Kind, known_kind, matched_kernel
from gdkl.numerics import DataError, OptionError


class InfiniteWidthKernel(Kernel):
    """The NNGP or NTK of a network, for GPyTorch and BoTorch models.

    The variances of all layers are parameters: ``weight_var`` holds one for each layer with weights, in
    the order of the network, and ``bias_var`` one for each layer with biases. A variance of zero stays zero.

    Args:
        net: The network; its variances are where the parameters start.
        kind: ``"nngp"`` or ``"ntk"``.
        input_shape: Shape ``(channels, height, width)`` of images that come as flat rows; None for vectors.
        learn: Whether gradients reach the variances.
        weight_constraint: Constraint of the weight variances; positive by default.
        bias_constraint: Constraint of the bias variances; positive by default.
        batch_shape: Shape of a batch of kernels, each with variances of its own.
        active_dims: Columns of the inputs to use.

    Example:
        >>> import gdkl.infinite as inf
        >>> kernel = inf.InfiniteWidthKernel(inf.mlp(hidden_layers=1))
        >>> kernel.weight_var
        tensor([1.6000, 1.6000], grad_fn=<SoftplusBackward0>)
    """

    has_lengthscale = False

    def __init__(
        self,
        net: InfiniteNetwork,
        kind: Kind = "nngp",
        *,
        input_shape: Sequence[int] | None = None,
        learn: bool = True,
        weight_constraint: Interval | None = None,
        bias_constraint: Interval | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: Any = None,
    ) -> None:
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        if not isinstance(net, InfiniteNetwork):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"net must be a network of gdkl.infinite; got {type(net).__name__}.")
        self.net = net
        self.kind: Kind = known_kind(kind)
        self.input_shape = None if input_shape is None else tuple(int(size) for size in input_shape)
        if self.input_shape is not None and (len(self.input_shape) != 3 or min(self.input_shape) < 1):
            raise OptionError(f"input_shape must be (channels, height, width); got {input_shape!r}.")
        program = net.program()
        starts = {"weight_var": program.variances("w"), "bias_var": program.variances("b")}
        constraints = {"weight_var": weight_constraint, "bias_var": bias_constraint}
        for name, values in starts.items():
            start = torch.tensor(values).expand(*self.batch_shape, len(values)).clone()
            raw = torch.nn.Parameter(torch.zeros_like(start), requires_grad=learn)
            self.register_parameter(f"raw_{name}", raw)
            self.register_constraint(f"raw_{name}", constraints[name] or Positive())
            self._set(name, start)

    @property
    def weight_var(self) -> Tensor:
        """Weight variances that are not zero, shape ``(*batch_shape, layers)``."""
        return self._get("weight_var")

    @weight_var.setter
    def weight_var(self, value: Any) -> None:
        self._set("weight_var", value)

    @property
    def bias_var(self) -> Tensor:
        """Bias variances that are not zero, shape ``(*batch_shape, layers)``."""
        return self._get("bias_var")

    @bias_var.setter
    def bias_var(self, value: Any) -> None:
        self._set("bias_var", value)

    def _get(self, name: str) -> Tensor:
        return getattr(self, f"raw_{name}_constraint").transform(getattr(self, f"raw_{name}"))

    def _set(self, name: str, value: Any) -> None:
        raw: Tensor = getattr(self, f"raw_{name}")
        value = torch.as_tensor(value, dtype=raw.dtype, device=raw.device).expand(raw.shape)
        self.initialize(**{f"raw_{name}": getattr(self, f"raw_{name}_constraint").inverse_transform(value)})

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor:
        """Covariances ``(*batch, n, m)`` of inputs ``(*batch, n, d)``; with ``diag`` of equal rows, ``(*batch, n)``."""
        del params
        same = x1 is x2 or (not (x1.requires_grad or x2.requires_grad) and torch.equal(x1, x2))
        if last_dim_is_batch:
            x1, x2 = (x.transpose(-1, -2).unsqueeze(-1) for x in (x1, x2))
        # Features count as the last axis of the batch, and every kernel of a batch takes all of them.
        own = (*self.batch_shape, 1) if last_dim_is_batch and self.batch_shape else self.batch_shape
        batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2], own)
        first, second = (
            x.expand(*batch, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) if batch else x[None] for x in (x1, x2)
        )
        members = first.shape[0]
        weights, biases = (
            v.reshape(*own, v.shape[-1]).expand(*batch, v.shape[-1]).reshape(members, v.shape[-1]).to(x1.dtype)
            for v in (self.weight_var, self.bias_var)
        )
        results = [
            self._one(first[i], None if same else second[i], weights[i], biases[i], diag=diag) for i in range(members)
        ]
        return torch.stack(results).reshape(*batch, *results[0].shape)

    def _images(self, x: Tensor) -> Tensor:
        if self.input_shape is None:
            return x
        if x.shape[-1] != math.prod(self.input_shape):
            raise DataError(f"rows of {x.shape[-1]} numbers are not images of shape {self.input_shape}.")
        return x.reshape(*x.shape[:-1], *self.input_shape)

    def _one(self, x1: Tensor, x2: Tensor | None, weights: Tensor, biases: Tensor, *, diag: bool) -> Tensor:
        """The kernel of one member of the batch."""
        inputs = read_inputs(self._images(x1), None if x2 is None else self._images(x2))
        learning = torch.is_grad_enabled() and (weights.requires_grad or biases.requires_grad)
        gradient = learning or inputs.needs_grad
        variances = [values.unbind() if gradient else values.tolist() for values in (weights, biases)]
        program, inputs = self.net.program().with_variances(*variances).start(inputs)
        if diag:
            return matched_kernel(program, inputs.x1, inputs.x2, self.kind, gradient=gradient)
        return kernel_matrix(program, inputs, self.kind, Work(), learning=learning)
