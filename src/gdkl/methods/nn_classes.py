"""The same network with a softmax head: what a deep kernel is compared with."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gdkl.gp import Marginals
from gdkl.methods.class_data import ClassData
from gdkl.methods.deep_kernel import HISTORY_ROWS, DeepKernelOptions, check_features, draws_random_numbers
from gdkl.nets import Members
from gdkl.numerics import map_rows
from gdkl.objectives import ObjectiveValue, cross_entropy
from gdkl.training import History, TrainingOutcome, seeded, train_full_batch

#: Rows that the network sees at a time in prediction.
_ROWS_AT_A_TIME = 1024


class WithHead(nn.Module):
    """A feature network and a linear layer from its features to one logit a class."""

    def __init__(self, network: nn.Module, head: nn.Module):
        super().__init__()
        self.network = network
        self.head = head

    def forward(self, rows: Tensor) -> Tensor:
        """Logits ``(n, classes)``."""
        return self.head(self.network(rows))


@dataclass
class FittedNetwork:
    """A trained network with a softmax head; its latent functions are the logits, known for sure.

    Attributes:
        embed: Turns rows ``(members, m, d)`` into logits ``(members, m, classes)``.
        classes: Number of classes.
        history: One row a logged step.
        outcome: How training ended.
        most_rows: Rows that the network may see at a time.
    """

    embed: Members
    classes: int
    history: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    outcome: TrainingOutcome | None = None
    most_rows: int | None = None

    @property
    def noise(self) -> Tensor:
        """A network has none: zeros ``(members, classes)``."""
        return torch.zeros(self.embed.count, self.classes, dtype=torch.float64)

    @torch.no_grad()
    def marginals(self, rows: Tensor) -> Marginals:
        """Logits at rows ``(members or 1, m, d)`` as means ``(members, classes, m)`` of variance zero."""
        rows = rows.expand(self.embed.count, -1, -1)

        def some(part: Tensor) -> tuple[Tensor]:
            return (self.embed(part.transpose(0, 1)).mT,)

        chunk = self.most_rows or _ROWS_AT_A_TIME
        (mean,) = map_rows(some, rows.transpose(0, 1), chunk, row_dim=-1)
        mean = mean.double()
        return Marginals(mean, torch.zeros_like(mean))


def fit_nn_classes(data: ClassData, options: DeepKernelOptions) -> FittedNetwork:
    """Train the network and its head on the cross-entropy of all rows."""
    device = data.rows.device
    with ExitStack() as alone:
        with seeded(options.seed, device):
            networks: list[nn.Module] = []
            for _ in range(data.members):
                network = options.feature_net(data.rows.shape[-1]).to(data.rows)
                check_features(Members([network]), data.rows[:1])
                with torch.no_grad():
                    features = network.eval()(data.rows[0, :2])
                head = nn.Linear(features.shape[-1], data.outputs, dtype=torch.float32).to(features)
                networks.append(WithHead(network.train(), head))
            model = Members(networks).to(device)
            stochastic = draws_random_numbers(model, data.rows)
        if stochastic or options.checkpoint is not None:
            alone.enter_context(seeded(options.seed, device))
        history = History(every=max(1, -(-options.schedule.n_iter // HISTORY_ROWS)))

        def loss(step: int) -> ObjectiveValue:
            return cross_entropy(model(data.rows).mT, data.labels)

        outcome = train_full_batch(
            model,
            [{"params": list(model.parameters()), "weight_decay": options.weight_decay}],
            loss,
            options.schedule,
            [history, *options.callbacks],
            momentum=options.momentum,
            checkpoint=options.checkpoint,
        )
    model.requires_grad_(False)
    check_features(model, data.rows)
    return FittedNetwork(model, data.outputs, history.rows, outcome)
