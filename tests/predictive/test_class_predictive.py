"""What users and metrics read off a class prediction."""

from __future__ import annotations

import numpy as np
import pytest

from gdkl import ClassPredictive
from gdkl.numerics import DataError, OptionError
from gdkl.predictive import class_index

PROBS = np.array([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3]])


def _predictive(classes=("a", "b", "c")):
    with np.errstate(divide="ignore"):
        return ClassPredictive(np.log(PROBS), classes, np.zeros((3, 3)), np.ones((3, 3)))


def test_probabilities_log_probabilities_and_mode():
    p = _predictive()
    np.testing.assert_allclose(p.probs, PROBS)
    np.testing.assert_allclose(p.log_prob(["b", "c", "a"]), np.log([0.2, 0.5, 1 / 3]))
    assert p.mode.tolist()[:2] == ["a", "b"]
    assert len(p) == 3
    assert "3 classes at 3 rows" in repr(p)


def test_entropy_counts_an_impossible_class_as_nothing():
    np.testing.assert_allclose(_predictive().entropy[1:], [np.log(2), np.log(3)])


def test_unnormalised_log_probabilities_are_normalised():
    p = ClassPredictive(np.log(PROBS[2:] * 0.5), [0, 1, 2], np.zeros((1, 3)), np.ones((1, 3)))
    np.testing.assert_allclose(p.probs.sum(axis=1), 1, atol=1e-15)
    np.testing.assert_allclose(p.log_prob([0]), np.log(1 / 3))


def test_samples_come_as_often_as_they_should():
    draws = _predictive().sample(20_000, random_state=0)
    assert draws.shape == (20_000, 3)
    for column, label in enumerate("abc"):
        np.testing.assert_allclose((draws == label).mean(axis=0), PROBS[:, column], atol=0.015)
    np.testing.assert_array_equal(_predictive().sample(5, random_state=1), _predictive().sample(5, random_state=1))
    state = np.random.RandomState(0)
    assert _predictive().sample(2, random_state=state).shape == (2, 3)


def test_some_of_the_rows():
    p = _predictive()[1:]
    assert len(p) == 2
    np.testing.assert_allclose(p.probs, PROBS[1:])


def test_wrong_use_is_refused():
    p = _predictive()
    with pytest.raises(DataError, match=r"not there in fit: 'z'. The classes are 'a', 'b', 'c'"):
        p.log_prob(["a", "z", "b"])
    with pytest.raises(DataError, match="one label for each of the 3 rows"):
        p.log_prob(["a"])
    with pytest.raises(OptionError, match="n=0"):
        p.sample(0)
    with pytest.raises(OptionError, match=r"p\[1:2\]"):
        p[1]
    with pytest.raises(DataError, match="one shape"):
        ClassPredictive(np.zeros((2, 2)), ["a", "b"], np.zeros((3, 2)), np.zeros((2, 2)))


def test_class_numbers():
    assert class_index(np.array([1.0, 2.0]), [2, 1, 2]).tolist() == [1, 0, 1]
    with pytest.raises(DataError, match="not there in fit"):
        class_index(np.arange(12), ["a"])
