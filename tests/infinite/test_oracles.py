"""Every stored case, in both precisions and both kinds."""

from __future__ import annotations

import pytest
import torch
from oracles import CASES, worst_error

import gdkl.infinite as inf

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kind", ["nngp", "ntk"])
@pytest.mark.parametrize("name", CASES)
def test_matches_the_high_precision_kernel(name: str, kind: str, dtype: torch.dtype):
    assert worst_error(CASES[name], kind, dtype) <= TOLERANCE[dtype]


@pytest.mark.parametrize("name", CASES)
def test_spec_round_trip(name: str):
    layers = CASES[name]["layers"]
    assert inf.from_spec(layers).to_spec() == layers


def test_there_are_136_cases():
    assert len(CASES) == 136
