"""A web page in one file: pictures inside it, nothing loaded from anywhere."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from string import Template


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page from the HTML of its parts.

    Example:
        >>> page("A & B", [paragraph("x < y")]).count("x &lt; y")
        1
    """
    template = Template(resources.files("gdkl.cli").joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(title=escape(title), body="\n".join(parts))


def section(heading: str, parts: Iterable[str]) -> str:
    """A card with a heading."""
    return "\n".join(["<section>", f"<h2>{escape(heading)}</h2>", *parts, "</section>"])


def paragraph(text: str, *, soft: bool = False) -> str:
    """A paragraph of plain text."""
    return f'<p class="soft">{escape(text)}</p>' if soft else f"<p>{escape(text)}</p>"


def code_block(text: str) -> str:
    """Code or commands as they are typed."""
    return f"<pre><code>{escape(text)}</code></pre>"


def picture(png: bytes, *, alt: str, caption: str, narrow: bool = False) -> str:
    """A picture, kept inside the page."""
    data = base64.b64encode(png).decode("ascii")
    kind = ' class="narrow"' if narrow else ""
    return (
        f'<figure{kind}><img alt="{escape(alt)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def score_sheet(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str, best: str, colors: dict[str, str]
) -> str:
    """A table of numbers whose first column names the rows.

    Args:
        headers: Names of the columns.
        rows: Cells, the row's name first.
        caption: What the table shows.
        best: Name of the row to mark.
        colors: A colour for each row's name.
    """
    head = "".join(f'<th scope="col">{escape(header)}</th>' for header in headers)
    body: list[str] = []
    for name, *cells in rows:
        mark = ' class="best"' if name == best else ""
        swatch = f'<span class="swatch" style="background:{colors[name]}"></span>'
        values = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        body.append(f'<tr{mark}><th scope="row">{swatch}{escape(name)}</th>{values}</tr>')
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )
