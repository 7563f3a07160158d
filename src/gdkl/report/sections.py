"""The sections of a report, each from what is known of the model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from gdkl.estimators.diagnostics import Diagnosis, Evidence, Finding, Severity
from gdkl.predictive import ClassPredictive, Predictive
from gdkl.report.columns import data_card
from gdkl.report.page import Section, table
from gdkl.report.scores import Comparison, Score, scores_of

#: Columns that the data card lists at most.
_MOST_COLUMNS = 100


def verdict(diagnosis: Diagnosis) -> Section:
    """The verdict, what speaks against the model, and what was checked."""
    fine = [one for one in diagnosis if one.severity is Severity.FINE]
    others = [one for one in diagnosis if one.severity is not Severity.FINE]
    parts = [f"<p>{escape(diagnosis.verdict)}</p>"]
    if others:
        parts.append(_listed(others))
    if fine:
        parts.append(
            f"<details><summary>Checked and fine: {len(fine)}</summary>{_listed(fine)}</details>"
            '<p class="soft">A check alarms on a few healthy models in a thousand, if rows are independent.</p>'
        )
    return Section("verdict", "Verdict", "\n".join(parts), f"verdict {diagnosis.severity}")


def _listed(findings: Sequence[Finding]) -> str:
    items: list[str] = []
    for one in findings:
        kind = "unknown" if one.severity is Severity.UNKNOWN else str(one.severity)
        remedy = f'<span class="remedy">Remedy: {escape(one.remedy)}</span>' if one.remedy else ""
        tag = f'<span class="tag">{escape(one.severity)}</span>'
        items.append(f'<li class="{kind}">{tag}<b>{escape(one.check)}.</b> {_minus(escape(one.text))}{remedy}</li>')
    return f'<ul class="findings">{"".join(items)}</ul>'


def _minus(text: str) -> str:
    """Hyphens before numbers as minus signs."""
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)


def scores(
    e: Evidence,
    baselines: Mapping[str, Predictive | ClassPredictive],
    comparisons: Sequence[Comparison],
    why_not: str,
    title: str,
) -> Section:
    """Scores with standard errors of the model and of simpler ones; ``why_not`` says why some are not there."""
    name = type(e.estimator).__name__
    found = {name: scores_of(e.p, e.y)} | {other: scores_of(p, e.y) for other, p in baselines.items()}
    leads = {one.name: one.lead for one in comparisons}
    header = ["model", *found[name], "log-likelihood behind the model"]
    rows = [
        [who, *(_cell(score) for score in own.values()), _cell(leads[who]) if who in leads else ""]
        for who, own in found.items()
    ]
    words = (
        "Means over the held-out rows ± standard errors. Log-likelihood and accuracy: larger is better; the others, "
        "but for coverage, smaller. The last column is by how much each is worse than the model, row by row."
    )
    if baselines:
        words += " The simpler models see the same scaled columns and the same warp of the target, as they come."
    tail = f"<p>{escape(why_not)}</p>" if why_not else ""
    body = f'{table(header, rows, own=0)}<p class="soft">{escape(words)}</p>{tail}'
    return Section(f"scores{_suffix(e)}", title, body)


def _cell(score: Score) -> str:
    if not math.isfinite(score.error) or score.error < 1e-9 * abs(score.value):
        return _number(score.value, 3)
    # Two digits of the error, and as many decimals of the value.
    decimals = max(0, 1 - math.floor(math.log10(score.error)))
    return f"{score.value:,.{decimals}f} ± {score.error:,.{decimals}f}".replace("-", "−").replace(",", " ")


def _number(value: float, digits: int) -> str:
    """So many significant digits, without powers of ten for what can be read."""
    size = math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0
    told = f"{value:,.{max(0, digits - 1 - size)}f}" if -5 < size < 9 else f"{value:.{digits}g}"
    return told.replace("-", "−").replace(",", " ")


def _suffix(e: Evidence) -> str:
    return "" if e.output is None else f"-{e.output}"


def farthest(e: Evidence, distance: np.ndarray, usual: float, most: int = 8) -> str:
    """The rows that are farthest from the training data: which they are, what is predicted, and what came true."""
    order = np.argsort(-distance)[:most]
    if isinstance(e.p, ClassPredictive):
        top = e.p.probs.argmax(axis=1)
        told = [f"{e.p.classes[top[i]]} ({100 * e.p.probs[i].max():.0f} %)" for i in range(len(e))]
        header = ["row", "distance", "predicted", "label"]
    else:
        low, high = e.p.interval(0.9)
        told = [f"{_number(float(low[i]), 4)} to {_number(float(high[i]), 4)}" for i in range(len(e))]
        header = ["row", "distance", "90 % interval", "target"]
    rows = [
        [str(i), f"{distance[i] / usual:.1f}", told[i], e.y[i] if e.is_classes else _number(float(e.y[i]), 4)]
        for i in order.tolist()
    ]
    words = "Rows are numbered from 0; a distance of 1 is farther than 95 % of the training rows are from the others."
    return f'{table(header, [[str(cell) for cell in row] for row in rows])}<p class="soft">{words}</p>'


def data(e: Evidence) -> Section:
    """The data card: columns with kind, values, missing cells and how far their means have moved."""
    cards = data_card(e)
    header = ["column", "kind", "values of the held-out rows", "missing", "mean since fit"]
    rows = [
        [
            card["column"],
            card["kind"],
            card["values"],
            str(card["missing"]),
            "" if math.isnan(card["moved"]) else f"{card['moved']:+.2f}".replace("-", "−"),
        ]
        for card in cards[:_MOST_COLUMNS]
    ]
    known = "" if e.training is None else f"{len(e.training)} training rows, "
    words = f"{known}{len(e)} held-out rows, {len(cards)} columns."
    if len(cards) > _MOST_COLUMNS:
        words += f" The first {_MOST_COLUMNS} are listed."
    note = "The last column is in training standard deviations; of a category it is that of the level that moved most."
    body = f'<p>{words}</p>{table(header, rows, text=(1,), wrapped=(2,))}<p class="soft">{note}</p>'
    return Section("data", "Data", body)


def origin(facts: Sequence[tuple[str, str]]) -> Section:
    """Where the report comes from."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd><code>{escape(value)}</code></dd>" for name, value in facts)
    return Section("origin", "Where this comes from", f"<dl>{rows}</dl>")
