"""Every stored case that our layers can build, in both precisions and both kinds."""

from __future__ import annotations

import pytest
import torch
from oracles import CASES, worst_error

import gdkl.infinite as inf
from gdkl.numerics import OptionError

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5}


def _buildable(name: str) -> bool:
    try:
        inf.from_spec(CASES[name]["layers"])
    except OptionError:
        return False
    return len(CASES[name]["input_shape"]) == 1


BUILDABLE = [name for name in CASES if _buildable(name)]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kind", ["nngp", "ntk"])
@pytest.mark.parametrize("name", BUILDABLE)
def test_matches_the_high_precision_kernel(name: str, kind: str, dtype: torch.dtype):
    assert worst_error(CASES[name], kind, dtype) <= TOLERANCE[dtype]


@pytest.mark.parametrize("name", BUILDABLE)
def test_spec_round_trip(name: str):
    layers = CASES[name]["layers"]
    assert inf.from_spec(layers).to_spec() == layers
