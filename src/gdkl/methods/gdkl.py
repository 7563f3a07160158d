"""Guided deep kernel learning: deep kernel + guide + guided objective over random splits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from functools import partial

import torch
from torch import Tensor

from gdkl.gp import NOISE_START, Marginals, Split, members_apart
from gdkl.guide import Guide
from gdkl.methods.data import TrainingData
from gdkl.methods.deep_kernel import DeepKernel, DeepKernelOptions, train_deep_kernel
from gdkl.methods.fitted import FittedModel
from gdkl.methods.guided_step import guided_step, is_halved
from gdkl.methods.latecomers import Latecomers
from gdkl.nets import MLP
from gdkl.numerics import (
    DEFAULT_BUDGET,
    OptionError,
    halves_pay,
    one_blas_thread,
    rows_per_chunk,
    shared_by_threads,
    threads_for,
)
from gdkl.objectives import ObjectiveValue, distillation, gaussian_term, guided, predictive
from gdkl.training import SplitSampler

#: Splits for which the guide's posteriors are computed ahead of the loop.
_SPLITS_AHEAD = 64

#: On a CPU that many bytes' worth: splits of few rows are done in no time, of large ones not many should be in vain.
_BYTES_AHEAD = 64 * 2**20


#: Steps and learning rate of `Schedule.fast` for users: the log-likelihood of the paper's 7000 steps on its own tables.
DEFAULT_STEPS = 2000
DEFAULT_LEARNING_RATE = 3e-2

#: Random splits that a fit draws; it goes through them about four times. The guide answers for each once, which at 927
#: rows is a quarter of a step's work, and splits that come back after 500 steps are as good as new ones.
DEFAULT_SPLIT_POOL = 512

#: Kernel and noise go faster than the network, which waits for them: on Energy the noise falls a hundredfold.
DEFAULT_KERNEL_RATE = 3.0


def guided_noise_start(guide: Guide) -> Tensor:
    """Where the student's noise starts, ``(members, outputs)``: not below what the guide sees, and the published value.

    The guide knows how noisy the targets are before the student has made a step; where it sees less noise than the
    published start, that stays.
    """
    return guide.noise.clamp_min(NOISE_START).cpu()


class SplitObjective(StrEnum):
    """Objectives over random splits, as the paper compares them."""

    GUIDED = "guided"
    """E_q[−log p(y|f)] + β·KL(q‖p): what GDKL is."""
    DISTILLATION = "distillation"
    """KL(q‖p) alone: the student imitates the guide."""
    PREDICTIVE = "predictive"
    """−log q(y|x, D1) alone: no guide, overfits."""


def fit_gdkl(
    data: TrainingData,
    guide: Guide,
    options: DeepKernelOptions,
    *,
    beta: float = 1.0,
    objective: SplitObjective = SplitObjective.GUIDED,
    latecomers: Latecomers | None = None,
) -> FittedModel:
    """Train a deep kernel to match what the guide believes about held-out rows once their labels are seen.

    Args:
        data: Scaled training data.
        guide: Fitted on the same rows, for all members or one shared by all.
        options: How the deep kernel is built and trained.
        beta: Weight of the KL term.
        objective: What is minimised over the splits.
        latecomers: Rows that join half-way, and what they are to remember; such a run cannot be resumed.
    """
    if latecomers is not None and options.checkpoint is not None:
        raise OptionError(
            "a fit with latecomers keeps no checkpoint: what they have seen of the student would be lost."
        )
    with use_of_threads(data, options, objective) as spare:

        def make_loss(model: DeepKernel) -> Callable[[int], ObjectiveValue]:
            sampler = SplitSampler(data.n, data.members, options.seed, data.rows.device)
            join = 0
            if latecomers is not None:
                join, early = latecomers.join(options.schedule.n_iter), latecomers.others
                sampler = SplitSampler(len(early), data.members, options.seed, data.rows.device, rows=early)
            ahead: Iterator[tuple[Split, Marginals]] | None = None

            def loss(step: int) -> ObjectiveValue:
                nonlocal ahead, sampler
                if latecomers is not None and step == join:
                    latecomers.meet(data, model.network, model.kernel, model.noise().detach())
                    sampler = SplitSampler(data.n, data.members, options.seed, data.rows.device)
                    ahead = guided_splits(guide, sampler, spare, pool=options.split_pool)
                # Made at the first step that is asked for, which in a resumed run is a later one.
                ahead = ahead or guided_splits(guide, sampler, spare, pool=options.split_pool, start=step)
                split, p = next(ahead)
                at_once = guided_step(model, data, split, p, beta) if objective is SplitObjective.GUIDED else None
                if at_once is not None:
                    return at_once
                q, y, noise = model.split_marginals(data, split)
                if objective is SplitObjective.GUIDED:
                    return guided(q, p, gaussian_term(q, y, noise), beta)
                if objective is SplitObjective.DISTILLATION:
                    return distillation(q, p)
                return predictive(q, y, noise)

            return loss

        return train_deep_kernel(data, options, make_loss, guided=True)


#: Up to this many rows members are shared by threads however few they are: torch's own would gain less.
_FEW_ROWS = 1000


@contextmanager
def use_of_threads(
    data: TrainingData, options: DeepKernelOptions, objective: SplitObjective = SplitObjective.GUIDED
) -> Generator[Executor | None]:
    """How the cores of a CPU are used: a thread for the guide is given where it runs beside the student.

    Several members are shared by threads, and so are the halves of one member's step where that pays; the guide's
    answers too. A step that has no halves has torch's own threads where they pay, and the guide takes its turn. Else a
    core is left for the guide. A GPU computes ahead of Python anyway.
    """
    threads = torch.get_num_threads()
    if data.rows.device.type != "cpu":
        yield None
        return
    halved = objective is SplitObjective.GUIDED and _is_halved(data, options)
    if _shares_members(data, options, threads):
        with shared_by_threads(threads):
            yield None
    elif halved and halves_pay(data.n):
        with shared_by_threads(2):
            yield None
    elif not halved and threads_for(data.n) > 1:
        yield None
    else:
        with ThreadPoolExecutor(1, "guide", initializer=torch.set_num_threads, initargs=(1,)) as pool:
            torch.set_num_threads(1)
            try:
                with one_blas_thread():
                    yield pool
            finally:
                torch.set_num_threads(threads)
                pool.shutdown(cancel_futures=True)


def _is_halved(data: TrainingData, options: DeepKernelOptions) -> bool:
    """Whether `guided_step` will take the step of one member in halves."""
    build = options.feature_net
    own = (build.func if isinstance(build, partial) else build) is MLP
    return own and options.base_kernel is None and data.members == 1 and is_halved(data.rows, data.targets)


def _shares_members(data: TrainingData, options: DeepKernelOptions, threads: int) -> bool:
    """Whether members are computed one by one, and are many enough, or too small, for anything but a thread each."""
    apart = options.base_kernel is None and members_apart(data.rows, data.n // 2)
    return apart and threads > 1 and data.members > 1 and (data.members >= threads or data.n < _FEW_ROWS)


def guided_splits(
    guide: Guide,
    sampler: SplitSampler,
    spare: Executor | None = None,
    *,
    pool: int | None = None,
    start: int = 0,
) -> Iterator[tuple[Split, Marginals]]:
    """Endless splits with the guide's marginals on each, computed for many splits ahead of the loop.

    Args:
        guide: What answers for each split.
        sampler: Where the splits come from; drawn in the caller's thread, so that a seed means the same splits always.
        spare: Where the guide's answers are computed meanwhile; None for the caller's thread, a batch at a time.
        pool: Splits that are drawn before all of them come again, in a random order each time; None for fresh ones.
        start: Splits to leave out at the beginning: those of steps that a resumed run has taken.
    """
    if pool is None:
        yield from _fresh_splits(guide, sampler, spare, None, start)
        return
    drawn: list[Tensor] = []
    for step, (split, p) in enumerate(_fresh_splits(guide, sampler, spare, pool, 0)):
        if step == 0:
            # One block each: small tensors that stay, among large ones that come and go, would keep the gaps between
            # them from being used again (several gigabytes at 1400 rows).
            drawn = [value.new_empty(pool, *value.shape) for value in (*split, *p)]
        for kept, value in zip(drawn, (*split, *p), strict=True):
            kept[step] = value
        if step >= start:
            yield split, p
    passes, left_out = divmod(max(0, start - pool), pool)
    generator = torch.Generator().manual_seed(sampler.seed)
    for _ in range(passes):
        torch.randperm(pool, generator=generator)
    while True:
        for place in torch.randperm(pool, generator=generator).tolist()[left_out:]:
            observed, held_out, mean, variance = (kept[place] for kept in drawn)
            yield Split(observed, held_out), Marginals(mean, variance)
        left_out = 0


def _fresh_splits(
    guide: Guide, sampler: SplitSampler, spare: Executor | None, most: int | None, start: int
) -> Iterator[tuple[Split, Marginals]]:
    """Splits that have not been seen before, without the first ones, and no more than are asked for."""
    own, shared = guide.gram.shape[0], max(1, sampler.members // guide.gram.shape[0])
    apart = guide.answers_apart(sampler.used // 2)
    per_split = guide.bytes_per_split() // own if apart else guide.bytes_per_split() * shared
    on_cpu = guide.gram.device.type == "cpu"
    count = min(_SPLITS_AHEAD, rows_per_chunk(per_split, _BYTES_AHEAD if on_cpu else DEFAULT_BUDGET))
    if most is not None:
        count = min(count, most)
    # Threads that share members have time between them for the next batch; those that share one member's halves do not.
    ahead = 2 if apart and sampler.members > 1 else 1
    batches = ahead if spare is None else -(-_SPLITS_AHEAD // count)
    pending: deque[tuple[Split, Callable[[], Marginals]]] = deque()
    while start >= count:
        sampler.draw(count)
        start -= count
    asked = given = 0
    while most is None or given < most:
        while len(pending) < batches and (most is None or asked < most):
            splits = sampler.draw(count)
            if spare is not None:
                pending.append((splits, spare.submit(guide.posterior, splits).result))
            else:
                pending.append((splits, guide.posterior_later(splits)))
            asked += count
        splits, answer = pending.popleft()
        p = answer()
        for index in range(start, count if most is None else min(count, most - given)):
            yield (
                Split(splits.observed[index], splits.held_out[index]),
                Marginals(p.mean[index], p.variance[index]),
            )
        start = 0
        given += count
