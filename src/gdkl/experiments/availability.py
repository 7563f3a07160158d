"""What cannot be run here, found before anything is: a dataset without a copy, an estimator that does not exist."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gdkl.datasets import MissingDatasetError
from gdkl.experiments.results import grouped
from gdkl.experiments.spec import Cell, Spec
from gdkl.numerics import GdklError, OptionError


def unavailable(spec: Spec, cells: Sequence[Cell], data_dir: Path | None) -> dict[str, list[Cell]]:
    """Cells that cannot be run, by the reason in words."""
    from gdkl.experiments.trial import estimator_class  # noqa: PLC0415  (estimators take seconds to import)

    reasons: dict[str, list[Cell]] = {}
    # Images take long to read, and all cells of an experiment need the same ones: the first cell finds out.
    for own in [] if spec.images else grouped(cells, lambda cell: cell.dataset):
        try:
            spec.data(own[0], data_dir, own[0].settings.get("validation", 0))
        except MissingDatasetError as error:
            reasons.setdefault(str(error), []).extend(own)
        except GdklError:
            pass  # what else is wrong the cell itself will say
    missing = {cell.dataset for own in reasons.values() for cell in own}
    for own in grouped([cell for cell in cells if cell.dataset not in missing], lambda cell: cell.method):
        try:
            estimator_class(spec.methods[own[0].method])
        except OptionError as error:
            reasons.setdefault(str(error), []).extend(own)
    return reasons
