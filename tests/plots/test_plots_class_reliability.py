"""Reliability diagrams show the bins they were given."""

from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.colors import to_hex

from gdkl import metrics, plots
from gdkl.numerics import DataError
from gdkl.predictive import ClassPredictive

RNG = np.random.default_rng(0)
LOGITS = 2 * RNG.standard_normal((300, 5))
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
LABELS = RNG.integers(5, size=300)


def bars(ax, label):
    [container] = [c for c in ax.containers if c.get_label() == label]
    return [(bar.get_x(), bar.get_y(), bar.get_height()) for bar in container]


def test_a_prediction_is_drawn_with_its_own_labels():
    names = np.array(list("abcde"))
    p = ClassPredictive(np.log(PROBS), names, np.zeros(PROBS.shape), np.ones(PROBS.shape))
    own, bare = (plots.confidence_histogram(*given) for given in ((p, names[LABELS]), (PROBS, LABELS)))
    assert [line.get_xdata()[0] for line in own.lines] == pytest.approx([line.get_xdata()[0] for line in bare.lines])
    assert bare.lines[1].get_xdata()[0] == pytest.approx(PROBS.max(axis=1).mean())
    assert len(plots.reliability_figure({"GDKL": p}, names[LABELS]).axes) == 2


def test_bars_reach_the_accuracy_and_gaps_the_confidence_of_their_bin():
    ax = plots.reliability_diagram(PROBS, LABELS, n_bins=10)
    top, right = PROBS.max(axis=1), PROBS.argmax(axis=1) == LABELS
    places = sorted(set((top * 10).astype(int)))
    reached, gaps = bars(ax, "accuracy"), bars(ax, "gap to confidence")
    assert [round(x * 10) for x, _, _ in reached] == places
    for place, (_, _, height), (_, bottom, gap) in zip(places, reached, gaps, strict=True):
        inside = (top * 10).astype(int) == place
        assert height == bottom == pytest.approx(right[inside].mean())
        assert bottom + gap == pytest.approx(top[inside].mean())


def test_the_panel_names_its_scores():
    [text] = [t.get_text() for t in plots.reliability_diagram(PROBS, LABELS).texts]
    for name, function in (("ECE", metrics.ece), ("MCE", metrics.mce), ("Brier", metrics.brier)):
        assert f"{name} {function(PROBS, LABELS):.3f}" in text


def test_the_histogram_holds_every_prediction_and_both_averages():
    ax = plots.confidence_histogram(PROBS, LABELS)
    assert sum(bar.get_height() for bar in ax.containers[0]) == pytest.approx(1)
    lines = {line.get_label(): line.get_xdata()[0] for line in ax.get_lines()}
    assert lines["accuracy"] == pytest.approx(np.mean(PROBS.argmax(axis=1) == LABELS))
    assert lines["mean confidence"] == pytest.approx(PROBS.max(axis=1).mean())


def test_models_stand_side_by_side_in_their_own_colours():
    figure = plots.reliability_figure({"GDKL": PROBS, "DKL": PROBS**2 / (PROBS**2).sum(axis=1, keepdims=True)}, LABELS)
    above = figure.axes[:2]
    assert [ax.get_title(loc="left") for ax in above] == ["GDKL", "DKL"]
    colors = [to_hex(ax.containers[0][0].get_facecolor()).upper() for ax in above]
    assert colors == [plots.METHOD_COLORS["GDKL"], plots.METHOD_COLORS["DKL"]]
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=40)
    assert stream.getvalue().startswith(b"\x89PNG")


def test_bad_input_is_refused():
    with pytest.raises(DataError, match="at least one"):
        plots.reliability_figure({}, LABELS)
    with pytest.raises(DataError, match="one per row"):
        plots.reliability_diagram(PROBS, LABELS[:-1])
