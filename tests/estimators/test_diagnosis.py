"""Each check fires on data made to show it, and on healthy data none does."""

from __future__ import annotations

import gpytorch
import numpy as np
import pandas as pd
import pytest
import torch

import gdkl
from gdkl import (
    DKLRegressor,
    GDKLClassifier,
    GDKLRegressor,
    GPRegressor,
    NNClassifier,
    NNGPRegressor,
)
from gdkl.estimators.diagnostics import Diagnosis, Finding, Severity, gather
from gdkl.estimators.diagnostics.checks_of_features import effective_rank
from gdkl.estimators.diagnostics.checks_of_rows import far_share
from gdkl.estimators.diagnostics.training import training_rows
from gdkl.numerics import DataError, NotFittedError

N = 80


def wave(n, seed, noise=0.3, d=2):
    """Rows and targets whose best model is known."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, d))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + noise * rng.normal(size=n)


def found(diagnosis, check):
    (finding,) = [one for one in diagnosis if one.check == check]
    return finding


def is_grave(finding):
    return finding.severity in (Severity.WARNING, Severity.PROBLEM)


@pytest.fixture(scope="module")
def healthy():
    return NNGPRegressor().fit(*wave(N, 0))


@pytest.fixture(scope="module")
def stack():
    X, y = wave(60, 0)
    return GDKLRegressor(n_iter=30, random_state=0).fit(X, y)


class TestHealthy:
    @pytest.mark.parametrize("seed", range(6))
    def test_nothing_alarms(self, seed):
        X, y = wave(N + 100, seed)
        diagnosis = NNGPRegressor().fit(X[:N], y[:N]).diagnose(X[N:], y[N:])
        assert diagnosis.grave == ()
        assert diagnosis.verdict == "Nothing speaks against this model on 100 held-out rows."

    def test_nothing_alarms_of_a_stack(self, stack):
        diagnosis = stack.diagnose(*wave(100, 1))
        assert diagnosis.grave == ()
        assert {one.check for one in diagnosis} >= {"guide and student", "features", "far rows", "overfitting", "shift"}

    def test_nothing_alarms_of_classes(self):
        X, y = wave(300, 3, noise=0.5)
        labels = np.where(y > 0, "up", "down")
        diagnosis = GDKLClassifier(n_iter=10, random_state=0).fit(X[:100], labels[:100]).diagnose(X[100:], labels[100:])
        assert diagnosis.grave == ()

    @pytest.mark.long
    def test_alarms_are_as_rare_as_they_say(self):
        alarms = []
        for seed in range(150):
            X, y = wave(200, seed)
            alarms += [one.check for one in GPRegressor().fit(X[:N], y[:N]).diagnose(X[N:], y[N:]).grave]
        # Nine checks of 150 models, of which hyperparameters are not known exactly: three in a thousand were measured.
        assert len(alarms) <= 8, alarms


class TestFires:
    def test_no_skill(self):
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(N + 100, 3)), rng.normal(size=N + 100)
        finding = found(NNGPRegressor().fit(X[:N], y[:N]).diagnose(X[N:], y[N:]), "skill")
        assert is_grave(finding)
        assert finding.value < 0.05

    def test_overfitting(self):
        rng = np.random.default_rng(1)
        X = rng.normal(size=(160, 5))
        y = X @ [1, 2, 0.5, 0, 0] + 0.5 * rng.normal(size=160)
        diagnosis = DKLRegressor(n_iter=300, random_state=0).fit(X[:60], y[:60]).diagnose(X[60:], y[60:])
        finding = found(diagnosis, "overfitting")
        assert finding.severity is Severity.PROBLEM
        assert "GDKLRegressor" in finding.remedy
        assert diagnosis.verdict.startswith("Do not rely on this model as it is:")

    @pytest.mark.parametrize(("noise", "words"), [(0.9, "too narrow"), (0.05, "too wide")])
    def test_intervals_of_the_wrong_width(self, healthy, noise, words):
        finding = found(healthy.diagnose(*wave(100, 7, noise)), "calibration")
        assert is_grave(finding)
        assert words in finding.text
        assert not finding.low <= finding.value <= finding.high

    @pytest.mark.parametrize(("shift", "words"), [(0.5, "too low"), (-0.5, "too high")])
    def test_targets_on_another_level(self, healthy, shift, words):
        X, y = wave(100, 7)
        finding = found(healthy.diagnose(X, y + shift), "bias")
        assert is_grave(finding)
        assert words in finding.text

    def test_outliers(self, healthy):
        X, y = wave(100, 7)
        y[[3, 50, 70, 90]] += 8
        finding = found(healthy.diagnose(X, y), "outliers")
        assert is_grave(finding)
        assert "3, 50, 70, 90" in finding.remedy

    def test_heavy_tails_of_targets(self):
        X, y = wave(N + 60, 2)
        y = np.exp(3 * y)
        finding = found(NNGPRegressor().fit(X[:N], y[:N]).diagnose(X[N:], y[N:]), "tails")
        assert finding.severity is Severity.NOTE
        assert "warp" in finding.remedy

    def test_rows_and_columns_that_have_moved(self, healthy):
        X, y = wave(100, 7)
        diagnosis = healthy.diagnose(X + np.array([0, 4]), y)
        assert is_grave(found(diagnosis, "shift"))
        assert is_grave(found(diagnosis, "columns"))
        assert "1 (+" in found(diagnosis, "columns").text

    def test_rows_that_have_moved_where_no_column_has(self):
        rng = np.random.default_rng(0)
        along = rng.normal(size=(N + 200, 1))
        X = along + 0.02 * rng.normal(size=(N + 200, 3))
        y = along[:, 0] + 0.1 * rng.normal(size=N + 200)
        model = NNGPRegressor().fit(X[:N], y[:N])
        across = np.stack([rng.permutation(column) for column in X[N:].T], axis=1)
        diagnosis = model.diagnose(across, y[N:])
        assert found(diagnosis, "shift").severity is Severity.PROBLEM
        assert found(diagnosis, "columns").severity is Severity.FINE
        assert found(model.diagnose(X[N:], y[N:]), "shift").severity is Severity.FINE

    def test_rows_of_the_training(self, healthy):
        X, y = wave(N, 0)
        assert found(healthy.diagnose(X, y), "copies").severity is Severity.WARNING
        new, truth = wave(N, 7)
        some = np.concatenate([X[:20], new]), np.concatenate([y[:20], truth])
        assert found(healthy.diagnose(*some), "copies").severity is Severity.WARNING
        assert found(healthy.diagnose(new, truth), "copies").severity is Severity.FINE

    def test_too_few_rows(self, healthy):
        finding = found(healthy.diagnose(*wave(12, 7)), "rows")
        assert finding.severity is Severity.WARNING
        assert finding.value == 12

    def test_more_rows_would_help(self):
        X, y = wave(330, 0, noise=0.02, d=3)
        finding = found(NNGPRegressor().fit(X[:30], y[:30]).diagnose(X[30:], y[30:]), "rows")
        assert finding.severity is Severity.NOTE
        assert "More rows" in finding.remedy

    def test_features_on_one_line(self):
        X, y = wave(140, 0, d=4)
        line = torch.nn.Linear(4, 1)
        collapsed = DKLRegressor(n_iter=2, feature_net=lambda _: torch.nn.Sequential(line, torch.nn.Linear(1, 6)))
        finding = found(collapsed.fit(X[:60], y[:60]).diagnose(X[60:], y[60:]), "features")
        assert is_grave(finding)
        assert finding.value == pytest.approx(1, abs=0.01)

    def test_features_lengthscales_apart(self):
        class Spread(torch.nn.Module):
            def forward(self, x):
                return 20 * x

        X, y = wave(140, 0)
        finding = found(
            DKLRegressor(n_iter=1, feature_net=Spread()).fit(X[:60], y[:60]).diagnose(X[60:], y[60:]), "features"
        )
        assert is_grave(finding)
        assert finding.value > finding.high

    def test_a_model_that_does_not_know_that_rows_are_far(self):
        X, y = wave(140, 0)
        kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.PeriodicKernel())
        model = GPRegressor(base_kernel=kernel).fit(X[:60], y[:60])
        assert is_grave(found(model.diagnose(X[60:], y[60:]), "far rows"))

    def test_weight_on_the_worse(self):
        X, y = wave(160, 0)
        untrained = GDKLRegressor(n_iter=1, guide_share=0.02, random_state=0).fit(X[:60], y[:60])
        finding = found(untrained.diagnose(X[60:], y[60:]), "guide and student")
        assert finding.severity is Severity.WARNING
        assert "guide_share=1" in finding.remedy

    def test_probabilities_that_are_too_sure(self):
        X, y = wave(260, 3, noise=1.0)
        model = NNClassifier(n_iter=150, random_state=0).fit(X[:60], y[:60] > 0)
        finding = found(model.diagnose(X[60:], y[60:] > 0), "calibration")
        assert is_grave(finding)
        assert "too sure" in finding.text


class TestTrainingRows:
    def test_targets_and_rows_are_those_of_fit(self, stack):
        X, y = wave(60, 0)
        held = training_rows(stack)
        np.testing.assert_allclose(held.targets, y, atol=1e-8)
        np.testing.assert_allclose(held.rows, stack.kind_.input.rows(X), atol=1e-8)

    def test_targets_of_a_warp_are_those_of_fit(self):
        X, y = wave(40, 0)
        model = GDKLRegressor(n_iter=2, warp="log", random_state=0).fit(X, np.exp(y))
        np.testing.assert_allclose(training_rows(model).targets, np.exp(y), rtol=1e-8)

    def test_a_row_left_out_is_predicted_as_without_it(self, stack):
        X, y = wave(60, 0)
        held = training_rows(stack)
        for row in (0, 17):
            others = torch.tensor([index for index in range(60) if index != row])
            alone = gather(stack, X[row : row + 1], y[row : row + 1]).with_stack(stack.stack_.take(others)).p
            assert held.predicted.mean[row] == pytest.approx(alone.mean[0])
            assert held.predicted.variance[row] == pytest.approx(alone.variance[0])
            assert held.predicted.log_prob(y)[row] == pytest.approx(alone.log_prob(y[row : row + 1])[0])

    def test_a_label_left_out_is_predicted_as_without_it(self):
        X, y = wave(50, 0)
        labels = np.array(["a", "b", "c"])[np.digitize(y, [-0.5, 0.5])]
        model = GDKLClassifier(n_iter=10, random_state=0).fit(X, labels)
        held = training_rows(model)
        assert (held.targets == labels).all()
        for row in (3, 30):
            others = torch.tensor([index for index in range(50) if index != row])
            alone = gather(model, X[row : row + 1], labels[row : row + 1]).with_stack(model.stack_.take(others)).p
            np.testing.assert_allclose(held.predicted.probs[row], alone.probs[0], atol=1e-6)

    def test_rows_with_noise_of_their_own_are_not_judged(self):
        X, y = wave(100, 0)
        model = NNGPRegressor().fit(X[:60], y[:60], sample_weight=np.linspace(0.5, 1.5, 60))
        assert found(model.diagnose(X[60:], y[60:]), "overfitting").severity is Severity.UNKNOWN

    def test_a_sparse_model_needs_to_be_told(self):
        X, y = wave(400, 0)
        model = GDKLRegressor(inference="sparse", n_inducing=16, n_iter=20, random_state=0).fit(X[:300], y[:300])
        untold, told = (model.diagnose(X[300:], y[300:], train=train) for train in (None, (X[:300], y[:300])))
        assert found(untold, "shift").severity is Severity.UNKNOWN
        assert found(untold, "overfitting").severity is Severity.UNKNOWN
        assert found(told, "shift").severity is Severity.FINE
        assert found(told, "overfitting").severity is not Severity.UNKNOWN

    def test_other_rows_than_those_of_fit_are_refused(self, healthy):
        X, y = wave(N, 1)
        with pytest.raises(DataError, match="not what the model was fitted to"):
            healthy.diagnose(X, y, train=(X, y))


def test_a_model_read_from_a_file_has_the_same_findings(stack, tmp_path):
    stack.save(tmp_path / "model.gdkl")
    X, y = wave(100, 1)
    again = gdkl.load(tmp_path / "model.gdkl").diagnose(X, y)
    pd.testing.assert_frame_equal(again.to_frame(), stack.diagnose(X, y).to_frame())


def test_findings_of_several_targets_name_them():
    X, y = wave(160, 0)
    both = np.stack([y, y], axis=1)
    model = NNGPRegressor().fit(X[:80], both[:80])
    both[80:, 1] += 2
    bias = [one for one in model.diagnose(X[80:], both[80:]) if one.check == "bias"]
    assert [one.severity for one in bias] == [Severity.PROBLEM, Severity.FINE]
    assert bias[0].text.startswith("Target 1: ")


def test_a_diagnosis_is_text_and_a_table():
    diagnosis = Diagnosis(
        (
            Finding("skill", Severity.FINE, "Good.", 1.0),
            Finding("bias", Severity.WARNING, "Too low.", 0.7, 0.4, 0.6, "Raise it."),
            Finding("shift", Severity.UNKNOWN, "Not known."),
        ),
        rows=50,
    )
    assert str(diagnosis).splitlines() == [
        "Usable with care: bias (50 held-out rows).",
        "",
        "[warning] bias: Too low.",
        "    Remedy: Raise it.",
        "[not checked] shift: Not known.",
        "Checked and fine: skill.",
    ]
    frame = diagnosis.to_frame()
    assert frame["check"].tolist() == ["bias", "skill", "shift"]
    assert frame.loc[0, ["severity", "value", "low", "high", "remedy"]].tolist() == [
        "warning",
        0.7,
        0.4,
        0.6,
        "Raise it.",
    ]


def test_what_cannot_be_judged_is_refused(healthy):
    X, y = wave(20, 0)
    with pytest.raises(NotFittedError, match="not fitted"):
        NNGPRegressor().diagnose(X, y)
    with pytest.raises(DataError, match="20 rows and y has 19"):
        healthy.diagnose(X, y[1:])
    with pytest.raises(DataError, match="NaN"):
        healthy.diagnose(X, np.full(20, np.nan))


def test_the_effective_rank_counts_directions():
    rng = np.random.default_rng(0)
    assert effective_rank(rng.normal(size=(5000, 4))) == pytest.approx(4, abs=0.02)
    assert effective_rank(rng.normal(size=(50, 1)) * [1.0, 2.0, 3.0]) == pytest.approx(1)
    assert effective_rank(np.ones((5, 3))) == 0


def test_far_rows_are_as_rare_as_the_beta_binomial_says():
    rng = np.random.default_rng(0)
    values = [far_share(rng.normal(size=60), rng.normal(size=40))[1] for _ in range(2000)]
    # A p-value of whole numbers is no smaller than a uniform one.
    assert np.mean(np.array(values) < 0.05) <= 0.06
    assert far_share(rng.normal(size=60), rng.normal(size=40) + 3)[1] < 1e-6
