"""The classification experiment on a small scale: splits, scores, files and the table."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import torch
from rich.console import Console
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from typer.testing import CliRunner

from gdkl import NNGPClassifier, metrics
from gdkl.cli.app import app
from gdkl.numerics import OptionError
from gdkl.paper import classes, classes_table, standing

CPU = torch.device("cpu")


def _protocol(**options):
    return classes.Protocol(**{"part": 0.2, "seeds": 2, "gdkl_iterations": 4, "other_iterations": 4, **options})


@pytest.mark.parametrize("method", list(classes.Method))
def test_every_method_scores_every_split(method):
    result = classes.run("wine", method, _protocol(), device=CPU)
    assert [split["seed"] for split in result["splits"]] == [0, 1]
    for split in result["splits"]:
        assert set(split["test"]) == {"accuracy", "nll", "brier", "ece", "mce"}
        assert np.isfinite(list(split["test"].values())).all()
    assert result["versions"]["torch"] == torch.__version__
    json.dumps(result)


def test_scores_are_those_of_the_estimator():
    X, y = load_wine(return_X_y=True)
    result = classes.run("wine", classes.Method.NNGP, _protocol(seeds=2, part=0.6), device=CPU)
    for seed in range(2):
        a, b, c, d = train_test_split(X, y, train_size=0.6, stratify=y, random_state=seed)
        probs = NNGPClassifier(random_state=seed).fit(a, c).predict_proba(b)
        assert result["splits"][seed]["test"] == metrics.class_summary(probs, d)


def test_the_student_asked_of_gdkls_fit_is_the_one_fitted_alone():
    gdkl, student = classes.Method.GDKL, classes.Method.GDKL_STUDENT
    both = classes.run_fitted("wine", gdkl, (gdkl, student), _protocol(), device=CPU)
    for method in (gdkl, student):
        alone = classes.run("wine", method, _protocol(), device=CPU)
        assert [split["test"] for split in both[method]["splits"]] == [split["test"] for split in alone["splits"]]
        assert both[method]["options"] == alone["options"]
        assert both[method]["method"] == method
    assert both[gdkl]["options"]["guide_share"] is None
    assert both[student]["options"]["guide_share"] == 0
    assert both[gdkl]["splits"][0]["test"]["nll"] != both[student]["splits"][0]["test"]["nll"]
    with pytest.raises(OptionError, match="cannot be asked of a fitted nn"):
        classes.run_fitted("wine", classes.Method.NN, (student,), _protocol(), device=CPU)


def test_wrong_settings_are_refused():
    with pytest.raises(OptionError, match="iris"):
        classes.run("iris", classes.Method.NNGP, _protocol(), device=CPU)
    with pytest.raises(OptionError, match=r"part=1.5"):
        classes.run("wine", classes.Method.NNGP, _protocol(part=1.5), device=CPU)


def _result(method, values, part=0.2):
    splits = [
        {"seed": i, "fit_seconds": 1.0, "test": {"nll": v, "ece": v / 2, "accuracy": 0.9}} for i, v in enumerate(values)
    ]
    return {"dataset": "wine", "method": method, "protocol": {"part": part}, "splits": splits}


def test_the_table_has_means_and_standard_errors():
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(classes_table([_result("gdkl", [0.1, 0.3]), _result("nn", [0.4, 0.4])]))
    text = console.export_text()
    assert "0.200 ± 0.100" in text
    assert "0.100 ± 0.050" in text
    assert "0.400 ± 0.000" in text
    assert "90.0 ± 0.0" in text


def test_a_single_split_has_no_error():
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(classes_table([_result("gdkl", [0.1])]))
    text = console.export_text()
    assert "0.100" in text
    assert "nan" not in text


def test_the_standing_is_by_split_and_against_the_best_other():
    results = [_result("gdkl", [0.1, 0.3]), _result("nn", [0.4, 0.4]), _result("dkl", [0.1, 0.2])]
    assert standing(results) == ["wine 20%: gdkl is 0.050 ± 0.050 behind dkl in NLL, by split."]
    assert standing(results, "dkl") == ["wine 20%: dkl is 0.050 ± 0.050 better than gdkl in NLL, by split."]
    assert standing(results[:1]) == []


def test_the_command_keeps_what_is_there(tmp_path):
    words = ["reproduce", "classes", "--datasets", "wine", "--methods", "nngp", "--seeds", "2", "--device", "cpu"]
    first, second = (CliRunner().invoke(app, [*words, "--output", str(tmp_path)]) for _ in range(2))
    assert first.exit_code == 0, first.output
    names = {path.name for path in (tmp_path / "classification").iterdir()}
    assert names == {"wine-20-nngp.json", "wine-60-nngp.json"}
    assert "kept" not in first.stderr
    assert second.stderr.count("kept") == 2
    assert "Classification" in second.stdout
    path = tmp_path / "classification" / "wine-20-nngp.json"
    old = json.loads(path.read_text())
    assert old["options"]["calibrate"] is None
    path.write_text(json.dumps(old | {"options": old["options"] | {"calibrate": "loo"}}))
    third = CliRunner().invoke(app, [*words, "--output", str(tmp_path)])
    assert third.stderr.count("kept") == 1
    both = [*words[:5], "gdkl,gdkl_student", *words[6:], "--gdkl-steps", "3", "--output", str(tmp_path)]
    fourth = CliRunner().invoke(app, both)
    assert fourth.exit_code == 0, fourth.output
    # One fit for both.
    assert fourth.stderr.count("splits on") == 2
    student = json.loads((tmp_path / "classification" / "wine-20-gdkl_student.json").read_text())
    assert student["method"] == "gdkl_student"
    assert CliRunner().invoke(app, both).stderr.count("kept") == 4
    wrong = CliRunner().invoke(app, [*words[:3], "boston"])
    assert wrong.exit_code == 2
    assert "unknown dataset boston: use digits" in wrong.stderr


class TestNumbersOfSplits:
    """What a file has is not made again, and not lost."""

    def run(self, folder, seeds, *more, methods="nngp"):
        words = ["reproduce", "classes", "--datasets", "wine", "--methods", methods, "--seeds", str(seeds)]
        done = CliRunner().invoke(app, [*words, "--device", "cpu", "--output", str(folder), *more])
        assert done.exit_code == 0, done.output
        return done

    def read(self, folder, method="nngp"):
        return json.loads((folder / "classification" / f"wine-20-{method}.json").read_text())

    def test_more_splits_serve_a_command_that_asks_for_fewer(self, tmp_path):
        self.run(tmp_path, 3)
        before = self.read(tmp_path)
        fewer = self.run(tmp_path, 1)
        assert fewer.stderr.count("the first 1 of its 3 splits") == 2
        assert self.read(tmp_path) == before
        assert f"{before['splits'][0]['test']['nll']:.3f} │" in fewer.stdout
        assert "over 1 splits" in fewer.stdout

    def test_a_command_that_asks_for_more_goes_on(self, tmp_path, monkeypatch):
        whole = self.run(tmp_path / "whole", 3)
        assert "are there" not in whole.stderr
        self.run(tmp_path, 1)
        first = self.read(tmp_path)["splits"]
        asked = []
        fit = classes.run_fitted
        monkeypatch.setattr(
            classes, "run_fitted", lambda *words, **more: asked.append(more["first_seed"]) or fit(*words, **more)
        )
        more = self.run(tmp_path, 3)
        assert asked == [1, 1]
        assert more.stderr.count("3 splits on cpu, 1 of them are there") == 2
        result = self.read(tmp_path)
        assert result["splits"][:1] == first
        assert [split["test"] for split in result["splits"]] == [
            split["test"] for split in self.read(tmp_path / "whole")["splits"]
        ]
        assert result["protocol"]["seeds"] == 3

    def test_gdkl_and_its_student_go_on_from_where_both_are(self, tmp_path):
        steps = ("--gdkl-steps", "2")
        self.run(tmp_path, 2, *steps, methods="gdkl")
        self.run(tmp_path, 1, *steps, methods="gdkl_student")
        both = self.run(tmp_path, 3, *steps, methods="gdkl,gdkl_student")
        assert both.stderr.count("1 of them are there") == 2
        for method in ("gdkl", "gdkl_student"):
            result = self.read(tmp_path, method)
            assert result["method"] == method
            assert [split["seed"] for split in result["splits"]] == [0, 1, 2]

    def test_splits_of_other_versions_are_not_mixed(self, tmp_path):
        self.run(tmp_path, 1)
        path = tmp_path / "classification" / "wine-20-nngp.json"
        old = self.read(tmp_path)
        old["versions"]["torch"] = "1.0"
        old["splits"][0]["test"]["nll"] = 7.0
        path.write_text(json.dumps(old))
        more = self.run(tmp_path, 2)
        assert more.stderr.count("are there") == 1
        assert all(split["test"]["nll"] < 1 for split in self.read(tmp_path)["splits"])

    def test_a_trial_of_fewer_splits_puts_the_whole_result_aside(self, tmp_path):
        self.run(tmp_path, 2, "--dkl-steps", "3", methods="dkl")
        whole = self.read(tmp_path, "dkl")
        trial = self.run(tmp_path, 1, "--dkl-steps", "2", methods="dkl")
        assert "renamed to wine-20-dkl.2-splits.json" in trial.stderr
        assert json.loads((tmp_path / "classification" / "wine-20-dkl.2-splits.json").read_text()) == whole
        assert len(self.read(tmp_path, "dkl")["splits"]) == 1
