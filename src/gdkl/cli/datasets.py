"""``gdkl datasets``: which there are, and how to get one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gdkl.cli.failures import PIPE_WIDTH, say
from gdkl.datasets import Origin, cache_dir, fetch, image_names, load, load_images, locate, names
from gdkl.datasets.registry import describe, describe_any, describe_images

app = typer.Typer(
    rich_markup_mode=None, help="List the named datasets, or fetch one.", epilog="Example:  gdkl datasets list"
)

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="A folder with local <name>.npz files, looked at before GDKL_DATA and the cache."),
]


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """List the named datasets, or fetch one."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("list", epilog="Example:  gdkl datasets list --data-dir ~/tables")
def list_datasets(data_dir: DataDir = None) -> None:
    """Show every dataset, its size, and where a copy of it is."""
    from rich.console import Console  # noqa: PLC0415  (help does not need it)
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("name", no_wrap=True)
    table.add_column("rows", justify="right")
    table.add_column("features", justify="right")
    table.add_column("targets", justify="right")
    table.add_column("copy", overflow="fold")
    for name in names():
        info = describe(name)
        table.add_row(name, str(info.rows), str(info.columns), str(len(info.target_names)), _copy(name, data_dir))
    for name in image_names():
        images = describe_images(name)
        table.add_row(name, str(images.rows), " x ".join(map(str, images.shape)), "1", _copy(name, data_dir))
    # Paths stay in one piece where another program reads them.
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


def _copy(name: str, data_dir: Path | None) -> str:
    from rich.markup import escape  # noqa: PLC0415

    info = describe_any(name)
    if info.origin is Origin.EMBEDDED:
        return "comes with the library"
    path = locate(name, data_dir)
    if path is not None:
        return escape(str(path))
    return "to download" if info.origin is Origin.DOWNLOAD else f"none here: provide {info.file}.npz"


@app.command("fetch", epilog="Example:  gdkl datasets fetch boston")
def fetch_dataset(
    name: Annotated[str, typer.Argument(help="One of the names that 'gdkl datasets list' shows.")],
    data_dir: DataDir = None,
    force: Annotated[bool, typer.Option("--force", help="Download it even if a copy is there.")] = False,
) -> None:
    """Get a checked copy of a dataset, and print its path.

    A copy in --data-dir, in the folder of GDKL_DATA or in the cache is enough; without one the dataset is downloaded
    into the cache. The numbers are checked against a recorded SHA-256 in any case.
    """
    path = None if force else locate(name, data_dir)
    if path is None:
        if describe_any(name).origin is not Origin.EMBEDDED:
            say(f"Fetching {name} into {cache_dir()} ...")
        path = fetch(name, force=force)
    folder = data_dir if path.parent != cache_dir() else None
    if name in image_names():
        images = load_images(name, folder)
        size = " x ".join(map(str, images.X.shape[1:]))
        content = f"{len(images.X)} images of {size}, {len(images.class_names)} classes"
    else:
        table = load(name, folder)
        content = f"{table.X.shape[0]} rows, {table.X.shape[1]} features"
    typer.echo(str(path))
    say(f"{name}: {content}, checksum is right.")
