"""Gram matrices too large for one device: tiles as joblib tasks on all of them, into one file, resumable.

A tile is done when it has been written to the file on disk *and* noted in a journal beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gdkl.infinite.arrays import ArrayLike, read_inputs, whole_number
from gdkl.infinite.gram import Progress, checked_work
from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.precise import Kind, known_kind
from gdkl.infinite.store import content_key, npy_path
from gdkl.numerics import DEFAULT_BUDGET, OptionError, chunk_slices, resolve_device

#: Rows and columns of a tile.
TILE = 4096


def tiled_kernel(
    net: InfiniteNetwork,
    x1: ArrayLike,
    x2: ArrayLike | None = None,
    kind: Kind = "nngp",
    *,
    out: str | os.PathLike[str],
    devices: str | torch.device | Sequence[str | torch.device] | None = None,
    tile: int = TILE,
    memory: int = DEFAULT_BUDGET,
    progress: Progress | None = None,
) -> npt.NDArray[Any]:
    """Covariances of all pairs, computed tile by tile on several devices and written to a file.

    Tiles are joblib tasks: threads of this process, or, under ``joblib.parallel_config(backend=...)``, processes or
    the machines of a cluster that share the file's folder. Call it again after an interruption, with the same
    network, data and file, and it goes on.

    Args:
        net: The network.
        x1: First set of inputs.
        x2: Second set; None for the first again, which takes half the work.
        kind: ``"nngp"`` or ``"ntk"``.
        out: The ``.npy`` file; it appears under this name when it is complete.
        devices: Where tiles are computed, in turn, or one device; None for all CUDA devices, or else the CPU.
        tile: Rows and columns of a tile.
        memory: Bytes that a tile's work may take on its device beside the tile.
        progress: Called with the number of pairs done and of all pairs, after each tile.

    Returns:
        The file, mapped into memory, shape ``(n1, n2)``; `InfiniteNetwork.kernel` says which errors are raised.

    Example:
        >>> import tempfile
        >>> import gdkl.infinite as inf
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     inf.tiled_kernel(inf.mlp(), np.eye(3), out=f"{folder}/kernel.npy", devices=["cpu"]).shape
        (3, 3)
    """
    inputs = read_inputs(x1, x2)
    known_kind(kind)
    side = whole_number(tile, "tile", least=1)
    # All is checked before anything is written.
    work = checked_work(memory, None, progress)
    first = inputs.x1.detach().cpu()
    second = first if inputs.x2 is None else inputs.x2.detach().cpu()
    chosen = _chosen(devices)
    shape = (first.shape[0], second.shape[0])
    symmetric = inputs.x2 is None
    key = f"{content_key(net.spec_for('tiled_kernel'), kind, first, None if symmetric else second)} {side}"
    file = _Unfinished(npy_path(out), shape, np.float32 if first.dtype == torch.float32 else np.float64, key)
    parts = [
        (rows, columns)
        for rows in chunk_slices(shape[0], side)
        for columns in chunk_slices(shape[1], side)
        if not symmetric or columns.start >= rows.start
    ]
    left = [part for part in parts if f"{part[0].start} {part[1].start}" not in file.done]

    def entries(rows: slice, columns: slice) -> int:
        number = (rows.stop - rows.start) * (columns.stop - columns.start)
        return 2 * number if symmetric and rows != columns else number

    report = work.reporter(shape[0] * shape[1], shape[0] * shape[1] - sum(entries(*part) for part in left))

    def tasks() -> Iterator[Any]:
        for number, (rows, columns) in enumerate(left):
            same = symmetric and rows == columns
            other = None if same else second[columns]
            where = (rows, columns, symmetric and not same)
            device = chosen[number % len(chosen)]
            yield joblib.delayed(_compute)(net, first[rows], other, kind, device, work.memory, str(file.partial), where)

    parallel: Any = joblib.Parallel(n_jobs=len(chosen), return_as="generator_unordered", prefer="threads")
    for rows, columns in parallel(tasks()):
        file.append(f"{rows.start} {columns.start}")
        report(entries(rows, columns))
    return file.finish()


def _chosen(devices: Any) -> list[str]:
    """The names of devices, one or several or all that there are."""
    if devices is None:
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())] or ["cpu"]
    if isinstance(devices, str | torch.device):
        devices = [devices]
    if not isinstance(devices, Sequence) or not devices:
        raise OptionError(f"devices must name at least one device, such as ['cuda:0', 'cuda:1']; got {devices!r}.")
    return [str(resolve_device(device)) for device in devices]


def _compute(
    net: InfiniteNetwork,
    x1: Tensor,
    x2: Tensor | None,
    kind: Kind,
    device: str,
    memory: int,
    path: str,
    where: tuple[slice, slice, bool],
) -> tuple[slice, slice]:
    """One tile: computed on a device, written to the file, mirrored if asked for."""
    rows, columns, mirrored = where
    K = net.kernel(x1.to(device), None if x2 is None else x2.to(device), kind, memory=memory).cpu().numpy()
    array = np.lib.format.open_memmap(path, mode="r+")
    array[rows, columns] = K
    if mirrored:
        array[columns, rows] = K.T
    array.flush()
    return rows, columns


class _Unfinished:
    """A matrix on disk that is not complete yet, and the journal of what is."""

    def __init__(self, path: Path, shape: tuple[int, int], dtype: Any, key: str) -> None:
        self.path = path
        self.partial, self.journal = path.with_suffix(".partial.npy"), path.with_suffix(".journal")
        lines = self.journal.read_text().split("\n") if self.journal.exists() and self.partial.exists() else []
        #: Tiles that are done; a line that was cut off in the middle has no end and does not count.
        self.done = set(lines[1:-1]) if lines and lines[0] == key else set[str]()
        if not self.done:
            self.journal.unlink(missing_ok=True)
            array = np.lib.format.open_memmap(self.partial, mode="w+", dtype=dtype, shape=shape)
            array.flush()
            self.append(key)

    def append(self, line: str) -> None:
        """Note the content, or that a tile is on the disk."""
        with self.journal.open("a") as file:
            file.write(f"{line}\n")
            file.flush()
            os.fsync(file.fileno())

    def finish(self) -> npt.NDArray[Any]:
        """Give the file its name."""
        self.partial.replace(self.path)
        self.journal.unlink(missing_ok=True)
        return np.load(self.path, mmap_mode="r+")
