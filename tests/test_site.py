"""Pages of the documentation site that are made from the code."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import gdkl

ROOT = Path(__file__).parents[1]


def site_pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_kind_of_message_is_listed(tmp_path: Path) -> None:
    site_pages().write_errors(ROOT, tmp_path / "errors.md")
    text = (tmp_path / "errors.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## .*\(`(\w+)`\)$", text, flags=re.MULTILINE)
    assert {"DataError", "OptionError", "ModelFileError", "NotFittedError", "DataWarning"} <= set(headings)
    assert text.count("\n- ") > 100
    assert "- inference=… is not known: use one of ….\n" in text


def test_the_file_for_language_models_has_the_whole_readme(tmp_path: Path) -> None:
    site_pages().write_llms(ROOT, tmp_path / "extra" / "llms.txt")
    text = (tmp_path / "extra" / "llms.txt").read_text(encoding="utf-8")
    assert (ROOT / "README.md").read_text(encoding="utf-8") in text


def test_the_reference_has_every_public_name() -> None:
    named = set(re.findall(r"^   gdkl\.(\w+)$", (ROOT / "docs/api/index.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(gdkl.__all__) - {"GdklError", "__version__"} <= named
