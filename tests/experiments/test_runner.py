"""The runner: missing cells only, kill and resume, several processes, means over seeds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiments_helpers import CLASSES, SMALL, cells
from joblib.externals.loky import get_reusable_executor

from gdkl import estimators, training
from gdkl.experiments import Results
from gdkl.experiments.runner import run
from gdkl.numerics import NumericsError, OptionError

HERE = Path(__file__).parent


@pytest.fixture
def log(tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.write_text("")
    monkeypatch.setenv("GDKL_TEST_LOG", str(path))
    # joblib's workers stay, with the environment that they started in.
    get_reusable_executor().shutdown(wait=True)
    return lambda: path.read_text().splitlines()


def _run(output, wanted, **more):
    return run(SMALL, wanted, output, device="cpu", **more)


class TestMissingCells:
    def test_a_line_has_what_identifies_it_and_what_came_out(self, tmp_path):
        [line] = _run(tmp_path, cells(datasets=["flat"], methods=["off"], seeds=1))
        assert {key: line[key] for key in ("experiment", "dataset", "method", "split", "seed", "scored")} == {
            "experiment": "small",
            "dataset": "flat",
            "method": "off",
            "split": 0,
            "seed": 0,
            "scored": "test",
        }
        assert line["settings"] == {"shift": 1.0, "preset": {"n_iter": 5}}
        assert set(line["scores"]) == {"test", "train"}
        assert line["scores"]["test"]["rmse"] > 0
        assert line["versions"]["device"].startswith("cpu")
        assert line["seconds"]["fit"] >= 0
        assert json.loads((tmp_path / "small.jsonl").read_text()) == line

    def test_only_what_is_missing_is_run(self, tmp_path, log):
        said: list[str] = []
        first = _run(tmp_path, cells(methods=["mean"], seeds=1))
        assert len(log()) == 2
        second = _run(tmp_path, cells(seeds=2), say=said.append)
        # Two datasets, two methods, two splits: eight cells, of which two were there.
        assert len(log()) == 8
        assert "2 of 8 cells: kept" in said[0]
        assert len(second) == 8
        assert all(line in second for line in first)
        assert _run(tmp_path, cells(seeds=2)) == second
        assert len(log()) == 8

    def test_other_settings_are_other_cells_and_nothing_is_overwritten(self, tmp_path, log):
        before = _run(tmp_path, cells(methods=["off"], seeds=1))
        content = (tmp_path / "small.jsonl").read_text()
        after = _run(tmp_path, cells(methods=["off"], seeds=1, changes={"shift": 2.0}))
        assert (tmp_path / "small.jsonl").read_text().startswith(content)
        assert {line["key"] for line in before}.isdisjoint(line["key"] for line in after)
        assert [line["settings"]["shift"] for line in after] == [2.0, 2.0]
        preset = _run(tmp_path, cells(methods=["off"], seeds=1, changes={"preset.n_iter": 6}))
        assert preset[0]["settings"]["preset"] == {"n_iter": 6}
        assert len(log()) == 6

    def test_a_training_that_ended_early_is_no_result(self, tmp_path, monkeypatch):
        monkeypatch.setattr(
            "experiments_helpers.Constant.n_iter_", property(lambda self: 3, lambda *_: None), raising=False
        )
        with pytest.raises(NumericsError, match="3 of 5 steps"):
            _run(tmp_path, cells(methods=["off"], seeds=1))
        assert Results(tmp_path / "small.jsonl").lines() == []

    def test_validation_is_part_of_the_settings_and_of_the_line(self, tmp_path):
        wanted = cells(CLASSES, validation=10, scored="validation", seeds=1)
        [line] = run(CLASSES, wanted, tmp_path, device="cpu")
        assert (line["scored"], line["settings"]) == ("validation", {"validation": 10})
        assert line["details"]["train_rows"] == 30
        assert 0.05 < line["details"]["best_temperature"] < 20
        [test] = run(CLASSES, cells(CLASSES, seeds=1), tmp_path, device="cpu")
        assert test["key"] != line["key"]

    def test_some_of_the_training_rows(self, tmp_path):
        [line, *_] = _run(tmp_path, cells(methods=["mean"], seeds=1, changes={"train_rows": 12}))
        assert line["details"]["train_rows"] == 12

    def test_splits_that_train_as_one_batch_are_one_task(self, tmp_path, monkeypatch):
        seen: list[int] = []

        def together(estimator, parts):
            seen.append(len(parts))
            return [type(estimator)(**estimator.get_params()).fit(X, y) for X, y in parts]

        monkeypatch.setattr(estimators, "fit_together", together, raising=False)
        batched = replace(SMALL, methods={"mean": replace(SMALL.methods["mean"], together=True)}, model_seed=0)
        plain = _run(tmp_path / "plain", cells(methods=["mean"], datasets=["flat"], seeds=4))
        run(batched, cells(batched, datasets=["flat"], seeds=2), tmp_path, device="cpu")
        lines = run(batched, cells(batched, datasets=["flat"], seeds=5), tmp_path, device="cpu")
        assert seen == [2, 3]
        assert [line["scores"] for line in lines[:4]] == [line["scores"] for line in plain]
        assert lines[4]["details"]["trained_together"] == 3


class TestSeveralProcesses:
    def test_jobs_give_the_results_of_one_process(self, tmp_path, log):
        wanted = cells(seeds=3)
        one = _run(tmp_path / "one", wanted)
        two = _run(tmp_path / "two", wanted, jobs=2)
        assert [line["scores"] for line in one] == [line["scores"] for line in two]
        assert len(log()) == 2 * len(wanted)

    def test_two_commands_on_one_file_leave_one_line_per_cell(self, tmp_path, monkeypatch):
        command = _command(tmp_path, sleep=0.02)
        path = tmp_path / "small.jsonl"
        while not path.exists() and command.poll() is None:
            time.sleep(0.01)
        monkeypatch.setenv("GDKL_TEST_SLEEP", "0.02")
        _run(tmp_path, cells(seeds=6))
        assert command.wait(timeout=120) == 0
        keys = Counter(line["key"] for line in Results(tmp_path / "small.jsonl").lines())
        assert set(keys) == {cell.key for cell in cells(seeds=6)}
        assert set(keys.values()) == {1}

    def test_a_killed_command_continues_with_the_cell_that_was_under_way(self, tmp_path, log):
        command = _command(tmp_path, sleep=0.3)
        path = tmp_path / "small.jsonl"
        deadline = time.monotonic() + 120
        while (not path.exists() or len(Results(path).lines()) < 3) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(command.pid, signal.SIGKILL)
        assert command.wait(timeout=60) == -signal.SIGKILL
        done = len(Results(path).lines())
        begun = len(log())
        assert 3 <= done < len(cells(seeds=6))
        assert begun - done <= 1
        lines = _run(tmp_path, cells(seeds=6))
        assert len(lines) == len(cells(seeds=6))
        assert len(log()) == begun + len(lines) - done

    def test_torchrun_and_jobs_exclude_each_other(self, tmp_path, monkeypatch):
        @contextmanager
        def two(device):
            yield training.World(0, 2)

        monkeypatch.setattr(training, "process_group", two)
        with pytest.raises(OptionError, match="torchrun"):
            _run(tmp_path, cells(), jobs=2)

    def test_only_the_first_process_writes(self, tmp_path, monkeypatch):
        @contextmanager
        def second(device):
            yield training.World(1, 2)

        monkeypatch.setattr(training, "process_group", second)
        assert _run(tmp_path, cells(seeds=1)) == []
        assert not (tmp_path / "small.jsonl").exists()


def _command(output, sleep):
    code = (
        "from pathlib import Path; import sys; from experiments_helpers import SMALL, cells; "
        "from gdkl.experiments.runner import run; "
        "run(SMALL, cells(seeds=6), Path(sys.argv[1]), device='cpu')"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]), "GDKL_TEST_SLEEP": str(sleep)}
    return subprocess.Popen([sys.executable, "-c", code, str(output)], env=environment)


class TestMeansOverSeeds:
    def test_the_mean_of_all_seeds_is_scored_once_from_stored_predictions(self, tmp_path):
        lines = run(CLASSES, cells(CLASSES), tmp_path, device="cpu")
        assert [line["seed"] for line in lines] == [0, 1, 2, [0, 1, 2]]
        single = [line["scores"]["test"]["log_likelihood"] for line in lines[:3]]
        assert lines[3]["scores"]["test"]["log_likelihood"] > np.mean(single)
        for stored in (tmp_path / "tiny-classes").iterdir():
            stored.unlink()
        assert run(CLASSES, cells(CLASSES), tmp_path, device="cpu") == lines
        # Two of the seeds are another mean, for which predictions are needed.
        assert len(run(CLASSES, cells(CLASSES, seeds=2), tmp_path, device="cpu")) == 2
