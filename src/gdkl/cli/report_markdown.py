"""The report as Markdown: the same tables and notes as the page, without its pictures."""

from __future__ import annotations

from collections.abc import Sequence

from gdkl._version import __version__
from gdkl.cli.report_page import runs_in_words, versions_of
from gdkl.experiments.report import PAPER_DIGITS, Entry, Section, Sheet, differences, overview_rows, text
from gdkl.experiments.report_timing import timing_rows
from gdkl.experiments.results import Line
from gdkl.experiments.summary import Rows


def report_text(found: Sequence[Section], lines: Sequence[Line]) -> str:
    """The whole text."""
    parts = [
        "# Results beside the paper's",
        f"gdkl {__version__}. A cell has ours, the paper's in brackets, and “not run” where there is no run; the best "
        "mean of a column is bold. ± is the standard deviation over runs. Pictures are in the page of the same name.",
        "## What differs from the paper, and why",
        _bullets(differences().get("all", ())),
        "## Overview",
        _flat(overview_rows(found), "experiment"),
    ]
    for one in found:
        parts += _section(one)
    parts += ["## Timing", _flat(timing_rows(lines), ""), f"Made by {', '.join(versions_of(lines))}."]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(one: Section) -> list[str]:
    spec = one.spec
    parts = [
        f"## {spec.name}{f' ({spec.paper.where})' if spec.paper else ''}",
        f"{spec.about}.",
    ]
    if one.quick and spec.quick:
        parts.append(f"**Quick, not the protocol: {spec.quick.about}.**")
        parts += [_sheet(sheet) for sheet in one.quick_sheets]
        parts.append("**The protocol:**")
    parts += [f"{title}\n\n{_flat(rows)}" for title, rows in one.summaries]
    parts += [_sheet(sheet) for sheet in one.sheets]
    parts += [_bullets([f"Not run: {name}: {how}`{command}`" for name, (how, command) in one.absent.items()])]
    parts += [f"What differs from the paper, and why:\n\n{_bullets(one.differences)}"] if one.differences else []
    parts += [f"Other settings:\n\n{_flat(one.others, '')}"] if one.others else []
    return parts


def _bullets(notes: Sequence[str]) -> str:
    return "\n".join(f"- {note}" for note in notes)


def _sheet(sheet: Sheet) -> str:
    lines = [f"| {' | '.join(['method', *sheet.columns, 'runs'])} |", "|---" * (len(sheet.columns) + 2) + "|"]
    for name, _, entries in sheet.rows:
        lines.append(f"| {' | '.join([f'`{name}`', *map(_entry, entries), runs_in_words(entries)])} |")
    return f"**{sheet.title}**\n\n" + "\n".join(lines)


def _entry(entry: Entry) -> str:
    ours = ("–" if entry.runs else "not run") if entry.found is None else text(entry.found, entry.digits)
    return (f"**{ours}**" if entry.best else ours) + (
        "" if entry.paper is None else f" ({text(entry.paper, PAPER_DIGITS)})"
    )


def _flat(rows: Rows, head: str = "method") -> str:
    """A table of texts; without a head rows have no names."""
    if not rows:
        return ""
    columns = [name for name in next(iter(rows.values())) if any(row[name] for row in rows.values())]
    heads = [head, *columns] if head else columns
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, row in rows.items():
        cells = [row[column].replace("|", "\\|") for column in columns]
        lines.append(f"| {' | '.join([f'`{name}`', *cells] if head else cells)} |")
    return "\n".join(lines)
