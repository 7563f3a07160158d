"""Who took how long: seconds of all cells by experiment, method and device."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from gdkl.experiments.results import Line, grouped
from gdkl.experiments.summary import Rows


def timing_rows(lines: Sequence[Line]) -> Rows:
    """A row per experiment, method, number of rows and device: means over its cells, means over networks left out.

    Example:
        >>> one = {"experiment": "uci", "method": "gdkl", "size": None, "seed": 0, "settings": {}}
        >>> one |= {"seconds": {"fit": 2.0, "per_step": 0.004}, "versions": {"device": "cpu: x86_64", "gdkl": "0.2.0"}}
        >>> [row] = timing_rows([one]).values()
        >>> row["s per fit"], row["ms per step"]
        ('2.0', '4.0')
    """
    rows: dict[str, dict[str, str]] = {}
    timed = [line for line in lines if "fit" in line["seconds"] and not isinstance(line["seed"], list)]
    for own in grouped(timed, _identity):
        first = own[0]
        quick = ", quick" if first["settings"].get("quick") else ""
        row = {
            "experiment": first["experiment"] + quick,
            "rows": "" if first["size"] is None else f"{first['size']:g}",
            "method": first["method"],
            "device": first["versions"].get("device", "?"),
            "version": first["versions"].get("gdkl", "?"),
            "cells": str(len(own)),
        }
        for title, name, factor in (("s per fit", "fit", 1.0), ("ms per step", "per_step", 1000.0)):
            values = [factor * line["seconds"][name] for line in own if name in line["seconds"]]
            row[title] = f"{np.mean(values):.1f}" if values else ""
        rows[_identity(first)] = row
    return rows


def _identity(line: Line) -> str:
    version = line["versions"]
    fields = [line["experiment"], line["size"], line["method"], version.get("device"), version.get("gdkl")]
    return json.dumps([*fields, bool(line["settings"].get("quick"))])
