"""A torch network as a graph of its operations, in which changes in place are told from new tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import fx, nn

#: Operators that change the tensor on their left, under which other names see the change too.
IN_PLACE = (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow, operator.imatmul)


class Tracer(fx.Tracer):
    """Traces into the user's modules, and stops at those of torch."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is a layer, and not put together from layers."""
        # A subclass that computes something else is no such layer any more.
        own = type(m).forward in (nn.Linear.forward, nn.Conv2d.forward)
        return own or super().is_leaf_module(m, module_qualified_name)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """What stands for the result of an operation."""
        return _Proxy(node, self)


class _Proxy(fx.Proxy):
    """Stands for a tensor while a network is traced, and tells ``a += b`` from ``a = a + b``.

    torch's own takes both for the latter, with which another name for the same tensor would not see the change.
    """

    def _changed(self, by: Callable[..., Any], other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", by, (self, other), {})


def _in_place(by: Callable[..., Any]) -> Callable[[_Proxy, Any], fx.Proxy]:
    return lambda self, other: self._changed(by, other)


for _by in IN_PLACE:
    setattr(_Proxy, f"__{_by.__name__}__", _in_place(_by))
