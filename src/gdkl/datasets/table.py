"""What a dataset is once it is loaded: inputs, targets, and their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A table of numbers that unpacks as ``X, y, feature_names, target_name``.

    Attributes:
        X: Inputs in float64, shape ``(n, d)``.
        y: Targets in float64, shape ``(n,)``, or ``(n, t)`` where the dataset has several.
        feature_names: One name for each column of ``X``.
        target_name: Name of the target; a tuple of names where there are several.
        name: Name of the dataset.

    Example:
        >>> import numpy as np
        >>> table = Table(np.zeros((3, 1)), np.arange(3.0), ("x",), "y", name="tiny")
        >>> X, y, feature_names, target_name = table
        >>> y
        array([0., 1., 2.])
        >>> table
        <Table tiny: 3 rows, 1 feature, target y>
    """

    X: FloatArray
    y: FloatArray
    feature_names: tuple[str, ...]
    target_name: str | tuple[str, ...]
    name: str

    def __iter__(self) -> Iterator[Any]:
        # The name stays out, so that the usual line `X, y, feature_names, target_name = load(...)` works.
        return iter((self.X, self.y, self.feature_names, self.target_name))

    def __repr__(self) -> str:
        rows, columns = self.X.shape
        features = "feature" if columns == 1 else "features"
        if isinstance(self.target_name, str):
            target = f"target {self.target_name}"
        else:
            target = f"targets {', '.join(self.target_name)}"
        return f"<Table {self.name}: {rows} rows, {columns} {features}, {target}>"
