"""Device and precision options."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gdkl.numerics import OptionError, resolve_device, resolve_dtype


@pytest.fixture(params=[0, 2])
def gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """A machine with so many GPUs, as far as anyone can tell."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: request.param > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: request.param)
    return int(request.param)


def test_auto_is_the_gpu_where_there_is_one(gpus: int) -> None:
    assert resolve_device("auto").type == ("cuda" if gpus else "cpu")


def test_the_cpu_is_always_there(gpus: int) -> None:
    assert resolve_device("cpu") == resolve_device(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_gpu_must_exist(gpus: int, index: int) -> None:
    device = f"cuda:{index}"
    if index < gpus:
        assert resolve_device(device) == resolve_device(torch.device(device)) == torch.device(device)
        return
    with pytest.raises(OptionError, match=device) as caught:
        resolve_device(device)
    assert ("no GPU is available" if gpus == 0 else "there are 2 GPUs") in str(caught.value)


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "", None, 1.5])
def test_what_is_no_device_is_refused(device: Any) -> None:
    with pytest.raises(OptionError, match="use 'auto', 'cpu', 'cuda'"):
        resolve_device(device)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("float32", torch.float32),
        ("float64", torch.float64),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        ("auto", torch.float64),
    ],
)
def test_precisions(option: str | torch.dtype, expected: torch.dtype) -> None:
    assert resolve_dtype(option) is expected


def test_auto_is_the_callers_default() -> None:
    assert resolve_dtype("auto", torch.float32) is torch.float32
    assert resolve_dtype("float64", torch.float32) is torch.float64


@pytest.mark.parametrize("dtype", ["float16", "double", torch.float16, torch.int64, None, 64, ["float32"]])
def test_other_precisions_are_refused(dtype: Any) -> None:
    with pytest.raises(OptionError, match="use 'auto', 'float32' or 'float64'"):
        resolve_dtype(dtype)
