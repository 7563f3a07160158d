"""``gdkl report``: results beside the paper's, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gdkl.cli.failures import say
from gdkl.numerics import OptionError, write_atomically


def report(
    runs: Annotated[Path, typer.Argument(metavar="RUNS", help="Folder with the results files of 'gdkl reproduce'.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page.")] = Path("report.html"),
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Write the tables as Markdown, too, in a file beside the page.")
    ] = False,
) -> None:
    """Write a page with every table of the paper, ours beside the paper's, and pictures: one file, no network."""
    from gdkl.cli.report_markdown import report_text  # noqa: PLC0415  (help does not need it)
    from gdkl.cli.report_page import report_page  # noqa: PLC0415
    from gdkl.experiments.report import read_folder, sections  # noqa: PLC0415

    text_file = output.with_suffix(".md")
    if output.is_dir() or not output.parent.is_dir():
        wrong = "is a folder" if output.is_dir() else f"lies in {output.parent}, which is no folder"
        raise OptionError(f"--output {output} {wrong}: give the name of a file in a folder that exists.")
    if markdown and text_file == output:
        raise OptionError(f"--output {output} is where the Markdown goes: give a name that ends in .html.")
    lines, foreign = read_folder(runs)
    found = sections(lines)
    everything = [line for own in lines.values() for line in own]
    for path, content in ((output, report_page(found, everything)), (text_file, report_text(found, everything))):
        if path == output or markdown:
            write_atomically(path, lambda file, content=content: file.write(content.encode()))
            typer.echo(f"Written: {path}")
    if foreign:
        say(f"Left out, for no line is of a declared experiment: {', '.join(foreign)}.")
