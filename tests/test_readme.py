"""The code blocks of README, CONTRIBUTING and docs run, each page as one session, and what README points to exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import gdkl
from gdkl.cli import app

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(path: str) -> list[str]:
    """Python blocks of a page."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def run_page(path: str, count: int) -> dict[str, Any]:
    """All blocks of a page in one session."""
    found = blocks(path)
    assert len(found) == count
    session: dict[str, Any] = {}
    for number, block in enumerate(found):
        exec(compile(block, f"block {number} of {path}", "exec"), session)
    return session


def test_every_block_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    session = run_page("README.md", 3)
    printed = capsys.readouterr().out
    assert re.search(r"\d+% of the test targets are in their 90 % interval", printed)
    assert re.search(r"\d+ steps; columns of the log: .*\bkl\b", printed)
    assert {path.name for path in tmp_path.iterdir()} == {"model.gdkl"}
    assert isinstance(session["model"], gdkl.GDKLRegressor)


def test_the_first_example_fits_in_ten_lines() -> None:
    assert len([line for line in blocks("README.md")[0].splitlines() if line.strip()]) <= 10


def test_the_readme_is_short_and_shows_one_picture() -> None:
    assert len(TEXT.splitlines()) <= 150
    assert TEXT.count("![") == 1


def test_every_block_on_infinite_networks_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("botorch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    session = run_page("docs/infinite.md", 4)
    assert (tmp_path / "kernel.npy").exists()
    assert session["model"].posterior(session["X"]).mean.shape == (20, 1)


def test_every_block_of_the_how_to_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = run_page("docs/howto.md", 11)
    assert session["sparse"].inference_ == "sparse"
    assert set(session["search"].best_params_) == {"beta", "preset__learning_rate"}
    assert {"reliability.png", "own.gdkl"} <= {path.name for path in tmp_path.iterdir()}


def test_every_block_of_the_quickstart_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    session = run_page("docs/quickstart.md", 5)
    assert re.search(r"\d+% of the test targets are in their 90 % interval", capsys.readouterr().out)
    assert session["draws"].shape == (100, len(session["y_test"]))


def test_a_table_is_made_from_a_results_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    run_page("docs/results/README.md", 1)
    assert re.search(r"boston +dkl +-380\.127", capsys.readouterr().out)


def test_the_method_that_contributing_adds_is_bayesian_linear_regression_on_its_features() -> None:
    session = run_page("CONTRIBUTING.md", 3)
    random = np.random.default_rng(0)
    X = random.standard_normal((40, 3))
    y = X[:, 0] ** 2 + X[:, 1] + 0.1 * random.standard_normal(40)
    estimator = session["LinearDKLRegressor"](n_iter=20, random_state=0).fit(X[:30], y[:30])
    assert {"objective", "data_fit", "complexity"} <= set(estimator.history_)
    model = estimator.model_
    features = [model.embed(estimator._scaled_rows(part))[0].detach().numpy() for part in (X[:30], X[30:])]
    variance = float(model.posterior.kernel.kernel.variance)
    # Weights w ~ N(0, variance·I): the posterior precision and the mean of wᵀφ.
    known, new = features
    precision = known.T @ known / float(model.noise) + np.eye(known.shape[1]) / variance
    targets = (y[:30] - y[:30].mean()) / y[:30].std()
    mean = new @ np.linalg.solve(precision, known.T @ targets) / float(model.noise)
    np.testing.assert_allclose(estimator.predict(X[30:]), mean * y[:30].std() + y[:30].mean(), rtol=1e-6)
    assert session["linear"].estimator == session["LinearDKLRegressor"].__name__


def test_the_example_of_a_method_is_short() -> None:
    method, estimator, _ = blocks("CONTRIBUTING.md")
    assert len((method + estimator).splitlines()) < 60


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "test"):
        assert f"make {target}" in TEXT
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_the_table_names_estimators_and_options_that_exist() -> None:
    rows = [line.split("|") for line in TEXT.splitlines() if re.match(r"\| `\w+(Regressor|Classifier)`", line)]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row[1])}
    assert named == {name for name in gdkl.__all__ if name.endswith(("Regressor", "Classifier"))}
    for row in rows:
        for name in re.findall(r"`(\w+)`", row[1]):
            options = set(re.findall(r"`(\w+)`", row[3]))
            assert options
            assert options <= set(getattr(gdkl, name)().get_params())


def test_the_commands_that_the_readme_names_exist() -> None:
    commands = re.findall(r"`gdkl (\w+(?: \w+)?)(?: [A-Z]+)?`", TEXT)
    assert len(commands) >= 4
    for command in commands:
        assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0, command


def test_the_version_of_the_changelog_is_the_librarys() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(\d+\.\d+\.\d+)\]", changelog, flags=re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == gdkl.__version__


def test_importing_the_library_starts_no_command_line() -> None:
    script = "import sys, gdkl; sys.exit(1 if 'gdkl.cli' in sys.modules else 0)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
