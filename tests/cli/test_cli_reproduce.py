"""``gdkl reproduce``: files a run can go on from, one line for a wrong option, nothing for an interrupted run."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest
from typer.testing import CliRunner

from gdkl import datasets
from gdkl.cli.app import app
from gdkl.training import ProgressDisplay


@pytest.fixture(autouse=True)
def small(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    table = datasets.Table(X, np.sin(X[:, 0]) + X[:, 1], ("a", "b", "c"), "y", name="boston")
    monkeypatch.setattr(datasets, "load", lambda name, data_dir=None: table)


def _run(folder, *more):
    words = ["reproduce", "uci", "--datasets", "boston", "--seeds", "2", "--gdkl-steps", "5", "--dkl-steps", "5"]
    return CliRunner().invoke(app, [*words, "--output", str(folder), "--device", "cpu", *more])


def test_it_prints_ours_beside_the_papers_and_writes_a_file_a_method(tmp_path):
    done = _run(tmp_path)
    assert done.exit_code == 0, done.output
    assert "-2.47 ± 0.14" in done.stdout
    names = {path.name for path in (tmp_path / "uci").iterdir()}
    assert names == {f"boston-{method}.json" for method in ("gdkl", "dkl", "nngp", "gp_rbf")}
    result = json.loads((tmp_path / "uci" / "boston-gdkl.json").read_text())
    assert result["protocol"]["gdkl_iterations"] == 5
    assert len(result["splits"]) == 2


def test_a_second_run_keeps_what_is_there_unless_the_settings_changed(tmp_path):
    _run(tmp_path, "--methods", "nngp,gdkl")
    path = tmp_path / "uci" / "boston-gdkl.json"
    before = path.stat().st_mtime_ns
    again = _run(tmp_path, "--methods", "nngp,gdkl")
    assert "boston gdkl: kept" in again.stderr
    assert path.stat().st_mtime_ns == before
    other = _run(tmp_path, "--methods", "gdkl", "--gdkl-steps", "6")
    assert "kept" not in other.stderr
    assert json.loads(path.read_text())["protocol"]["gdkl_iterations"] == 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "magic"], "unknown method magic: use gdkl"),
        (["--datasets", "iris"], "unknown dataset iris: use boston"),
        (["--device", "toaster"], "device='toaster'"),
        (["--seeds", "0"], "seeds"),
    ],
)
def test_a_wrong_option_is_one_line(tmp_path, words, message):
    done = _run(tmp_path, *words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.rglob("*.json"))


def test_results_of_more_splits_serve_a_command_that_asks_for_fewer(tmp_path):
    _run(tmp_path, "--methods", "nngp,gdkl", "--seeds", "3")
    path = tmp_path / "uci" / "boston-gdkl.json"
    before = path.read_text()
    fewer = _run(tmp_path, "--methods", "nngp,gdkl", "--seeds", "1")
    assert fewer.exit_code == 0, fewer.output
    assert f"boston gdkl: kept from {path}, the first 1 of its 3 splits" in fewer.stderr
    assert path.read_text() == before
    # The figures are those of the split that was asked for; the time is that of all three, which trained as one.
    [row] = [line for line in fewer.stdout.splitlines() if " gdkl " in line]
    assert f" {json.loads(before)['splits'][0]['test']['log_likelihood']:.2f} │" in row
    assert " for 3 " in row
    assert "over 1 splits" in fewer.stdout


def test_a_command_that_asks_for_more_splits_makes_them(tmp_path):
    _run(tmp_path, "--methods", "nngp", "--seeds", "1")
    more = _run(tmp_path, "--methods", "nngp", "--seeds", "3")
    assert "kept" not in more.stderr
    assert "renamed" not in more.stderr
    result = json.loads((tmp_path / "uci" / "boston-nngp.json").read_text())
    assert [split["seed"] for split in result["splits"]] == [0, 1, 2]
    assert result["protocol"]["seeds"] == 3


def test_a_trial_of_fewer_splits_puts_the_whole_result_aside(tmp_path):
    _run(tmp_path, "--methods", "gdkl")
    whole = (tmp_path / "uci" / "boston-gdkl.json").read_text()
    for steps in ("3", "2"):
        trial = _run(tmp_path, "--methods", "gdkl", "--seeds", "1", "--gdkl-steps", steps)
        assert trial.exit_code == 0, trial.output
        assert ("renamed to boston-gdkl.2-splits.json" in trial.stderr) == (steps == "3")
    assert (tmp_path / "uci" / "boston-gdkl.2-splits.json").read_text() == whole
    assert json.loads((tmp_path / "uci" / "boston-gdkl.json").read_text())["protocol"]["gdkl_iterations"] == 2


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_run_leaves_no_result(tmp_path, monkeypatch):
    def press(self, report):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ProgressDisplay, "on_step", press)
    done = _run(tmp_path, "--methods", "gdkl", "--gdkl-steps", "50")
    assert done.exit_code == 130
    assert list((tmp_path / "uci").iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_work(tmp_path, monkeypatch):
    def work(*arguments, **more):
        raise AssertionError("the work began")

    monkeypatch.setattr("gdkl.paper.uci.run", work)
    (tmp_path / "file").write_text("")
    done = _run(tmp_path / "file")
    assert done.exit_code == 2
    assert "cannot write to" in done.stderr
