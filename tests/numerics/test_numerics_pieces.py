"""Pieces shared by threads: the same results, errors that arrive, threads given back."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from gdkl.numerics import for_each, set_aside, shared_by_threads, side_by_side


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_results_come_in_order(threads, count):
    with shared_by_threads(threads):
        assert for_each(count, lambda index: index**2) == [index**2 for index in range(count)]


def test_pieces_are_shared_inside_the_context_alone():
    def who(_):
        time.sleep(0.02)
        return threading.get_ident()

    with shared_by_threads(3):
        assert len(set(for_each(9, who))) == 3
    assert set(for_each(3, who)) == {threading.get_ident()}


def test_each_thread_computes_alone_and_what_was_set_comes_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with shared_by_threads(2):

            def threads(_):
                time.sleep(0.01)
                return torch.get_num_threads()

            assert set(for_each(4, threads)) == {1}
        assert torch.get_num_threads() == 2
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("pieces")]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("broken", [0, 3])
def test_an_error_arrives_once_nothing_is_running(broken):
    running = set()

    def work(index):
        running.add(index)
        time.sleep(0.01)
        running.discard(index)
        if index == broken:
            raise ValueError(f"piece {index}")

    with shared_by_threads(2):
        with pytest.raises(ValueError, match=f"piece {broken}"):
            for_each(4, work)
        assert not running


def test_no_gradients_are_recorded_in_any_thread():
    x = torch.ones(1, requires_grad=True)
    with shared_by_threads(2):
        assert not any(value.requires_grad for value in for_each(4, lambda index: x * index))
    assert (x * 2).requires_grad


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_pieces_set_aside_come_in_order_whoever_computes_them(threads):
    with shared_by_threads(threads):
        batches = [set_aside(5, lambda index, batch=batch: (batch, index)) for batch in range(4)]
        for batch, pieces in enumerate(batches):
            assert for_each(3, lambda index: time.sleep(0.002) or index) == [0, 1, 2]
            assert pieces.results() == [(batch, index) for index in range(5)]


def test_a_thread_with_nothing_to_do_computes_what_was_set_aside():
    found = []
    with shared_by_threads(2):
        pieces = set_aside(2, found.append)
        # One piece a thread, one of them far longer than the other.
        for_each(2, lambda index: time.sleep(0.2 * index))
        assert sorted(found) == [0, 1]
        pieces.results()
    assert len(found) == 2


def test_what_was_set_aside_is_done_once_and_none_of_it_after_the_context():
    started = []

    def slow(index):
        started.append(index)
        time.sleep(0.02)
        return index

    with shared_by_threads(2):
        pieces = set_aside(20, slow)
        for_each(2, lambda index: time.sleep(0.05))
        time.sleep(0.05)
    before = len(started)
    assert 0 < before < 20
    time.sleep(0.05)
    assert len(started) == before
    assert pieces.results() == list(range(20))
    assert sorted(started) == list(range(20))


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_in_what_was_set_aside_is_raised_where_it_is_asked_for(threads):
    def work(index):
        if index == 1:
            raise ValueError("set aside")
        return index

    with shared_by_threads(threads):
        pieces = set_aside(3, work)
        assert for_each(3, lambda index: time.sleep(0.01 * index) or index) == [0, 1, 2]
        with pytest.raises(ValueError, match="set aside"):
            pieces.results()
        assert for_each(2, lambda index: index) == [0, 1]


@pytest.mark.parametrize("threads", [1, 2])
def test_sides_meet_where_they_yield(threads):
    found = {"one": [], "other": []}

    def side(own, theirs):
        for stage in range(20):
            found[own].append(stage)
            yield
            # What the other one wrote before the meeting is there.
            assert found[theirs][stage] == stage

    with shared_by_threads(threads):
        for _ in range(3):
            found["one"].clear()
            found["other"].clear()
            side_by_side(side("one", "other"), side("other", "one"))
            assert found["one"] == found["other"] == list(range(20))


def test_sides_run_in_two_threads_unless_these_have_other_work():
    def who(found):
        found.append(threading.get_ident())
        yield

    for alone in (False, True):
        found = []
        with shared_by_threads(2):
            side_by_side(who(found), who(found), alone=alone)
        assert len(set(found)) == (1 if alone else 2)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("broken", ["one", "other", "both"])
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_an_error_of_a_side_arrives_and_the_next_sides_meet_again(threads, broken, stage):
    def side(name):
        for now in range(3):
            if now == stage and broken in (name, "both"):
                raise ValueError(name)
            yield

    def fine(found):
        yield
        found.append(1)

    with shared_by_threads(threads):
        with pytest.raises(ValueError, match="one" if broken == "both" else broken):
            side_by_side(side("one"), side("other"))
        found = []
        side_by_side(fine(found), fine(found))
    assert found == [1, 1]
