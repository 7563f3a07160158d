"""What the user sees: results on standard output, and one line on standard error with exit code 2 for what went wrong.

The line is for what the user can correct: the library's own errors, a wrong option, a folder that cannot be written.
Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from gdkl.numerics import GdklError, GdklWarning

#: Exit code after a wrong input.
WRONG_INPUT = 2
#: Exit code after Ctrl-C, as shells have it.
INTERRUPTED = 130

#: Root of the errors that the parser raises. Typer brings its own copy of click or uses the installed one, so it is
#: found by way of a class that every version exports.
_PARSER_ERROR: type[BaseException] = typer.BadParameter.__mro__[2]


def say(line: str) -> None:
    """Write a line for the user to standard error, where it does not mix with results."""
    typer.echo(line, err=True)


def show(table: Any, lines: Sequence[str] = ()) -> None:
    """Print a table, and lines under it; a table that another program reads is wide enough to keep paths whole."""
    from rich.console import Console  # noqa: PLC0415  (help does not need it)

    console = Console(width=None if sys.stdout.isatty() else 240)
    console.print(table)
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def explain(error: BaseException) -> str | None:
    r"""An error in one line; None for a bug.

    Example:
        >>> explain(GdklError("X has no rows:\n give some."))
        'gdkl: X has no rows: give some.'
        >>> explain(KeyError("x")) is None
        True
    """
    if isinstance(error, _PARSER_ERROR):
        context = getattr(error, "ctx", None)
        path = "gdkl" if context is None else context.command_path
        text = str(getattr(error, "format_message", error.__str__)())
        return _one_line(f"{path}: {text.rstrip('.')}. Run '{path} --help' for what it takes.")
    if isinstance(error, GdklError):
        return _one_line(f"gdkl: {error}")
    if isinstance(error, OSError) and error.filename is not None:
        return _one_line(f"gdkl: {error.filename}: {error.strerror or error}. Check the path and its permissions.")
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())


@contextmanager
def plain_warnings() -> Generator[None]:
    """Show the library's warnings as a line each, once, without the place in its code that they come from."""
    with warnings.catch_warnings():
        original = warnings.showwarning
        shown: set[str] = set()

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, GdklWarning):
                line = _one_line(f"gdkl: warning: {message}")
                # A second fit, or the next part of a file, has the same to say.
                if line not in shown:
                    shown.add(line)
                    say(line)
            else:
                original(message, category, *place, **more)

        warnings.showwarning = show
        yield


class OneLineGroup(TyperGroup):
    """The group of all commands, which turns failures into one line."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run a command and exit, or return its result where a program and not a shell called."""
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)
        try:
            with plain_warnings():
                result = super().main(*args, standalone_mode=False, **extra)
        except Exception as error:
            line = explain(error)
            if line is None:
                raise
            say(line)
            sys.exit(WRONG_INPUT)
        sys.exit(result if isinstance(result, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; Ctrl-C ends it without a traceback."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say("gdkl: interrupted.")
            raise typer.Exit(INTERRUPTED) from None
