"""``gdkl reproduce large``: tables of thousands of rows, by GDKL with inducing points and what it is compared with."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from gdkl.cli.failures import PIPE_WIDTH, say
from gdkl.paper import check_writable, large, large_table


def reproduce_large(
    names: Sequence[str],
    methods: Sequence[str],
    protocol: large.Protocol,
    *,
    data_dir: Path | None,
    output: Path,
    device: torch.device,
) -> None:
    """Run every dataset and method, split by split, leaving out what the result files have; print one table."""
    folder = output / "large"
    check_writable(folder)
    results = [
        large.run(
            name,
            large.Method(method),
            protocol,
            folder / f"{name}-{method}.json",
            data_dir=data_dir,
            device=device,
            say=say,
        )
        for name in names
        for method in methods
    ]
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(large_table(results))
    console.print(f"Result files: {folder}")
