"""Many threads, little memory: answers stay the same, and settings of the caller stay his own."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from classifier_cases import MAKERS as CLASSIFIERS
from classifier_cases import table as class_table
from regressor_cases import MAKERS as REGRESSORS
from regressor_cases import table
from threadpoolctl import threadpool_info
from torch import nn

from gdkl import GDKLRegressor
from gdkl.numerics import MemoryLimitError

X, Y = table(20)


def in_a_new_thread(function):
    """What a function returns in a thread that has not been used before."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def settings():
    """Settings of the process and of this thread that a library might change."""
    blas = [(library["filepath"], library["num_threads"]) for library in threadpool_info()]
    grad = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    threads = torch.get_num_threads(), in_a_new_thread(torch.get_num_threads), torch.get_num_interop_threads()
    return blas, grad, threads, torch.get_default_dtype(), np.geterr(), list(warnings.filters)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_eight_threads_that_predict_with_one_model_get_equal_bits():
    model = REGRESSORS["gdkl"](n_iter=5).fit(X, Y)
    alone = model.predict_distribution(X)
    start = threading.Barrier(8)

    def predict(_):
        start.wait()
        return [model.predict_distribution(X) for _ in range(10)]

    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(predict, range(8)):
            for p in found:
                np.testing.assert_array_equal(p.mean, alone.mean)
                np.testing.assert_array_equal(p.variance, alone.variance)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("name", ["gdkl", "dkl", "relevant nngp", "gp"])
def test_settings_of_the_caller_are_as_before(name):
    model = REGRESSORS[name](**({"n_iter": 3} if "dkl" in name else {})).fit(X, Y)
    # What is imported for the first time brings filters of warnings of its own.
    before = settings()
    model.fit(X, Y)
    assert settings() == before
    model.predict_distribution(X).interval(0.9)
    assert settings() == before
    with pytest.raises(ValueError, match="NaN"):
        model.fit(X, np.full(20, np.nan))
    assert settings() == before


@pytest.mark.usefixtures("two_threads")
def test_settings_are_as_before_after_fits_at_the_same_time():
    rows, labels = class_table(20)

    def fit(index):
        if index:
            REGRESSORS["gp"]().fit(X, Y)
        else:
            CLASSIFIERS["nngp"]().fit(rows, labels)

    # What is imported for the first time brings filters of its own.
    fit(0)
    fit(1)
    before = settings()

    threads = [threading.Thread(target=fit, args=(index % 2,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert settings() == before


class Greedy(nn.Module):
    """A user's network that wants more memory than there is for more than so many rows."""

    def __init__(self, columns, most):
        super().__init__()
        self.inner, self.most = nn.Linear(columns, 2), most

    def forward(self, x):
        if len(x) > self.most:
            torch.empty(2**58)
        return self.inner(x)


def test_a_prediction_that_does_not_fit_is_made_in_parts():
    model = GDKLRegressor(n_iter=2, preset="paper", random_state=0, feature_net=lambda d: Greedy(d, 20)).fit(X, Y)
    many = np.concatenate([X, X, X])
    np.testing.assert_allclose(model.predict(many), np.tile(model.predict(X), 3), rtol=1e-9)


def test_training_that_does_not_fit_says_what_to_do():
    calls = []

    class Later(Greedy):
        def forward(self, x):
            calls.append(len(x))
            # The first calls are checks.
            self.most = 0 if len(calls) > 8 else 1000
            return super().forward(x)

    model = GDKLRegressor(n_iter=50, preset="paper", random_state=0, feature_net=lambda d: Later(d, 0))
    match = r"training on 20 rows of 4 columns needs more memory .* GiB are free now. Use inference='sparse', fewer"
    with pytest.raises(MemoryLimitError, match=match) as caught:
        model.fit(X, Y)
    assert len(str(caught.value).splitlines()) == 1
