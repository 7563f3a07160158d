"""Threads depend on sizes and on the caller's setting alone, and come back; tasks are shared without a trace."""

from __future__ import annotations

import threading

import pytest
import torch

from gdkl.numerics import limit_threads, thread_map, thread_pool, threads_for


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("setting", [1, 2])
@pytest.mark.usefixtures("two_threads")
def test_many_rows_have_the_callers_threads_and_few_rows_one(setting):
    torch.set_num_threads(setting)
    assert threads_for(10_000) == setting
    assert threads_for(100) == 1


@pytest.mark.usefixtures("two_threads")
def test_threads_are_restored_after_an_error():
    def work(scope):
        with scope:
            assert torch.get_num_threads() == 1
            raise ValueError("stop")

    for scope in (limit_threads(100), thread_pool(2)):
        with pytest.raises(ValueError, match="stop"):
            work(scope)
        assert torch.get_num_threads() == 2


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_come_in_order_from_as_many_threads(threads):
    started = threading.Barrier(threads)

    def work(index):
        if index < threads:
            # Nobody goes on before all threads are here.
            started.wait(timeout=10)
        return index, threading.get_ident()

    with thread_pool(threads):
        found = thread_map(7, work)
    assert [index for index, _ in found] == list(range(7))
    assert len({ident for _, ident in found}) == threads
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("thread_map")]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("enabled", [True, False])
def test_gradients_are_recorded_where_the_caller_records_them(threads, enabled):
    with thread_pool(threads), torch.set_grad_enabled(enabled):
        assert thread_map(4, lambda _: torch.is_grad_enabled()) == [enabled] * 4


def test_the_first_error_is_raised_once_all_tasks_rest():
    done = []

    def work(index):
        if index == 1:
            raise ValueError("one")
        if index == 3:
            raise KeyError("three")
        done.append(index)

    with thread_pool(2):
        with pytest.raises(ValueError, match="one"):
            thread_map(6, work)
        assert sorted(done) == [0, 2, 4, 5]
        assert thread_map(2, lambda index: index) == [0, 1]


def test_a_task_may_map_itself():
    with thread_pool(2):
        assert thread_map(3, lambda i: thread_map(2, lambda j: 10 * i + j)) == [[0, 1], [10, 11], [20, 21]]
