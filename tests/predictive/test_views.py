"""Views of images, and means over them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from gdkl.numerics import DataError
from gdkl.predictive import Views, count_views, image_views, mean_over_views

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 3, 32, 20)).astype(np.uint8)


@pytest.mark.parametrize("views", Views)
def test_every_view_is_another_and_none_loses_shape_or_type(views):
    found = list(image_views(IMAGES, views))
    assert len(found) == count_views(views) == len({view.tobytes() for view in found})
    assert all(view.shape == IMAGES.shape and view.dtype == IMAGES.dtype for view in found)
    np.testing.assert_array_equal(found[0], IMAGES)


def test_wider_choices_begin_with_narrower_ones():
    chosen = [list(image_views(IMAGES, views)) for views in Views]
    for narrow, wide in pairwise(chosen):
        np.testing.assert_array_equal(narrow, wide[: len(narrow)])


def test_a_shift_moves_by_a_sixteenth_and_repeats_the_border():
    shifted = list(image_views(IMAGES, Views.SHIFTED))[2]
    np.testing.assert_array_equal(shifted[:, :, 2:], IMAGES[:, :, :-2])
    np.testing.assert_array_equal(shifted[:, :, 0], IMAGES[:, :, 0])
    np.testing.assert_array_equal(shifted[:, :, 1], IMAGES[:, :, 0])


def test_the_set_of_views_is_the_mirror_images_too():
    ours, turned = ({view.tobytes() for view in image_views(x, Views.SHIFTED)} for x in (IMAGES, IMAGES[..., ::-1]))
    assert ours == turned


def test_means_are_over_the_views_of_each_choice_and_each_is_predicted_once():
    seen: list[bytes] = []

    def predict(images):
        seen.append(images.tobytes())
        return images[:, 0, 3, :2].astype(np.float64)

    found = mean_over_views(IMAGES, predict, list(Views))
    assert len(seen) == len(set(seen)) == count_views(Views.SHIFTED)
    for views in Views:
        expected = np.mean([view[:, 0, 3, :2] for view in image_views(IMAGES, views)], axis=0)
        np.testing.assert_allclose(found[views], expected)


def test_rows_are_no_images():
    with pytest.raises(DataError, match="height"):
        next(image_views(np.zeros((4, 12)), Views.PLAIN))
