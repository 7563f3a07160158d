"""Every table and figure of the paper as a declared experiment with result files and a side-by-side table."""

from gdkl.paper.class_table import classes_table, standing
from gdkl.paper.published import Published, published
from gdkl.paper.results import check_writable, read_result, write_result
from gdkl.paper.tables import fewshot_table, uci_table

__all__ = [
    "Published",
    "check_writable",
    "classes_table",
    "fewshot_table",
    "published",
    "read_result",
    "standing",
    "uci_table",
    "write_result",
]
