"""Images that are moved and flipped at random: what comes out is a window of what went in."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gdkl.nets import ImageFeatures, Members, RandomCrops

SHAPE = (2, 5, 6)


def windows(image, margin, flip):
    """All that may come of an image."""
    padded = nn.functional.pad(image, (margin,) * 4)
    for down in range(2 * margin + 1):
        for along in range(2 * margin + 1):
            window = padded[:, down : down + 5, along : along + 6]
            yield down, along, False, window
            if flip:
                # Mirrored in place, then moved.
                flipped = nn.functional.pad(image.flip(-1), (margin,) * 4)
                yield down, along, True, flipped[:, down : down + 5, along : along + 6]


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("margin", [0, 1, 2])
def test_each_image_becomes_one_of_its_windows_and_all_of_them_occur(margin, flip):
    image = torch.arange(1.0, 61.0).reshape(SHAPE)
    torch.manual_seed(0)
    moved = RandomCrops(SHAPE, margin, flip)(image.flatten().expand(2000, -1))
    seen = set()
    for row in moved.unique(dim=0).unflatten(-1, SHAPE):
        matches = [found[:3] for found in windows(image, margin, flip) if torch.equal(found[3], row)]
        assert matches
        seen.update(matches)
    assert len(seen) == (2 * margin + 1) ** 2 * (2 if flip else 1)


def test_images_are_as_they_are_in_evaluation():
    rows = torch.randn(4, 60)
    net = ImageFeatures(nn.Flatten(), SHAPE, torch.float64, augmentation=RandomCrops(SHAPE, 2, flip=True))
    assert not torch.equal(net.train()(rows), rows.double())
    assert torch.equal(net.eval()(rows), rows.double())


def test_members_that_run_as_one_move_their_images_on_their_own():
    crops = RandomCrops(SHAPE, 2, flip=True)
    nets = [
        ImageFeatures(nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten()), SHAPE, torch.float64, augmentation=crops)
    ] * 2
    members = Members(nets).train()
    first, second = members(torch.randn(1, 8, 60).expand(2, -1, -1))
    assert not torch.allclose(first, second)
    members.eval()
    first, second = members(torch.randn(1, 8, 60).expand(2, -1, -1))
    torch.testing.assert_close(first, second)
