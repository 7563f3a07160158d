"""What an experiment is: data, methods, seeds and scores, declared; and a cell, the unit that is run and stored.

Importing this module is cheap: estimators and data are named here, and loaded by the runner.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from gdkl.experiments.data import Part

#: A split or draw: its seed, or the name of a fixed one.
Split: TypeAlias = "int | str | None"
Size: TypeAlias = "int | float | None"


@dataclass(frozen=True)
class Cell:
    """One training and its scores: what identifies a line of a results file.

    Attributes:
        experiment, dataset, method: Their names.
        size: Number, or part, of the training rows; None for all.
        split: Which split of the rows, or which draw of them.
        seed: Of the model; several for the mean of their predictions.
        scored: "test", or "validation" where held-out training rows are scored in place of the test rows.
        settings: Options and preset of the estimator, as JSON can hold them.
    """

    experiment: str
    dataset: str
    method: str
    size: Size
    split: Split
    seed: int | tuple[int, ...]
    scored: str
    settings: Mapping[str, Any]

    def identity(self) -> dict[str, Any]:
        """The fields as a results line has them."""
        seed = list(self.seed) if isinstance(self.seed, tuple) else self.seed
        return {**vars(self), "seed": seed, "settings": dict(self.settings)}

    @property
    def key(self) -> str:
        """A digest of all fields: a cell with other settings has another key."""
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        size = "" if self.size is None else f" n={self.size}"
        split = "" if self.split is None else f" split {self.split}"
        return f"{self.dataset}{size} {self.method}{split} seed {self.seed}"


@dataclass(frozen=True)
class Method:
    """An estimator with its options.

    Attributes:
        about: What it is, in a line.
        estimator: A class of `gdkl.estimators`, or "module:class".
        options: Options of the estimator. "guide" may be a name of `gdkl.experiments.guides`. Two more are the
            runner's: "epochs" (passes over the training rows, in place of n_iter; needs the preset's batch_size) and
            "train_rows" (the number of training rows used at most).
        preset: Fields of `gdkl.Preset`; None for estimators that have none, or their defaults.
        together: Whether all splits of a dataset train as one batch (`gdkl.estimators.fit_together`).
        search: Values that held-out training rows choose between, by key as ``--set`` takes it.
    """

    about: str
    estimator: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    preset: Mapping[str, Any] | None = None
    together: bool = False
    search: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])

    def trials(self) -> Iterator[dict[str, Any]]:
        """Every combination of the values that are searched.

        Example:
            >>> [*Method("a", "GPRegressor", search={"ard": (True, False)}).trials()]
            [{'ard': True}, {'ard': False}]
        """
        for values in product(*self.search.values()):
            yield dict(zip(self.search, values, strict=True))


@dataclass(frozen=True)
class Column:
    """A score as a table shows it.

    Attributes:
        title: Heading.
        score: Name of the score.
        part: What was scored: "test", "train", or a view of the test images.
        digits: After the point.
        factor: What the score is multiplied by: 100 for percent, −1 for a negative log-likelihood.
        paper: Short name of the score in the paper's tables; empty where it has none.
    """

    title: str
    score: str
    part: str = "test"
    digits: int = 3
    factor: float = 1.0
    paper: str = ""


@dataclass(frozen=True)
class PaperTable:
    """Where the paper has the figures of an experiment, in published.json.

    Attributes:
        tables: Names of tables, by the part that was scored; several are tried in order.
        cell: Format of a cell's name, from ``dataset``, ``size`` and ``score``.
        split: The draw that the paper's figures are of; None for any.
    """

    tables: Mapping[str, Sequence[str]]
    cell: str = "{dataset}.{score}"
    split: Split = None


@dataclass(frozen=True)
class Spec:
    """An experiment.

    Attributes:
        name, about: As `gdkl reproduce` takes it, and of its results file; what it is, in a line.
        data: Loads the rows of a cell, given the folder with datasets and the number of validation rows.
        datasets: Names of the datasets, the default ones first.
        methods: By name, the default ones first.
        columns: Scores of the table.
        sizes: Numbers, or parts, of training rows; empty if all are used.
        draws: Draws of the training rows, where seeds count networks; empty where seeds count splits.
        seeds, first_seed: Number of splits, or of networks per draw, and the number of the first.
        model_seed: Seed of every model; None for the split's own number.
        default_datasets, default_methods: How many of them are run by default; 0 for all.
        parts: What is scored: "test", "train".
        images: Whether rows are images: they are also scored by averages over views, and trainings have checkpoints.
        ensembles: Whether the mean of all seeds' predictions is scored too.
        error: "deviation" or "error" (standard error): what follows the ± in tables.
        compared: A method whose paired differences from the best other one are listed.
        reference: Of a benchmark over many tables, the peer that its pictures compare with. Its summary is over tables,
            regression is also scored in units of the targets' deviation, and cells that fail are passed over.
        paper: Where the paper has its figures.
    """

    name: str
    about: str
    data: Callable[[Cell, Path | None, int], Part]
    datasets: Sequence[str]
    methods: Mapping[str, Method]
    columns: Sequence[Column]
    sizes: Sequence[int | float] = ()
    draws: Sequence[int | str] = ()
    seeds: int = 3
    first_seed: int = 0
    model_seed: int | None = None
    default_datasets: int = 0
    default_methods: int = 0
    parts: Sequence[str] = ("test",)
    images: bool = False
    ensembles: bool = False
    error: str = "deviation"
    compared: str = ""
    reference: str = ""
    paper: PaperTable | None = None

    def settings(self, method: str, overrides: Mapping[str, Any], validation: int = 0) -> dict[str, Any]:
        """Settings of a method's cells: the declared ones with some replaced ("preset.NAME" for the preset's)."""
        declared = self.methods[method]
        settings: dict[str, Any] = dict(declared.options)
        preset = dict(declared.preset or {})
        for key, value in overrides.items():
            (preset if key.startswith("preset.") else settings)[key.removeprefix("preset.")] = value
        settings |= {"preset": preset} if preset else {}
        return settings | ({"validation": validation} if validation else {})

    def cells(
        self,
        datasets: Sequence[str],
        settings: Mapping[str, Mapping[str, Any]],
        *,
        sizes: Sequence[int | float] = (),
        draws: Sequence[int | str] = (),
        seeds: int | None = None,
        scored: str = "test",
    ) -> Iterator[Cell]:
        """All cells of some datasets and methods (with their settings), in the order of the table."""
        numbers = range(self.first_seed, self.first_seed + (seeds or self.seeds))
        pairs: list[tuple[Split, int]] = list(product(draws or self.draws, numbers))
        if not self.draws:
            pairs = [(number, number if self.model_seed is None else self.model_seed) for number in numbers]
        for dataset, size, (method, own) in product(datasets, sizes or self.sizes or (None,), settings.items()):
            for split, seed in pairs:
                yield Cell(self.name, dataset, method, size, split, seed, scored, own)
