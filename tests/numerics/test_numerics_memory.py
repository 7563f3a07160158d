"""Memory: what is free, what a plan needs, and the refusal."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gdkl.numerics import MemoryLimitError, available_memory, memory, require_memory, tensor_bytes

GIB = 2**30


@given(st.lists(st.integers(0, 50), max_size=4), st.sampled_from([torch.float32, torch.float64, torch.int8]))
def test_bytes_are_those_of_the_tensor(shape: list[int], dtype: torch.dtype) -> None:
    tensor = torch.empty(shape, dtype=dtype, device="meta")
    assert tensor_bytes(*shape, dtype=dtype) == tensor.numel() * tensor.element_size()


def test_a_plan_that_fits_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda device: 10 * GIB)
    require_memory(8 * GIB, what="A Gram matrix", remedy="Use fewer rows.")


def test_a_plan_that_does_not_fit_is_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda device: 10 * GIB)
    with pytest.raises(MemoryLimitError) as caught:
        require_memory(8 * GIB + 1, what="The Gram matrix of 32000 rows", remedy="Use inference='sparse'.")
    assert str(caught.value) == (
        "The Gram matrix of 32000 rows needs 8.0 GiB and 8.0 GiB can be used on cpu. Use inference='sparse'."
    )
    assert isinstance(caught.value, MemoryError)


def test_nothing_is_allocated_for_a_refusal() -> None:
    # An exabyte: were it tried, this process would not live to tell.
    with pytest.raises(MemoryLimitError, match=r"1073741824\.0 GiB"):
        require_memory(2**60, what="A dream", remedy="Wake up.")


def test_available_memory_is_what_the_machine_has() -> None:
    free = available_memory()
    assert isinstance(free, int)
    assert 2**20 < free < 2**50
    assert available_memory(torch.device("cpu")) == pytest.approx(free, rel=0.2)


def test_the_machines_free_memory_is_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_cgroup_memory", lambda: 2**62)
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: SimpleNamespace(available=3 * GIB))
    assert available_memory() == 3 * GIB
    monkeypatch.setattr(memory, "_cgroup_memory", lambda: GIB)
    assert available_memory() == GIB


def test_a_containers_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: SimpleNamespace(available=64 * GIB))
    monkeypatch.setattr(memory, "_cgroup_memory", lambda: 3 * GIB)
    assert available_memory("cpu") == 3 * GIB


def container(folder: Path, limit: str, used: int, inactive_file: int) -> Path:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\nfile 7\ninactive_file {inactive_file}\nactive_file 5\n")
    return folder


def test_a_container_gives_its_limit_less_what_is_used(tmp_path: Path) -> None:
    assert memory._cgroup_memory(container(tmp_path, str(8 * GIB), 3 * GIB, 0)) == 5 * GIB


def test_file_pages_that_can_be_dropped_are_free(tmp_path: Path) -> None:
    # A container that has read large files is "full" of pages that it does not need.
    assert memory._cgroup_memory(container(tmp_path, str(8 * GIB), 8 * GIB, 6 * GIB)) == 6 * GIB


def test_a_container_over_its_limit_has_nothing(tmp_path: Path) -> None:
    assert memory._cgroup_memory(container(tmp_path, str(2 * GIB), 3 * GIB, 0)) == 0


def test_no_limit_is_no_limit(tmp_path: Path) -> None:
    assert memory._cgroup_memory(tmp_path) > 2**60
    assert memory._cgroup_memory(container(tmp_path, "max", 3 * GIB, 0)) > 2**60


def test_a_gpus_cache_is_free_to_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (5 * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 4 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 1 * GIB)
    assert available_memory("cuda:0") == 8 * GIB
