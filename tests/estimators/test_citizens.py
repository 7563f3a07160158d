"""Among scikit-learn's searches, pipelines, callbacks and routed metadata, and other libraries' contracts."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import sklearn
from regressor_cases import table
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gdkl import DKLRegressor, GDKLRegressor, NNGPRegressor, metrics
from gdkl.numerics import GdklError

X, Y = table(30)

SEARCH = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import numpy as np
from sklearn.model_selection import GridSearchCV
from gdkl import DKLRegressor

X = np.linspace(0, 6, 40).reshape(-1, 1)

def watch(report):
    if report.step == 5:
        print("training", flush=True)

search = GridSearchCV(
    DKLRegressor(n_iter=10**6, random_state=0, callbacks=[watch]), {"n_members": [1, 2]}, cv=3, error_score=0.0
)
try:
    search.fit(X, np.sin(X[:, 0]))
except KeyboardInterrupt as error:
    print("stopped:", error, flush=True)
    raise
print("the search went on", flush=True)
"""


def test_ctrl_c_stops_a_grid_search():
    with subprocess.Popen(
        [sys.executable, "-c", SEARCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "training\n"
            process.send_signal(signal.SIGINT)
            said, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    # One fit was begun, and none after it; Python ends by the signal itself.
    assert said.splitlines()[-1].startswith("stopped: Training was interrupted after")
    assert "training" not in said
    assert "went on" not in said
    assert errors.rstrip().splitlines()[-1].startswith("KeyboardInterrupt: Training was interrupted")
    assert process.returncode == -signal.SIGINT


class Recorder:
    """A callback of scikit-learn's."""

    def __init__(self, stop_at=None):
        self.stop_at = stop_at
        self.events = []
        self.fitted = []

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, X=None, fitted_estimator=None):
        self.events.append(f"end {context.task_name}")
        if fitted_estimator is not None:
            self.fitted.append(fitted_estimator.predict(X))
        return self.stop_at is not None and context.task_id == self.stop_at


needs_callbacks = pytest.mark.skipif(
    not hasattr(BaseEstimator, "set_callbacks") and not hasattr(NNGPRegressor, "set_callbacks"),
    reason="callbacks came with scikit-learn 1.9",
)


@needs_callbacks
def test_callbacks_of_scikit_learn_are_told_of_runs_and_steps():
    recorder, steps = Recorder(), []
    model = DKLRegressor(n_iter=3, random_state=0, callbacks=[lambda report: steps.append(report.step)])
    model.set_callbacks(recorder).fit(X, Y)
    one = ["begin step", "end step"]
    assert recorder.events == ["setup", "begin fit", "begin training", *one * 3, "end training", "end fit", "teardown"]
    assert steps == [1, 2, 3]
    (predicted,) = recorder.fitted
    assert (predicted == model.predict(X)).all()
    assert (clone(model).set_callbacks().fit(X, Y).predict(X) == predicted).all()


@needs_callbacks
def test_a_callback_of_scikit_learn_ends_training():
    model = DKLRegressor(n_iter=50, random_state=0).set_callbacks(Recorder(stop_at=9)).fit(X, Y)
    assert model.n_iter_ == 10
    trees = Recorder()
    GDKLRegressor(n_iter=4, random_state=0).set_callbacks(trees).fit(X, Y)
    assert trees.events.count("begin step") == 4
    silent = Recorder()
    NNGPRegressor().set_callbacks(silent).fit(X, Y)
    assert silent.events == ["setup", "begin fit", "end fit", "teardown"]


@needs_callbacks
def test_callbacks_are_torn_down_when_a_fit_fails():
    recorder = Recorder()
    with pytest.raises(GdklError):
        DKLRegressor(n_iter=3).set_callbacks(recorder).fit(X, Y[:-1])
    assert recorder.events == ["setup", "begin fit", "end fit", "teardown"]
    assert recorder.fitted == []


@needs_callbacks
def test_scikit_learn_s_own_callbacks_work_in_a_search():
    callbacks = importlib.import_module("sklearn.callback")
    monitor = callbacks.ScoringMonitor(scoring="r2")
    model = DKLRegressor(n_iter=3, random_state=0).set_callbacks(monitor).fit(X, Y)
    search = GridSearchCV(clone(model).set_callbacks(), {"n_members": [1, 2]}, cv=2)
    search.set_callbacks(callbacks.ProgressBar(max_propagation_depth=None)).fit(X, Y)
    assert search.best_estimator_.n_iter_ == 3
    assert monitor.get_logs()


def test_weights_and_noise_are_routed_to_fit():
    weight = np.linspace(0.5, 2.0, 30)
    with sklearn.config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        model = NNGPRegressor().set_fit_request(sample_weight=True, noise_var=True)
        pipeline = make_pipeline(scaler, model).fit(X, Y, sample_weight=weight, noise_var=1 / weight)
        search = GridSearchCV(
            NNGPRegressor(relevance=True).set_fit_request(sample_weight=True).set_score_request(sample_weight=False),
            {"relevance": [False]},
            cv=3,
            scoring=metrics.crps_scorer,
        ).fit(X, Y, sample_weight=weight)
    alone = NNGPRegressor().fit(StandardScaler().fit_transform(X), Y, sample_weight=weight, noise_var=1 / weight)
    np.testing.assert_allclose(pipeline.predict(X), alone.predict(StandardScaler().fit_transform(X)), rtol=1e-9)
    np.testing.assert_allclose(
        search.predict(X), NNGPRegressor().fit(X, Y, sample_weight=weight).predict(X), rtol=1e-12
    )
    assert not np.allclose(search.predict(X), NNGPRegressor().fit(X, Y).predict(X))


def test_a_pipeline_s_distribution_is_one_line_away():
    pipe = make_pipeline(StandardScaler(), NNGPRegressor()).fit(X, Y)
    p = pipe[-1].predict_distribution(pipe[:-1].transform(X))
    np.testing.assert_array_equal(p.mean, pipe.predict(X))
    np.testing.assert_array_equal(pipe.predict(X, return_std=True)[1], p.std)


def test_mapie_conformalises_our_intervals_and_means():
    mapie = pytest.importorskip("mapie.regression", reason="mapie is not installed")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(220, 2))
    y = x[:, 0] + 0.3 * rng.standard_t(3, size=220)
    split = mapie.SplitConformalRegressor(NNGPRegressor(), confidence_level=0.8, prefit=False)
    split.fit(x[:60], y[:60]).conformalize(x[60:120], y[60:120])
    mean, interval = split.predict_interval(x[120:])
    np.testing.assert_allclose(mean, NNGPRegressor().fit(x[:60], y[:60]).predict(x[120:]))
    covered = (interval[:, 0, 0] <= y[120:]) & (y[120:] <= interval[:, 1, 0])
    assert 0.65 < covered.mean() < 0.95
    # Quantiles of one model, each under a name that MAPIE asks predict of.
    model = NNGPRegressor().fit(x[:60], y[:60])
    quantiles = [AtQuantile(model, level) for level in (0.1, 0.9, 0.5)]
    cqr = mapie.ConformalizedQuantileRegressor(quantiles, confidence_level=0.8, prefit=True)
    cqr.conformalize(x[60:120], y[60:120])
    _, interval = cqr.predict_interval(x[120:])
    covered = (interval[:, 0, 0] <= y[120:]) & (y[120:] <= interval[:, 1, 0])
    assert 0.65 < covered.mean() < 0.95


class AtQuantile(BaseEstimator):
    def __init__(self, model, level):
        self.model = model
        self.level = level

    def fit(self, X, y):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict(self, X):
        return self.model.predict_quantiles(X, self.level)[:, 0]


def test_the_contract_of_skpro():
    pytest.importorskip("skpro", reason="skpro is not installed: it asks for an older pandas than is pinned")
    base, distributions, checks = (
        importlib.import_module(f"skpro.{name}")
        for name in ("regression.base", "distributions", "utils.estimator_checks")
    )

    def text_names(X):
        # scikit-learn takes column names of one type alone.
        return X.set_axis([str(name) for name in X.columns], axis=1)

    class Adapter(base.BaseProbaRegressor):
        _tags: ClassVar = {"capability:multioutput": False, "capability:missing": False}

        def __init__(self, relevance=False):
            self.relevance = relevance
            super().__init__()

        def _fit(self, X, y):
            self.columns_ = y.columns
            self.model_ = NNGPRegressor(relevance=self.relevance).fit(text_names(X), y.to_numpy()[:, 0])
            return self

        def _predict(self, X):
            return pd.DataFrame(self.model_.predict(text_names(X)), index=X.index, columns=self.columns_)

        def _predict_proba(self, X):
            p = self.model_.predict_distribution(text_names(X))
            return distributions.Normal(p.mean[:, None], p.std[:, None], index=X.index, columns=self.columns_)

        def _predict_interval(self, X, coverage):
            found = [self.model_.predict_interval(text_names(X), level) for level in coverage]
            columns = pd.MultiIndex.from_product([self.columns_, coverage, ["lower", "upper"]])
            return pd.DataFrame(np.concatenate(found, axis=1), index=X.index, columns=columns)

        def _predict_quantiles(self, X, alpha):
            found = self.model_.predict_quantiles(text_names(X), alpha)
            found.columns = pd.MultiIndex.from_product([self.columns_, alpha])
            return found

        @classmethod
        def get_test_params(cls, parameter_set="default"):
            return [{}, {"relevance": True}]

    of_docs = ["test_class_has_doctest_example", "test_doctest_examples"]
    results = checks.check_estimator(Adapter, tests_to_exclude=of_docs)
    assert len(results) > 50
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}
