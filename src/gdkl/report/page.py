"""The page as HTML: sections, tables and pictures in one file that needs no network and runs no script."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdkl.plots import PAPER_COLORS

#: Colours of the pictures as variables of the page, which are others in the dark.
_VARIABLES = {color.lower(): f"var(--{name})" for name, color in PAPER_COLORS.items()}


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        anchor: What links call it.
        title: Its heading.
        body: HTML.
        kind: Class of its element.
    """

    anchor: str
    title: str
    body: str
    kind: str = ""

    def html(self) -> str:
        """As an element."""
        named = f' class="{self.kind}"' if self.kind else ""
        return f'<section id="{self.anchor}"{named}>\n<h2>{escape(self.title)}</h2>\n{self.body}\n</section>'


def page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """The whole file; the text of title and subtitle is escaped, that of sections is HTML."""
    template = Template(resources.files("gdkl.report").joinpath("page.html").read_text(encoding="utf-8"))
    links = "\n".join(f'<a href="#{one.anchor}">{escape(one.title)}</a>' for one in sections)
    return template.substitute(
        title=escape(title),
        subtitle=escape(subtitle),
        links=links,
        sections="\n".join(one.html() for one in sections),
    )


def figure(ax: Axes | Figure, title: str, caption: str, name: str) -> str:
    """A picture with its caption.

    Args:
        ax: What was drawn.
        title: What it shows.
        caption: How to read it; HTML is escaped.
        name: One of its own, for what refers to parts of it.
    """
    drawn = ax if isinstance(ax, Figure) else ax.figure
    told = f"<b>{escape(title)}{'' if title.endswith('?') else '.'}</b> {escape(caption)}"
    return f"<figure>{svg(drawn, name, title)}<figcaption>{told}</figcaption></figure>"


def svg(drawn: object, name: str, title: str) -> str:
    """A figure as an element of the page: text stays text, colours follow the page, equal figures give equal bytes."""
    stream = io.StringIO()
    # The salt keeps what two pictures of a page refer to apart.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        drawn.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})  # pyright: ignore[reportAttributeAccessIssue]
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Names that nothing refers to would stand on the page once per picture.
    used = set(re.findall(r"""(?:url\(|href=")#([^)"]+)""", text))
    text = re.sub(r' id="([^"]+)"', lambda found: found.group() if found.group(1) in used else "", text)
    # A hundredth of a point is enough, and half of the bytes.
    text = re.sub(r"(\d\.\d\d)\d+", r"\1", re.sub(r"\s*\n\s*", " ", text))
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 system-ui, sans-serif", text)
    text = re.sub(r"#[0-9a-fA-F]{6}", lambda found: _VARIABLES.get(found.group().lower(), found.group()), text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(title, quote=True)}"', 1)


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    text: Sequence[int] = (),
    wrapped: Sequence[int] = (),
    own: int = -1,
) -> str:
    """A table whose cells are escaped.

    Args:
        header: Of the columns.
        rows: Cells.
        text: Numbers of the columns that hold words.
        wrapped: Numbers of those that hold sentences.
        own: Number of the row that is marked.
    """
    kinds = dict.fromkeys(text, ' class="text"') | dict.fromkeys(wrapped, ' class="text wrap"')
    head = "".join(f'<th scope="col"{kinds.get(k, "")}>{escape(cell)}</th>' for k, cell in enumerate(header))
    body: list[str] = []
    for place, (first, *others) in enumerate(rows):
        cells = "".join(f"<td{kinds.get(k, '')}>{escape(cell)}</td>" for k, cell in enumerate(others, start=1))
        mark = ' class="own"' if place == own else ""
        body.append(f'<tr{mark}><th scope="row">{escape(first)}</th>{cells}</tr>')
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
