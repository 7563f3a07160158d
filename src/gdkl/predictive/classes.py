"""The predictive distribution of a classifier: a probability per class, and the latent functions behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gdkl.numerics import DataError, OptionError
from gdkl.predictive.gaussian import RandomState, draws_from
from gdkl.predictive.mixture import FloatArray


class ClassPredictive:
    """Predictive distribution of the labels at ``m`` rows.

    Args:
        log_probs: Log probability of each class, ``(m, classes)``; of an ensemble, of its mixture.
        classes: The labels, in the columns' order.
        latent_mean: Means of the latent functions, ``(m, classes)``.
        latent_variance: Their variances, same shape; large where the model has seen nothing like the row.

    Attributes:
        probs: Probabilities, ``(m, classes)``; each row sums to one.

    Example:
        >>> p = ClassPredictive(np.log([[0.5, 0.5], [0.9, 0.1]]), ["no", "yes"], np.zeros((2, 2)), np.ones((2, 2)))
        >>> p.log_prob(["no", "yes"]).round(2)
        array([-0.69, -2.3 ])
        >>> p.entropy.round(2)
        array([0.69, 0.33])
    """

    def __init__(self, log_probs: ArrayLike, classes: ArrayLike, latent_mean: ArrayLike, latent_variance: ArrayLike):
        values = np.asarray(log_probs, dtype=np.float64)
        self.classes: NDArray[Any] = np.asarray(classes)
        self.latent_mean: FloatArray = np.asarray(latent_mean, dtype=np.float64)
        self.latent_variance: FloatArray = np.asarray(latent_variance, dtype=np.float64)
        shapes = {values.shape, self.latent_mean.shape, self.latent_variance.shape}
        if len(shapes) != 1 or values.ndim != 2 or values.shape[1] != len(self.classes):
            raise DataError(
                f"log_probs, latent_mean and latent_variance need one shape (m, {len(self.classes)}); got {shapes}."
            )
        # Normalised once more: a mean over samples, and over members, leaves a rounding error.
        largest = values.max(axis=1, keepdims=True, initial=-np.inf)
        self.log_probs: FloatArray = values - (largest + np.log(np.exp(values - largest).sum(axis=1, keepdims=True)))
        probs = np.exp(self.log_probs)
        self.probs: FloatArray = probs / probs.sum(axis=1, keepdims=True)

    def log_prob(self, y: ArrayLike) -> FloatArray:
        """Log probability of each observed label, ``(m,)``."""
        index = class_index(self.classes, y)
        if index.shape != (len(self),):
            raise DataError(f"y has shape {np.shape(y)}: give one label for each of the {len(self)} rows.")
        return self.log_probs[np.arange(len(self)), index]

    @property
    def entropy(self) -> FloatArray:
        """Entropy of each row's probabilities in nats, ``(m,)``: how unsure the model is of the label."""
        # 0 · log 0 is 0.
        finite = np.where(self.probs > 0, self.log_probs, 0.0)
        return -(self.probs * finite).sum(axis=1)

    @property
    def mode(self) -> NDArray[Any]:
        """The most probable label of each row."""
        return self.classes[self.probs.argmax(axis=1)]

    def sample(self, n: int = 1, *, random_state: RandomState = None) -> NDArray[Any]:
        """Draw ``n`` labels per row, ``(n, m)``, each row independently of the others."""
        level = draws_from(random_state, n).uniform(size=(n, len(self), 1))
        # The first class whose cumulative probability passes the level; the last is for what rounding leaves.
        passed = (self.probs.cumsum(axis=1) <= level).sum(axis=-1)
        return self.classes[np.minimum(passed, len(self.classes) - 1)]

    def __getitem__(self, rows: slice | Sequence[int] | NDArray[Any]) -> ClassPredictive:
        """The prediction for some of the rows, picked as from an array: ``p[:10]``, ``p[mask]``."""
        if isinstance(rows, (int, np.integer)):
            raise OptionError(f"p[{rows}] would be no array: use p[{rows}:{int(rows) + 1}].")
        return ClassPredictive(self.log_probs[rows], self.classes, self.latent_mean[rows], self.latent_variance[rows])

    def __len__(self) -> int:
        return self.probs.shape[0]

    def __repr__(self) -> str:
        return f"ClassPredictive({len(self.classes)} classes at {len(self)} rows)"


def class_index(classes: NDArray[Any], y: ArrayLike) -> NDArray[np.intp]:
    """Number of each label's class.

    Example:
        >>> class_index(np.array(["a", "b"]), ["b", "a"])
        array([1, 0])
    """
    numbers = {label: number for number, label in enumerate(classes.tolist())}
    labels = np.asarray(y)
    try:
        return np.array([numbers[label] for label in labels.ravel().tolist()], dtype=np.intp).reshape(labels.shape)
    except (KeyError, TypeError) as error:
        unseen = [label for label in dict.fromkeys(labels.ravel().tolist()) if label not in numbers]
        named = ", ".join(repr(label) for label in unseen[:5]) + (" ..." if len(unseen) > 5 else "")
        told = f"y has labels that were not there in fit: {named}. The classes are {shown(classes)}."
        raise DataError(told) from error


def shown(classes: NDArray[Any]) -> str:
    """The classes in words, the first few of many."""
    names = [repr(label) for label in classes.tolist()]
    return ", ".join(names[:10]) + (" ..." if len(names) > 10 else "")
