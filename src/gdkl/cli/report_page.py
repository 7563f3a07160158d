"""The page of ``gdkl report``: one file with its tables, pictures and the few lines of script that sort the tables."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from importlib import resources
from string import Template

from gdkl._version import __version__
from gdkl.experiments.report import PAPER_DIGITS, Entry, Section, Sheet, differences, overview_rows, text
from gdkl.experiments.report_pictures import Picture, pictures
from gdkl.experiments.report_timing import timing_rows
from gdkl.experiments.results import Line
from gdkl.experiments.summary import Rows

#: Characters from which a cell of text is broken into lines.
_LONG = 24


def report_page(found: Sequence[Section], lines: Sequence[Line]) -> str:
    """The page as HTML."""
    template = Template(resources.files("gdkl.cli").joinpath("report.html").read_text(encoding="utf-8"))
    return template.substitute(
        version=__version__,
        banner=_banner(found),
        overview=_overview(found),
        general=_notes(differences().get("all", ())),
        sections="\n".join(_section(one) for one in found),
        timing=_flat("Seconds per fit and per step", timing_rows(lines), head=""),
        versions=escape(", ".join(versions_of(lines))),
    )


def versions_of(lines: Sequence[Line]) -> list[str]:
    """Versions and devices that made the lines."""
    return sorted({f"gdkl {one['versions'].get('gdkl', '?')} on {one['versions'].get('device', '?')}" for one in lines})


def _banner(found: Sequence[Section]) -> str:
    quick = [one for one in found if one.quick]
    if not quick:
        return ""
    names = ", ".join(one.spec.name for one in quick)
    return f'<p class="warn">Quick runs, which are a small part and not the protocol: {escape(names)}.</p>'


def _overview(found: Sequence[Section]) -> str:
    caption = "At least as good: not behind the paper's mean by more than the paper's own standard deviation."
    return _flat(caption, overview_rows(found), "experiment", linked=True)


def _section(one: Section) -> str:
    spec = one.spec
    where = f" ({spec.paper.where})" if spec.paper else ""
    parts = [f'<section id="{spec.name}"><h2>{escape(spec.name)}{escape(where)}</h2><p>{escape(spec.about)}.</p>']
    shown = _gallery(list(pictures(one)))
    if one.quick and spec.quick:
        parts.append(f'<p class="warn">Quick, not the protocol: {escape(spec.quick.about)}.</p>')
        parts += [] if one.lines else [shown]
        parts += [_sheet(sheet) for sheet in one.quick_sheets]
        parts.append("<h3>The protocol</h3>")
    parts += [shown] if one.lines else []
    parts += [_flat(title, rows) for title, rows in one.summaries]
    tables = "".join(_sheet(sheet) for sheet in one.sheets if not sheet.aside)
    parts.append(tables if one.lines or not tables else _folded("Nothing was run: the paper's figures", tables))
    views = "".join(_sheet(sheet) for sheet in one.sheets if sheet.aside)
    parts += [_folded("Means over mirrored and shifted views of the test images", views)] if views else []
    parts.append(_absent(one))
    parts += [_notes(one.differences, "What differs from the paper, and why")] if one.differences else []
    if one.others:
        title = f"Runs with other settings, on validation rows, or as means over networks ({len(one.others)})"
        parts.append(_folded(title, _flat("", one.others, head=""), unfolded=not one.lines and not one.quick))
    return "\n".join([*filter(None, parts), "</section>"])


def _absent(one: Section) -> str:
    items = "".join(
        f"<li>{escape(name)}: {escape(how)}<code>{escape(command)}</code></li>"
        for name, (how, command) in one.absent.items()
    )
    return f"<p>Not run:</p><ul>{items}</ul>" if items else ""


def _notes(notes: Sequence[str], title: str = "") -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<h3>{escape(title)}</h3><ul>{items}</ul>" if title else f"<ul>{items}</ul>"


def _folded(title: str, inside: str, *, unfolded: bool = False) -> str:
    return f"<details{' open' * unfolded}><summary>{escape(title)}</summary>{inside}</details>"


def _gallery(found: Sequence[Picture]) -> str:
    if not found:
        return ""
    return f'<div class="gallery">{"".join(map(_figure, found))}</div>'


def _figure(one: Picture) -> str:
    words, kind = escape(one.caption), "wide" if one.wide else "small"
    image = f'<div class="scroll"><img alt="{words}" src="{_svg(one)}"></div>'
    return f'<figure class="{kind}">{image}<figcaption>{words}</figcaption></figure>'


def _svg(picture: Picture) -> str:
    import matplotlib as mpl  # noqa: PLC0415  (slow to import)

    stream = io.BytesIO()
    # Without a date and with a fixed salt, equal results give an equal page.
    with mpl.rc_context({"svg.hashsalt": "gdkl"}):
        picture.figure.savefig(stream, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"


def _sheet(sheet: Sheet) -> str:
    heads = ["method", *sheet.columns, "runs"]
    body: list[str] = []
    for name, about, entries in sheet.rows:
        head = f'<th scope="row" data-v="{escape(name)}">{escape(name)}<small>{escape(about)}</small></th>'
        body.append(f"<tr>{head}{''.join(map(_entry, entries))}{_runs(entries)}</tr>")
    return _table(sheet.title, heads, body)


def _entry(entry: Entry) -> str:
    paper = "" if entry.paper is None else f"<small>paper {escape(text(entry.paper, PAPER_DIGITS))}</small>"
    if entry.found is None:
        return f'<td class="none">{"–" if entry.runs else "not run"}{paper}</td>'
    best = ' class="best"' if entry.best else ""
    return f'<td{best} data-v="{entry.found.mean:.6g}">{escape(text(entry.found, entry.digits))}{paper}</td>'


def runs_in_words(entries: Sequence[Entry]) -> str:
    """How many runs the entries of a row have, and how many are declared where there are fewer."""
    counts = sorted({entry.runs for entry in entries})
    shown = "–".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    return shown if counts[0] >= entries[0].wanted else f"{shown} of {entries[0].wanted}"


def _runs(entries: Sequence[Entry]) -> str:
    return f'<td data-v="{max(entry.runs for entry in entries)}">{runs_in_words(entries)}</td>'


def _flat(caption: str, rows: Rows, head: str = "method", *, linked: bool = False) -> str:
    """A table of texts; numbers at their beginning are what it is sorted by. Without a head rows have no names."""
    if not rows:
        return ""
    columns = [name for name in next(iter(rows.values())) if any(row[name] for row in rows.values())]
    body: list[str] = []
    for name, row in rows.items():
        shown = f'<a href="#{escape(name)}">{escape(name)}</a>' if linked else escape(name)
        cells = [f'<th scope="row" data-v="{escape(name)}">{shown}</th>'] if head else []
        cells += [f"<td{_value(row[column])}>{escape(row[column])}</td>" for column in columns]
        body.append(f"<tr>{''.join(cells)}</tr>")
    return _table(caption, [head, *columns] if head else columns, body)


def _value(cell: str) -> str:
    first = cell.replace("−", "-").split(" ")[0]
    try:
        number = float(first)
    except ValueError:
        kind = "word long" if len(cell) > _LONG else "word"
        return f' data-v="{escape(cell)}" class="{kind}"' if cell not in ("", "–") else ""
    return f' data-v="{number:.6g}"'


def _table(caption: str, heads: Sequence[str], body: Sequence[str]) -> str:
    columns = "".join(f'<th scope="col"><button type="button">{escape(head)}</button></th>' for head in heads)
    title = f"<caption><span>{escape(caption)}</span></caption>" if caption else ""
    inside = f"{title}<thead><tr>{columns}</tr></thead><tbody>{''.join(body)}</tbody>"
    return f'<div class="scroll"><table>{inside}</table></div>'
