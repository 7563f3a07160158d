"""What the demo shows: scores, pictures, and a page in one file whose text is that of ``demo.html``."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from string import Template

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from gdkl import plots
from gdkl._version import __version__
from gdkl.cli.demo_study import LEVEL, Study
from gdkl.datasets import toy_function

#: Models with a training loop, whose curves are worth a look.
_TRAINED = ("GDKL", "DKL")

_HEADERS = ("method", "LL train", "LL test", "RMSE train", "RMSE test", f"{100 * LEVEL:g} % cover", "seconds")


def _score_rows(study: Study) -> list[list[str]]:
    return [
        [
            name,
            f"{result.train['log_likelihood']:.2f}",
            f"{result.test['log_likelihood']:.2f}",
            f"{result.train['rmse']:#.3g}",
            f"{result.test['rmse']:#.3g}",
            f"{result.test['coverage']:.2f}",
            f"{result.seconds:.1f}",
        ]
        for name, result in study.results.items()
    ]


def score_table(study: Study) -> Table:
    """The scores of all models for a terminal, the best test log-likelihood in bold."""
    table = Table(header_style="bold")
    for index, header in enumerate(_HEADERS):
        table.add_column(header, justify="left" if index == 0 else "right", no_wrap=True)
    for row in _score_rows(study):
        if row[0] == study.best:
            row[2] = f"[bold]{row[2]}[/bold]"
        table.add_row(*row)
    return table


def draw_pictures(studies: Sequence[Study], seed: int) -> dict[str, bytes]:
    """PNG files by name: Figure 1 of the paper, predictive bands, calibration and training curves."""
    calibration = plots.new_figure(4.7 * len(studies), 4.5)
    training = plots.new_figure(10.4, 3.1 * len(studies))
    panels = calibration.subplots(1, len(studies), squeeze=False)[0]
    rows = training.subplots(len(studies), len(_TRAINED), squeeze=False)
    for study, panel, row in zip(studies, panels, rows, strict=True):
        predictions = {name: result.predictive for name, result in study.results.items()}
        plots.calibration(predictions, study.problem.y_test, title=study.problem.name, ax=panel)
        for ax, name in zip(row, _TRAINED, strict=True):
            plots.history(study.results[name].model.history_, title=f"{name} on {study.problem.name}", ax=ax)
    figures = {
        "figure1.png": plots.toy_figure(plots.toy_example(seed=seed)),
        "bands.png": _bands(studies[0]),
        "calibration.png": calibration,
        "training.png": training,
    }
    pictures: dict[str, bytes] = {}
    for name, figure in figures.items():
        stream = io.BytesIO()
        figure.savefig(stream, format="png")
        pictures[name] = stream.getvalue()
    return pictures


def _bands(study: Study) -> Figure:
    grid = np.linspace(*plots.DOMAIN, 500)
    notes = {
        name: f"test LL {result.test['log_likelihood']:.2f}, {100 * LEVEL:g} % band holds "
        f"{100 * result.test['coverage']:.0f} %".replace("-", "−")
        for name, result in study.results.items()
    }
    return plots.bands_figure(
        grid,
        {name: result.model.predict_distribution(grid[:, None]) for name, result in study.results.items()},
        observed=(study.problem.X, study.problem.y),
        truth=(grid, toy_function(grid)),
        gap=plots.GAP,
        notes=notes,
    )


def demo_page(studies: Sequence[Study], pictures: Mapping[str, bytes], notes: Sequence[str], **facts: object) -> str:
    """The page as HTML, with its pictures inside; ``facts`` are the other names that ``demo.html`` has."""
    for study in studies:
        facts[f"{study.problem.name}_data"] = escape(study.problem.description)
        facts[f"{study.problem.name}_scores"] = _score_sheet(study)
    for name, png in pictures.items():
        facts[name.removesuffix(".png")] = f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
    template = Template(resources.files("gdkl.cli").joinpath("demo.html").read_text(encoding="utf-8"))
    paragraphs = "\n".join(f'<p class="soft">{escape(note)}</p>' for note in notes)
    return template.substitute(facts, version=__version__, notes=paragraphs)


def _score_sheet(study: Study) -> str:
    colors = plots.color_cycle(study.results)
    head = "".join(f'<th scope="col">{escape(header)}</th>' for header in _HEADERS)
    body: list[str] = []
    for name, *cells in _score_rows(study):
        mark = ' class="best"' if name == study.best else ""
        swatch = f'<span class="swatch" style="background:{colors[name]}"></span>'
        values = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        body.append(f'<tr{mark}><th scope="row">{swatch}{escape(name)}</th>{values}</tr>')
    caption = f"Scores on {study.problem.name}; marked: the best test log-likelihood of this run."
    return (
        f'<div class="scroll"><table><caption>{caption}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )
