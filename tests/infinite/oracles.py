"""The stored high-precision kernels, and the one way in which errors against them are measured."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gdkl.infinite as inf

DATA = Path(__file__).parent / "data"
INDEX = json.loads((DATA / "nngp_public.json").read_text())
CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in INDEX["cases"]}


@cache
def arrays() -> dict[str, np.ndarray]:
    with np.load(DATA / "nngp_public.npz") as stored:
        return {key: stored[key] for key in stored.files}


def inputs(case: dict[str, Any], which: str, dtype: torch.dtype) -> torch.Tensor:
    x = torch.from_numpy(arrays()[case[which]]).to(dtype)
    return x.permute(0, 3, 1, 2).contiguous() if x.ndim == 4 else x


def worst_error(case: dict[str, Any], kind: str, dtype: torch.dtype) -> float:
    """Largest error of _11, _12 and _diag2 relative to the diagonal scale of the high-precision arrays."""
    net = inf.from_spec(case["layers"])
    x1, x2 = inputs(case, "x1", dtype), inputs(case, "x2", dtype)
    ours = {
        "11": net.kernel(x1, kind=kind),
        "12": net.kernel(x1, x2, kind=kind),
        "diag2": net.diagonal(x2, kind=kind),
    }
    hp = {key: arrays()[f"{case['name']}/{kind}_{key}_hp"] for key in ours}
    d1, d2 = np.sqrt(hp["11"].diagonal()), np.sqrt(hp["diag2"])
    scale = {"11": np.outer(d1, d1), "12": np.outer(d1, d2), "diag2": d2 * d2}
    return max(float((abs(ours[key].double().numpy() - hp[key]) / scale[key]).max()) for key in ours)
