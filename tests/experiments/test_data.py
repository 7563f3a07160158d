"""The rows of a cell: splits, the paper's subsets, other draws, validation; and guides by name."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from gdkl import GdklError, datasets, infinite
from gdkl.experiments import SPECS, Cell, data, draws
from gdkl.experiments.guides import GUIDES, guide, published

GDKL_DATA = os.environ.get("GDKL_DATA")


def cell(dataset="cifar10", size=None, split=0, **more):
    return Cell("made", dataset, "gdkl", size, split, 0, "test", more)


def _images(n, seed):
    """Three classes of 8 x 8 colour images that differ by their brightness, as uint8."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 3)
    X = rng.normal(60 * y[:, None, None, None] + 60, 25, size=(n, 3, 8, 8)).clip(0, 255).astype(np.uint8)
    return datasets.ImageSet(X, y, ("a", "b", "c"), name="cifar10")


@pytest.fixture
def small(monkeypatch):
    """A stand-in for CIFAR-10, small enough for a test."""
    sets = {"cifar10": _images(90, 0), "cifar10-test": _images(60, 1)}
    monkeypatch.setattr(draws, "load_images", lambda name, data_dir=None: sets[name])
    return sets


class TestTables:
    def test_a_table_is_cut_as_the_published_code_cuts_it(self):
        part = data.table(cell("diabetes", split=4), None, 0)
        X, y, *_ = datasets.load("diabetes")
        order = np.arange(len(y))
        np.random.RandomState(4).shuffle(order)
        np.testing.assert_array_equal(part.X, X[order[:397]])
        np.testing.assert_array_equal(part.y_test, y[order[397:]])

    def test_validation_rows_are_training_rows(self):
        whole, held = data.table(cell("diabetes"), None, 0), data.table(cell("diabetes"), None, 50)
        assert (len(held.y), len(held.y_test)) == (347, 50)
        assert {*map(tuple, held.X), *map(tuple, held.X_test)} == set(map(tuple, whole.X))
        assert not set(map(tuple, held.X_test)) & set(map(tuple, whole.X_test))
        with pytest.raises(GdklError, match="--validation 397 must leave some of the 397"):
            data.table(cell("diabetes"), None, 397)

    @pytest.mark.parametrize("name", SPECS["classes"].datasets)
    def test_a_stratified_part_of_a_classification_table(self, name):
        part = data.bundled_classes(cell(name, size=0.2, split=1), None, 0)
        shares = [np.bincount(labels) / len(labels) for labels in (part.y, part.y_test)]
        np.testing.assert_allclose(*shares, atol=0.02)
        assert len(part.y) / (len(part.y) + len(part.y_test)) == pytest.approx(0.2, abs=0.01)
        with pytest.raises(GdklError, match="between 0 and 1"):
            data.bundled_classes(cell(name, size=30), None, 0)


class TestDraws:
    @pytest.mark.parametrize("n", draws.SIZES)
    def test_the_papers_indices_are_distinct_and_inside(self, n):
        indices = draws.paper_indices(n)
        assert len(set(indices.tolist())) == n
        assert 0 <= indices.min() < indices.max() < 50_000

    def test_the_paper_has_no_other_size(self):
        with pytest.raises(GdklError, match="50, 100, 200, 400, 800"):
            draws.paper_indices(60)

    def test_a_draw_has_as_many_of_each_class(self):
        labels = np.random.default_rng(0).integers(5, size=400)
        drawn = draws.stratified_draw(labels, 52, seed=1)
        assert len(set(drawn.tolist())) == 52
        assert sorted(np.bincount(labels[drawn])) == [10, 10, 10, 11, 11]
        np.testing.assert_array_equal(drawn, draws.stratified_draw(labels, 52, seed=1))
        assert set(drawn) != set(draws.stratified_draw(labels, 52, seed=2))
        with pytest.raises(GdklError, match="cannot draw"):
            draws.stratified_draw(labels, 401, seed=0)

    def test_a_file_with_some_images_serves_as_the_whole(self, small, tmp_path, monkeypatch):
        digest = draws._labels_digest(small["cifar10"].y)
        monkeypatch.setattr(draws, "_subsets", lambda: {"labels_sha256": digest, "subsets": {}})
        whole = draws.few_images("cifar10", 12, 5, tmp_path)
        count = draws.write_subset(tmp_path / draws.SUBSET_FILE, [(12, 5), (6, 5)])
        assert 12 <= count <= 18
        monkeypatch.setitem(small, "cifar10", None)
        found = draws.few_images("cifar10", 12, 5, tmp_path)
        for one, other in zip(found[:2], whole[:2], strict=True):
            np.testing.assert_array_equal(one, other)
        assert found[2] == whole[2]
        with pytest.raises(GdklError, match="lacks"):
            draws.few_images("cifar10", 12, 6, tmp_path)
        monkeypatch.setattr(draws, "_subsets", lambda: {"labels_sha256": "0" * 64, "subsets": {}})
        with pytest.raises(GdklError, match="does not hold the labels"):
            draws.few_images("cifar10", 12, 5, tmp_path)

    def test_images_that_are_not_the_papers_are_refused(self, small, monkeypatch):
        monkeypatch.setattr(draws, "paper_indices", np.arange)
        with pytest.raises(GdklError, match="not the paper's"):
            draws.few_images("cifar10", 50, "paper")

    def test_a_draw_is_paper_or_a_seed(self, small):
        with pytest.raises(GdklError, match="'paper' or a seed"):
            draws.few_images("cifar10", 12, "mine")

    @pytest.mark.parametrize("n", draws.SIZES)
    def test_the_papers_subsets_of_the_real_images(self, n):
        if not GDKL_DATA or not (Path(GDKL_DATA) / "cifar10-train-1of2.npz").is_file():
            pytest.skip("GDKL_DATA does not name a folder with cifar10-train-1of2.npz: set it to run this test")
        part = data.few_images(cell(size=n, split="paper"), Path(GDKL_DATA), 0)
        assert np.bincount(part.y).tolist() == [n // 10] * 10
        assert len(part.y_test) == 10_000


class TestImages:
    def test_few_images_and_all_test_images(self, small):
        part = data.few_images(cell(size=12, split=3), None, 0)
        assert np.bincount(part.y).tolist() == [4, 4, 4]
        assert part.digest == datasets.image_digest(part.X, part.y)
        np.testing.assert_array_equal(part.X_test, small["cifar10-test"].X)
        with pytest.raises(GdklError, match="number of images"):
            data.few_images(cell(size=0.2, split=3), None, 0)

    def test_validation_images_lie_outside_of_the_draw_and_of_the_test(self, small):
        part = data.few_images(cell(size=12, split=3), None, 30)
        assert (len(part.y), len(part.y_test)) == (12, 30)
        seen = {image.tobytes() for image in part.X_test}
        assert not seen & {image.tobytes() for image in part.X}
        assert seen <= {image.tobytes() for image in small["cifar10"].X}
        with pytest.raises(GdklError, match="not chosen on the paper's own images"):
            data.few_images(cell(size=50, split="paper"), None, 30)

    def test_held_out_images_have_as_many_of_each_class(self, small):
        part = data.all_images(cell(), None, 30)
        assert np.bincount(part.y_test).tolist() == [10, 10, 10]
        assert len(part.y) == 60
        np.testing.assert_array_equal(data.all_images(cell(), None, 0).y_test, small["cifar10-test"].y)
        with pytest.raises(GdklError, match="must leave some of the 90"):
            data.all_images(cell(), None, 90)


class TestGuides:
    def test_the_published_layout_reads_the_width_as_channels(self):
        images = torch.randn(4, 3, 8, 8, dtype=torch.float64)
        # What the published code calls height, width and channels.
        as_read = torch.stack([images[:, :, :, channel] for channel in range(8)], dim=1)
        expected = infinite.wide_resnet(4).kernel(as_read)
        torch.testing.assert_close(published(images, images), expected)
        torch.testing.assert_close(published(images[:3], images[1:]), expected[:3, 1:])

    @pytest.mark.parametrize(
        "name", [name for name in GUIDES if name not in ("published", "pooled", "wide_resnet_4_half")]
    )
    def test_every_network_is_a_kernel(self, name):
        images = torch.randn(5, 3, 8, 8, dtype=torch.float64)
        K = guide(name).kernel(images.flatten(1) if name == "dense" else images)
        assert float(torch.linalg.eigvalsh(K).min()) > 0

    def test_half_the_resolution_is_the_same_network_on_means_of_four_pixels(self):
        images = torch.randn(3, 3, 8, 8, dtype=torch.float64)
        small = images.reshape(3, 3, 4, 2, 4, 2).mean(dim=(3, 5))
        expected = guide("wide_resnet_4").kernel(small)
        torch.testing.assert_close(guide("wide_resnet_4_half")(images[:2], images), expected[:2])

    def test_the_pooled_guide_forgets_where_things_are(self):
        image = torch.zeros(1, 8, 8, dtype=torch.float64)
        image[0, 2:4, 2:4] = 1
        K = guide("pooled").kernel(torch.stack([image, image.roll(2, dims=2)]))
        assert float(K[0, 1] / K[0, 0]) > 0.99

    def test_an_unknown_name_lists_the_known(self):
        with pytest.raises(GdklError, match="dense, wide_resnet_1"):
            guide("narrow")
