"""The list of known sets of images: what each is, where it comes from, and the digest of its content."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any

from gdkl.datasets.registry import Origin
from gdkl.numerics import OptionError


class ArchiveFormat(StrEnum):
    """How a public file holds images.

    Example:
        >>> ArchiveFormat("idx") is ArchiveFormat.IDX
        True
    """

    CIFAR = "cifar"
    """A tar of records: label bytes (the last one counts), then the pixels, channel by channel."""

    IDX = "idx"
    """Two gzipped arrays behind a short header, the images and the labels, as MNIST's."""


@dataclass(frozen=True)
class PublicFile:
    """A public file under its published checksum.

    Attributes:
        urls: Addresses of the same file, tried in order.
        md5: Of the file, as its authors publish it. What vouches for the content is the set's own SHA-256.
    """

    urls: tuple[str, ...]
    md5: str


@dataclass(frozen=True)
class ImageSource:
    """Public files and how to read them.

    Attributes:
        format: How they hold the images.
        files: One archive, or the images' file and the labels'.
        members: Files inside the archive, in order.
        label_bytes: Bytes before a record's pixels.
    """

    format: ArchiveFormat
    files: tuple[PublicFile, ...]
    members: tuple[str, ...] = ()
    label_bytes: int = 1


@dataclass(frozen=True)
class ImageInfo:
    """What is known of a set of images without loading it.

    Attributes:
        name: Name to load it by.
        rows: Number of images.
        shape: Channels, height and width of each.
        class_names: One name a class.
        source: Where the pixels come from.
        licence: Terms of use, as far as they are stated.
        citation: Work to cite.
        note: What to know before use; may be empty.
        digest: SHA-256 of the content (see `image_digest`).
        parts: Names of local files, without ending, that together hold the set.
        public: The public files; `None` where no verified ones are known.
    """

    name: str
    rows: int
    shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    source: str
    licence: str
    citation: str
    note: str
    digest: str
    parts: tuple[str, ...]
    public: ImageSource | None

    @property
    def origin(self) -> Origin:
        """How the set comes to the user."""
        return Origin.FILE if self.public is None else Origin.DOWNLOAD


def image_names() -> tuple[str, ...]:
    """Names of all sets of images.

    Example:
        >>> image_names()[:2]
        ('cifar10', 'cifar10-test')
    """
    return tuple(image_entries())


def describe_images(name: str) -> ImageInfo:
    """What is known of a set of images without loading it: size, classes, source, licence, citation.

    Raises:
        OptionError: If there is no such set.

    Example:
        >>> info = describe_images("cifar100")
        >>> info.rows, info.shape, len(info.class_names)
        (50000, (3, 32, 32), 100)
    """
    known = image_entries()
    if name not in known:
        raise OptionError(f"There is no set of images {name!r}: use one of {', '.join(known)}.")
    return known[name]


@cache
def image_entries() -> Mapping[str, ImageInfo]:
    """All entries of the registry file, by name and in its order."""
    text = resources.files("gdkl.datasets").joinpath("images.toml").read_text(encoding="utf-8")
    return parse_images(tomllib.loads(text))


def parse_images(raw: Mapping[str, Mapping[str, Any]]) -> dict[str, ImageInfo]:
    """Turn the plain tables of a registry file into entries.

    A table with ``like = "other"`` inherits what it does not state itself, its public files' addresses too.

    Example:
        >>> raw = {"tiny": {"rows": 2, "shape": [1, 8, 8], "classes": ["a", "b"], "source": "", "licence": "",
        ...                 "citation": "", "digest": "", "parts": ["tiny"]}}
        >>> parse_images(raw)["tiny"].shape
        (1, 8, 8)
    """
    return {name: _entry(name, _inherit(raw, table)) for name, table in raw.items()}


def _inherit(raw: Mapping[str, Mapping[str, Any]], table: Mapping[str, Any]) -> dict[str, Any]:
    above = raw.get(table.get("like", ""), {})
    public = {**above.get("public", {}), **table.get("public", {})}
    return {**above, **table, **({"public": public} if public else {})}


def _entry(name: str, table: Mapping[str, Any]) -> ImageInfo:
    channels, height, width = table["shape"]
    public = table.get("public")
    return ImageInfo(
        name=name,
        rows=table["rows"],
        shape=(channels, height, width),
        class_names=tuple(table["classes"]),
        source=table["source"],
        licence=table["licence"],
        citation=table["citation"],
        note=table.get("note", ""),
        digest=table["digest"],
        parts=tuple(table["parts"]),
        public=None if public is None else _source(**public),
    )


def _source(
    format: str, files: list[dict[str, Any]], members: list[str] | None = None, label_bytes: int = 1
) -> ImageSource:
    return ImageSource(
        ArchiveFormat(format),
        tuple(PublicFile(tuple(file["urls"]), file["md5"]) for file in files),
        tuple(members or ()),
        label_bytes,
    )
