"""``gdkl reproduce``: the experiments, the paper's and our own, put together."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from gdkl.cli.reproduce.cifar import cifar
from gdkl.cli.reproduce.classes import classes
from gdkl.cli.reproduce.fewshot import fewshot
from gdkl.cli.reproduce.large import large
from gdkl.cli.reproduce.uci import uci
from gdkl.numerics import OptionError


class ExperimentGroup(TyperGroup):
    """A group whose commands are experiments: where one is not known, the user is told of those that are."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the experiment that the first word names."""
        if self.get_command(ctx, args[0]) is None:
            known = self.list_commands(ctx)
            raise OptionError(f"experiment {args[0]!r} is not known: use {', '.join(known[:-1])} or {known[-1]}.")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=ExperimentGroup, rich_markup_mode=None, epilog="Example:  gdkl reproduce uci --datasets boston --data-dir data"
)


@app.callback(invoke_without_command=True)
def reproduce(context: typer.Context) -> None:
    """Run an experiment, the paper's or our own.

    Each has its options: gdkl reproduce EXPERIMENT --help. Result files hold seeds, settings and versions. What is
    already there with the same settings is kept, so that an interrupted command goes on where it stopped. A result is
    never replaced by one of fewer splits, but renamed.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command(epilog="Example:  gdkl reproduce uci --datasets boston,energy --methods gdkl,nngp --data-dir data")(uci)
app.command(epilog="Example:  gdkl reproduce fewshot --sizes 200 --methods gdkl --data-dir data")(fewshot)
app.command(epilog="Example:  gdkl reproduce classes --datasets wine --methods gdkl,nngp --seeds 2")(classes)
app.command(epilog="Example:  gdkl reproduce large --datasets power --methods gdkl,boosting --data-dir data")(large)
app.command(epilog="Example:  gdkl reproduce cifar --holdout 5000 --epochs 40 --beta 0.05 --data-dir data")(cifar)
