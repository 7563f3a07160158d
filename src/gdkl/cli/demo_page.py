"""The demo's scores and its page: what was done, what came out, and how to read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from gdkl import plots
from gdkl._version import __version__
from gdkl.cli.demo import FULL_STEPS
from gdkl.cli.demo_study import LEVEL, Study
from gdkl.cli.page import code_block, page, paragraph, picture, score_sheet, section

_TITLE = "Guided deep kernel learning: the demo"

_METHODS = (
    "GDKL trains a deep kernel (a network under a Gaussian process) so that, on random halves of the data, it agrees "
    "with an honest guide once the labels are seen. The guide is the Gaussian process of an infinitely wide network. "
    "DKL trains the same deep kernel by the evidence alone; NNGP is the guide alone; GP is a Gaussian process with an "
    "RBF kernel."
)

_READ = (
    "LL is the mean log density of the targets, larger is better, and it punishes false certainty. A large gap between "
    "train and test LL is overfitting. Cover is the part of the test targets inside the 90 % interval: 0.90 is honest, "
    "less is overconfident."
)

_UNFINISHED = (
    f"The steps of this run are fewer than the paper's {FULL_STEPS['GDKL']}; 'gdkl demo --steps {FULL_STEPS['GDKL']}' "
    "takes longer and shows where training ends."
)

_EXAMPLE = """from gdkl import GDKLRegressor

model = GDKLRegressor().fit(X_train, y_train)
mean, std = model.predict(X_test, return_std=True)
low, high = model.predict_distribution(X_test).interval(0.9)"""

_CITATION = (
    "Idan Achituve, Gal Chechik, Ethan Fetaya: Guided Deep Kernel Learning. Conference on Uncertainty in Artificial "
    "Intelligence (UAI), 2023."
)


#: Columns of the scores.
_HEADERS = ("method", "LL train", "LL test", "RMSE train", "RMSE test", f"{100 * LEVEL:g} % cover", "seconds")


def _score_rows(study: Study) -> list[list[str]]:
    """The cells of the scores, a row per model."""
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


def demo_page(
    studies: Sequence[Study], pictures: Mapping[str, bytes], *, steps: int, seed: int, notes: Sequence[str]
) -> str:
    """The page as HTML.

    Args:
        studies: The one-dimensional problem, then the table.
        pictures: PNG files by name.
        steps: Gradient steps that were done.
        seed: Of the run.
        notes: What the terminal said about the protocol.
    """
    toy, table = studies
    return page(
        _TITLE,
        [
            _header(steps, seed),
            section("What is compared", [paragraph(_METHODS), *(paragraph(note, soft=True) for note in notes)]),
            section(
                "One dimension, with a gap in the data",
                [
                    paragraph(
                        f"Data: {toy.problem.description}. In the shaded gap an honest band widens, and still holds "
                        "the dashed truth; where data is, it has the width of the noise."
                    ),
                    picture(
                        pictures["bands.png"],
                        alt="Four panels: mean and 50 and 90 percent bands of GDKL, DKL, NNGP and GP.",
                        caption="Predictive bands of a new observation, noise included; points are the training data.",
                    ),
                    _sheet(toy),
                    paragraph(_READ, soft=True),
                ],
            ),
            section(
                "Why a guide: Figure 1 of the paper",
                [
                    paragraph(
                        "Left: a Gaussian process that has seen only D1. Right: what it believes about each point of "
                        "D2 once it has seen that point's own noisy label. Where D1 says enough, the belief stays "
                        "near the function and hardly heeds the noise; in the gap it follows the label and stays wide. "
                        "Such Gaussians are what a guide gives the deep kernel to learn from."
                    ),
                    picture(
                        pictures["figure1.png"],
                        alt="Two panels: posterior given D1, and label-informed beliefs about the points of D2.",
                        caption="800 points, noise variance 0.05, halves of 400, points of D1 in [4, 8] removed, as in "
                        "the paper.",
                    ),
                ],
            ),
            section(
                "A real table: diabetes",
                [
                    paragraph(
                        f"Data: {table.problem.description}. The target is noisy, and simple models are hard to beat "
                        "here: compare train and test to see who learned the noise."
                    ),
                    _sheet(table),
                    *([paragraph(_UNFINISHED, soft=True)] if steps < FULL_STEPS["GDKL"] else []),
                ],
            ),
            section(
                "Do the intervals keep their promise?",
                [
                    paragraph(
                        "For each level, the part of the test targets inside the central interval of that level. On "
                        "the dashed line a model is honest; below it, it is too sure of itself. The grey region is "
                        "what chance alone allows with this many test points."
                    ),
                    picture(
                        pictures["calibration.png"],
                        alt="Calibration curves of the four models on both datasets.",
                        caption="Nominal against observed coverage on the test points.",
                        narrow=True,
                    ),
                ],
            ),
            section(
                "Training",
                [
                    paragraph(
                        "The terms of each objective, to be minimised. GDKL weighs the fit to held-out labels against "
                        "the distance to its guide, on a new random split at each step, which is why its raw values "
                        "jump. Dotted lines mark where the learning rate falls."
                    ),
                    picture(
                        pictures["training.png"],
                        alt="Objective terms of GDKL and DKL against the step on both datasets.",
                        caption="Pale: logged values; strong: running median. Targets are scaled to unit variance.",
                    ),
                ],
            ),
            section("Your own data", [code_block(_EXAMPLE)]),
            f"<footer>{paragraph(_CITATION)}</footer>",
        ],
    )


def _header(steps: int, seed: int) -> str:
    facts = paragraph(f"gdkl {__version__}, {steps} steps, seed {seed}, embedded data only", soft=True)
    return f"<header><h1>{_TITLE}</h1>{facts}</header>"


def _sheet(study: Study) -> str:
    return score_sheet(
        _HEADERS,
        _score_rows(study),
        caption=f"Scores on {study.problem.name}; marked: the best test log-likelihood of this run.",
        best=study.best,
        colors=plots.color_cycle(study.results),
    )
