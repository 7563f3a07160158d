"""``gdkl evaluate --report``: a page beside the scores."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

import gdkl
from gdkl.cli import app
from mixed_table import mixed


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report")
    X, y = mixed(150)
    table = X[["size", "city", "garden"]].assign(price=y)
    table[:70].to_csv(path / "fit.csv", index=False)
    table[70:].to_csv(path / "new.csv", index=False)
    fit = ("fit", path / "fit.csv", "--target", "price", "-o", path / "p.gdkl", "--estimator", "nngp")
    assert run(*fit, "--no-picture").exit_code == 0
    return path


def test_the_page_says_what_the_command_says(folder: Path) -> None:
    result = run("evaluate", folder / "p.gdkl", folder / "new.csv", "--report", folder / "report.html")
    assert result.exit_code == 0, result.output
    text = (folder / "report.html").read_text(encoding="utf-8")
    new = pd.read_csv(folder / "new.csv")
    verdict = gdkl.load(folder / "p.gdkl").diagnose(new.drop(columns="price"), new["price"]).verdict
    assert verdict.partition(":")[0] in text
    assert result.stdout.splitlines()[-1].endswith(f"See {folder / 'report.html'}.")
    assert "Target: price" in text
    assert "fitted by" in text


def test_machines_are_told_the_verdict(folder: Path) -> None:
    given = ("evaluate", folder / "p.gdkl", folder / "new.csv", "--report", folder / "report.html", "--json")
    answer = json.loads(run(*given).stdout)
    assert answer["report"] == str(folder / "report.html")
    assert answer["verdict"] in (folder / "report.html").read_text(encoding="utf-8")


def test_a_page_that_cannot_be_written_is_refused_before_any_work(folder: Path) -> None:
    missing = run("evaluate", folder / "p.gdkl", folder / "new.csv", "--report", folder / "none" / "report.html")
    assert missing.exit_code == 2
    assert "does not exist" in missing.stderr
    before = (folder / "new.csv").read_bytes()
    same = run("evaluate", folder / "p.gdkl", folder / "new.csv", "--report", folder / "new.csv")
    assert same.exit_code == 2
    assert "--report" in same.stderr
    assert (folder / "new.csv").read_bytes() == before
