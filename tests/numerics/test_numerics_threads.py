"""Threads are tried before they are taken, and given back; freed memory is kept only inside its context."""

from __future__ import annotations

import pytest
import torch

from gdkl.numerics import halves_pay, keep_freed_memory, limit_threads, threads, threads_for


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    threads._several_are_faster.cache_clear()
    threads._halves_are_faster.cache_clear()
    yield
    threads._several_are_faster.cache_clear()
    threads._halves_are_faster.cache_clear()
    torch.set_num_threads(before)


@pytest.mark.parametrize(("faster", "expected"), [(True, 2), (False, 1)])
def test_the_trial_decides_for_many_rows(two_threads, monkeypatch, faster, expected):
    monkeypatch.setattr(threads, "_several_are_faster", lambda *_: faster)
    assert threads_for(10_000) == expected
    assert threads_for(100) == 1


def test_the_answer_stays_for_the_life_of_the_process(two_threads):
    assert len({threads_for(1000) for _ in range(5)}) == 1
    assert torch.get_num_threads() == 2


def test_halves_are_tried_before_they_are_shared(two_threads, monkeypatch):
    assert len({halves_pay(455) for _ in range(3)}) == 1
    assert torch.get_num_threads() == 2
    monkeypatch.setattr(threads, "_halves_are_faster", lambda _: True)
    assert halves_pay(455)
    assert not halves_pay(50)
    torch.set_num_threads(1)
    assert not halves_pay(455)


def test_one_thread_is_not_tried(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(threads, "_several_are_faster", lambda *_: pytest.fail("tried"))
    try:
        assert threads_for(10_000) == 1
    finally:
        torch.set_num_threads(before)


def test_threads_are_given_back_after_an_error(two_threads):
    def work():
        with limit_threads(100):
            assert torch.get_num_threads() == 1
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        work()
    assert torch.get_num_threads() == 2


def test_memory_can_be_kept_again_and_again_and_after_an_error():
    for _ in range(2):
        with keep_freed_memory(2**20):
            assert float(torch.ones(10**6).sum()) == 10**6

    def work():
        with keep_freed_memory(2**20):
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        work()
