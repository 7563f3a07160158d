"""``gdkl reproduce classes``: small tables, classified by GDKL and what it is compared with."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from gdkl.cli.failures import PIPE_WIDTH, say
from gdkl.paper import check_writable, classes, classes_table, read_result, standing, write_result


def reproduce_classes(
    names: Sequence[str],
    methods: Sequence[str],
    protocol: classes.Protocol,
    parts: Sequence[float],
    *,
    output: Path,
    device: torch.device,
) -> None:
    """Run every dataset, part and method whose result file is not there with the same settings; print one table."""
    folder = output / "classification"
    check_writable(folder)
    results: list[dict[str, Any]] = []
    for name in names:
        for part in parts:
            settings = replace(protocol, part=part)
            ready: dict[classes.Method, dict[str, Any]] = {}
            for method in map(classes.Method, methods):
                path = folder / f"{name}-{round(100 * part)}-{method}.json"
                found = read_result(path) if path.exists() else {}
                if found.get("protocol") == asdict(settings) and _of_today(found, settings):
                    say(f"{name} {part:.0%} {method}: kept from {path}")
                    results.append(found)
                    continue
                if method not in ready:
                    say(f"{name} {part:.0%} {method}: {settings.seeds} splits on {device}")
                    # GDKL and its student are one fit; the student's file is written in its turn, if it is not there.
                    pair = method is classes.Method.GDKL and classes.Method.GDKL_STUDENT in methods
                    asked = (method, classes.Method.GDKL_STUDENT) if pair else (method,)
                    ready |= classes.run_fitted(name, method, asked, settings, device=device)
                write_result(path, ready[method])
                results.append(ready[method])
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(classes_table(results))
    for line in standing(results):
        console.print(line, highlight=False)
    console.print(f"Result files: {folder}")


def _of_today(result: Mapping[str, Any], settings: classes.Protocol) -> bool:
    """Whether a result has the options that its method has now; one without a word of them counts as if it had."""
    if "options" not in result:
        return True
    return result["options"] == classes.current_options(result["dataset"], classes.Method(result["method"]), settings)
