"""``gdkl demo``: what it says, what it writes, and that it leaves nothing half-written."""

from __future__ import annotations

import base64
import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gdkl.cli import app
from gdkl.cli.demo_study import TOY_TRAIN_ROWS, run_study, toy_problem
from gdkl.cli.publish import publish
from gdkl.plots import in_region

FILES = {"index.html", "figure1.png", "bands.png", "calibration.png", "training.png"}
METHODS = ("GDKL", "DKL", "NNGP", "GP")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["demo", *arguments])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    folder = tmp_path_factory.mktemp("work") / "new" / "demo"
    return run("--steps", "12", "--seed", "3", "--output", str(folder)), folder


class Reader(HTMLParser):
    """Collects the pictures, the table cells and every address of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "srcset") and value]
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open or "th" in self.open:
            self.cells[-1] += data


def test_it_ends_well_and_writes_all_files_and_nothing_else(finished: tuple[Result, Path]) -> None:
    result, folder = finished
    assert result.exit_code == 0, result.output
    assert {path.name for path in folder.iterdir()} == FILES
    assert [path.name for path in folder.parent.iterdir()] == ["demo"]
    for name in FILES - {"index.html"}:
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


def test_it_says_how_many_steps_and_what_the_full_protocol_takes(finished: tuple[Result, Path]) -> None:
    text = finished[0].stdout
    assert "DKL for 12;" in text
    assert "7000" in text
    assert "8000" in text
    assert f"{TOY_TRAIN_ROWS} training points" in text


def test_progress_goes_to_standard_error_as_plain_lines(finished: tuple[Result, Path]) -> None:
    result, _ = finished
    assert "DKLRegressor: step 12 of 12" in result.stderr
    assert "DKLRegressor: step 12 of 12" in result.stderr
    assert "step 12 of" not in result.stdout
    assert "\x1b" not in result.output


def test_the_terminal_and_the_page_show_the_same_scores(finished: tuple[Result, Path]) -> None:
    result, folder = finished
    rows = [line.strip("│ ").split() for line in result.stdout.splitlines() if line.startswith("│")]
    shown = [[cell for cell in row if cell != "│"] for row in rows]
    assert [row[0] for row in shown] == [*METHODS, *METHODS]
    assert all(len(row) == 7 for row in shown)
    reader = Reader()
    reader.feed((folder / "index.html").read_text(encoding="utf-8"))
    assert reader.open == []
    cells = [cell for cell in reader.cells if cell]
    tables = [cells[index : index + 7] for index in range(0, len(cells), 7)]
    assert [row for row in tables if row[0] in METHODS] == shown
    coverages = [float(row[5]) for row in shown]
    assert all(0 <= value <= 1 for value in coverages)


def test_the_page_needs_nothing_from_outside(finished: tuple[Result, Path]) -> None:
    _, folder = finished
    text = (folder / "index.html").read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    pictures = [address.removeprefix("data:image/png;base64,") for address in reader.addresses]
    assert [base64.b64decode(picture) for picture in pictures] == [
        (folder / name).read_bytes() for name in ("bands.png", "figure1.png", "calibration.png", "training.png")
    ]
    assert not re.search(r"https?://|<script|<link|url\(|@import", text)
    assert "prefers-color-scheme: dark" in text
    assert "Achituve" in text


def test_an_earlier_demo_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "index.html").write_text("old")
    (folder / "bands.png").write_bytes(b"old")
    publish(folder, {"index.html": b"new", "bands.png": b"new", "training.png": b"new"})
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert found == {"index.html": b"new", "bands.png": b"new", "training.png": b"new"}
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    result = run("--output", str(tmp_path))
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "thesis.tex" in result.stderr
    assert "--output" in result.stderr
    assert result.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--steps", "0"), "--steps"),
        (("--steps", "many"), "--steps"),
        (("--seed", "-1"), "--seed"),
        (("--seeds", "1"), "--seeds"),
        (("extra",), "extra"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(arguments: tuple[str, ...], told: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert told in result.stderr
    assert "gdkl demo --help" in result.stderr


def test_output_that_is_a_file_is_refused_before_any_work(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("precious")
    result = run("--output", str(target))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not a folder" in result.stderr
    assert target.read_text() == "precious"


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    # Test runners may have told their children to ignore Ctrl-C.
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\nfrom gdkl.cli import main; main()"
    )
    command = [sys.executable, "-c", script, "demo", "--steps", "1000000", "--output", str(tmp_path / "demo")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        try:
            assert process.stdout is not None
            while not process.stdout.readline().startswith("toy:"):
                assert process.poll() is None
            time.sleep(1.0)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "gdkl demo: interrupted; nothing was written."
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_the_toy_has_no_training_point_in_the_gap_and_test_points_there() -> None:
    problem = toy_problem(seed=5)
    assert len(problem.y) == TOY_TRAIN_ROWS
    assert not in_region(problem.X, (4, 8)).any()
    assert in_region(problem.X_test, (4, 8)).sum() > 80


def test_scores_are_those_of_the_models_predictions() -> None:
    problem = toy_problem(seed=0)
    told: list[str] = []
    study = run_study(problem, 3, 0, told.append)
    assert len(told) == 4
    gp = study.results["GP"]
    p = gp.model.predict_distribution(problem.X_test)
    assert gp.test["log_likelihood"] == pytest.approx(float(p.log_prob(problem.y_test).mean()))
    low, high = p.interval(0.9)
    assert gp.test["coverage"] == pytest.approx(((low <= problem.y_test) & (problem.y_test <= high)).mean())
    assert (study.results["GDKL"].model.n_iter_, study.results["DKL"].model.n_iter_) == (1, 3)
    # Three steps teach a deep kernel nothing; Gaussian processes, guides among them, are fitted to the end.
    assert study.best != "DKL"
