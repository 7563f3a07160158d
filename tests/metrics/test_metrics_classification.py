"""Scores of class probabilities against definitions written out, other libraries and chance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import brier_score_loss, log_loss

from gdkl import GdklError, metrics
from gdkl.predictive import ClassPredictive


def draw(n=500, classes=4, seed=0, sharpness=2.0):
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.standard_normal((n, classes))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return probs, rng.integers(classes, size=n)


def by_loop(probs, labels, bins):
    """Distances of confidence and accuracy by plain counting: [(share of rows, distance)]."""
    members = {}
    for row, label in zip(probs, labels, strict=True):
        top = max(row)
        place = min(math.floor(top * bins), bins - 1)
        members.setdefault(place, []).append((top, list(row).index(top) == label))
    return [
        (len(rows) / len(labels), abs(sum(top for top, _ in rows) - sum(right for _, right in rows)) / len(rows))
        for rows in members.values()
    ]


@pytest.mark.parametrize("classes", [2, 4, 11])
@pytest.mark.parametrize("bins", [1, 7, 15])
def test_calibration_errors_are_counts_by_hand(classes, bins):
    probs, labels = draw(classes=classes)
    gaps = by_loop(probs, labels, bins)
    assert metrics.ece(probs, labels, bins) == pytest.approx(sum(share * gap for share, gap in gaps), abs=2e-6)
    assert metrics.mce(probs, labels, bins) == pytest.approx(max(gap for _, gap in gaps), abs=2e-6)
    found = metrics.calibration_bins(probs, labels, bins)
    distance = np.nan_to_num(np.abs(found.confidence - found.accuracy))
    assert found.counts.sum() == len(labels)
    assert float(distance @ found.counts) / len(labels) == pytest.approx(metrics.ece(probs, labels, bins), abs=2e-6)


def test_certain_predictions_share_the_last_bin():
    # One certain and wrong, one nearly certain and right: on average 0.5 away in one bin, not 1 away in a bin alone.
    probs, labels = [[1.0, 0.0], [0.98, 0.02]], [1, 0]
    assert metrics.mce(probs, labels) == pytest.approx(0.99 - 0.5, abs=1e-6)
    assert metrics.ece(probs, labels) == pytest.approx(0.99 - 0.5, abs=1e-6)
    assert metrics.calibration_bins(probs, labels).counts.tolist() == [0] * 14 + [2]


def test_accuracy_nll_and_brier_agree_with_scikit_learn():
    probs, labels = draw()
    assert metrics.accuracy(probs, labels) == np.mean(np.argmax(probs, axis=1) == labels)
    assert metrics.nll(probs, labels) == pytest.approx(log_loss(labels, probs, labels=range(4)))
    one_hot = (labels[:, None] == np.arange(4)).astype(float)
    assert metrics.brier(probs, labels) == pytest.approx(4 * np.mean((one_hot - probs) ** 2))


def test_two_columns_are_the_binary_case():
    probs, labels = draw(classes=2)
    # scikit-learn's binary score counts one of the two columns.
    assert metrics.brier(probs, labels) == pytest.approx(2 * brier_score_loss(labels, probs[:, 1]))
    swapped = metrics.class_summary(probs[:, ::-1], 1 - labels)
    assert swapped == pytest.approx(metrics.class_summary(probs, labels))
    assert metrics.accuracy(probs, labels.astype(bool)) == metrics.accuracy(probs, labels)


def test_honest_probabilities_have_a_small_calibration_error():
    probs, _ = draw(n=60_000)
    rng = np.random.default_rng(1)
    labels = (probs.cumsum(axis=1) < rng.uniform(size=(len(probs), 1))).sum(axis=1)
    assert metrics.ece(probs, labels) < 0.01
    sure = probs**3 / (probs**3).sum(axis=1, keepdims=True)
    assert metrics.ece(sure, labels) > 0.1


def test_a_class_without_probability_that_comes_true_costs_everything():
    assert metrics.nll([[1.0, 0.0]], [1]) == math.inf


def test_entropy_is_scipys():
    probs, _ = draw()
    probs[0] = [1, 0, 0, 0]
    np.testing.assert_allclose(metrics.entropy(probs), stats.entropy(probs, axis=1), atol=1e-12)
    assert metrics.entropy(probs)[0] == 0


@pytest.mark.parametrize("by", ["entropy", "variance"])
def test_ood_auroc_is_the_share_of_pairs_in_order(by):
    inside, _ = draw(n=60, sharpness=3)
    outside, _ = draw(n=40, sharpness=1, seed=1)
    if by == "variance":
        inside, outside = inside**2, np.concatenate([outside**2 + 0.1, inside[:5] ** 2])
        score = [values.mean(axis=1) for values in (inside, outside)]
    else:
        score = [stats.entropy(values, axis=1) for values in (inside, outside)]
    pairs = score[1][:, None] - score[0][None, :]
    expected = np.mean((pairs > 1e-12) + 0.5 * (np.abs(pairs) <= 1e-12))
    assert metrics.ood_auroc(inside, outside, by) == pytest.approx(expected)
    assert metrics.ood_auroc(outside, inside, by) == pytest.approx(1 - expected)


def test_class_summary_holds_every_score():
    probs, labels = draw()
    for name, value in metrics.class_summary(probs, labels).items():
        assert value == getattr(metrics, name)(probs, labels)


@pytest.mark.parametrize("classes", [["a", "b", "c", "d"], [4, 3, 2, 1]])
def test_a_prediction_is_scored_by_its_own_labels(classes: list):
    probs, labels = draw()
    p = ClassPredictive(np.log(probs), classes, np.zeros(probs.shape), probs)
    assert metrics.class_summary(p, np.asarray(classes)[labels]) == pytest.approx(metrics.class_summary(probs, labels))
    np.testing.assert_allclose(metrics.entropy(p), metrics.entropy(probs))
    assert metrics.ood_auroc(p[:50], p[50:], "variance") == metrics.ood_auroc(probs[:50], probs[50:], "variance")
    with pytest.raises(GdklError, match="not there in fit: 'z'"):
        metrics.nll(p, ["z"] * len(labels))


@pytest.mark.parametrize("name", ["accuracy", "nll", "brier", "ece", "mce", "calibration_bins", "class_summary"])
@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        ([0.2, 0.8], [0, 1], "column_stack"),
        ([[1.0], [1.0]], [0, 0], "two classes"),
        (np.zeros((0, 3)), np.zeros(0, int), "no rows"),
        ([[0.5, np.nan]], [0], "NaN"),
        ([[2.0, -1.0]], [0], "softmax"),
        ([[0.5, 0.1]], [0], "softmax"),
        ([["a", "b"]], [0], "numbers"),
        ([[0.5, 0.5]], [0, 1], "one per row"),
        ([[0.5, 0.5]], [[0]], "one per row"),
        ([[0.5, 0.5]], [0.0], "whole numbers"),
        ([[0.5, 0.5]], ["cat"], "encode"),
        ([[0.5, 0.5]], [-1], "0 … 1"),
        ([[0.5, 0.5]], [2], "got 2"),
    ],
)
def test_bad_input_is_refused(name, probs, labels, message):
    with pytest.raises(GdklError, match=message):
        getattr(metrics, name)(probs, labels)


def test_bad_options_are_refused():
    probs, labels = draw(n=5)
    for function in (metrics.ece, metrics.mce, metrics.calibration_bins):
        with pytest.raises(GdklError, match="n_bins"):
            function(probs, labels, 0)
    with pytest.raises(GdklError, match="'entropy' or 'variance'"):
        metrics.ood_auroc(probs, probs, by="distance")
    with pytest.raises(GdklError, match="not negative"):
        metrics.ood_auroc([-1.0], [1.0], by="variance")
    with pytest.raises(GdklError, match="rows in them"):
        metrics.ood_auroc([], [1.0], by="variance")
