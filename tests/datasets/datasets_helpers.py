"""What several tests of the datasets use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from gdkl.datasets import content_digest

Numbers: TypeAlias = tuple[np.ndarray, np.ndarray]
Registrar: TypeAlias = Callable[[dict[str, dict[str, Any]]], None]


class Site:
    """What a local web server offers, and what it was asked for."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.pages: dict[str, bytes] = {}
        self.asked: list[str] = []

    def put(self, path: str, content: bytes) -> str:
        self.pages[path] = content
        return self.url(path)

    def url(self, path: str) -> str:
        return f"{self.address}{path}"


def fields(X: np.ndarray, y: np.ndarray, **more: Any) -> dict[str, Any]:
    """A registry table for some numbers, as it would stand in the file."""
    targets = ["y"] if y.ndim == 1 else [f"t{i}" for i in range(y.shape[1])]
    return {
        "rows": len(X),
        "features": f"f0..f{X.shape[1] - 1}",
        "targets": targets,
        "digest": content_digest(X, y),
        "source": "made up",
        "licence": "none",
        "citation": "none",
        **more,
    }


def text_file(*urls: str, **layout: Any) -> dict[str, Any]:
    """A download of one text file, as the registry states it."""
    return {"format": "text", "files": [{"urls": list(urls)}], **layout}
