"""``gdkl datasets``: which there are, and how to get one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gdkl.cli.failures import say, show
from gdkl.datasets import Origin, cache_dir, fetch, image_names, load, locate, names
from gdkl.datasets.registry import DatasetInfo, ImageInfo, describe_any

app = typer.Typer(rich_markup_mode=None, epilog="Example:  gdkl datasets list")

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
    from rich.table import Table  # noqa: PLC0415  (help does not need it)

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("name", no_wrap=True)
    for title in ("rows", "features", "targets"):
        table.add_column(title, justify="right")
    table.add_column("copy", overflow="fold")
    for name in (*names(), *image_names()):
        info = describe_any(name)
        if isinstance(info, ImageInfo):
            features, targets = " x ".join(map(str, info.shape)), "1"
        else:
            features, targets = str(info.columns), str(len(info.target_names))
        table.add_row(name, str(info.rows), features, targets, _copy(info, data_dir))
    show(table)


def _copy(info: DatasetInfo | ImageInfo, data_dir: Path | None) -> str:
    from rich.markup import escape  # noqa: PLC0415

    if info.origin is Origin.EMBEDDED:
        return "comes with the library"
    path = locate(info.name, data_dir)
    if path is not None:
        return escape(str(path))
    return "to download" if info.origin is Origin.DOWNLOAD else f"none here: provide {info.file}{info.ending}"


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
    loaded = load(name, data_dir if path.parent != cache_dir() else None)
    typer.echo(str(path))
    say(f"{str(loaded).strip('<>')}{', checksum is right' if describe_any(name).digest else ''}.")
