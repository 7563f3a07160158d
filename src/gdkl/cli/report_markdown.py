"""The report as Markdown: the same tables and notes as the page, without its pictures."""

from __future__ import annotations

from collections.abc import Sequence

from gdkl._version import __version__
from gdkl.cli.report_page import runs_in_words, versions_of
from gdkl.experiments.report import Entry, Section, Sheet, compared_with_paper, differences, text
from gdkl.experiments.report_timing import timing_rows
from gdkl.experiments.results import Line
from gdkl.experiments.summary import Rows


def report_text(found: Sequence[Section], lines: Sequence[Line]) -> str:
    """The whole text."""
    parts = [
        "# Results beside the paper's",
        f"gdkl {__version__}. A cell has ours, the paper's in brackets, and “not run” where there is no run; the best mean of "
        "a column is bold. ± is the standard deviation over runs. Pictures are in the page of the same name.",
        "## What differs from the paper, and why",
        _bullets(differences().get("all", ())),
        "## Overview",
        "| experiment | in the paper | cells run | GDKL's run, of those in the paper | at least as good |",
    ]
    parts[-1] += "\n|---|---|---|---|---|" + "".join(_overview_row(one) for one in found)
    for one in found:
        parts += _section(one)
    parts += ["## Timing", _flat(timing_rows(lines)), f"Made by {', '.join(versions_of(lines))}."]
    return "\n\n".join(part for part in parts if part) + "\n"


def _overview_row(one: Section) -> str:
    count, run, good = compared_with_paper(one)
    where = one.spec.paper.where if one.spec.paper else ""
    cells = f"{len(one.lines)} of {one.wanted}"
    return f"\n| {one.spec.name} | {where} | {cells} | {f'{run} of {count}' if count else ''} | {f'{good} of {run}' if run else ''} |"


def _section(one: Section) -> list[str]:
    spec = one.spec
    parts = [f"## {spec.name}{f' ({spec.paper.where})' if spec.paper else ''}", f"{spec.about}.", _bullets(one.differences)]
    if one.quick and spec.quick:
        parts.append(f"**Quick, not the protocol: {spec.quick.about}.**")
        parts += [_sheet(sheet) for sheet in one.quick_sheets]
        parts.append("**The protocol:**")
    parts += [f"{title}\n\n{_flat(rows)}" for title, rows in one.summaries]
    parts += [_sheet(sheet) for sheet in one.sheets]
    parts += [_bullets([f"Not run: {name}: `{how}`" for name, how in one.absent.items()])]
    parts += [f"Other settings:\n\n{_flat(one.others, named=False)}"] if one.others else []
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
    return (f"**{ours}**" if entry.best else ours) + ("" if entry.paper is None else f" ({text(entry.paper, entry.digits)})")


def _flat(rows: Rows, *, named: bool = True) -> str:
    if not rows:
        return ""
    named = named and not next(iter(rows)).startswith("[")  # keys of timing rows are not for readers
    columns = [name for name in next(iter(rows.values())) if any(row[name] for row in rows.values())]
    lines = [f"| {' | '.join((['method'] if named else []) + columns)} |", "|---" * (len(columns) + named) + "|"]
    lines += [f"| {' | '.join(([f'`{name}`'] if named else []) + [row[one] for one in columns])} |" for name, row in rows.items()]
    return "\n".join(lines)
