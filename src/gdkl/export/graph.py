"""ONNX graphs written as arithmetic: operators of values add nodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gdkl._version import __version__
from gdkl.numerics import ModelFileError, OptionError, write_atomically

if TYPE_CHECKING:
    import onnx

#: What stands beside a value in an expression.
Operand: TypeAlias = "Value | NDArray[Any] | float"

#: Operators of 2022, which runtimes have had for years, and those of machine learning for text.
_OPERATORS, _TEXT_OPERATORS, _FORMAT = 17, 3, 8

#: What one file can hold; the rest of two gigabytes is for nodes.
_MOST_BYTES = 2**31 - 2**24


class Graph:
    """Nodes, constants, inputs and outputs; all numbers are in double precision.

    Example:
        >>> graph = Graph()
        >>> x = graph.input("x", np.float64, (None, 2))
        >>> graph.output("y", (2 * x + 1.0).sum(-1), (None,))
        >>> [node.op_type for node in graph.model({}).graph.node]
        ['Mul', 'Add', 'ReduceSum', 'Identity']
    """

    def __init__(self, names: set[str] | None = None):
        try:
            import onnx  # noqa: PLC0415  (an extra)
        except ImportError as error:
            raise OptionError("ONNX files need the package onnx: pip install 'gdkl[onnx]'.") from error
        self._onnx: Any = onnx
        self._names = set[str]() if names is None else names
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._bytes = 0

    def input(self, name: str, kind: type, shape: Sequence[int | None]) -> Value:
        """What the caller gives, of NumPy's ``float64`` or of ``str``."""
        if name in self._names:
            raise ModelFileError(f"two columns are called {name!r}, and each is an input of its own: rename one.")
        self._names.add(name)
        self._inputs.append(self._described(name, kind, shape))
        return Value(self, name)

    def output(self, name: str, value: Value, shape: Sequence[int | None], kind: type = np.float64) -> None:
        """What the caller gets; underscores are added to a name that an input has."""
        own = self._unused(name, "_")
        self._nodes.append(self._onnx.helper.make_node("Identity", [value.name], [own]))
        self._outputs.append(self._described(own, kind, shape))

    def constant(self, array: NDArray[Any] | float) -> Value:
        """Numbers, truth values or text, as they are."""
        values, name = np.asarray(array), self._new_name()
        self._bytes += values.nbytes
        if self._bytes > _MOST_BYTES:
            raise ModelFileError(
                "the model has more numbers than the two gigabytes of an ONNX file: fit with inference='sparse', or to "
                "fewer rows."
            )
        if values.dtype.kind in "UO":
            text = [str(value).encode() for value in values.ravel()]
            tensor = self._onnx.helper.make_tensor(name, self._onnx.TensorProto.STRING, values.shape, text)
        else:
            tensor = self._onnx.numpy_helper.from_array(np.array(values, order="C"), name)
        self._constants.append(tensor)
        return Value(self, name, "one number" if values.size == 1 else "")

    def op(self, kind: str, *operands: Operand, **attributes: Any) -> Value:
        """One node with one result."""
        values, role = [self._value(operand) for operand in operands], ""
        if kind == "MatMul":
            values, role = [self._apart(value, "factor") for value in values], "product"
        elif kind in ("Mul", "Div") and any(value.role == "one number" for value in values):
            values, role = [self._apart(value, "product") for value in values], "factor"
        name = self._new_name()
        self._nodes.append(self._onnx.helper.make_node(kind, [value.name for value in values], [name], **attributes))
        return Value(self, name, role)

    def accumulate(self, start: Value, blocks: NDArray[np.float64], step: Callable[[Value], Value]) -> Value:
        """``start`` and the sum of ``step(block)`` over blocks along the first axis, of which one is in memory.

        The first operand of each operation in ``step`` must descend from the block: that puts it into the loop.
        """
        body, helper = Graph(self._names), self._onnx.helper
        total, block = (Value(body, self._new_name()) for _ in range(2))
        # An operation belongs to the graph of its first operand.
        result = total + step(block)
        kinds = [helper.make_tensor_value_info(v.name, self._onnx.TensorProto.DOUBLE, None) for v in (total, block)]
        after = helper.make_tensor_value_info(result.name, self._onnx.TensorProto.DOUBLE, None)
        inner = helper.make_graph(body._nodes, self._new_name(), kinds, [after], body._constants)
        return self.op("Scan", start, blocks, body=inner, num_scan_inputs=1)

    def model(self, notes: Mapping[str, str]) -> onnx.ModelProto:
        """The whole, with notes beside it."""
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, "gdkl", self._inputs, self._outputs, self._constants)
        versions = [helper.make_opsetid("", _OPERATORS), helper.make_opsetid("ai.onnx.ml", _TEXT_OPERATORS)]
        model = helper.make_model(
            graph, opset_imports=versions, ir_version=_FORMAT, producer_name="gdkl", producer_version=__version__
        )
        helper.set_model_props(model, dict(notes))
        return model

    def write(self, path: str | os.PathLike[str], notes: Mapping[str, str]) -> None:
        """The whole as a file, complete or not there."""
        content = self.model(notes).SerializeToString()
        write_atomically(path, lambda file: file.write(content))

    def _value(self, operand: Operand) -> Value:
        if isinstance(operand, Value):
            return operand
        return self.constant(float(operand) if isinstance(operand, (int, float)) else operand)

    def _apart(self, value: Value, role: str) -> Value:
        """A value of this role behind a node that changes nothing.

        Where one number multiplies a matrix product or what goes into it, onnxruntime (1.31) makes one operation of
        both, with the number in single precision.
        """
        return self.op("Max", value, -np.inf) if value.role == role else value

    def _described(self, name: str, kind: type, shape: Sequence[int | None]) -> Any:
        element = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(object if kind is str else kind))
        return self._onnx.helper.make_tensor_value_info(name, element, ["rows" if n is None else n for n in shape])

    def _unused(self, name: str, suffix: str) -> str:
        while name in self._names:
            name += suffix
        self._names.add(name)
        return name

    def _new_name(self) -> str:
        return self._unused(f"v{len(self._names)}", "'")


class Value:
    """One array of a graph. The usual operators broadcast as NumPy's do."""

    # NumPy leaves an expression with one of its arrays on the left to us.
    __array_ufunc__ = None

    def __init__(self, graph: Graph, name: str, role: str = ""):
        self.graph = graph
        self.name = name
        #: A constant of ``one number``, a matrix ``product``, or the result of a ``factor`` that is one number.
        self.role = role

    def __add__(self, other: Operand) -> Value:
        return self.graph.op("Add", self, other)

    def __sub__(self, other: Operand) -> Value:
        return self.graph.op("Sub", self, other)

    def __mul__(self, other: Operand) -> Value:
        return self.graph.op("Mul", self, other)

    def __truediv__(self, other: Operand) -> Value:
        return self.graph.op("Div", self, other)

    def __matmul__(self, other: Operand) -> Value:
        return self.graph.op("MatMul", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.graph.op("Add", other, self)

    def __rsub__(self, other: Operand) -> Value:
        return self.graph.op("Sub", other, self)

    def __rmul__(self, other: Operand) -> Value:
        return self.graph.op("Mul", other, self)

    @cached_property
    def square(self) -> Value:
        """Elementwise square."""
        return self * self

    def map(self, kind: str) -> Value:
        """An elementwise operator such as ``Exp``."""
        return self.graph.op(kind, self)

    def sum(self, axis: int, *, keep: bool = False) -> Value:
        """Sum over an axis."""
        return self.graph.op("ReduceSum", self, np.array([axis]), keepdims=int(keep))

    def between(self, low: Operand | None, high: Operand | None) -> Value:
        """No less than ``low`` and no more than ``high``, either of which may be missing."""
        value = self if low is None else self.graph.op("Max", self, low)
        return value if high is None else self.graph.op("Min", value, high)

    def insert(self, axis: int) -> Value:
        """With a further axis of length one."""
        return self.graph.op("Unsqueeze", self, np.array([axis]))

    def take(self, index: NDArray[Any] | int | Value, axis: int) -> Value:
        """Some entries along an axis; a single number removes it."""
        places = index if isinstance(index, Value) else np.asarray(index, dtype=np.int64)
        return self.graph.op("Gather", self, places, axis=axis)


def join(values: Sequence[Value], axis: int) -> Value:
    """Values one behind the other."""
    return values[0] if len(values) == 1 else values[0].graph.op("Concat", *values, axis=axis)


def log1p(x: Value) -> Value:
    """log(1 + x) for x ≥ 0, with the digits that 1 + x loses: ONNX has the plain logarithm alone.

    With u = 1 + x rounded, log(u) / (u − 1) changes so slowly that the rounding of u does not matter.
    """
    u, graph = 1.0 + x, x.graph
    lost = graph.op("Equal", u, 1.0)
    return graph.op("Where", lost, x, u.map("Log") * x / graph.op("Where", lost, 1.0, u - 1.0))
