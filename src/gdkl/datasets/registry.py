"""The list of known datasets: what each is, where it comes from, and the digest of its content."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any

from gdkl.numerics import OptionError


class Origin(StrEnum):
    """How a dataset comes to the user."""

    DOWNLOAD = "download"
    """From its public source on first use, unless a local file is there."""
    FILE = "file"
    """From a local file alone: no verified public source is known."""
    EMBEDDED = "embedded"
    """With the library or one that it depends on; nothing to fetch."""


@dataclass(frozen=True)
class PublicFile:
    """Addresses of one file, tried in order, and its published MD5, if any; the SHA-256 is checked in any case."""

    urls: tuple[str, ...]
    md5: str | None = None


@dataclass(frozen=True)
class Download:
    """A reader of `gdkl.datasets.formats`, the files in the order that it takes, and its keywords."""

    format: str
    files: tuple[PublicFile, ...]
    layout: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Info:
    """What is known of a dataset without loading it.

    Attributes:
        name: Name to load it by.
        rows: Number of rows or images.
        source: Where the content comes from.
        licence: Terms of use, as far as they are stated.
        citation: Work to cite.
        note: What to know before use; may be empty.
        digest: SHA-256 of the content (`content_digest`, `image_digest`); empty for what comes with the library.
        file: Name of the local file, without its ending.
        parts: Local files, without ending, that together hold the same.
        download: The public files; None where no verified ones are known.
    """

    name: str
    rows: int
    source: str
    licence: str
    citation: str
    note: str
    digest: str
    file: str
    parts: tuple[str, ...]
    download: Download | None

    @property
    def origin(self) -> Origin:
        """How the dataset comes to the user."""
        if not self.digest:
            return Origin.EMBEDDED
        return Origin.FILE if self.download is None else Origin.DOWNLOAD

    @property
    def ending(self) -> str:
        """Of local files."""
        return ".npz"

    @property
    def file_names(self) -> str:
        """The local files that would do, in words."""
        parts = " and ".join(f"{name}{self.ending}" for name in self.parts)
        return parts if self.parts == (self.file,) else f"{self.file}{self.ending}, or {parts}"


@dataclass(frozen=True)
class DatasetInfo(Info):
    """What is known of a table: beside what `Info` has, its columns.

    Attributes:
        feature_names: Names of the columns of ``X``.
        target_names: Names of the targets.
        file_targets: Names of all targets that the file holds, those of ``target_names`` first.
    """

    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    file_targets: tuple[str, ...]

    @property
    def columns(self) -> int:
        """Number of features."""
        return len(self.feature_names)


@dataclass(frozen=True)
class MixedInfo(DatasetInfo):
    """What is known of a table of numbers and text, a local CSV file whose content has no recorded digest.

    Attributes:
        count: Number of features; their names are those of the file.
        task: "regression" or "classification".
    """

    count: int
    task: str

    @property
    def origin(self) -> Origin:
        """From a local file alone."""
        return Origin.FILE

    @property
    def ending(self) -> str:
        """Of local files."""
        return ".csv.gz"

    @property
    def columns(self) -> int:
        """Number of features."""
        return self.count


@dataclass(frozen=True)
class OriginalInfo(DatasetInfo):
    """What is known of a table that is read from its authors' own text file, whose content has no recorded digest.

    Attributes:
        suffix: Ending of the file.
        header: Whether its first line names the columns; if not, they stand in the order of the names here.
        page: How to get it, in words.
    """

    suffix: str
    header: bool
    page: str

    @property
    def origin(self) -> Origin:
        """From a local file alone."""
        return Origin.FILE

    @property
    def ending(self) -> str:
        """Of local files."""
        return self.suffix


@dataclass(frozen=True)
class ImageInfo(Info):
    """What is known of a set of images: beside what `Info` has, shapes and classes.

    Attributes:
        shape: Channels, height and width of each image.
        class_names: One name per class.
    """

    shape: tuple[int, int, int]
    class_names: tuple[str, ...]


def names() -> tuple[str, ...]:
    """Names of all tables, those of the paper first.

    Example:
        >>> names()[:3]
        ('boston', 'concrete', 'energy')
    """
    return tuple(name for name, info in entries().items() if isinstance(info, DatasetInfo))


def image_names() -> tuple[str, ...]:
    """Names of all sets of images.

    Example:
        >>> image_names()[:2]
        ('cifar10', 'cifar10-test')
    """
    return tuple(name for name, info in entries().items() if isinstance(info, ImageInfo))


def describe(name: str) -> DatasetInfo:
    """What is known of a table without loading it: size, source, licence, citation.

    Example:
        >>> info = describe("concrete")
        >>> info.rows, info.columns, info.target_names, info.origin
        (1030, 8, ('compressive_strength_MPa',), <Origin.DOWNLOAD: 'download'>)
    """
    return _entry_of(name, DatasetInfo, "dataset")


def describe_images(name: str) -> ImageInfo:
    """What is known of a set of images without loading it: size, classes, source, licence, citation.

    Example:
        >>> info = describe_images("cifar100")
        >>> info.rows, info.shape, len(info.class_names)
        (50000, (3, 32, 32), 100)
    """
    return _entry_of(name, ImageInfo, "set of images")


def describe_any(name: str) -> DatasetInfo | ImageInfo:
    """What is known of a table or a set of images."""
    return _entry_of(name, (DatasetInfo, ImageInfo), "dataset")


def _entry_of(name: str, kind: Any, what: str) -> Any:
    known = {other: info for other, info in entries().items() if isinstance(info, kind)}
    if name not in known:
        raise OptionError(f"There is no {what} {name!r}: use one of {', '.join(known)}.")
    return known[name]


@cache
def entries() -> Mapping[str, DatasetInfo | ImageInfo]:
    """All entries of the registry file, by name and in its order."""
    text = resources.files("gdkl.datasets").joinpath("registry.toml").read_text(encoding="utf-8")
    return parse_registry(tomllib.loads(text))


def parse_registry(raw: Mapping[str, Mapping[str, Any]]) -> dict[str, DatasetInfo | ImageInfo]:
    """Turn the plain tables of a registry file into entries; ``like = "other"`` inherits what is not stated."""
    mixed = {name: _mixed(name, *facts) for name, facts in raw.get("mixed", {}).items()}
    named = {name: _entry(name, _inherit(raw, table)) for name, table in raw.items() if name != "mixed"}
    return named | mixed


def _mixed(name: str, rows: int, count: int, target: str, task: str, package: str) -> MixedInfo:
    source, file = f"the Python package {package}", f"tables/{name}"
    common = (name, rows, source, "that of the package", source, "", "", file, (file,), None)
    return MixedInfo(*common, (), (target,), (target,), count, task)


def _inherit(raw: Mapping[str, Mapping[str, Any]], table: Mapping[str, Any]) -> dict[str, Any]:
    above = raw.get(table.get("like", ""), {})
    download = {**above.get("download", {}), **table.get("download", {})}
    return {**above, **table, **({"download": download} if download else {})}


def _entry(name: str, table: Mapping[str, Any]) -> DatasetInfo | ImageInfo:
    file = table.get("file", name)
    common: dict[str, Any] = {key: table[key] for key in ("rows", "source", "licence", "citation")}
    common |= {"name": name, "note": table.get("note", ""), "digest": table.get("digest", ""), "file": file}
    common |= {"parts": tuple(table.get("parts", (file,))), "download": _download(**table.get("download", {}))}
    if "shape" in table:
        channels, height, width = table["shape"]
        return ImageInfo(**common, shape=(channels, height, width), class_names=tuple(table["classes"]))
    targets = tuple(table["targets"])
    stored = tuple(table.get("file_targets", targets))
    columns: dict[str, Any] = {
        "feature_names": _feature_names(table["features"]),
        "target_names": targets,
        "file_targets": stored,
    }
    if "original" in table:
        return OriginalInfo(**common, **columns, **table["original"])
    return DatasetInfo(**common, **columns)


def _download(format: str | None = None, files: list[dict[str, Any]] | None = None, **layout: Any) -> Download | None:
    if format is None:
        return None
    return Download(format, tuple(PublicFile(tuple(file["urls"]), file.get("md5")) for file in files or ()), layout)


def _feature_names(features: str | list[str]) -> tuple[str, ...]:
    """Names as listed, or numbered ones written as ``"f0..f17"``, which may also stand in a list."""
    if not isinstance(features, str):
        return tuple(name for one in features for name in (_feature_names(one) if ".." in one else (one,)))
    match = re.fullmatch(r"([a-zA-Z_()]*)(\d+)\.\.\1(\d+)", features)
    if match is None:
        raise OptionError(f"features = {features!r} is not a list of names, nor of the form 'f0..f17'.")
    prefix, first, last = match.groups()
    return tuple(f"{prefix}{number}" for number in range(int(first), int(last) + 1))
