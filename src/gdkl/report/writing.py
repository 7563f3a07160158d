"""Writing the report of a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gdkl.estimators.diagnostics import Diagnosis, Evidence, findings, gather
from gdkl.numerics import OptionError, write_atomically
from gdkl.report.baselines import MOST_COLUMNS, fit_baselines
from gdkl.report.page import Section, page
from gdkl.report.pictures import Gallery
from gdkl.report.provenance import provenance
from gdkl.report.scores import compare, finding_of
from gdkl.report.sections import data, origin, scores, verdict


def write_report(
    model: Any,
    X: Any,
    y: Any,
    path: str | os.PathLike[str],
    *,
    train: tuple[Any, Any] | None = None,
    baselines: bool = True,
    command: str | None = None,
) -> Diagnosis:
    """Write one HTML page about a fitted model: a verdict in words, and the figures and pictures behind it.

    The page needs no network and runs no script. It is about rows that ``fit`` has not seen.

    Args:
        model: A fitted estimator, of classes or of numbers.
        X: Held-out rows.
        y: Their targets or labels.
        path: Of the page; it is there as a whole or not at all.
        train: Rows and targets of ``fit``. Models with guides hold them; others are compared with simpler models, and
            rows with those of the training, only if they are passed.
        baselines: Whether the mean, a linear model, a Gaussian process and histogram boosting are fitted to the
            training rows and compared.
        command: What made the model, to be shown.

    Returns:
        The diagnosis that the verdict is of.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from gdkl import NNGPRegressor
        >>> X = np.random.default_rng(0).uniform(-2, 2, (120, 1))
        >>> y = np.sin(2 * X[:, 0]) + 0.1 * np.random.default_rng(1).normal(size=120)
        >>> model = NNGPRegressor().fit(X[:80], y[:80])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_report(model, X[80:], y[80:], f"{folder}/report.html", baselines=False).verdict
        'Nothing speaks against this model on 40 held-out rows.'
    """
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise OptionError(f"there is no folder {folder}: make it, or write the report elsewhere.")
    e = gather(model, X, y, train)
    diagnosis, sections = findings(e), list[Section]()
    for one in e.outputs():
        named = "" if one.output is None else f": target {one.output}"
        simpler = fit_baselines(one) if baselines else {}
        comparisons = compare(one, simpler)
        if (found := finding_of(comparisons, len(one))) is not None:
            diagnosis = Diagnosis((*diagnosis.findings, found), diagnosis.rows)
        gallery = Gallery(one, named)
        sections += [
            scores(one, simpler, comparisons, _why_not(one, baselines), f"Scores{named}"),
            gallery.calibration(),
            gallery.rows(),
        ]
        if (about := gallery.model()) is not None:
            sections.append(about)
    if model.kind_.input.image_shape is None:
        sections.append(data(e))
    sections.append(origin(provenance(e, train, command)))
    text = page(
        f"Report of a {type(model).__name__}", _subtitle(e, getattr(y, "name", None)), [verdict(diagnosis), *sections]
    )
    write_atomically(path, lambda file: file.write(text.encode()))
    return diagnosis


def _subtitle(e: Evidence, name: Any) -> str:
    target = "" if name is None else f"Target: {name}. "
    known = "" if e.training is None else f" after {len(e.training)} training rows"
    return f"{target}Judged on {len(e)} held-out rows{known}."


def _why_not(e: Evidence, baselines: bool) -> str:
    if not baselines:
        return "Simpler models were not asked for."
    if e.training is None or e.training.rows is None:
        return (
            "The model does not hold its training rows: to compare it with a linear model, a Gaussian process and "
            "boosting, pass train=(X, y)."
        )
    if e.rows.shape[1] > MOST_COLUMNS:
        return f"Histogram boosting is left out: {e.rows.shape[1]} columns would take it minutes."
    return ""
