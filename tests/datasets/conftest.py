"""A world of its own for each test: an empty cache, no local folder, and a web server on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets_helpers import Numbers, Registrar, Site

from gdkl.datasets import registry
from gdkl.datasets.registry import parse_registry


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder, which does not exist yet; no test sees the user's own folders."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("GDKL_CACHE", str(folder))
    monkeypatch.delenv("GDKL_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return folder


@pytest.fixture
def site() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            offered.asked.append(self.path)
            content = offered.pages.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    offered = Site(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield offered
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Registrar:
    """Put a registry of our own in the place of the real one."""

    def put(raw: dict[str, dict[str, Any]]) -> None:
        entries = parse_registry(raw)
        monkeypatch.setattr(registry, "entries", lambda: entries)

    return put


@pytest.fixture
def numbers() -> Numbers:
    rng = np.random.default_rng(0)
    # Widths and signs as mixed as in the real tables.
    X = np.round(rng.standard_normal((12, 4)) * 10.0 ** rng.integers(-3, 5, size=(12, 4)), 5)
    return X, np.round(50 * rng.standard_normal(12), 3)
