"""The experiments of ``gdkl reproduce`` as commands: each has its own options and no others."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from gdkl.cli.app import app
from gdkl.paper import classes, fewshot, made_before, uci
from gdkl.paper.fewshot_data import SIZES
from gdkl.paper.results import read_result

ROOT = Path(__file__).parents[2]
COMMON = {"methods", "seeds", "output", "device"}
OPTIONS = {
    "uci": COMMON | {"datasets", "data-dir", "gdkl-steps", "dkl-steps"},
    "fewshot": COMMON
    | {"data-dir", "sizes", "draw", "gdkl-steps", "dkl-steps", "beta", "guide", "guide-scale", "parametrisation"}
    | {"stratified", "both-ways", "augment", "validation", "depth", "widen-factor", "algebra", "jobs", "together"},
    "classes": COMMON | {"datasets", "gdkl-steps", "dkl-steps"},
    "large": COMMON | {"datasets", "data-dir", "epochs", "batch-size", "beta", "exact-rows", "gdkl-steps"},
    "cifar": COMMON
    | {"datasets", "data-dir", "epochs", "batch-size", "beta", "guide", "guide-scale", "label-noise", "kl-weight"}
    | {"depth", "widen-factor", "dropout", "algebra", "holdout", "checkpoint-seconds", "graph", "compile"},
}
#: What a command line without options runs; names in a row as the user would give them.
DEFAULTS = {
    "uci": {"methods": "gdkl,nngp,gp_rbf,dkl", "seeds": 10, "gdkl_steps": 7000, "dkl_steps": 8000},
    "fewshot": {"seeds": 3, "gdkl_steps": 6000, "dkl_steps": 7000, "beta": None, "guide": "dense", "guide_scale": 64}
    | {"draw": "paper", "parametrisation": "softplus", "stratified": False, "both_ways": True, "augment": False}
    | {"depth": 28, "widen_factor": 5},
    "classes": {"datasets": "digits,wine,breast_cancer", "seeds": 5, "gdkl_steps": None, "dkl_steps": None},
    "large": {"seeds": 3, "epochs": 30, "batch_size": 512, "beta": 1, "exact_rows": 3000, "gdkl_steps": 1000},
    "cifar": {"datasets": "cifar10", "methods": "gdkl,dkl", "seeds": 1, "epochs": 200, "batch_size": 256, "beta": 0.09}
    | {"guide_scale": 25, "label_noise": True, "kl_weight": 1, "dropout": 0.3, "holdout": 0, "checkpoint_seconds": 60},
}


def command(name):
    return get_command(app).commands["reproduce"].commands[name]


def written_commands():
    """Every command line of the documents that runs an experiment."""
    places = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "Makefile"]
    places += [path for folder in ("docs", "results", "benchmarks", "src") for path in (ROOT / folder).rglob("*.*")]
    for path in places:
        if path.suffix in (".md", ".py", "") and path.is_file():
            for words in re.findall(r"gdkl reproduce ([a-z]+[^`#\n\";]*)", path.read_text()):
                yield pytest.param(shlex.split(words.strip()), id=f"{path.name}: {words.strip()}")


@pytest.mark.parametrize("name", OPTIONS)
def test_an_experiment_has_its_own_options_and_their_defaults(name):
    options = {parameter.opts[0].removeprefix("--") for parameter in command(name).params}
    assert options - {"help"} == OPTIONS[name]
    found = command(name).make_context(name, []).params
    assert {key: found[key] for key in DEFAULTS[name]} == DEFAULTS[name]


@pytest.mark.parametrize("words", list(written_commands()))
def test_what_the_documents_run_is_what_the_command_takes(words):
    command(words[0]).make_context(words[0], words[1:])


@pytest.mark.parametrize(
    ("name", "option"),
    [(name, option) for name in OPTIONS for option in sorted(set().union(*OPTIONS.values()) - OPTIONS[name])],
)
def test_an_option_of_another_experiment_is_refused(name, option, tmp_path):
    done = CliRunner().invoke(app, ["reproduce", name, "--output", str(tmp_path), f"--{option}", "1"])
    assert done.exit_code == 2
    assert f"gdkl reproduce {name}: No such option: --{option}" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["moon"], ["moon", "--seeds", "3"]])
def test_an_unknown_experiment_is_told_the_known_ones(words):
    done = CliRunner().invoke(app, ["reproduce", *words])
    assert done.exit_code == 2
    assert done.stderr == "gdkl: experiment 'moon' is not known: use uci, fewshot, classes, large or cifar.\n"


def test_the_help_page_has_one_line_an_experiment():
    shown = CliRunner().invoke(app, ["reproduce", "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).stdout
    lines = shown.split("Commands:")[1].split("Example:")[0].split("\n")
    assert [line.split()[0] for line in lines if line.strip()] == list(OPTIONS)


@pytest.mark.parametrize("name", OPTIONS)
def test_help_pages_name_every_option_in_full(name: str):
    shown = CliRunner().invoke(app, ["reproduce", name, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).stdout
    assert {option for option in OPTIONS[name] if f"--{option}" not in shown} == set()


def test_a_help_page_is_of_one_experiment():
    shown = CliRunner().invoke(app, ["reproduce", "large", "--help"]).stdout
    assert "--exact-rows" in shown
    assert "fewshot" not in shown
    assert "--holdout" not in shown


def test_no_name_at_all_is_refused(tmp_path):
    done = CliRunner().invoke(app, ["reproduce", "uci", "--methods", ",", "--output", str(tmp_path)])
    assert done.exit_code == 2
    assert "no method given: use gdkl" in done.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "results" / "uci").glob("*.json")), ids=lambda path: path.stem)
def test_the_results_that_come_with_the_project_are_kept(path):
    name, method = path.stem.split("-")
    usual = asdict(uci.Protocol())
    assert made_before(path, name, method, usual, usual) is not None
    assert made_before(path, name, method, {**usual, "gdkl_iterations": 5}, usual) is None


@pytest.mark.parametrize(
    "path", sorted((ROOT / "results" / "classification").glob("*.json")), ids=lambda path: path.stem
)
def test_the_results_of_small_tables_are_kept(path):
    name, percent, method = path.stem.rsplit("-", 2)
    protocol = classes.Protocol(int(percent) / 100)
    assert made_before(path, name, method, asdict(protocol)) is not None
    current = classes.current_options(name, classes.Method(method), protocol)
    # Files of scikit-learn's methods are from before options were written, and have not changed.
    assert read_result(path).get("options", current) == current


@pytest.mark.parametrize("augment", [False, True])
def test_the_results_of_few_images_are_kept(augment):
    folder = ROOT / "results" / ("fewshot-augmented" if augment else "fewshot-networks/wrn-10-2")
    protocol = fewshot.Protocol(gdkl_iterations=3000, other_iterations=3000, depth=10, widen_factor=2, augment=augment)
    for method, sizes in (
        (fewshot.Method.GDKL, SIZES),
        (fewshot.Method.DKL, (200, 800)),
        (fewshot.Method.NN, (200, 800)),
    ):
        for n in sizes:
            assert fewshot.Run(method, n, (0, 1, 2), protocol=protocol).finished(folder) is not None
    for draw in (1, 2):
        assert fewshot.Run(fewshot.Method.GDKL, 200, (0, 1, 2), draw, protocol).finished(folder) is not None


def test_a_graph_is_for_a_gpu():
    result = CliRunner().invoke(app, ["reproduce", "cifar", "--graph", "--device", "cpu"])
    assert result.exit_code != 0
    assert "--graph records a step on a GPU" in result.output + str(result.exception)
