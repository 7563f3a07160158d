"""The UCI experiment on a small scale: the protocol's splits, the batch, the result files and the table."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch
from gdkl.estimators.common import draw_seed
from rich.console import Console

from gdkl import GdklError, GDKLRegressor, GPRegressor, NNGPRegressor, datasets, metrics
from gdkl.numerics import DataWarning
from gdkl.paper import published, read_result, uci, uci_table, write_result

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def made_table():
    """A stand-in for a real dataset, small enough for a test."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = 3 * np.sin(X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=40) + 10
    return datasets.Table(X, y, ("a", "b", "c"), "y", name="boston")


@pytest.fixture
def small(monkeypatch, made_table):
    monkeypatch.setattr(datasets, "load", lambda name, data_dir=None: made_table)
    return made_table


@pytest.mark.parametrize("method", list(uci.Method))
def test_every_method_scores_every_split(small, method):
    protocol = uci.Protocol(seeds=3, gdkl_iterations=8, dkl_iterations=8, fast_iterations=8)
    result = uci.run("boston", method, protocol, device=CPU)
    assert result.get("members", 1) == (5 if method is uci.Method.GDKL_ENSEMBLE else 1)
    assert [split["seed"] for split in result["splits"]] == [0, 1, 2]
    for split in result["splits"]:
        assert np.isfinite([*split["train"].values(), *split["test"].values()]).all()
    assert result["protocol"]["gdkl_iterations"] == 8
    assert result["versions"]["torch"] == torch.__version__
    json.dumps(result)


@pytest.mark.parametrize(("method", "estimator"), [(uci.Method.NNGP, NNGPRegressor), (uci.Method.GP_RBF, GPRegressor)])
def test_the_batch_scores_as_the_estimator_does(small, method, estimator):
    """Splits, scaling and scores of the experiment are those a user gets by hand."""
    result = uci.run("boston", method, uci.Protocol(seeds=2), device=CPU)
    for seed in range(2):
        order = np.arange(40)
        np.random.RandomState(seed).shuffle(order)
        train, test = order[:36], order[36:]
        model = estimator().fit(small.X[train], small.y[train])
        p = model.predict_distribution(small.X[test])
        scores = result["splits"][seed]["test"]
        assert scores["log_likelihood"] == pytest.approx(p.log_prob(small.y[test]).mean(), rel=1e-4)
        assert scores["rmse"] == pytest.approx(np.sqrt(((p.mean - small.y[test]) ** 2).mean()), rel=1e-4)


@pytest.mark.parametrize("members", [1, 2])
def test_the_librarys_own_settings_are_those_of_the_estimator(small, monkeypatch, members):
    """One split of the experiment is the very model that a user gets who asks for nothing but fewer steps."""
    monkeypatch.setattr(uci, "ENSEMBLE_MEMBERS", members)
    method = uci.Method.GDKL_FAST if members == 1 else uci.Method.GDKL_ENSEMBLE
    protocol = uci.Protocol(seeds=1, fast_iterations=30, network_seed=draw_seed(5))
    scores = uci.run("boston", method, protocol, device=CPU)["splits"][0]["test"]
    train, test = datasets.published_split(40, 0)
    model = GDKLRegressor(n_iter=30, n_members=members, random_state=5).fit(small.X[train], small.y[train])
    expected = metrics.summary(model.predict_distribution(small.X[test]), small.y[test])
    assert scores == pytest.approx(expected, rel=1e-6)


def test_an_ensemble_scores_as_the_mixture_of_its_own_splits_networks(small, monkeypatch):
    """Members of one split, and no others, are mixed: with one network an ensemble is a single model."""
    protocol = uci.Protocol(seeds=3, fast_iterations=40)
    single = uci.run("boston", uci.Method.GDKL_FAST, protocol, device=CPU)["splits"]
    monkeypatch.setattr(uci, "ENSEMBLE_MEMBERS", 1)
    alone = uci.run("boston", uci.Method.GDKL_ENSEMBLE, protocol, device=CPU)["splits"]
    monkeypatch.setattr(uci, "ENSEMBLE_MEMBERS", 4)
    several = uci.run("boston", uci.Method.GDKL_ENSEMBLE, protocol, device=CPU)["splits"]
    for one, same, mixed in zip(single, alone, several, strict=True):
        assert same["test"] == pytest.approx(one["test"], rel=1e-6)
        # Another split's networks know other rows: their likelihood on these training rows would be far lower.
        assert mixed["train"]["log_likelihood"] == pytest.approx(one["train"]["log_likelihood"], abs=0.5)
        assert mixed["test"] != one["test"]


def test_members_of_a_batch_do_not_feel_each_other(small):
    """More splits in the batch leave the others' training rows, and so their guides, as they were."""
    two = uci.run("boston", uci.Method.NNGP, uci.Protocol(seeds=2), device=CPU)
    three = uci.run("boston", uci.Method.NNGP, uci.Protocol(seeds=3), device=CPU)
    for a, b in zip(two["splits"], three["splits"], strict=False):
        assert a["test"]["rmse"] == pytest.approx(b["test"]["rmse"], rel=1e-6)


def test_unknown_datasets_and_no_seeds_are_refused():
    with pytest.raises(GdklError, match="boston, energy, concrete"):
        uci.load_splits("protein", 1, None, CPU)
    with pytest.raises(GdklError, match="at least 1"):
        uci.load_splits("boston", 0, None, CPU)


def test_results_survive_a_file_and_stand_beside_the_paper(small, tmp_path):
    result = uci.run("boston", uci.Method.NNGP, uci.Protocol(seeds=2), device=CPU)
    write_result(tmp_path / "sub" / "boston-nngp.json", result)
    again = read_result(tmp_path / "sub" / "boston-nngp.json")
    assert again == json.loads(json.dumps(result))
    console = Console(width=160, record=True, file=None)
    console.print(uci_table([again]))
    text = console.export_text()
    assert "-2.49 ± 0.16" in text
    assert "3.19 ± 0.70" in text
    mean = np.mean([split["test"]["log_likelihood"] for split in result["splits"]])
    assert f"{mean:.2f} ±" in text


def test_a_result_of_more_splits_is_never_replaced(tmp_path):
    path = tmp_path / "a.json"
    large, small, same = ({"name": name, "splits": [{}] * n} for name, n in (("large", 2), ("small", 1), ("same", 1)))
    write_result(path, large)
    for target in ("a.2-splits.json", "a.2-splits-2.json"):
        with pytest.warns(DataWarning, match=f"had 2 splits, more than the 1 .* renamed to {target}"):
            write_result(path, small)
        assert (read_result(tmp_path / target), read_result(path)) == (large, small)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            write_result(path, same)
            assert read_result(path) == same
            write_result(path, large)
    assert len(list(tmp_path.iterdir())) == 3
    # What is no result has no splits to lose.
    path.write_text("{broken")
    write_result(path, small)
    assert read_result(path) == small


def test_other_files_are_no_results(tmp_path):
    (tmp_path / "a.json").write_text("[1, 2]")
    (tmp_path / "b.json").write_text("{broken")
    for name in ("a.json", "b.json", "missing.json"):
        with pytest.raises(GdklError, match="not a result file"):
            read_result(tmp_path / name)
    (tmp_path / "file").write_text("")
    with pytest.raises(GdklError, match="cannot write"):
        write_result(tmp_path / "file" / "a.json", {})


def test_published_cells():
    assert published("uci_test", "gdkl", "energy.rmse").mean == 0.28
    assert published("objectives", "distillation", "boston.ll").mean == -2.51
    assert published("uci_test", "gdkl", "energy.ece") is None
