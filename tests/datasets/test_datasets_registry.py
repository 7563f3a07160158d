"""The registry file as it ships, and the reading of such files."""

from __future__ import annotations

import re

import numpy as np
import pytest
from datasets_helpers import fields
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gdkl import datasets
from gdkl.datasets import Origin
from gdkl.datasets.registry import MixedInfo, OriginalInfo, parse_registry
from gdkl.numerics import OptionError

PAPER = {"boston", "energy", "concrete", "kin8nm", "power", "protein"}
WIDER = {"blog", "elevators", "pol", "gas"}
ORIGINAL = {"buzz", "ctslice"}
MIXED = {name for name in datasets.names() if isinstance(datasets.describe(name), MixedInfo)}


def test_names() -> None:
    assert set(datasets.names()) - MIXED == PAPER | WIDER | ORIGINAL | {"energy2", "diabetes", "toy"}
    assert len(MIXED) == 18


@pytest.mark.parametrize("name", datasets.names())
def test_every_entry_is_complete(name: str) -> None:
    info = datasets.describe(name)
    assert info.name == name
    assert info.rows > 0
    assert info.columns == len(set(info.feature_names)) > 0 or name in MIXED
    assert info.target_names
    assert info.file_targets[: len(info.target_names)] == info.target_names
    assert info.source
    assert info.licence
    assert info.citation
    if info.origin is Origin.EMBEDDED:
        assert not info.digest
        assert info.download is None
    elif name in MIXED:
        assert (info.origin, info.file_names) == (Origin.FILE, f"tables/{name}.csv.gz")
    elif name in ORIGINAL:
        assert isinstance(info, OriginalInfo)
        assert (info.origin, info.digest, info.download) == (Origin.FILE, "", None)
    else:
        assert re.fullmatch(r"[0-9a-f]{64}", info.digest)


@pytest.mark.parametrize("name", [name for name in datasets.names() if datasets.describe(name).download])
def test_downloads_are_pinned_to_a_commit(name: str) -> None:
    download = datasets.describe(name).download
    assert download is not None
    [text] = download.files
    host = r"https://raw\.githubusercontent\.com/[\w.-]+/[\w.-]+"
    pinned = re.fullmatch(host + r"/([0-9a-f]{40})/(.+)", text.urls[0])
    assert pinned is not None
    # What follows is the same file of the same repository.
    assert [url.replace("/HEAD/", f"/{pinned[1]}/") for url in text.urls] == [text.urls[0]] * len(text.urls)


def test_digests_are_all_different() -> None:
    digests = [info.digest for info in map(datasets.describe, datasets.names()) if info.digest]
    assert len(set(digests)) == len(digests)


def test_energy2_is_a_second_view_of_energy() -> None:
    one, two = datasets.describe("energy"), datasets.describe("energy2")
    assert two.file == one.file == "energy"
    assert two.file_targets == one.file_targets == two.target_names
    assert two.feature_names == one.feature_names
    assert two.download == one.download
    assert two.digest != one.digest


def test_only_blog_has_no_download() -> None:
    origins = {name: datasets.describe(name).origin for name in PAPER | WIDER}
    assert {name for name, origin in origins.items() if origin is not Origin.DOWNLOAD} == {"blog"}


@pytest.mark.parametrize("features", ["f0", "f0..g3", "0.. 3", ""])
def test_numbered_names_have_one_form(features: str) -> None:
    table = {**fields(np.zeros((2, 1)), np.zeros(2)), "features": features}
    with pytest.raises(OptionError, match=r"f0\.\.f17"):
        parse_registry({"made": table})


@given(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=st.floats(-1e6, 1e6, allow_nan=False),
    )
)
def test_a_digest_is_of_numbers_not_of_layout(X: np.ndarray) -> None:
    y = X[:, 0].copy()
    digest = datasets.content_digest(X, y)
    assert digest == datasets.content_digest(np.asfortranarray(X), y)
    assert digest == datasets.content_digest(np.repeat(X, 2, axis=0)[::2], y)
    assert digest == datasets.content_digest(X.astype(">f8"), y.astype(">f8"))
    assert digest == datasets.content_digest(np.where(X == 0.0, -0.0, X), y)


@given(st.integers(0, 5), st.integers(0, 1))
def test_a_digest_sees_a_single_bit(row: int, column: int) -> None:
    X = np.arange(12.0).reshape(6, 2)
    changed = X.copy()
    changed[row, column] = np.nextafter(X[row, column], np.inf)
    assert datasets.content_digest(X, X[:, 0]) != datasets.content_digest(changed, X[:, 0])


def test_a_digest_sees_shapes_and_roles() -> None:
    X = np.arange(12.0).reshape(6, 2)
    y = np.arange(6.0)
    digests = [
        datasets.content_digest(X, y),
        datasets.content_digest(X.reshape(4, 3), y),
        datasets.content_digest(X.reshape(3, 4), y),
        datasets.content_digest(X, y[:, None]),
        datasets.content_digest(X, y.reshape(3, 2)),
        datasets.content_digest(X[:3], np.concatenate([X[3:].ravel(), y])),
    ]
    assert len(set(digests)) == len(digests)


def test_a_digest_is_stable() -> None:
    # Recorded digests must stay valid: this one was computed once and written down.
    X = np.array([[1.0, 2.5], [-3.0, 0.0]])
    expected = "0f5d6c35e9c18f7a1f9699b85a4801e7ec45fd0528e9848ad6e8ff03db5c7df3"
    assert datasets.content_digest(X, np.array([1.0, -1.0])) == expected
