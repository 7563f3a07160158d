"""The commands, put together. Each has a file of its own, which imports models and plots only when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from gdkl._version import __version__
from gdkl.cli import datasets
from gdkl.cli.demo import demo
from gdkl.cli.doctor import doctor
from gdkl.cli.evaluate import evaluate
from gdkl.cli.export import export
from gdkl.cli.failures import OneLineGroup
from gdkl.cli.fit import fit
from gdkl.cli.init import init
from gdkl.cli.inspect import inspect
from gdkl.cli.predict import predict
from gdkl.cli.report import report
from gdkl.cli.reproduce import HELP, reproduce

app = typer.Typer(
    name="gdkl",
    cls=OneLineGroup,
    # Plain help: in 80 columns the panels of rich cut the names of options short.
    rich_markup_mode=None,
    # An error that is not the user's is a bug, and Python's own traceback is what a report of it needs.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example:  gdkl fit houses.csv --target price -o houses.gdkl; "
    "gdkl predict houses.gdkl new.csv -o predictions.csv. Exit codes: 0 done, 1 gdkl doctor found a fault, 2 wrong "
    "input, 130 interrupted; a traceback is a bug.",
)

app.command(epilog="Example:  gdkl fit houses.csv --target price -o houses.gdkl")(fit)
app.command(epilog="Example:  gdkl predict houses.gdkl new.csv -o predictions.csv")(predict)
app.command(epilog="Example:  gdkl evaluate houses.gdkl sold.csv")(evaluate)
app.command(epilog="Example:  gdkl inspect houses.gdkl")(inspect)
app.command(epilog="Example:  gdkl export houses.gdkl -o houses.onnx")(export)
app.command(epilog="Example:  gdkl init houses.csv --target price > fit.toml; gdkl fit --config fit.toml")(init)
app.command(epilog="Example:  gdkl doctor")(doctor)
app.command(epilog="Example:  gdkl demo --output demo --steps 200")(demo)
app.command(help=HELP, epilog="Example:  gdkl reproduce uci --datasets boston --set preset.n_iter=500 --data-dir data")(
    reproduce
)
app.command(epilog="Example:  gdkl report runs -o report.html")(report)
app.add_typer(datasets.app, name="datasets")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gdkl {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Guided deep kernel learning: deep-kernel Gaussian processes whose uncertainty you can trust."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Entry point of ``gdkl`` and ``python -m gdkl``."""
    app(prog_name="gdkl")
