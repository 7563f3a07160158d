"""Random splits with the guide's marginals on each, computed for many splits at a time, or reused from a pool."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor

from gdkl.gp import Marginals, Split
from gdkl.guide import Guide
from gdkl.numerics import DEFAULT_BUDGET, TRAINING_SMALLEST, NumericsError, rows_per_chunk, threads_for
from gdkl.training.splits import SplitSampler

#: Splits for which the guide's marginals are computed at a time, and on a CPU the memory that they may take: large
#: ones are computed few at a time, because a run may stop before they are used.
_MOST_AT_A_TIME, _CPU_BYTES = 64, 64 * 2**20

#: Blocks of splits that are prefetched.
_BLOCKS_AHEAD = 2


class SplitInputs(NamedTuple):
    """A split and the guide's marginals on its held-out rows."""

    split: Split
    p: Marginals


class _Source(NamedTuple):
    """Where marginals come from, how many splits are reused, and whether another thread computes the next ones."""

    guide: Guide
    pool: int | None
    prefetch: bool


class GuidedSplits:
    """The split of each step with the guide's marginals on it; steps are asked for in turn, from any step on.

    Args:
        guide: Computes the marginals.
        sampler: Draws the splits.
        pool: Splits that are drawn before all of them are reused, in a random order each time; None for fresh ones.

    Example:
        >>> from gdkl.guide import as_kernel_function, fit_guide
        >>> from gdkl.infinite import mlp
        >>> rows = torch.randn(1, 10, 2, dtype=torch.float64)
        >>> guide = fit_guide(as_kernel_function(mlp()), rows, rows[..., :1].mT)
        >>> split, p = GuidedSplits(guide, SplitSampler(10, members=1, seed=0))(0)
        >>> split.observed.shape, p.mean.shape
        (torch.Size([1, 5]), torch.Size([1, 1, 5]))
    """

    def __init__(
        self,
        guide: Guide,
        sampler: SplitSampler,
        *,
        pool: int | None = None,
    ):
        self._sampler = sampler
        self._running: Iterator[SplitInputs] | None = None
        # A student of few rows has one thread: another computes the guide's next marginals meanwhile.
        alone = sampler.members == 1 and guide.gram.device.type == "cpu"
        prefetch = alone and threads_for(sampler.used // 2, TRAINING_SMALLEST) < torch.get_num_threads()
        self._source = _Source(guide, pool, prefetch)
        self._next = -1

    def __call__(self, step: int) -> SplitInputs:
        """The split of a step and the guide's marginals."""
        if self._running is None or step != self._next:
            self._running = _endless(self._source, self._sampler.restarted(), step)
        self._next = step + 1
        try:
            return next(self._running)
        except NumericsError:
            # A generator that has raised is at its end.
            self._running = None
            raise


# Functions and not methods: a generator that held its owner would end, and with it its thread, at some later time.


def _endless(source: _Source, sampler: SplitSampler, start: int) -> Iterator[SplitInputs]:
    """Endless splits of a sampler, without the first ones, which a resumed run has seen."""
    if source.pool is None:
        yield from _fresh(source, sampler, start)
        return
    pool, drawn = source.pool, list[Tensor]()
    for step, inputs in zip(range(pool), _fresh(source, sampler, 0), strict=False):
        values = (*inputs.split, *inputs.p)
        if step == 0:
            # One block each: small tensors that stay, among large ones that come and go, would fragment memory by
            # gigabytes.
            drawn = [value.new_empty(pool, *value.shape) for value in values]
        for kept, value in zip(drawn, values, strict=True):
            kept[step] = value
        if step >= start:
            yield inputs
    passes, left_out = divmod(max(0, start - pool), pool)
    generator = torch.Generator().manual_seed(sampler.seed)
    for _ in range(passes):
        torch.randperm(pool, generator=generator)
    while True:
        for place in torch.randperm(pool, generator=generator).tolist()[left_out:]:
            observed, held_out, mean, variance = (kept[place] for kept in drawn)
            yield SplitInputs(Split(observed, held_out), Marginals(mean, variance))
        left_out = 0


def _fresh(source: _Source, sampler: SplitSampler, start: int) -> Iterator[SplitInputs]:
    """Splits that have not been seen before, without the first ones."""
    own, on_cpu = source.guide.gram.shape[0], source.guide.gram.device.type == "cpu"
    # On a CPU members are computed one after the other.
    each = source.guide.bytes_per_split() // own * (1 if on_cpu else max(own, sampler.members))
    count = min(_MOST_AT_A_TIME, rows_per_chunk(max(1, each), _CPU_BYTES if on_cpu else DEFAULT_BUDGET))
    if source.pool is not None:
        count = min(count, source.pool)
    for _ in range(start // count):
        sampler.draw(count)
    start %= count
    most = None if source.pool is None else -(-source.pool // count)
    for splits, p in _blocks(source, sampler, count, most):
        for index in range(start, count):
            split = Split(splits.observed[index], splits.held_out[index])
            yield SplitInputs(split, Marginals(p.mean[index], p.variance[index]))
        start = 0


def _blocks(source: _Source, sampler: SplitSampler, count: int, most: int | None) -> Iterator[tuple[Split, Marginals]]:
    """So many splits at a time with the guide's marginals, the next block in another thread where that helps."""
    drawn = (sampler.draw(count) for _ in (itertools.count() if most is None else range(most)))
    if not source.prefetch:
        for splits in drawn:
            yield splits, source.guide.posterior(splits)
        return
    with ThreadPoolExecutor(1, "guide", initializer=torch.set_num_threads, initargs=(1,)) as thread:
        pending: deque[tuple[Split, Future[Marginals]]] = deque()
        try:
            for splits in itertools.chain(drawn, (None,) * _BLOCKS_AHEAD):
                if splits is not None:
                    pending.append((splits, thread.submit(source.guide.posterior, splits)))
                if pending and (splits is None or len(pending) > _BLOCKS_AHEAD):
                    first, answer = pending.popleft()
                    yield first, answer.result()
        finally:
            thread.shutdown(cancel_futures=True)
