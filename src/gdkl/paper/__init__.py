"""Every table and figure of the paper as a declared experiment with result files and a side-by-side table."""

from gdkl.paper.class_table import classes_table, standing
from gdkl.paper.kept import first_splits, kept_line, made_before
from gdkl.paper.large_tables import cifar_table, large_table
from gdkl.paper.published import Published, published
from gdkl.paper.results import check_writable, read_result, write_result
from gdkl.paper.tables import fewshot_table, uci_table

__all__ = [
    "Published",
    "check_writable",
    "cifar_table",
    "classes_table",
    "fewshot_table",
    "first_splits",
    "kept_line",
    "large_table",
    "made_before",
    "published",
    "read_result",
    "standing",
    "uci_table",
    "write_result",
]
