"""The demo's scores as cells, for the terminal and for the page."""

from __future__ import annotations

from rich.table import Table

from gdkl.cli.demo_study import LEVEL, Study

#: Names of the columns.
HEADERS = ("method", "LL train", "LL test", "RMSE train", "RMSE test", f"{100 * LEVEL:g} % cover", "seconds")

#: The column that a model is judged by.
TEST_LL = HEADERS.index("LL test")


def score_rows(study: Study) -> list[list[str]]:
    """The table's cells, a row for each model."""
    return [
        [
            name,
            f"{s.train_ll:.2f}",
            f"{s.test_ll:.2f}",
            f"{s.train_rmse:#.3g}",
            f"{s.test_rmse:#.3g}",
            f"{s.coverage:.2f}",
            f"{s.seconds:.1f}",
        ]
        for name, s in ((name, result.scores) for name, result in study.results.items())
    ]


def score_table(study: Study) -> Table:
    """The scores of all models for a terminal, the best test log-likelihood in bold."""
    table = Table(header_style="bold")
    for index, header in enumerate(HEADERS):
        table.add_column(header, justify="left" if index == 0 else "right", no_wrap=True)
    for row in score_rows(study):
        if row[0] == study.best:
            row[TEST_LL] = f"[bold]{row[TEST_LL]}[/bold]"
        table.add_row(*row)
    return table
