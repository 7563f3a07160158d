"""The benchmark on tables: rows, peers and their tuning, scores, and the summary over tables."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from botorch import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from gpytorch.mlls import ExactMarginalLogLikelihood
from rich.console import Console
from scipy.stats import norm

from gdkl import GdklError, datasets
from gdkl.experiments import SPECS, Cell, Column, Results, data, peers, summary_tables, write_pictures
from gdkl.experiments.peers import PeerClassifier, PeerRegressor
from gdkl.experiments.runner import run
from gdkl.experiments.summary import gains, split_scores
from gdkl.experiments.trial import coverage_by_width, scaled_scores, shuffled_auroc
from gdkl.metrics import summary
from gdkl.predictive import Predictive

TABLES, CLASSES = SPECS["tables"], SPECS["tables-classes"]


def mixed(rows=60, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"size": rng.normal(size=rows), "age": rng.normal(size=rows), "kind": rng.choice(list("abc"), rows)}
    )
    y = 3 * frame["size"].to_numpy() + (frame["kind"] == "a").to_numpy() + 0.1 * rng.normal(size=rows) + 20
    frame.loc[::7, "age"] = np.nan
    frame.loc[3, "kind"] = None
    return frame, y


@pytest.fixture
def made(monkeypatch):
    """A stand-in for every table: labels where the table is one of classes."""
    frame, y = mixed()

    def load(name, data_dir=None):
        target = np.where(y > 20, "high", "low") if name in CLASSES.datasets else y
        return datasets.Table(frame, target, tuple(frame), "y", name=name)

    monkeypatch.setattr(datasets, "load", load)
    return frame, y


def cell(dataset="wage1", size=40, split=0, method="botorch"):
    return Cell("tables", dataset, method, size, split, 0, "test", {})


def lines_of(spec, methods, output, *, says=None, **more):
    settings = {name: spec.settings(name, {}) for name in methods}
    cells = list(spec.cells([spec.datasets[0]], settings, **more))
    return run(spec, cells, output, device="cpu", say=(says if says is not None else []).append)


class TestRows:
    def test_the_first_rows_of_a_permutation_then_at_most_two_thousand(self, monkeypatch):
        X, y = np.arange(9000.0)[:, None], np.arange(9000.0)
        monkeypatch.setattr(datasets, "load", lambda name, folder=None: datasets.Table(X, y, ("x",), "y", name=name))
        order = np.random.default_rng(2).permutation(9000)
        part = data.mixed_table(cell(size=100, split=2), None, 0)
        np.testing.assert_array_equal(part.y, order[:100])
        np.testing.assert_array_equal(part.X_test[:, 0], order[100:2100])
        np.testing.assert_allclose(data.mixed_table(cell("blog", 100, 2), None, 0).y, np.log(1.0 + order[:100]))

    def test_a_short_table_keeps_a_fifth_for_the_test(self, made):
        part = data.mixed_table(cell(size=500), None, 0)
        assert (len(part.y), len(part.y_test)) == (48, 12)
        with pytest.raises(GdklError, match=r"size=0\.5 must be a number of training rows"):
            data.mixed_table(cell(size=0.5), None, 0)

    def test_peers_see_numbers_and_catboost_the_table(self, made):
        frame, _ = made
        part = data.mixed_table(cell(size=500), None, 0)
        train = frame.iloc[np.random.default_rng(0).permutation(60)[:48]]
        ages = train["age"].fillna(train["age"].median())
        kinds = [(train["kind"] == kind) for kind in "abc"]
        expected = np.column_stack([train["size"], ages, train["age"].isna(), *kinds])
        # The one row without a kind is a rare category, which has a column of its own.
        np.testing.assert_allclose(part.X[:, :6], expected.astype(float))
        assert np.isfinite(part.X_test).all()
        pd.testing.assert_frame_equal(data.mixed_table(cell(size=500, method="catboost"), None, 0).X, train)


class TestPeers:
    @pytest.mark.parametrize(
        ("table", "kind"), [(peers.REGRESSORS, PeerRegressor), (peers.CLASSIFIERS, PeerClassifier)]
    )
    def test_budgets_are_equal_and_begin_with_the_model_as_it_comes(self, table, kind):
        assert {len(candidates) for _, candidates in table.values()} == {4}
        assert all(not candidates[0] for _, candidates in table.values())
        assert kind.peers is table

    @pytest.mark.parametrize("name", peers.REGRESSORS)
    def test_every_regressor_finds_a_line(self, name):
        for package in ("catboost", "ngboost"):
            if name == package:
                pytest.importorskip(package)
        rng = np.random.default_rng(0)
        X = rng.normal(size=(150, 2))
        y = 100 + 20 * X[:, 0] + 5 * rng.normal(size=150)
        model = PeerRegressor(name, tuned=False, random_state=0).fit(X[:100], y[:100])
        predictive = model.predict_distribution(X[100:])
        found = summary(predictive, y[100:])
        assert found["rmse"] < 12
        assert 0.5 < predictive.std.mean() < 15

    def test_botorch_is_its_model_as_it_comes(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(60, 2)) * [1.0, 50.0]
        y = 100 + 20 * X[:, 0] + 5 * rng.normal(size=60)
        found = PeerRegressor("botorch", tuned=False, random_state=0).fit(X[:50], y[:50]).predict_distribution(X[50:])
        rows = torch.as_tensor(X)
        model = SingleTaskGP(rows[:50], torch.as_tensor(y[:50, None]), input_transform=Normalize(2))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        expected = model.posterior(rows[50:], observation_noise=True)
        np.testing.assert_allclose(found.mean, expected.mean[:, 0].detach(), rtol=1e-3)
        np.testing.assert_allclose(found.variance, expected.variance[:, 0].detach(), rtol=1e-2)

    @pytest.mark.parametrize("name", peers.CLASSIFIERS)
    def test_every_classifier_finds_a_border(self, name):
        if name == "catboost":
            pytest.importorskip(name)
        rng = np.random.default_rng(0)
        X = rng.normal(size=(150, 2))
        y = np.where(X[:, 0] > 0, "right", "left")
        model = PeerClassifier(name, tuned=False, random_state=0).fit(X[:100], y[:100])
        probs = model.predict_proba(X[100:])
        np.testing.assert_allclose(probs.sum(axis=1), 1.0)
        assert np.mean(model.classes_[probs.argmax(axis=1)] == y[100:]) > 0.85

    def test_quantiles_of_a_gaussian_give_it_back(self, monkeypatch):
        class Exact:
            def __init__(self, loss, quantile, random_state):
                self.level = quantile

            def fit(self, X, y):
                return self

            def predict(self, X):
                return norm.ppf(self.level, X[:, 0], 2.5)

        monkeypatch.setattr(peers, "HistGradientBoostingRegressor", Exact)
        mean, std = peers._boosting(None, None, 0)(np.array([[1.0], [-7.0]]))
        np.testing.assert_allclose(mean, [1.0, -7.0], atol=1e-6)
        np.testing.assert_allclose(std, 2.5, rtol=1e-6)

    def test_the_candidate_that_predicts_held_out_rows_best_is_fitted_to_all(self, monkeypatch):
        fits = []

        def fit(X, y, seed, std=None):
            fits.append((len(y), std))
            if std == 4.0:
                raise np.linalg.LinAlgError("not positive definite")
            return lambda new: (np.zeros(len(new)), np.full(len(new), std or 1e-9))

        candidates = ({}, {"std": 0.2}, {"std": 4.0}, {"std": 1.1})
        monkeypatch.setitem(PeerRegressor.peers, "made", (fit, candidates))
        y = np.random.default_rng(0).normal(50, 7, size=100)
        model = PeerRegressor("made", random_state=3).fit(np.zeros((100, 1)), y)
        assert model.chosen_ == {"std": 1.1}
        assert fits == [(80, None), (80, 0.2), (80, 4.0), (80, 1.1), (100, 1.1)]
        found = model.predict_distribution(np.zeros((1, 1)))
        assert (found.mean[0], found.std[0]) == (pytest.approx(y.mean()), pytest.approx(1.1 * y.std()))
        as_it_comes = PeerRegressor("made", tuned=False).fit(np.zeros((100, 1)), y)
        # The smallest deviation that is scored.
        assert as_it_comes.predict_distribution(np.zeros((1, 1))).std[0] == pytest.approx(1e-3 * y.std())

    def test_a_held_out_fifth_has_its_share_of_a_rare_class(self, monkeypatch):
        seen = []
        monkeypatch.setitem(PeerClassifier.peers, "made", (lambda X, y, seed, **_: seen.append(y), ({}, {}, {}, {})))
        y = np.repeat(["no", "yes"], [90, 10])
        PeerClassifier("made", random_state=0).fit(np.zeros((100, 1)), y)
        assert [np.bincount(labels).tolist() for labels in seen] == [[72, 8]] * 4 + [[90, 10]]

    def test_a_class_that_a_model_has_not_seen_has_hardly_a_chance(self, monkeypatch):
        class One:
            classes_ = np.array([0, 2])

            def predict_proba(self, X):
                return np.tile([0.25, 0.75], (len(X), 1))

        monkeypatch.setitem(PeerClassifier.peers, "made", (lambda *_: One(), ({},)))
        model = PeerClassifier("made", tuned=False).fit(np.zeros((3, 1)), np.array(["a", "b", "c"]))
        np.testing.assert_allclose(model.predict_proba(np.zeros((2, 1))), [[0.25, 0, 0.75]] * 2, atol=1e-12)


class TestScores:
    def test_scores_in_units_of_the_targets_deviation(self):
        y, scale = np.array([1.0, 5.0, -2.0]), 4.0
        raw, divided = (
            Predictive.gaussian(np.array([0.0, 4.0, 1.0]) / s, [2.0 / s**2] * 3, [0.0] * 3) for s in (1.0, scale)
        )
        found, expected = scaled_scores(summary(raw, y), scale), summary(divided, y / scale)
        assert found == pytest.approx(
            {f"scaled_{name}": expected[name] for name in ("log_likelihood", "crps", "rmse", "interval_width")}
        )

    def test_coverage_by_width(self):
        # Ten narrow intervals of which half hold their target, then ten wide ones that all do; rows shuffled.
        order = np.random.default_rng(0).permutation(20)
        std = np.repeat([1.0, 5.0], 10)
        y = np.array([0.0, 3.0] * 5 + [3.0] * 10)
        found = coverage_by_width(Predictive.gaussian(np.zeros(20), std[order] ** 2, np.zeros(20)), y[order])
        assert len(found) == 10
        assert np.mean(found[:5]) == pytest.approx(0.5)
        assert found[5:] == [1.0] * 5

    def test_a_line_has_scores_by_hand(self, made, tmp_path):
        [line] = lines_of(TABLES, ["botorch"], tmp_path, sizes=[40], seeds=1)
        part = data.mixed_table(cell(TABLES.datasets[0]), None, 0)
        model = PeerRegressor("botorch", tuned=False, random_state=0).fit(part.X, part.y)
        mean, std = (getattr(model.predict_distribution(part.X_test), name) for name in ("mean", "std"))
        scores = line["scores"]["test"]
        logs = norm.logpdf(part.y_test, mean, std)
        assert scores["log_likelihood"] == pytest.approx(logs.mean(), rel=1e-4)
        assert scores["scaled_log_likelihood"] == pytest.approx(logs.mean() + np.log(part.y.std()), rel=1e-4)
        z = (part.y_test - mean) / std
        crps = std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
        assert scores["scaled_crps"] == pytest.approx(crps.mean() / part.y.std(), rel=1e-3)
        assert scores["scaled_interval_width"] == pytest.approx(
            2 * norm.ppf(0.95) * std.mean() / part.y.std(), rel=1e-3
        )
        assert scores["coverage"] == pytest.approx(np.mean(np.abs(z) < norm.ppf(0.95)))
        assert line["details"]["chosen"] == {}
        assert line["settings"] == {"peer": "botorch", "tuned": False}


class TestRuns:
    def test_a_package_that_is_not_installed_is_a_line_and_the_rest_runs(self, made, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "catboost", None)
        said = []
        lines = lines_of(TABLES, ["catboost", "nngp"], tmp_path, says=said, sizes=[40], seeds=1)
        assert [line["method"] for line in lines] == ["nngp"]
        assert any(
            "catboost split 0 seed 0: not run: catboost is not installed: pip install 'gdkl[benchmark]'." in text
            for text in said
        )
        assert len(Results(tmp_path / "tables.jsonl").lines()) == 1

    @pytest.mark.parametrize("method", ["gdkl", "nngp", "gp_ard", "dkl", "gpr", "boosting"])
    def test_regression(self, method, made, tmp_path):
        spec = TABLES
        settings = {method: spec.settings(method, {"n_iter": 5} if method in ("gdkl", "dkl") else {})}
        [line] = run(spec, list(spec.cells(["wage1"], settings, sizes=[40], seeds=1)), tmp_path, device="cpu")
        assert np.isfinite(list(line["scores"]["test"].values())).all()
        assert len(line["details"]["coverage_by_width"]) == 10
        assert {"fit", "predict"} <= set(line["seconds"])

    @pytest.mark.parametrize("method", ["gdkl", "nngp", "logistic", "gpc", "boosting"])
    def test_classification(self, method, made, tmp_path):
        settings = {method: CLASSES.settings(method, {"n_iter": 5} if method == "gdkl" else {})}
        [line] = run(CLASSES, list(CLASSES.cells(["hr"], settings, sizes=[40], seeds=1)), tmp_path, device="cpu")
        assert {"log_likelihood", "brier", "ece", "accuracy"} <= set(line["scores"]["test"])
        assert line["scores"]["test"]["accuracy"] > 0.4


def made_lines():
    """Three tables, two splits: ours wins LL on two of them; the peer lacks a split of the last."""
    own = {"a": (-1.0, -1.2), "b": (-2.0, -2.0), "c": (0.0, 5.0)}
    peer = {"a": (-1.5, -1.5), "b": (-1.8, -1.9), "c": (-0.3,)}
    lines = []
    for method, tables in (("gdkl", own), ("botorch", peer)):
        for dataset, scores in tables.items():
            for split, score in enumerate(scores):
                found = {
                    "scaled_log_likelihood": score,
                    "scaled_crps": -score / 10,
                    "scaled_rmse": 1.0,
                    "coverage": 0.9,
                }
                found["scaled_interval_width"] = 3.0
                one = Cell("tables", dataset, method, 100, split, split, "test", {})
                seconds = {"fit": 1.0 + split, "predict": 0.5}
                lines.append({**one.identity(), "scores": {"test": found}, "seconds": seconds})
    return lines


def shown(table):
    console = Console(width=250, record=True, quiet=True)
    with console.capture() as capture:
        console.quiet = False
        console.print(table)
    return [
        [part.strip() for part in row.split("│")[1:-1]] for row in capture.get().splitlines() if row.startswith("│")
    ]


class TestSummary:
    def test_gains_are_paired_by_split_and_positive_where_better(self):
        scores = split_scores(made_lines(), TABLES.columns[0])
        by_hand = {"a": 0.4, "b": -0.15, "c": 0.3}
        for score, factor, sign in (("log_likelihood", 1, 1), ("log_likelihood", -1, -1), ("scaled_crps", 1, -1)):
            found = gains(scores, "botorch", Column("made", score, factor=factor))["gdkl"]
            assert dict(found) == pytest.approx({name: sign * gain for name, gain in by_hand.items()})

    def test_means_and_wins(self):
        means, wins = (shown(table) for table in summary_tables(TABLES, made_lines()))
        # Means over tables of means over splits: (−1.1 − 2.0 + 2.5) / 3 and (−1.5 − 1.85 − 0.3) / 3.
        assert [row[:4] for row in means] == [["gdkl", "3", "-0.200", "-1.100"], ["botorch", "3", "-1.217", "-1.500"]]
        # By table −0.4, 0.15 and −0.3, the last over the one split that both have.
        assert "-0.183 ± 0.169" in means[1]
        assert "-0.018 ± 0.017" in means[1]
        assert wins == [["gdkl", "", "2 / 2"], ["botorch", "1 / 1", ""]]

    def test_sizes_have_tables_of_their_own(self):
        lines = made_lines()
        other = [{**line, "size": 500} for line in lines]
        assert [str(table.title).split(":")[0] for table in summary_tables(TABLES, lines + other)][::2] == [
            "tables, n = 100",
            "tables, n = 500",
        ]

    def test_a_picture_for_each_size_with_the_reference(self, tmp_path):
        [path] = write_pictures(TABLES, made_lines(), tmp_path)
        assert path.name == "tables-100.png"
        assert path.read_bytes().startswith(b"\x89PNG")
        alone = [line for line in made_lines() if line["method"] == "gdkl"]
        assert write_pictures(replace(TABLES, reference="botorch"), alone, tmp_path) == []


def test_auroc_of_shuffled_rows_is_that_of_the_distance_that_the_variance_follows() -> None:
    """Two equal columns: a shuffled row leaves the diagonal, and a variance that grows with the distance tells it."""

    class Distance:
        def predict_distribution(self, X: Any) -> Any:
            rows = np.asarray(X, dtype=float)
            return SimpleNamespace(latent_variance=np.abs(rows[:, 0] - rows[:, 1]))

    column = np.arange(200.0)
    X = np.stack([column, column], axis=1)
    expected = 1 - 0.5 / 200  # one shuffled row in 200 is real by chance, and ties count half
    assert shuffled_auroc(Distance(), X, 0) == pytest.approx(expected, abs=0.01)
    assert shuffled_auroc(Distance(), pd.DataFrame(X), 0) == shuffled_auroc(Distance(), X, 0)
    assert (X[:, 0] == X[:, 1]).all()
