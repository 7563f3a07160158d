"""``gdkl datasets``, without a network: sources are replaced by local files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from gdkl.cli import app
from gdkl.datasets import content_digest, image_digest, image_names, names, registry
from gdkl.datasets.registry import parse_registry


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["datasets", *arguments])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("GDKL_CACHE", str(folder))
    monkeypatch.delenv("GDKL_DATA", raising=False)
    return folder


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry with one small table, a right copy of it, and no source to download it from."""
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    table = {
        "rows": 6,
        "features": "f0..f1",
        "targets": ["y"],
        "digest": content_digest(X, y),
        "source": "made up",
        "licence": "none",
        "citation": "none",
    }
    known = parse_registry({"tiny": table})
    monkeypatch.setattr(registry, "entries", lambda: known)
    folder = tmp_path / "tables [bold]"
    folder.mkdir()
    np.savez(folder / "tiny.npz", X=X, y=y)
    return folder


def test_list_names_every_dataset_with_its_size() -> None:
    result = run("list")
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()[1:]]
    assert [line[0] for line in lines] == [*names(), *image_names()]
    cifar = next(line for line in lines if line[0] == "cifar10")
    assert cifar[1:] == ["50000", "3", "x", "32", "x", "32", "1", "to", "download"]
    boston = next(line for line in lines if line[0] == "boston")
    assert boston[1:] == ["506", "13", "1", "to", "download"]
    assert "comes with the library" in result.stdout


def test_list_shows_where_a_copy_is(tiny: Path) -> None:
    assert str(tiny / "tiny.npz") in run("list", "--data-dir", str(tiny)).stdout
    assert "provide tiny.npz" in run("list").stdout


def test_fetch_takes_a_copy_that_is_there_and_prints_its_path(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("fetch", "tiny", "--data-dir", str(tiny))
    assert (result.exit_code, result.stdout) == (0, f"{tiny / 'tiny.npz'}\n")
    assert "6 rows" in result.stderr
    monkeypatch.setenv("GDKL_DATA", str(tiny))
    assert run("fetch", "tiny").stdout == f"{tiny / 'tiny.npz'}\n"


def test_fetch_refuses_a_copy_with_other_numbers(tiny: Path) -> None:
    np.savez(tiny / "tiny.npz", X=np.zeros((6, 2)), y=np.arange(6.0))
    result = run("fetch", "tiny", "--data-dir", str(tiny))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert "SHA-256" in result.stderr


def test_fetch_without_a_source_says_how_to_provide_it(tiny: Path, cache: Path) -> None:
    for more in ((), ("--force", "--data-dir", str(tiny))):
        result = run("fetch", "tiny", *more)
        assert result.exit_code == 2
        assert "Provide tiny.npz (arrays X and y) yourself" in result.stderr.splitlines()[-1]
    assert not cache.exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("fetch", "bostn"), "boston"),
        (("fetch", "toy"), "nothing to fetch"),
        (("fetch",), "name"),
        (("fetch", "boston", "--data-dir", "no-such-folder"), "is not a folder"),
        (("list", "--data-dir", "no-such-folder"), "is not a folder"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments: tuple[str, ...], told: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert told in result.stderr


def test_fetch_says_what_a_set_of_images_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = np.arange(2 * 3 * 8 * 8, dtype=np.uint8).reshape(2, 3, 8, 8), np.array([0, 1])
    table = {
        **{"rows": 2, "shape": [3, 8, 8], "classes": ["a", "b"], "parts": ["small"], "digest": image_digest(X, y)},
        **dict.fromkeys(("source", "licence", "citation"), "none"),
    }
    known = parse_registry({"small": table})
    monkeypatch.setattr(registry, "entries", lambda: known)
    np.savez(tmp_path / "small.npz", X=X, y=y)
    result = run("fetch", "small", "--data-dir", str(tmp_path))
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'small.npz'}\n")
    assert "2 images of 3 x 8 x 8, 2 classes, checksum is right" in result.stderr
