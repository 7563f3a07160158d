"""Every table of the paper, and some of our own, as a declared experiment; one runner; results as JSON lines."""

from gdkl.experiments.draws import write_subset
from gdkl.experiments.overrides import searched_settings, settings_by_method
from gdkl.experiments.results import Results
from gdkl.experiments.spec import Cell, Column, Method, PaperTable, Spec
from gdkl.experiments.specs import SPECS, spec_named
from gdkl.experiments.summary import summary_tables, write_pictures
from gdkl.experiments.tables import Published, paired_lines, published, table

__all__ = [
    "SPECS",
    "Cell",
    "Column",
    "Method",
    "PaperTable",
    "Published",
    "Results",
    "Spec",
    "paired_lines",
    "published",
    "searched_settings",
    "settings_by_method",
    "spec_named",
    "summary_tables",
    "table",
    "write_pictures",
    "write_subset",
]
