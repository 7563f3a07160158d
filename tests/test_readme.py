"""The README's Python runs, in its order and as one session, and what it points to exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import gdkl
from gdkl.cli import app
from gdkl.guide import as_kernel_function, fit_guide
from gdkl.training import Schedule, StudentOptions, TrainingData

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.DOTALL | re.MULTILINE)


def test_every_python_block_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(BLOCKS) >= 5
    monkeypatch.chdir(tmp_path)
    session: dict[str, Any] = {}
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"README block {number}", "exec"), session)
    assert re.search(r"\d+% of the test targets are in their 90 % interval", capsys.readouterr().out)
    pictures, models = {"calibration.png", "training.png", "reliability.png"}, {"model.gdkl", "own.gdkl"}
    assert {path.name for path in tmp_path.iterdir()} == pictures | models
    model, again, own = (session[name] for name in ("model", "again", "own"))
    assert isinstance(model, gdkl.GDKLRegressor)
    assert (again.predict(session["X_test"]) == own.predict(session["X_test"])).all()


def test_every_python_block_of_the_infinite_networks_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("botorch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    text = (ROOT / "docs" / "infinite.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    session: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"block {number} of infinite.md", "exec"), session)
    assert (tmp_path / "kernel.npy").exists()
    assert session["model"].posterior(session["X"]).mean.shape == (20, 1)


def test_the_method_that_contributing_shows_can_be_fitted() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    session: dict[str, Any] = {}
    exec(compile(block, "CONTRIBUTING", "exec"), session)
    rows = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(1, 12, 1)
    data = TrainingData(rows, rows.transpose(1, 2) ** 2)
    guide = fit_guide(as_kernel_function(gdkl.infinite.mlp(hidden_layers=1)), data.rows, data.targets)
    model = session["fit_distilled"](data, guide, StudentOptions(Schedule(3)))
    assert set(model.history[-1]) >= {"objective", "kl"}
    assert "ell" not in model.history[-1]


def test_the_map_in_contributing_has_every_room() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in (ROOT / "src" / "gdkl").glob("*/__init__.py")}
    assert rooms <= set(re.findall(r"^\| `gdkl\.(\w+)`", text, flags=re.MULTILINE))


def test_the_first_example_fits_in_ten_lines() -> None:
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 10


def test_links_and_pictures_are_in_the_repository() -> None:
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", TEXT) if "://" not in target]
    assert any(target.endswith(".png") for target in targets)
    for target in targets:
        assert (ROOT / target).is_file(), target


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "test"):
        assert f"make {target}" in TEXT
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


@pytest.mark.parametrize("name", ["GDKLRegressor", "DKLRegressor", "NNGPRegressor", "GPRegressor"])
def test_the_table_names_estimators_and_options_that_exist(name: str) -> None:
    row = next(line for line in TEXT.splitlines() if line.startswith(f"| `{name}`"))
    options = [option for option in re.findall(r"`(\w+)`", row.split("|")[4]) if not option.endswith("Regressor")]
    assert options
    known = getattr(gdkl, name)().get_params()
    assert set(options) | {"device", "dtype", "random_state", "verbose"} <= set(known)


def test_the_commands_of_the_dataset_section_exist() -> None:
    for command in ("list", "fetch"):
        assert f"gdkl datasets {command}" in TEXT
        assert CliRunner().invoke(app, ["datasets", command, "--help"]).exit_code == 0


def test_the_version_of_the_changelog_is_the_librarys() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(\d+\.\d+\.\d+)\]", changelog, flags=re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == gdkl.__version__


def test_importing_the_library_starts_no_command_line() -> None:
    script = "import sys, gdkl; sys.exit(1 if 'gdkl.cli' in sys.modules else 0)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
