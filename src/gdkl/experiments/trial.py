"""One cell, or several that train as one batch: build the estimator, fit it, score it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gdkl import estimators, metrics
from gdkl.calibration import best_temperature
from gdkl.estimators.presets import Preset, check_preset
from gdkl.experiments.data import Part
from gdkl.experiments.guides import guide
from gdkl.experiments.results import Line, versions
from gdkl.experiments.spec import Cell, Method, Spec
from gdkl.numerics import GdklWarning, NumericsError, OptionError, write_atomically
from gdkl.predictive import FloatArray, Predictive, Views, class_index, mean_over_views
from gdkl.training import Callback, Checkpoint, StepReport

#: Options that the runner itself reads, beside those of the estimator.
RUNNER_OPTIONS = ("epochs", "train_rows", "validation")

#: Options that the runner sets: a command has its own words for some of them.
_SET_BY_RUNNER = ("random_state", "device", "verbose", "callbacks", "preset", "views")

#: How an image is looked at, by the name of the scores.
VIEWS = {"test": Views.PLAIN, "mirrored": Views.MIRRORED, "shifted": Views.SHIFTED}


@dataclass(frozen=True)
class Place:
    """Where and how cells run, which their results do not depend on.

    Attributes:
        data_dir: Folder with local datasets.
        device: "auto", "cpu", "cuda" or a numbered GPU.
        scratch: Folder for predictions and checkpoints.
        verbose: Whether trainings show their progress.
        processes: Processes that train together.
    """

    data_dir: Path | None
    device: str
    scratch: Path
    verbose: int = 0
    processes: int = 1


class StepTimer(Callback):
    """Counts steps and the time they take, without reading anything off the device."""

    every = 50

    def __init__(self) -> None:
        self.steps = 0
        self.seconds = 0.0
        self._last: tuple[int, float] | None = None

    def on_step(self, report: StepReport) -> None:
        """Add the steps since the last call; the first call, which includes warming up, only starts the clock."""
        now = time.perf_counter()
        if self._last is not None and report.step > self._last[0]:
            self.steps += report.step - self._last[0]
            self.seconds += now - self._last[1]
        self._last = (report.step, now)

    @property
    def seconds_per_step(self) -> float | None:
        """Of the steps of this process: a run resumed from a checkpoint has taken others before."""
        return None if not self.steps else round(self.seconds / self.steps, 5)


def estimator_class(method: Method) -> Any:
    """The class that a method names."""
    module, _, name = method.estimator.rpartition(":")
    return getattr(import_module(module or "gdkl.estimators"), name)


def known_options(method: Method) -> list[str]:
    """Names that settings of a method may have, those of the preset as "preset.NAME"."""
    names: set[str] = set(estimator_class(method)._get_param_names())
    known = [name for name in sorted(names) if name not in _SET_BY_RUNNER]
    known += ["epochs"] if "n_iter" in names else []
    known.append("train_rows")
    return known + ([f"preset.{name}" for name in sorted(Preset().get_params())] if "preset" in names else [])


def build(spec: Spec, cell: Cell, rows: int, place: Place, callbacks: Sequence[Any] = ()) -> Any:
    """The estimator of a cell, not fitted; epochs are turned into steps by the number of training rows."""
    cls = estimator_class(spec.methods[cell.method])
    names: set[str] = set(cls._get_param_names())
    options = {name: value for name, value in cell.settings.items() if name not in (*RUNNER_OPTIONS, "preset")}
    if isinstance(options.get("guide"), str) and options["guide"] != "auto":
        options["guide"] = guide(options["guide"])
    fields: Mapping[str, Any] = cell.settings.get("preset", {})
    if fields:
        options["preset"] = Preset(**fields)
        check_preset(options["preset"])
    if cell.settings.get("epochs") is not None:
        options["n_iter"] = steps(cell.settings["epochs"], fields.get("batch_size"), rows)
    own = {"random_state": cell.seed, "device": place.device, "verbose": place.verbose, "callbacks": list(callbacks)}
    own |= {"views": "plain"} if spec.images else {}
    options |= {name: value for name, value in own.items() if name in names}
    return cls(**options)


def steps(epochs: float, batch_size: int | None, rows: int) -> int:
    """Gradient steps of some passes over the rows."""
    if not batch_size:
        raise OptionError("epochs needs a batch size: add --set preset.batch_size=256, or set n_iter instead.")
    if not epochs > 0:
        raise OptionError(f"epochs={epochs!r} must be positive.")
    return max(1, round(epochs * rows / batch_size))


def run_cells(spec: Spec, cells: Sequence[Cell], place: Place) -> list[Line]:
    """Train and score cells that differ by their split alone, as one batch; half-trained models are no results."""
    parts = [_load(spec, cell, place) for cell in cells]
    timer = StepTimer()
    callbacks: list[Any] = [timer]
    if spec.images:
        callbacks.append(Checkpoint(checkpoint_folder(cells[0], place)))
    estimator = build(spec, cells[0], len(parts[0].y), place, callbacks)
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GdklWarning)
        if len(cells) > 1:
            models = estimators.fit_together(estimator, [(part.X, part.y) for part in parts])
        else:
            models = [estimator.fit(parts[0].X, parts[0].y)]
    seconds = (time.perf_counter() - started) / len(cells)
    messages = list(dict.fromkeys(str(warning.message) for warning in caught))
    details: dict[str, Any] = {"warnings": messages} if messages else {}
    if len(cells) > 1:
        details["trained_together"] = len(cells)
    if place.processes > 1:
        details["processes"] = place.processes
    timing = {"fit": round(seconds, 3), "per_step": timer.seconds_per_step}
    common = {
        "seconds": {name: value for name, value in timing.items() if value is not None},
        "versions": versions(place.device),
        "details": details,
    }
    trained = zip(cells, parts, models, strict=True)
    return [_scored(spec, cell, part, model, common, place) for cell, part, model in trained]


def checkpoint_folder(cell: Cell, place: Place) -> Path:
    """Where a training keeps its checkpoints until its result is stored."""
    return place.scratch / f"{cell.key}.checkpoints"


def predictions_file(cell: Cell, scratch: Path) -> Path:
    """Where the predictions of a cell are, for the mean over seeds."""
    return scratch / f"{cell.key}.npz"


def _load(spec: Spec, cell: Cell, place: Place) -> Part:
    part = spec.data(cell, place.data_dir, cell.settings.get("validation", 0))
    rows = cell.settings.get("train_rows")
    # The published order of rows is random already.
    return part if rows is None else replace(part, X=part.X[:rows], y=part.y[:rows])


def _scored(spec: Spec, cell: Cell, part: Part, model: Any, common: Mapping[str, Any], place: Place) -> Line:
    wanted = getattr(model, "n_iter", None) or cell.settings.get("preset", {}).get("n_iter")
    taken = getattr(model, "n_iter_", None)
    if wanted and taken is not None and taken < wanted:
        raise NumericsError(f"{cell} ended after {taken} of {wanted} steps: no result is stored.")
    details = {"train_rows": len(part.y), **common["details"]}
    details |= {"chosen": model.chosen_} if hasattr(model, "chosen_") else {}
    if part.digest:
        details["training_images_sha256"] = part.digest
    started = time.perf_counter()
    if hasattr(model, "predict_proba"):
        labels = class_index(model.classes_, part.y_test)
        probs = _views(spec, model, part.X_test)
        scores = {view: class_scores(found, labels) for view, found in probs.items()}
        if spec.ensembles:
            _store(predictions_file(cell, place.scratch), probs, labels)
        if cell.scored == "validation":
            # Says which way β should go: above 1 where predictions are overconfident.
            log_probs = torch.as_tensor(np.log(probs["test"].clip(1e-300))).T
            details["best_temperature"] = round(best_temperature(log_probs, torch.as_tensor(labels)), 4)
    else:
        rows = {"train": (part.X, part.y), "test": (part.X_test, part.y_test)}
        found = {name: (model.predict_distribution(X), y) for name, (X, y) in rows.items() if name in spec.parts}
        scores = {name: metrics.summary(*pair) for name, pair in found.items()}
        if spec.reference:
            scores["test"] |= scaled_scores(scores["test"], float(np.std(part.y)))
            details["coverage_by_width"] = coverage_by_width(*found["test"])
            if hasattr(model, "stack_"):
                scores["test"]["shuffled_auroc"] = shuffled_auroc(model, part.X_test, int(cell.split or 0))
    seconds = {**common["seconds"], "predict": round(time.perf_counter() - started, 3)}
    line = {**cell.identity(), "key": cell.key, "scores": scores, "seconds": seconds}
    return {**line, "versions": common["versions"], "details": details}


def _store(path: Path, probs: Mapping[str, FloatArray], labels: NDArray[Any]) -> None:
    arrays: dict[str, Any] = {"labels": labels, **{view: found.astype(np.float32) for view, found in probs.items()}}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))


def _views(spec: Spec, model: Any, X: NDArray[Any]) -> dict[str, FloatArray]:
    if not spec.images:
        return {"test": model.predict_proba(X)}
    found = mean_over_views(X, model.predict_proba, list(VIEWS.values()))
    return {name: found[views] for name, views in VIEWS.items()}


def scaled_scores(scores: Mapping[str, float], scale: float) -> dict[str, float]:
    """Scores of targets that are divided by ``scale``, which makes those of several tables comparable.

    Example:
        >>> scaled_scores({"log_likelihood": -1.0, "crps": 1.0, "rmse": 2.0, "interval_width": 6.0}, 2.0)["scaled_rmse"]
        1.0
    """
    divided = {f"scaled_{name}": scores[name] / scale for name in ("crps", "rmse", "interval_width")}
    return {"scaled_log_likelihood": scores["log_likelihood"] + float(np.log(scale)), **divided}


def coverage_by_width(predictive: Predictive, y: FloatArray) -> list[float]:
    """Coverage of the 90 % interval in each tenth of the rows, from the narrowest intervals to the widest."""
    low, high = predictive.interval(0.9)
    inside = ((low <= y) & (y <= high))[np.argsort(high - low, kind="stable")]
    return [round(float(part.mean()), 4) for part in np.array_split(inside, 10) if len(part)]


def shuffled_auroc(model: Any, X: Any, seed: int) -> float:
    """How well the latent variance tells rows whose columns were shuffled, each on its own, from the real ones."""
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415  (slow to import)

    generator = np.random.default_rng(seed)
    shuffled = X.copy()
    columns: Any = shuffled if isinstance(shuffled, np.ndarray) else shuffled.iloc
    for column in range(X.shape[1]):
        order = generator.permutation(len(X))
        columns[:, column] = X[order, column] if isinstance(X, np.ndarray) else X.iloc[order, column].to_numpy()
    found = [model.predict_distribution(rows).latent_variance for rows in (X, shuffled)]
    truth = np.repeat([0, 1], [len(part) for part in found])
    return float(roc_auc_score(truth, np.concatenate(found)))


def class_scores(probs: FloatArray, labels: NDArray[Any]) -> dict[str, float]:
    """Scores of class probabilities ``(m, classes)``, given the column of each true class."""
    probs = probs / probs.sum(axis=1, keepdims=True)
    scores = metrics.class_summary(probs, labels)
    confidence = float(np.max(probs, axis=1).mean())
    return {"log_likelihood": -scores.pop("nll"), **scores, "mean_confidence": confidence}
