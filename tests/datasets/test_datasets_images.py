"""Sets of images: their files, the checks, downloads from a server on this machine, and the real ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import tarfile
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from PIL import Image

from gdkl import datasets
from gdkl.datasets import Origin
from gdkl.datasets.loading import ImageName
from gdkl.numerics import DataError, OptionError

# Read at import: each test runs without the user's own settings.
GDKL_DATA = os.environ.get("GDKL_DATA")


def draw(n=7, shape=(3, 8, 8), seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(256, size=(n, *shape), dtype=np.uint8), rng.integers(2, size=n)


def fields(X, y, **more):
    """A registry table for some images, as it would stand in the file."""
    return {
        "rows": len(X),
        "shape": list(X.shape[1:]),
        "classes": ["cat", "dog"],
        "digest": datasets.image_digest(X, y),
        "parts": ["made"],
        "source": "made up",
        "licence": "none",
        "citation": "none",
        **more,
    }


def md5(content):
    return hashlib.md5(content).hexdigest()


def cifar_tar(**members):
    """A tar as CIFAR's: {name: (X, y)} to records of label bytes and pixels."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, (X, y, label_bytes) in members.items():
            labels = np.zeros((len(y), label_bytes), np.uint8) + 9
            labels[:, -1] = y
            content = np.concatenate([labels, X.reshape(len(X), -1)], axis=1).tobytes()
            entry = tarfile.TarInfo(f"folder/{name}.bin")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def sheets(X, y, rows=2, columns=2):
    """Arrays of lossless WebP sheets, the last one filled up with black."""
    n, channels, height, width = X.shape
    content, offsets = b"", [0]
    for first in range(0, n, rows * columns):
        sheet = np.zeros((rows * height, columns * width, channels), np.uint8)
        for place, image in enumerate(X[first : first + rows * columns]):
            r, c = divmod(place, columns)
            sheet[r * height : (r + 1) * height, c * width : (c + 1) * width] = image.transpose(1, 2, 0)
        stream = io.BytesIO()
        Image.fromarray(sheet).save(stream, "WEBP", lossless=True, exact=True)
        content += stream.getvalue()
        offsets.append(len(content))
    return {
        "webp": np.frombuffer(content, np.uint8),
        "offsets": np.array(offsets),
        "grid": np.array([rows, columns]),
        "y": y.astype(np.uint8),
    }


class TestFiles:
    @pytest.mark.parametrize("form", ["plain", "channels last", "sheets"])
    def test_every_form_of_file_reads_as_the_same_images(self, form, tmp_path, register):
        X, y = draw()
        register({"made": fields(X, y)})
        forms = {"plain": {"X": X, "y": y}, "channels last": {"x": X.transpose(0, 2, 3, 1), "y": y}, "sheets": None}
        np.savez(tmp_path / "made.npz", **(forms[form] or sheets(X, y)))
        for found in (datasets.load("made", tmp_path), datasets.load_images("made", tmp_path)):
            pixels, labels, class_names, target_name = found
            np.testing.assert_array_equal(pixels, X)
            np.testing.assert_array_equal(labels, y)
            assert pixels.dtype == np.uint8
            assert labels.dtype == np.int64
            assert (class_names, target_name) == (("cat", "dog"), "class")

    def test_grey_images_may_lack_their_channel(self, tmp_path, register):
        X, y = draw(shape=(1, 8, 9))
        register({"made": fields(X, y)})
        np.savez(tmp_path / "made.npz", x=X[:, 0], y=y)
        np.testing.assert_array_equal(datasets.load_images("made", tmp_path).X, X)

    def test_parts_are_joined_in_order_and_needed_together(self, tmp_path, register):
        X, y = draw()
        register({"made": fields(X, y, parts=["made-1of2", "made-2of2"])})
        np.savez(tmp_path / "made-2of2.npz", X=X[4:], y=y[4:])
        with pytest.raises(DataError, match=r"made-1of2\.npz and made-2of2\.npz"):
            datasets.load_images("made", tmp_path)
        np.savez(tmp_path / "made-1of2.npz", X=X[:4], y=y[:4])
        np.testing.assert_array_equal(datasets.load_images("made", tmp_path).X, X)
        assert datasets.locate("made", tmp_path) == tmp_path / "made-1of2.npz"

    def test_other_content_is_refused(self, tmp_path, register):
        X, y = draw()
        register({"made": fields(X, y)})
        changed = X.copy()
        changed[3, 1, 2, 5] ^= 1
        for pixels, labels in ((changed, y), (X, 1 - y)):
            np.savez(tmp_path / "made.npz", X=pixels, y=labels)
            with pytest.raises(DataError, match="SHA-256"):
                datasets.load_images("made", tmp_path)

    @pytest.mark.parametrize(
        "arrays",
        [
            {"y": np.zeros(3)},
            {"X": np.zeros((3, 3, 8, 8), np.uint8)},
            {"X": np.zeros((3, 3, 8, 8)), "y": np.zeros(3)},
            {"X": np.zeros((2, 3, 8, 8), np.uint8), "y": np.zeros(3)},
            {"x": np.zeros((3, 5, 5), np.uint8), "y": np.zeros(3)},
            {"webp": np.zeros(9, np.uint8), "offsets": [0, 9], "grid": [1, 3], "y": np.zeros(3)},
        ],
    )
    def test_another_form_is_refused_with_the_right_one(self, arrays, tmp_path, register):
        register({"made": fields(*draw())})
        np.savez(tmp_path / "made.npz", **arrays)
        with pytest.raises(DataError, match=r"arrays X \(uint8, n x 3 x 8 x 8\) and y"):
            datasets.load_images("made", tmp_path)

    def test_a_folder_that_is_none_is_refused(self, tmp_path, register):
        register({"made": fields(*draw())})
        with pytest.raises(DataError, match="not a folder"):
            datasets.load_images("made", tmp_path / "nowhere")


class TestDownload:
    @pytest.mark.parametrize("label_bytes", [1, 2])
    def test_sets_of_one_archive_are_stored_together(self, label_bytes, site, cache, register):
        X, y = draw()
        other = draw(n=4, seed=1)
        content = cifar_tar(
            one=(X[:4], y[:4], label_bytes), two=(X[4:], y[4:], label_bytes), test=(*other, label_bytes)
        )
        download = {
            "format": "cifar",
            "label_bytes": label_bytes,
            "members": ["folder/one.bin", "folder/two.bin"],
            "files": [{"urls": [site.url("/gone"), site.put("/a.tar.gz", content)], "md5": md5(content)}],
        }
        test = {"like": "made", "rows": 4, "digest": datasets.image_digest(*other), "parts": ["made-test"]}
        register(
            {
                "made": fields(X, y, download=download),
                "made-test": {**test, "download": {"members": ["folder/test.bin"]}},
            }
        )
        np.testing.assert_array_equal(datasets.load_images("made").X, X)
        assert sorted(path.name for path in cache.iterdir()) == ["made-test.npz", "made.npz"]
        site.pages.clear()
        np.testing.assert_array_equal(datasets.load_images("made-test").y, other[1])
        assert datasets.fetch("made-test") == cache / "made-test.npz"

    def test_idx_files(self, site, cache, register):
        X, y = draw(shape=(1, 6, 5))
        images = np.array([0x803, *X[:, 0].shape], ">u4").tobytes() + X.tobytes()
        labels = np.array([0x801, len(y)], ">u4").tobytes() + y.astype(np.uint8).tobytes()
        packed = [gzip.compress(images), gzip.compress(labels)]
        files = [{"urls": [site.put(f"/{i}.gz", part)], "md5": md5(part)} for i, part in enumerate(packed)]
        register({"made": fields(X, y, download={"format": "idx", "files": files})})
        found = datasets.load_images("made")
        np.testing.assert_array_equal(found.X, X)
        np.testing.assert_array_equal(found.y, y)
        # Images and labels the wrong way round are no such files.
        register({"made": fields(X, y, download={"format": "idx", "files": files[::-1]})})
        with pytest.raises(DataError, match="nothing was stored"):
            datasets.fetch("made", force=True)

    @pytest.mark.parametrize("fault", ["md5", "digest", "member", "truncated", "not a tar"])
    def test_nothing_wrong_is_stored(self, fault, site, cache, register):
        X, y = draw()
        content = cifar_tar(one=(X, y, 1)) if fault != "not a tar" else b"sorry"
        content = content[: len(content) // 2] if fault == "truncated" else content
        download = {
            "format": "cifar",
            "members": ["folder/none.bin" if fault == "member" else "folder/one.bin"],
            "files": [{"urls": [site.put("/a.tar.gz", content)], "md5": "0" * 32 if fault == "md5" else md5(content)}],
        }
        digest = {"digest": "f" * 64} if fault == "digest" else {}
        register({"made": fields(X, y, download=download, **digest)})
        with pytest.raises(DataError, match="nothing was stored") as caught:
            datasets.load_images("made")
        assert not cache.exists()
        for part in ("made.npz", "data_dir=", "GDKL_DATA", str(cache)):
            assert part in str(caught.value)

    def test_without_a_source_the_ways_are_told(self, register):
        register({"made": fields(*draw())})
        with pytest.raises(DataError, match=r"No verified download.*made\.npz.*GDKL_DATA"):
            datasets.load_images("made")


class TestRegistry:
    @pytest.mark.parametrize("name", datasets.image_names())
    def test_every_entry_is_complete(self, name):
        info = datasets.describe_images(name)
        assert re.fullmatch(r"[0-9a-f]{64}", info.digest)
        assert len(set(info.class_names)) == len(info.class_names) >= 2
        assert info.rows > 0
        assert info.source
        assert info.licence
        assert info.citation
        if info.download is not None:
            assert all(re.fullmatch(r"[0-9a-f]{32}", file.md5) and file.urls for file in info.download.files)

    def test_digests_and_names_are_all_different(self):
        digests = {datasets.describe_images(name).digest for name in datasets.image_names()}
        assert len(digests) == len(datasets.image_names())
        assert not set(datasets.names()) & set(datasets.image_names())

    def test_a_table_is_no_set_of_images(self) -> None:
        for refuse in (datasets.describe_images, datasets.load_images):
            with pytest.raises(OptionError, match="no set of images 'boston': use one of cifar10, "):
                refuse("boston")
        with pytest.raises(OptionError, match="no dataset 'cifar10': use one of boston, "):
            datasets.describe("cifar10")

    def test_only_svhn_has_no_download(self):
        origins = {name: datasets.describe_images(name).origin for name in datasets.image_names()}
        assert [name for name, origin in origins.items() if origin is Origin.FILE] == ["svhn-test"]

    def test_type_checkers_know_every_name(self):
        assert get_args(ImageName) == datasets.image_names()

    def test_unknown_names_are_refused_with_those_that_are(self):
        with pytest.raises(OptionError, match=r"boston.*cifar10"):
            datasets.load("cifar11")
        with pytest.raises(OptionError, match="fixed and takes no seed"):
            datasets.load("cifar10", seed=1)


@pytest.mark.parametrize("name", datasets.image_names())
def test_the_real_images_are_read(name):
    info = datasets.describe_images(name)
    if not GDKL_DATA:
        pytest.skip("GDKL_DATA is not set: set it to a folder with the .npz files to run this test")
    if not all((Path(GDKL_DATA) / f"{part}.npz").is_file() for part in info.parts):
        pytest.skip(f"GDKL_DATA={GDKL_DATA} holds no {info.parts[0]}.npz")
    X, y, class_names, _ = datasets.load(name, GDKL_DATA)
    assert X.shape == (info.rows, *info.shape)
    counts = np.bincount(y, minlength=len(class_names))
    if not name.startswith("svhn"):
        assert counts.tolist() == [info.rows // len(class_names)] * len(class_names)
    # Channel means in the usual tables of these sets.
    means = {
        "cifar10": (0.4914, 0.4822, 0.4465),
        "cifar100": (0.5071, 0.4865, 0.4409),
        "svhn-test": (0.452, 0.452, 0.469),
    }
    if name in means:
        assert X.mean(axis=(0, 2, 3)) / 255 == pytest.approx(means[name], abs=2e-3)
