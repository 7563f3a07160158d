"""Large tables in small: every method, a file that goes on after the splits it has."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from gdkl import datasets
from gdkl.cli.app import app
from gdkl.numerics import DataWarning, OptionError
from gdkl.paper import large, large_table

CPU = torch.device("cpu")
TINY = large.Protocol(seeds=2, epochs=2, batch_size=64, n_inducing=10, exact_rows=60, exact_steps=3)


@pytest.fixture
def made(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=300)
    monkeypatch.setattr(datasets, "load", lambda name, data_dir=None: (X, y, ["a", "b", "c"], "y"))


@pytest.mark.parametrize("method", large.Method)
def test_every_method_is_scored_on_every_split(method, made, tmp_path):
    path = tmp_path / "power.json"
    result = large.run("power", method, TINY, path, device=CPU)
    assert [split["seed"] for split in result["splits"]] == [3, 4]
    assert result["splits"][0]["train_rows"] == (60 if method is large.Method.GDKL_EXACT else 270)
    assert json.loads(path.read_text()) == result
    assert large_table([result]).row_count == 1
    if method is large.Method.LINEAR:
        assert result["splits"][0]["test"]["rmse"] == pytest.approx(0.1, rel=0.3)
        assert 0.8 < result["splits"][0]["test"]["coverage"] <= 1


def test_a_file_goes_on_after_the_splits_it_has(made, tmp_path):
    path, told = tmp_path / "power.json", []
    run = lambda protocol: large.run("power", large.Method.LINEAR, protocol, path, device=CPU, say=told.append)  # noqa: E731
    first = run(replace(TINY, seeds=1))
    both = run(TINY)
    assert both["splits"][0] == first["splits"][0]
    assert told[1] == f"power linear: 1 of 2 splits kept from {path}"
    assert len(told) == 3
    assert run(replace(TINY, seeds=1))["splits"] == first["splits"]
    assert told[3:] == [f"power linear: kept from {path}, the first 1 of its 2 splits"]
    assert json.loads(path.read_text()) == both
    with pytest.warns(DataWarning, match=r"had 2 splits, .* renamed to power\.2-splits\.json"):
        other = run(replace(TINY, epochs=3))
    assert json.loads(path.read_text()) == other
    assert json.loads((tmp_path / "power.2-splits.json").read_text()) == both


def test_wrong_settings_are_refused(made, tmp_path):
    with pytest.raises(OptionError, match="epochs=0"):
        large.Protocol(epochs=0)
    with pytest.raises(OptionError, match="kin8nm, power, protein"):
        large.run("boston", large.Method.LINEAR, TINY, tmp_path / "a.json", device=CPU)


def test_the_command(made, tmp_path):
    command = [
        "reproduce",
        "large",
        "--datasets",
        "power",
        "--methods",
        "linear,boosting",
        "--seeds",
        "1",
        "--device",
        "cpu",
        "--output",
    ]
    result = CliRunner().invoke(app, [*command, str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "90 % coverage" in result.output
    assert (tmp_path / "large" / "power-linear.json").exists()
