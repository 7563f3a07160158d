"""Batches: every row once an epoch, the same for a seed, wherever the rows lie."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from gdkl.numerics import DataError, OptionError
from gdkl.training import ArrayBatches, LoaderBatches, TensorBatches, World, as_pair, check_batch_size, step_generator

X = torch.arange(50.0).reshape(25, 2)
Y = torch.arange(25.0)[None]


def sources(batch_size=6, seed=3, world=None):
    more = {} if world is None else {"world": world}
    fetch = lambda index: (X[index], Y[:, index])  # noqa: E731
    return TensorBatches(X, Y, batch_size, seed, **more), ArrayBatches(25, fetch, batch_size, seed, **more)


def test_an_epoch_sees_every_row_at_most_once_and_the_next_in_another_order():
    source, _ = sources()
    epochs = [torch.cat([source.batch(step).index for step in range(4 * e, 4 * e + 4)]) for e in range(2)]
    assert all(len(set(epoch.tolist())) == 24 for epoch in epochs)
    assert epochs[0].tolist() != epochs[1].tolist()


def test_memory_and_file_give_the_same_batches_in_any_order_of_steps():
    one, other = sources()
    for step in (7, 0, 3):
        mine, yours = one.batch(step), other.batch(step)
        assert torch.equal(mine.rows, yours.rows)
        assert torch.equal(mine.targets, yours.targets)
        assert torch.equal(mine.rows[:, 0] / 2, mine.targets[0])
    assert torch.equal(one.sample(5, 1).rows, other.sample(5, 1).rows)


def test_processes_see_different_rows_of_one_order():
    alone, _ = sources(batch_size=12)
    parts = [sources(world=World(rank, 2))[0].batch(0).index for rank in range(2)]
    assert torch.equal(torch.cat(parts), alone.batch(0).index)


@pytest.mark.parametrize("size", [1, 0, -3])
def test_a_batch_that_cannot_be_split_is_refused(size):
    with pytest.raises(OptionError, match=f"batch_size={size} cannot be split"):
        check_batch_size(size, 100)
    with pytest.raises(DataError, match="1 rows cannot be split"):
        check_batch_size(8, 1)


def test_random_numbers_of_a_step_depend_on_nothing_else():
    draws = {
        (seed, step, rank): float(torch.rand(1, generator=step_generator(seed, step, rank=rank)))
        for seed in range(3)
        for step in range(3)
        for rank in range(3)
    }
    assert len(set(draws.values())) == len(draws)


def loader_source(loader, rows=25):
    return LoaderBatches(loader, as_pair, rows, 6, (X, Y))


def test_a_loader_goes_round_and_odd_rows_are_left_out():
    loader = DataLoader(TensorDataset(X, Y[0]), batch_size=7)
    source = LoaderBatches(loader, lambda item: (item[0], item[1][None]), 25, 7, (X, Y))
    sizes = [source.batch(step).rows.shape[0] for step in range(8)]
    assert sizes == [6, 6, 6, 4] * 2
    batch = source.batch(8)
    assert torch.equal(batch.rows[:, 0] / 2, batch.targets[0])


def test_a_loader_of_single_rows_is_refused():
    loader = DataLoader(TensorDataset(X, Y[0]), batch_size=1)
    source = LoaderBatches(loader, lambda item: (item[0], item[1][None]), 25, 2, (X, Y))
    with pytest.raises(DataError, match="no batch of two rows"):
        source.batch(0)


@pytest.mark.parametrize(
    ("item", "kind"),
    [((1, 2, 3), "has 3 parts"), (np.zeros(2), "is ndarray"), ([1], "has 1 part"), ({"x": 1}, "is a dict of 'x'")],
)
def test_a_loader_must_yield_pairs(item, kind):
    with pytest.raises(DataError, match=rf"batch 7 of the loader {kind}: it must be a pair \(x, y\)"):
        as_pair(item, "batch 7")
