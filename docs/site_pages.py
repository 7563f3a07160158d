"""Pages of the site that are made from the code and from other pages: messages of errors, and llms.txt."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

#: Kinds of messages, with the page's words for each.
KINDS = {
    "DataError": "Data cannot be used",
    "OptionError": "An option has a value that is not allowed",
    "ModelFileError": "A model file cannot be read",
    "MissingPackageError": "An optional package is not installed",
    "MemoryLimitError": "An allocation would not fit; raised before it is tried",
    "NumericsError": "A computation left the range of floating-point numbers",
    "NotFittedError": "Predicting before fitting",
    "NumericsWarning": "Warnings of numerics",
    "DataWarning": "Warnings about data",
    "GdklWarning": "Other warnings",
}


def _text(node: ast.AST) -> str | None:
    """A message with … where a value is filled in; None for what is no text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "…" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_text(node.left), _text(node.right)]
        return None if parts == [None, None] else "".join(part or "…" for part in parts)
    return None


def messages(root: Path) -> Iterator[tuple[str, str]]:
    """Kind and text of every message that the library's code writes out in one place."""
    for path in sorted((root / "src" / "gdkl").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args:
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                kind = name if name in KINDS else None
                if name == "warn" and len(node.args) > 1:
                    kind = getattr(node.args[1], "id", None)
                text = _text(node.args[0])
                if kind in KINDS and text and len(text.strip("… ")) > 12:
                    yield kind, " ".join(text.split())


def write_errors(root: Path, path: Path) -> None:
    """The list of messages by kind, as a part of the page on errors."""
    found = sorted(set(messages(root)))
    lines: list[str] = []
    for kind, title in KINDS.items():
        own = [text for name, text in found if name == kind]
        if own:
            lines += [f"## {title} (`{kind}`)", ""]
            lines += ["- " + re.sub(r"([*_<>`|\[\]])", r"\\\1", text) for text in own]
            lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")


def write_llms(root: Path, path: Path) -> None:
    """What a language model should know of the library, in one file: README and the pages a user needs."""
    pages = ["README.md", "docs/quickstart.md", "docs/howto.md", "docs/infinite.md", "docs/method.md"]
    parts = [f"# {page}\n\n{(root / page).read_text(encoding='utf-8')}" for page in pages]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(parts), encoding="utf-8")
