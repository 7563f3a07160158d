"""``gdkl reproduce``: one command for all experiments, one line for a wrong option."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from gdkl import datasets
from gdkl.cli.app import app
from gdkl.experiments import SPECS

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    table = datasets.Table(X, np.sin(X[:, 0]) + X[:, 1], ("a", "b", "c"), "y", name="boston")
    monkeypatch.setattr(datasets, "load", lambda name, data_dir=None: table)


def _run(folder, *more, experiment="uci"):
    return CliRunner().invoke(app, ["reproduce", experiment, "--output", str(folder), "--device", "cpu", *more])


def test_it_prints_ours_beside_the_papers_and_adds_a_line_per_cell(tmp_path):
    words = ["--datasets", "boston", "--methods", "nngp,gp_rbf", "--seeds", "2"]
    done = _run(tmp_path, *words)
    assert done.exit_code == 0, done.output
    assert "-2.49 ± 0.16" in done.stdout
    assert str(tmp_path / "uci.jsonl") in done.stdout
    lines = [json.loads(row) for row in (tmp_path / "uci.jsonl").read_text().splitlines()]
    assert [(line["method"], line["split"]) for line in lines] == [
        ("nngp", 0),
        ("nngp", 1),
        ("gp_rbf", 0),
        ("gp_rbf", 1),
    ]
    assert set(lines[0]["scores"]) == {"test", "train"}
    again = _run(tmp_path, *words)
    assert "4 of 4 cells: kept" in again.stderr
    assert again.stdout == done.stdout


def test_own_experiments_compare_by_split(tmp_path):
    done = _run(tmp_path, "--datasets", "power", "--methods", "linear,boosting", "--seeds", "1", experiment="large")
    assert done.exit_code == 0, done.output
    assert "90 % coverage" in done.stdout


def test_a_benchmark_has_a_summary_and_a_picture_and_goes_on_where_a_method_fails(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ngboost", None)
    words = ["--datasets", "boston,energy", "--methods", "nngp,botorch,ngboost", "--sizes", "20", "--seeds", "2"]
    done = _run(tmp_path, *words, experiment="tables")
    assert done.exit_code == 0, done.output
    assert done.stderr.count("not run: ngboost is not installed: pip install 'gdkl[benchmark]'.") == 4
    assert "tables, n = 20: means and median over tables" in done.stdout
    assert str(tmp_path / "tables-20.png") in done.stdout
    assert (tmp_path / "tables-20.png").is_file()
    lines = [json.loads(row) for row in (tmp_path / "tables.jsonl").read_text().splitlines()]
    assert [line["method"] for line in lines] == ["nngp", "nngp", "botorch", "botorch"] * 2
    assert "8 of 12 cells: kept" in _run(tmp_path, *words, experiment="tables").stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "magic"], "unknown method magic: use gdkl"),
        (["--datasets", "iris"], "unknown dataset iris: use boston"),
        (["--methods", ","], "no method given: use gdkl"),
        (["--device", "toaster"], "device='toaster'"),
        (["--seeds", "0"], "seeds"),
        (["--sizes", "50"], "--sizes is not an option of uci"),
        (["--set", "magic=1"], "--set magic is not known: use"),
        (["--set", "magic"], "not of the form key=value"),
        (["--methods", "nngp", "--validation", "27"], "must leave some of the 27"),
        (["--search"], "add --holdout N"),
    ],
)
def test_a_wrong_option_is_one_line(tmp_path, words, message):
    done = _run(tmp_path, *words)
    assert done.exit_code == 2
    assert message in done.stderr.splitlines()[-1]
    assert not list(tmp_path.rglob("*.jsonl"))


def test_an_unknown_experiment_lists_the_known():
    done = CliRunner().invoke(app, ["reproduce", "moon"])
    assert done.exit_code == 2
    assert done.stderr == f"gdkl: experiment 'moon' is not known: use {', '.join(SPECS)}.\n"


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    done = _run(tmp_path / "file", "--methods", "nngp")
    assert done.exit_code == 2
    assert "cannot write to" in done.stderr


@pytest.mark.parametrize("name", SPECS)
def test_an_experiment_lists_its_datasets_methods_and_settings(name):
    shown = CliRunner().invoke(app, ["reproduce", name, "--list"]).stdout
    spec = SPECS[name]
    assert all(dataset in shown for dataset in spec.datasets)
    assert all(f"\n{method}: " in shown for method in spec.methods)


def written_commands():
    """Command lines of the index of results."""
    for words in re.findall(r"`gdkl (reproduce [a-z]+[^`]*)`", (ROOT / "results" / "README.md").read_text()):
        yield pytest.param(shlex.split(words), id=words)


@pytest.mark.parametrize("words", list(written_commands()))
def test_commands_of_the_index_are_taken(words):
    context = get_command(app).commands["reproduce"].make_context("reproduce", words[1:])
    assert context.params["experiment"] in (*SPECS, "EXPERIMENT")
