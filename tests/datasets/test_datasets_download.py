"""Downloads, from a web server on this machine: layouts, checks, the cache, and what is said on failure."""

from __future__ import annotations

import gzip
import socket
import threading
from pathlib import Path

import numpy as np
import pytest
from datasets_helpers import Numbers, Registrar, Site, fields, text_file

from gdkl import datasets
from gdkl.datasets import download as download_module
from gdkl.datasets.formats import read_text
from gdkl.datasets.registry import parse_registry
from gdkl.numerics import DataError, OptionError


def blanks(X: np.ndarray, y: np.ndarray) -> bytes:
    """Columns set out by blanks, wide values touching the edge of their column, as in the Boston text."""
    rows = (" ".join(f"{value:>9.5f}" for value in row) for row in np.column_stack([X, y]))
    return ("\n".join(f" {row}  " for row in rows) + "\n").encode()


def commas(X: np.ndarray, y: np.ndarray) -> bytes:
    """A spreadsheet's export: a header, empty columns and rows at the end, as in the Energy text."""
    names = [f"X{i + 1}" for i in range(X.shape[1])] + [f"Y{i + 1}" for i in range(np.atleast_2d(y.T).shape[0])]
    rows = [",".join(repr(float(value)) for value in row) + ",," for row in np.column_stack([X, y])]
    empty = "," * (len(names) + 1)
    return "\r\n".join([",".join([*names, "", ""]), *rows, empty, empty, ""]).encode("utf-8-sig")


def compressed(X: np.ndarray, y: np.ndarray) -> bytes:
    """Bare comma-separated values under gzip, as in the wider tables."""
    rows = (",".join(f"{value:.18e}" for value in row) for row in np.column_stack([X, y]))
    return gzip.compress("\n".join(rows).encode())


def ways(message: str, cache: Path, file: str = "made") -> None:
    """The three ways to provide a file are all named, on one line."""
    assert "\n" not in message
    for part in (f"{file}.npz", "data_dir=", "GDKL_DATA", str(cache)):
        assert part in message


def test_text_in_columns(site: Site, cache: Path, numbers: Numbers, register: Registrar) -> None:
    X, y = numbers
    register({"made": fields(X, y, download=text_file(site.put("/data.txt", blanks(X, y))))})

    table = datasets.load("made")

    np.testing.assert_array_equal(table.X, X)
    np.testing.assert_array_equal(table.y, y)
    assert [path.name for path in cache.iterdir()] == ["made.npz"]
    with np.load(cache / "made.npz", allow_pickle=False) as stored:
        assert sorted(stored.files) == ["X", "feature_names", "target_name", "y"]
        assert stored["feature_names"].tolist() == ["f0", "f1", "f2", "f3"]
        assert str(stored["target_name"]) == "y"
    # The second time the cache answers.
    np.testing.assert_array_equal(datasets.load("made").X, X)
    assert site.asked == ["/data.txt"]


def test_a_spreadsheet_with_two_targets(site: Site, cache: Path, numbers: Numbers, register: Registrar) -> None:
    X, y = numbers
    both = np.stack([y, y + 0.25], axis=1)
    url = site.put("/data.csv", commas(X, both))
    text = text_file(url, delimiter=",", header_lines=1)
    two = {"like": "made", "file": "made", "targets": ["y", "t"], "digest": datasets.content_digest(X, both)}
    register({"made": fields(X, y, file_targets=["y", "t"], download=text), "made2": two})

    np.testing.assert_array_equal(datasets.load("made").y, y)
    np.testing.assert_array_equal(datasets.load("made2").y, both)
    assert len(site.asked) == 1
    with np.load(cache / "made.npz", allow_pickle=False) as stored:
        assert str(stored["y2_name"]) == "t"


def test_a_compressed_text_in_single_precision(site: Site, numbers: Numbers, register: Registrar) -> None:
    X, y = numbers
    url = site.put("/data.csv.gz", compressed(X, y))
    text = text_file(url, delimiter=",", single_precision=True)
    register({"made": fields(X.astype(np.float32), y, download=text)})
    table = datasets.load("made")
    np.testing.assert_array_equal(table.X, X.astype(np.float32).astype(np.float64))
    np.testing.assert_array_equal(table.y, y)


def test_leading_digits_survive_wide_columns() -> None:
    # Rows as in the Boston text: 100 stands a place further to the left than 0 or 18 in the same column.
    text = (
        b" 0.00632  18.00   2.310  396.90  24.00\n"
        b"88.97620   0.00  18.100  396.90  10.40\n"
        b" 0.01000 100.00   1.320    1.10   9.00\n"
    )
    info = parse_registry({"b": fields(np.zeros((3, 4)), np.zeros(3))})["b"]
    X, targets = read_text([text], info)
    assert X.tolist() == [[0.00632, 18.0, 2.31, 396.9], [88.9762, 0.0, 18.1, 396.9], [0.01, 100.0, 1.32, 1.1]]
    assert targets.tolist() == [[24.0], [10.4], [9.0]]


def test_wrong_content_leaves_nothing(site: Site, cache: Path, numbers: Numbers, register: Registrar) -> None:
    X, y = numbers
    register({"made": fields(X, y, download=text_file(site.put("/data.txt", blanks(X, y + 1.0))))})
    with pytest.raises(DataError, match=r"does not hold the dataset 'made'.*SHA-256") as error:
        datasets.load("made")
    assert "nothing was stored" in str(error.value)
    ways(str(error.value), cache)
    assert not cache.exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>\n<body>Please log in</body></html>", b"1 2 3\n", b"\x1f\x8b broken", b"\xff\xfe\x00"],
    ids=["empty", "page", "few-columns", "broken-gzip", "binary"],
)
def test_content_that_is_no_table_leaves_nothing(
    site: Site, cache: Path, numbers: Numbers, register: Registrar, content: bytes
) -> None:
    X, y = numbers
    register({"made": fields(X, y, download=text_file(site.put("/data.txt", content)))})
    with pytest.raises(DataError, match="cannot be read") as error:
        datasets.load("made")
    assert site.url("/data.txt") in str(error.value)
    ways(str(error.value), cache)
    assert not cache.exists()


def test_a_second_address_steps_in(site: Site, numbers: Numbers, register: Registrar) -> None:
    X, y = numbers
    urls = [site.url("/gone.txt"), site.put("/data.txt", blanks(X, y))]
    register({"made": fields(X, y, download=text_file(*urls))})
    np.testing.assert_array_equal(datasets.load("made").y, y)
    assert site.asked == ["/gone.txt", "/data.txt"]


def test_no_address_answers(site: Site, cache: Path, numbers: Numbers, register: Registrar) -> None:
    register({"made": fields(*numbers, download=text_file(site.url("/a.txt"), site.url("/b.txt")))})
    with pytest.raises(DataError, match=r"'made' could not be downloaded \(404") as error:
        datasets.load("made")
    ways(str(error.value), cache)
    assert not cache.exists()


def test_nobody_listens(cache: Path, numbers: Numbers, register: Registrar) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    register({"made": fields(*numbers, download=text_file(f"http://127.0.0.1:{port}/data.txt"))})
    with pytest.raises(DataError, match="could not be downloaded") as error:
        datasets.load("made")
    ways(str(error.value), cache)


def test_a_silent_server_is_given_up(
    cache: Path, numbers: Numbers, register: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download_module, "TIMEOUT", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/data.txt"
        register({"made": fields(*numbers, download=text_file(url))})
        with pytest.raises(DataError, match="could not be downloaded") as error:
            datasets.load("made")
    ways(str(error.value), cache)


def test_no_known_source_says_where_to_put_the_file(cache: Path) -> None:
    with pytest.raises(DataError, match="No verified download of the dataset 'blog'") as error:
        datasets.load("blog")
    ways(str(error.value), cache, "blog")


def test_fetch_fills_the_cache_once(site: Site, cache: Path, numbers: Numbers, register: Registrar) -> None:
    X, y = numbers
    register({"made": fields(X, y, download=text_file(site.put("/data.txt", blanks(X, y))))})
    assert datasets.fetch("made") == datasets.fetch("made") == cache / "made.npz"
    assert len(site.asked) == 1
    assert datasets.fetch("made", force=True) == cache / "made.npz"
    assert len(site.asked) == 2


def test_a_damaged_cache_is_reported_and_force_mends_it(
    site: Site, cache: Path, numbers: Numbers, register: Registrar
) -> None:
    X, y = numbers
    register({"made": fields(X, y, download=text_file(site.put("/data.txt", blanks(X, y))))})
    path = datasets.fetch("made")
    path.write_bytes(path.read_bytes()[:200])
    for call in (datasets.load, datasets.fetch):
        with pytest.raises(DataError, match="cannot be read"):
            call("made")
    datasets.fetch("made", force=True)
    np.testing.assert_array_equal(datasets.load("made").X, X)


def test_fetch_has_nothing_to_do_for_embedded_tables() -> None:
    for name in ("toy", "diabetes"):
        with pytest.raises(OptionError, match="nothing to fetch"):
            datasets.fetch(name)
        assert datasets.locate(name) is None


def test_a_cache_that_cannot_be_written_says_so(
    site: Site, tmp_path: Path, numbers: Numbers, register: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = numbers
    register({"made": fields(X, y, download=text_file(site.put("/data.txt", blanks(X, y))))})
    (tmp_path / "occupied").write_text("a file, not a folder")
    monkeypatch.setenv("GDKL_CACHE", str(tmp_path / "occupied" / "cache"))
    with pytest.raises(DataError, match=r"cannot be written .* set GDKL_CACHE"):
        datasets.load("made")


def test_a_write_that_breaks_leaves_no_part(
    site: Site, cache: Path, numbers: Numbers, register: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = numbers
    register({"made": fields(X, y, download=text_file(site.put("/data.txt", blanks(X, y))))})

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(DataError, match="No space left on device"):
        datasets.load("made")
    assert list(cache.iterdir()) == []


def test_two_at_once_agree(site: Site, cache: Path, numbers: Numbers, register: Registrar) -> None:
    X, y = numbers
    register({"made": fields(X, y, download=text_file(site.put("/data.txt", blanks(X, y))))})
    seen: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: seen.append(datasets.load("made").X)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4
    assert all(np.array_equal(one, X) for one in seen)
    assert [path.name for path in cache.iterdir()] == ["made.npz"]
