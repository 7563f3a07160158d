"""Documentation site: `make docs` builds it into docs/_build/html, without warnings.

Pages are Markdown (MyST), the API reference comes from docstrings, examples are percent scripts that run while the
site is built. Nothing is fetched from a network.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT / "src"), str(DOCS)]

from gdkl import __version__  # noqa: E402  (the path comes first)
from site_pages import write_errors, write_llms  # noqa: E402

project, author, release = "gdkl", "the gdkl contributors", __version__
copyright = "the gdkl contributors"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_site", "errors_generated.md"]

# Markdown: links to headings as on any code host.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["config.cache"]

# Docstrings: single backticks are code.
default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = True
autosummary_generate = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
add_module_names = False

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples"),
    "gallery_dirs": "examples",
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,
    "within_subsection_order": "FileNameSortKey",
}

html_theme = "pydata_sphinx_theme"
html_title = f"gdkl {release}"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_extra_path = ["_site/extra"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options: dict[str, Any] = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "quickstart": [], "choose": [], "errors": []}


def unlink_what_lies_outside(_: Any, name: str, source: list[str]) -> None:
    """Links out of docs/ lead nowhere on the site: what they name stays, as code."""
    folder = (DOCS / name).parent

    def replaced(match: re.Match[str]) -> str:
        text, target = match.groups()
        if "://" in target or target.startswith("#"):
            return match.group()
        path = (folder / target.partition("#")[0]).resolve()
        return match.group() if path.is_relative_to(DOCS) else f"{text} (`{path.relative_to(ROOT)}`)"

    source[0] = re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", replaced, source[0])


def leave_out_inherited_torch(_: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Members that torch, scikit-learn or Python document are theirs."""
    module = getattr(inspect.unwrap(obj), "__module__", None) if callable(obj) else None
    return True if module is not None and not str(module).startswith("gdkl") else None


def keep_bars(_: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Bars of absolute values are no substitutions; code keeps what it has."""
    for index, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = re.split(r"(`+[^`]*`+)", line)
            lines[index] = "".join(part if part.startswith("`") else part.replace("|", r"\|") for part in parts)


def setup(app: Any) -> None:
    """Generate the pages that follow from the code, and connect the hooks."""
    write_errors(ROOT, DOCS / "errors_generated.md")
    write_llms(ROOT, DOCS / "_site" / "extra" / "llms.txt")
    app.connect("source-read", unlink_what_lies_outside)
    app.connect("autodoc-process-docstring", keep_bars)
    app.connect("autodoc-skip-member", leave_out_inherited_torch)
    importlib.import_module("gdkl")
