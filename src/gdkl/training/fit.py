"""From a method's objective to a trained student: build it under its seed, take the steps, condition it.

A method calls one of three: `fit_exact` (all rows at every step), `fit_sparse` (inducing points and batches) and
`fit_network` (a network with a linear head). They share everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor, nn

from gdkl.gp import ExactPosterior
from gdkl.nets import Members
from gdkl.numerics import TRAINING_SMALLEST, limit_threads, thread_pool
from gdkl.objectives import ObjectiveValue
from gdkl.training.batches import Batch, BatchSource
from gdkl.training.build import (
    build_deep_kernel,
    build_network_with_head,
    build_sparse_deep_kernel,
    check_features,
    draws_random_numbers,
)
from gdkl.training.callbacks import History
from gdkl.training.cost import Problem, check_cost
from gdkl.training.data import TrainingData
from gdkl.training.dispatch import TrainingOutcome
from gdkl.training.fitted import FittedModel, FittedNetwork
from gdkl.training.graphs import GraphedStep
from gdkl.training.loop import train
from gdkl.training.options import StudentOptions
from gdkl.training.prefetch import Prefetcher
from gdkl.training.randomness import seeded
from gdkl.training.step import AutogradStep, Step, ThreadedStep, member_threads
from gdkl.training.student import MATRIX_NAME, DeepKernel, SparseDeepKernel

#: Rows that `history_` has at most, whatever the number of steps.
HISTORY_ROWS = 500

S = TypeVar("S", bound=nn.Module)

#: From the student and the inputs of a step to the objective, one value per member.
Loss = Callable[..., ObjectiveValue]


def fit_exact(
    data: TrainingData,
    options: StudentOptions,
    loss: Loss,
    inputs: Callable[[int], Sequence[Any]] | None = None,
    *,
    rows_per_step: int | None = None,
    more_bytes: int = 0,
    start: Callable[[DeepKernel], None] | None = None,
    row_noise: Tensor | None = None,
) -> FittedModel:
    """Train a deep kernel on an objective over all rows, and condition it on them.

    Args:
        data: Scaled training data.
        options: How to build and train.
        loss: The objective: ``loss(student, data, *inputs)``, a pure function.
        inputs: From the number of a step to what it sees beside the data, such as `GuidedSplits`: tensors or tuples of
            them, members first. None for nothing: a step then takes the evidence of all rows.
        rows_per_step: Rows that a step sees, where that is not all of them.
        more_bytes: Memory that a step takes besides its matrices.
        start: Changes the student before training, where its initial values matter.
        row_noise: Variances that the targets carry beside the learned noise in prediction, of their shape; None for
            those of the data.
    """
    device = data.rows.device
    problem = Problem.of(data, guided=inputs is not None, rows_per_step=rows_per_step)
    check_cost(problem, options.schedule.n_iter, device, more_bytes)

    def build() -> DeepKernel:
        student = build_deep_kernel(data, options)
        if start is not None:
            start(student)
        return student

    def prepare(student: DeepKernel, stochastic: bool) -> _Run:
        # Random numbers of a network come from one global generator, which threads would draw from in any order.
        threads = 1 if stochastic else member_threads(data)
        step: Step = ThreadedStep(student, loss, threads) if threads > 1 else AutogradStep(student, loss)

        def take(number: int) -> ObjectiveValue:
            return step(data, *(() if inputs is None else inputs(number)))

        groups = [_network_group(student.network, options)]
        groups.append({"params": [*student.kernel.parameters(), *student.noise.parameters()]})
        groups[1]["rate"] = options.kernel_rate
        return _Run(take, groups, threads, lambda: {"noise": student.noise()})

    trained = _train(build, prepare, options, data.rows, problem.used // 2 if problem.guided else data.n)
    posterior = _condition(trained.student, data, row_noise)
    return FittedModel(trained.student.network, posterior, trained.history, trained.outcome)


def condition_untrained(data: TrainingData, options: StudentOptions) -> FittedModel:
    """A deep kernel as it starts, conditioned on all rows: where there is nothing to train it on."""
    with seeded(options.seed, data.rows.device):
        student = build_deep_kernel(data, options)
    student.requires_grad_(False).eval()
    return FittedModel(student.network, _condition(student, data))


@torch.no_grad()
def _condition(student: DeepKernel, data: TrainingData, row_noise: Tensor | None = None) -> ExactPosterior:
    features, noise = student.network(data.rows), student.noise()
    own = data.further_noise(noise) if row_noise is None else row_noise
    return ExactPosterior.condition(student.kernel, features, data.targets, noise, row_noise=own, name=MATRIX_NAME)


def fit_sparse(
    source: BatchSource,
    outputs: int,
    options: StudentOptions,
    loss: Loss,
    inputs: Callable[[int, Batch], Sequence[Tensor]] | None = None,
    *,
    learn_noise: bool = True,
    read_features: Callable[[Tensor], Tensor] | None = None,
    finish: Callable[[SparseDeepKernel], None] | None = None,
) -> FittedModel:
    """Train a deep kernel with inducing points on an objective over batches.

    Args:
        source: Where batches come from.
        outputs: Number of latent functions.
        options: How to build and train.
        loss: The objective: ``loss(student, rows, targets, *inputs)``, a pure function.
        inputs: From the number of a step and its batch to what else the objective needs and the student does not
            change: the guide's marginals, samples.
        learn_noise: Whether the noise is learned; not with a softmax likelihood.
        read_features: From what the network returns to the features that inducing points start from, where the loss
            makes features of it; None where they are what it returns.
        finish: Changes the trained student, in evaluation mode, before its posterior is taken.
    """
    rows = source.sample(2, options.seed).rows.expand(options.members, -1, -1)

    def build() -> SparseDeepKernel:
        student = build_sparse_deep_kernel(source, outputs, options, read_features)
        student.noise.requires_grad_(learn_noise)
        return student

    def prepare(student: SparseDeepKernel, stochastic: bool) -> _Run:
        if options.compile and options.members == 1:
            # Several members run through `torch.vmap`, which is not compiled.
            student.network.single.compile()
        step: Step = AutogradStep(student, loss)
        if options.graph and rows.is_cuda:
            step = GraphedStep(partial(loss, student), list(student.parameters()))

        def batch_of(number: int) -> tuple[Tensor, ...]:
            batch = source.batch(number)
            return batch.rows, batch.targets, *(() if inputs is None else inputs(number, batch))

        ahead = Prefetcher(batch_of, rows.device)
        points = student.points
        learned = [*student.kernel.parameters(), points.locations, *student.noise.parameters()]
        groups = [
            _network_group(student.network, options),
            {"params": [value for value in learned if value.requires_grad], "rate": options.kernel_rate},
            {"params": [points.mean, points.raw_factor], "rate": options.variational_rate},
        ]
        noise = (lambda: {"noise": student.noise()}) if learn_noise else None
        epoch = source.rows / (source.batch_size * options.world.size)
        return _Run(lambda number: step(*ahead(number)), groups, extra_values=noise, steps_per_epoch=epoch)

    trained = _train(build, prepare, options, rows, max(source.batch_size // 2, options.n_inducing))
    with torch.no_grad():
        if finish is not None:
            finish(trained.student)
        posterior = trained.student.posterior().detach()
    return FittedModel(trained.student.network, posterior, trained.history, trained.outcome)


def fit_network(data: TrainingData, options: StudentOptions, loss: Loss, *, per_output: int = 1) -> FittedNetwork:
    """Train networks with a linear head on an objective over all rows: ``loss(network, data)``.

    The head has ``per_output`` numbers for each target, or for each class.
    """

    def prepare(student: Members, stochastic: bool) -> _Run:
        step = AutogradStep(student, loss)
        return _Run(lambda _: step(data), [_network_group(student, options)])

    def build() -> Members:
        return build_network_with_head(data, options, per_output * data.outputs)

    trained = _train(build, prepare, options, data.rows, data.n)
    return FittedNetwork(trained.student, data.outputs, trained.history, trained.outcome)


@dataclass(frozen=True)
class _Run:
    """What the loop needs of a student that is built."""

    step: Callable[[int], ObjectiveValue]
    groups: Sequence[dict[str, Any]]
    threads: int = 1
    extra_values: Callable[[], dict[str, Tensor]] | None = None
    steps_per_epoch: float | None = None


@dataclass(frozen=True)
class _Trained(Generic[S]):
    student: S
    history: list[dict[str, float]]
    outcome: TrainingOutcome


def _train(
    build: Callable[[], S],
    prepare: Callable[[S, bool], _Run],
    options: StudentOptions,
    rows: Tensor,
    matrix_size: int,
) -> _Trained[S]:
    """What every fit does: seed, build, train with the threads that the size asks for, freeze and check.

    Args:
        build: Makes the student, under the seed.
        prepare: From the student, and whether its network is random in training, to what the loop needs.
        options: How to train.
        rows: Some rows for each member, ``(members, n, d)``.
        matrix_size: Rows of the largest matrix that a step factorises.
    """
    device = rows.device
    with ExitStack() as scope:
        with seeded(options.seed, device):
            student = build()
            network = student if isinstance(student, Members) else student.get_submodule("network")
            stochastic = draws_random_numbers(network, rows)
        if stochastic or options.checkpoint is not None:
            # Dropout draws from the global generator at every step, so the fit must own it to be repeatable.
            scope.enter_context(seeded(options.seed, device))
        run = prepare(student, stochastic)
        if device.type == "cpu":
            scope.enter_context(
                thread_pool(run.threads) if run.threads > 1 else limit_threads(matrix_size, TRAINING_SMALLEST)
            )
        history = History(every=max(1, -(-options.schedule.n_iter // HISTORY_ROWS)))
        outcome = train(
            student,
            run.groups,
            run.step,
            replace(options, callbacks=[history, *options.callbacks]),
            steps_per_epoch=run.steps_per_epoch,
            extra_values=run.extra_values,
        )
    student.requires_grad_(False)
    if options.finish is not None:
        options.finish(cast(Members, network))
    check_features(network, rows)
    return _Trained(student, history.rows, outcome)


def _network_group(network: nn.Module, options: StudentOptions) -> dict[str, Any]:
    return {"params": list(network.parameters()), "weight_decay": options.weight_decay}
