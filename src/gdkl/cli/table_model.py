"""A fitted model as the command line needs it: columns by name, predictions as columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gdkl.cli.columns import as_fitted, places
from gdkl.cli.nearest import nearest
from gdkl.cli.target import CLASSIFICATION, REGRESSION
from gdkl.numerics import DataError, ModelFileError

if TYPE_CHECKING:
    from gdkl.cli.table_files import TableFile
    from gdkl.inputs import ColumnCode

#: Rows that are predicted at a time: mixtures keep some dozen numbers for each.
PART_ROWS = 20_000


class TableModel:
    """A model of a table, read from its file.

    Attributes:
        estimator: The fitted estimator.
        task: Regression or classification.
        targets: Names of the targets; ``y`` where the model does not know them.
        columns: How each column is read; None for a model of an array, whose columns have no names.
    """

    def __init__(self, path: str):
        """Read a model file.

        Raises:
            ModelFileError: If there is no such file, or it is none, or its model is not one of a table.
        """
        from gdkl.estimators import load  # noqa: PLC0415  (torch takes seconds to import)

        file = Path(path)
        if not file.is_file():
            names = [entry.name for entry in file.parent.iterdir()] if file.parent.is_dir() else []
            raise ModelFileError(f"there is no file {path}: {nearest(file.name, names) or 'check the path'}.")
        self.estimator: Any = load(path)
        self.path = path
        self.task = CLASSIFICATION if hasattr(self.estimator, "classes_") else REGRESSION
        encoder = getattr(self.estimator.kind_.input, "encoder", None)
        self.columns: tuple[ColumnCode, ...] | None = None if encoder is None else encoder.columns
        outputs = 1 if self.task == CLASSIFICATION else len(self.estimator.target_.mean)
        plain = ["y"] if outputs == 1 else [f"y{k}" for k in range(outputs)]
        self.targets: list[str] = getattr(self.estimator, "target_names_", None) or plain

    @property
    def provenance(self) -> dict[str, Any]:
        """What `gdkl fit` noted of data, target and scores; empty for a model that was fitted in Python."""
        return getattr(self.estimator, "provenance_", {})

    @property
    def needed(self) -> list[str] | None:
        """Names of the columns that predictions depend on."""
        return None if self.columns is None else [str(code.name) for code in self.columns if not code.left_out]

    def require_table(self) -> None:
        """Refuse a model of images."""
        if getattr(self.estimator, "image_shape_", None) is not None:
            raise ModelFileError(f"{self.path} is a model of images: predict in Python, gdkl.load({self.path!r}).")

    def rows(self, table: TableFile, batch: Any, first_row: int = 0) -> Any:
        """Rows of a file as the estimator takes them: columns by name in the order of ``fit``, others left out.

        Args:
            table: The file.
            batch: Some rows of it, or all.
            first_row: Number of the first.

        Raises:
            DataError: If a column is missing, or has cells of another type.
        """
        import numpy as np  # noqa: PLC0415
        import pandas as pd  # noqa: PLC0415

        decimal = table.dialect.decimal if table.dialect else "."
        try:
            if self.columns is None:
                return self._array(table, batch, decimal, first_row)
            where = dict(zip(self.needed or [], places(self.needed or [], table.names, table.name), strict=True))
            empty = pd.Series(np.full(batch.num_rows, np.nan))
            cells = [
                as_fitted(code, batch.column(where[str(code.name)]), decimal, first_row)
                if str(code.name) in where
                else empty
                for code in self.columns
            ]
        except DataError as error:
            prefix = "" if table.name in str(error) else f"{table.name}: "
            raise DataError(f"{prefix}{error}") from error
        frame = pd.concat(cells, axis=1)
        frame.columns = pd.Index([code.name for code in self.columns])
        return frame

    def _array(self, table: TableFile, batch: Any, decimal: str, first_row: int) -> Any:
        """Rows for a model that was fitted to an array: all columns in the order of the file."""
        import numpy as np  # noqa: PLC0415

        from gdkl.inputs import ColumnCode  # noqa: PLC0415

        expected = self.estimator.n_features_in_
        if len(table.names) != expected:
            raise DataError(
                f"{table.name} has {len(table.names)} columns, and the model was fitted to an array of {expected} "
                "without names: give these alone, in the order of the fit."
            )
        cells = [
            as_fitted(ColumnCode(name), batch.column(place), decimal, first_row)
            for place, name in enumerate(table.names)
        ]
        return np.stack([np.asarray(column, dtype=np.float64) for column in cells], axis=1)

    def names_of_predictions(self, coverage: float) -> list[str]:
        """Names of the columns that `predictions` returns."""
        if self.task == CLASSIFICATION:
            return [f"{self.targets[0]}_predicted", *(f"p_{label}" for label in self.estimator.classes_.tolist())]
        percent = f"{100 * coverage:.10g}"
        ends = ("mean", "std", f"lower_{percent}", f"upper_{percent}")
        return [f"{target}_{end}" for target in self.targets for end in ends]

    def predictions(self, rows: Any, coverage: float) -> list[Any]:
        """Columns of predictions, arrays with an entry per row."""
        p = self.estimator.predict_distribution(rows)
        if self.task == CLASSIFICATION:
            # Arrow would write truth values in another spelling than the names of the columns.
            labels = p.mode.astype(str) if p.mode.dtype.kind == "b" else p.mode
            return [labels, *p.probs.T]
        parts = [p.mean, p.std, *p.interval(coverage)]
        if len(p.shape) == 1:
            return parts
        return [part[:, k] for k in range(p.shape[1]) for part in parts]

    def distribution(self, rows: Any) -> Any:
        """The whole predictive distribution at many rows, computed a part at a time."""
        from gdkl.numerics import chunk_slices  # noqa: PLC0415
        from gdkl.predictive import ClassPredictive  # noqa: PLC0415

        if self.task == REGRESSION:
            # It reads long tables in parts itself.
            return self.estimator.predict_distribution(rows)
        import numpy as np  # noqa: PLC0415

        pick: Any = getattr(rows, "iloc", rows)
        parts = [self.estimator.predict_distribution(pick[part]) for part in chunk_slices(len(rows), PART_ROWS)]
        joined = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("log_probs", "latent_mean", "latent_variance")
        )
        log_probs, mean, variance = joined
        return ClassPredictive(log_probs, self.estimator.classes_, mean, variance)
