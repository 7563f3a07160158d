"""Images on the device: crops and flips of the right pixels, the same for a seed."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from gdkl.numerics import DataError
from gdkl.training import ImageBatches, World

MEANS, DEVIATIONS = (0.5, 0.4), (0.2, 0.3)


def images(n=12, height=5, width=7):
    return torch.randint(0, 256, (n, 2, height, width), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def source(batch_size=6, **options):
    return ImageBatches(images(), torch.arange(12), batch_size, 3, means=MEANS, deviations=DEVIATIONS, **options)


def undone(rows, shape=(2, 5, 7)):
    mean, deviation = (torch.tensor(values)[:, None, None] for values in (MEANS, DEVIATIONS))
    return ((rows.unflatten(-1, shape) * deviation + mean) * 255).round().to(torch.uint8)


def test_without_crop_and_flip_images_come_as_they_are():
    plain = source(margin=0, flip=False)
    batch = plain.batch(0)
    assert torch.equal(undone(batch.rows), images()[batch.index])
    assert torch.equal(batch.targets, batch.index)
    sample = source().sample(5, seed=1)
    assert torch.equal(undone(sample.rows), images()[sample.index])


def test_every_image_is_one_of_its_crops_and_they_differ():
    made = source(margin=2)
    padded = F.pad(images(), (2, 2, 2, 2))
    seen = set()
    for step in range(20):
        batch = made.batch(step)
        for image, index in zip(undone(batch.rows), batch.index, strict=True):
            found = [
                (down, along, flip)
                for down in range(5)
                for along in range(5)
                for flip in (False, True)
                for crop in [padded[index, :, down : down + 5, along : along + 7]]
                if torch.equal(crop.flip(-1) if flip else crop, image)
            ]
            assert found
            seen.update(found)
    assert {down for down, _, _ in seen} == set(range(5))
    assert {along for _, along, _ in seen} == set(range(5))
    assert {flip for _, _, flip in seen} == {False, True}


def test_a_step_is_the_same_whenever_it_is_asked_for_and_processes_differ():
    one, other = source(), source()
    one.batch(0)
    assert torch.equal(one.batch(5).rows, other.batch(5).rows)
    parts = [source(batch_size=3 * 2, world=World(rank, 2)).batch(0).index for rank in range(2)]
    assert not set(parts[0].tolist()) & set(parts[1].tolist())


def test_normalised_images_come_as_bytes_do():
    made = source(margin=0)
    normalised = source(margin=0, flip=False).plain(torch.arange(12)).unflatten(-1, (2, 5, 7))
    batch = ImageBatches(normalised, torch.arange(12), 6, 3, margin=0).batch(2)
    assert torch.equal(batch.rows, made.batch(2).rows)
    assert torch.equal(batch.targets, made.batch(2).targets)


@pytest.mark.parametrize(
    ("given", "labels", "options"),
    [
        (images().float(), torch.arange(12), {"means": MEANS, "deviations": DEVIATIONS}),
        (images(), torch.arange(12), {}),
        (images()[0], torch.arange(2), {"means": MEANS, "deviations": DEVIATIONS}),
        (images(), torch.arange(5), {"means": MEANS, "deviations": DEVIATIONS}),
    ],
)
def test_wrong_images_are_refused(given, labels, options):
    with pytest.raises(DataError, match="images must be"):
        ImageBatches(given, labels, 4, 0, **options)
