"""The command line as a whole: help, version, errors, and the module that runs it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner, Result

import gdkl
from gdkl.cli import app
from gdkl.cli.failures import OneLineGroup, explain
from gdkl.cli.publish import check_folder, publish
from gdkl.numerics import DataError, DataWarning, GdklError


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_version() -> None:
    assert run("--version").stdout == f"gdkl {gdkl.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        *(
            (name,)
            for name in ("fit", "predict", "evaluate", "inspect", "export", "init", "doctor", "demo", "reproduce")
        ),
        ("datasets",),
        ("datasets", "list"),
        ("datasets", "fetch"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_command_has_help_with_an_example(arguments: tuple[str, ...], option: str) -> None:
    result = run(*arguments, option)
    assert result.exit_code == 0
    assert "Example:" in result.stdout
    assert f"gdkl {' '.join(arguments)}".strip() in " ".join(result.stdout.split())


@pytest.mark.parametrize("arguments", [(), ("datasets",), ("reproduce",)], ids=["gdkl", "datasets", "reproduce"])
def test_a_command_without_its_part_shows_its_help(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


def test_an_unknown_command_is_one_line() -> None:
    result = run("dmo")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "'dmo'" in result.stderr


def test_python_m_gdkl_is_the_command_line() -> None:
    shown = subprocess.run([sys.executable, "-m", "gdkl", "--version"], capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, f"gdkl {gdkl.__version__}\n", "")


def documented_commands() -> list[str]:
    """What README and the how-to tell a user to type."""
    root = Path(__file__).parents[2]
    text = "\n".join((root / page).read_text(encoding="utf-8") for page in ("README.md", "docs/howto.md"))
    found = re.findall(r"^gdkl [a-z].*$", text, flags=re.MULTILINE) + re.findall(r"`(gdkl [a-z][^`\n]*)`", text)
    return [command.partition(">")[0].partition("#")[0].strip() for command in found]


def test_the_commands_of_the_documentation_are_understood() -> None:
    commands = documented_commands()
    assert len(commands) >= 12
    group = get_command(app)
    for command in commands:
        name, *arguments = shlex.split(command)[1:]
        context = group.make_context("gdkl", [name], resilient_parsing=True)
        found = group.get_command(context, name)
        assert found is not None, command
        # A command whose part is missing, such as DATA in running text, is named but not shown.
        found.make_context(name, arguments, parent=context, resilient_parsing=not arguments)


def small_app(error: BaseException) -> typer.Typer:
    small = typer.Typer(cls=OneLineGroup, pretty_exceptions_enable=False)

    @small.callback()
    def root() -> None:
        """A group."""

    @small.command()
    def fail() -> None:
        raise error

    return small


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (GdklError("bad\n  thing: do this."), "gdkl: bad thing: do this.\n"),
        (DataError("X is empty."), "gdkl: X is empty.\n"),
        (PermissionError(13, "Permission denied", "/x"), "gdkl: /x: Permission denied. Check the path and its perm"),
    ],
)
def test_what_the_user_can_mend_is_one_line(error: Exception, line: str) -> None:
    result = CliRunner().invoke(small_app(error), ["fail"])
    assert result.exit_code == 2
    assert result.stderr.startswith(line)
    assert result.stderr.count("\n") == 1


def test_a_bug_keeps_its_traceback() -> None:
    result = CliRunner().invoke(small_app(KeyError("bug")), ["fail"])
    assert isinstance(result.exception, KeyError)
    assert explain(ValueError("of somebody else")) is None


def test_ctrl_c_has_the_exit_code_of_shells() -> None:
    result = CliRunner().invoke(small_app(KeyboardInterrupt()), ["fail"])
    assert result.exit_code == 130
    assert result.stderr == "gdkl: interrupted.\n"


def test_warnings_of_the_library_are_one_line_each() -> None:
    small = typer.Typer(cls=OneLineGroup)

    @small.callback()
    def root() -> None:
        """A group."""

    @small.command()
    def warn() -> None:
        for _ in range(2):
            warnings.warn("column 3 ignored", DataWarning, stacklevel=1)

    before = warnings.showwarning
    result = CliRunner().invoke(small, ["warn"])
    assert result.exit_code == 0
    assert result.stderr == "gdkl: warning: column 3 ignored\n"
    assert warnings.showwarning is before


class TestPublish:
    def test_a_failure_keeps_the_old_folder_and_no_scraps(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "out"
        publish(folder, {"a": b"old", "b": b"old"})
        original = Path.write_bytes

        def full_disk(path: Path, content: bytes) -> int:
            if path.name == "b":
                raise OSError(28, "No space left on device")
            return original(path, content)

        monkeypatch.setattr(Path, "write_bytes", full_disk)
        with pytest.raises(DataError, match="No space left"):
            publish(folder, {"a": b"new", "b": b"new"})
        assert (folder / "a").read_bytes() == b"old"
        assert [path.name for path in tmp_path.iterdir()] == ["out"]

    def test_a_failing_move_brings_the_old_folder_back(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path / "out"
        publish(folder, {"a": b"old"})
        original = Path.rename

        def fails(path: Path, target: Path) -> Path:
            if path.name == "new":
                raise OSError(5, "Input/output error")
            return original(path, target)

        monkeypatch.setattr(Path, "rename", fails)
        with pytest.raises(DataError, match="Input/output"):
            publish(folder, {"a": b"new"})
        assert (folder / "a").read_bytes() == b"old"
        assert [path.name for path in tmp_path.iterdir()] == ["out"]

    def test_a_folder_of_ours_with_a_subfolder_is_not_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        with pytest.raises(DataError, match="not of an earlier run"):
            check_folder(tmp_path, ["a"])

    def test_a_parent_that_is_a_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(DataError, match="cannot write"):
            check_folder(tmp_path / "file" / "out", ["a"])
