"""Fetching a public text file, checking what it says, and keeping it as a local table."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gdkl.datasets.digest import content_digest
from gdkl.datasets.registry import DatasetInfo
from gdkl.datasets.store import DATA_VARIABLE, write_file
from gdkl.datasets.text import parse_text
from gdkl.numerics import DataError, cache_dir

#: Seconds without an answer after which an address counts as out of reach.
TIMEOUT = 30.0


def download(info: DatasetInfo) -> Path:
    """Download a dataset into the cache, if its content is the recorded one.

    Args:
        info: A dataset that is not embedded.

    Returns:
        The path of the file in the cache.

    Raises:
        DataError: If no source is known, none answers, or the content differs; nothing is stored then.
    """
    if info.text is None:
        raise DataError(f"No verified download of the dataset {info.name!r} is known ({info.source}). {_ways(info)}")
    url, content = first_answer(info.name, info.text.urls, _ways(info))
    try:
        X, targets = parse_text(content, info.text, info)
    except DataError as error:
        raise DataError(f"{error} It came from {url}; nothing was stored. {_ways(info)}") from error
    used = len(info.target_names)
    digest = content_digest(X, targets[:, 0] if used == 1 else targets[:, :used])
    if digest != info.digest:
        raise DataError(
            f"{url} does not hold the dataset {info.name!r}: {X.shape[0]} x {X.shape[1]} values with the "
            f"SHA-256 {digest[:12]}… and not {info.digest[:12]}…; nothing was stored. {_ways(info)}"
        )
    return write_file(cache_dir(), X, targets, info)


def first_answer(name: str, urls: tuple[str, ...], ways: str) -> tuple[str, bytes]:
    """The first address that answers, and what it says.

    Args:
        name: The dataset, for the error message.
        urls: Addresses of the same file, tried in order.
        ways: How else to provide it, for the error message.

    Raises:
        DataError: If none answers.
    """
    import pooch  # noqa: PLC0415  (it pulls in an HTTP library, which a local file does not need)

    fetch = pooch.HTTPDownloader(timeout=TIMEOUT)
    reasons: list[str] = []
    for url in urls:
        # The raw text never enters the cache: only a table that was checked does.
        with tempfile.TemporaryDirectory(prefix="gdkl-") as folder:
            target = Path(folder) / "download"
            try:
                fetch(url, str(target), None)
                return url, target.read_bytes()
            except OSError as error:  # what the HTTP library raises for lost connections and 404s alike
                reason = " ".join(str(error).split())
                # A lost connection is told at length, with the address cut to pieces; its kind says as much.
                reasons.append(reason if len(reason) < 160 else f"{url} did not answer: {type(error).__name__}")
    raise DataError(f"The dataset {name!r} could not be downloaded ({reasons[0]}). {ways}")


def _ways(info: DatasetInfo) -> str:
    """How to provide a file by hand."""
    return (
        f"Provide {info.file}.npz (arrays X and y) yourself in one of three ways: pass data_dir= "
        "(--data-dir) a folder that holds it, "
        f"set {DATA_VARIABLE} to such a folder, or put it into the cache folder {cache_dir()}."
    )
