"""Images moved by a few pixels and mirrored at random: what a network sees in place of the same few again."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


def random_windows(
    count: int,
    size: tuple[int, int],
    margin: int,
    *,
    mirror: bool,
    device: torch.device,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Rows and columns that windows of images with a margin have, each off centre by up to the margin.

    Args:
        count: Number of images.
        size: Height and width of a window.
        margin: Pixels around each image.
        mirror: Whether half of the windows have their columns in reverse.
        device: Where the numbers are drawn.
        generator: Where they come from; None for torch's own.

    Returns:
        Rows ``(count, height)`` and columns ``(count, width)``.

    Example:
        >>> y, x = random_windows(2, (3, 4), 1, mirror=False, device=torch.device("cpu"))
        >>> y.shape, x.shape
        (torch.Size([2, 3]), torch.Size([2, 4]))
    """
    height, width = size
    # Offsets and reverses of all windows in one draw; in float32 whatever torch's default is.
    draw = torch.rand(3, count, 1, generator=generator, device=device, dtype=torch.float32)
    down, along = (draw[:2] * (2 * margin + 1)).long().unbind()
    y = down + torch.arange(height, device=device)
    x = torch.arange(width, device=device).expand(count, width)
    if mirror:
        x = torch.where(draw[2] < 0.5, width - 1 - x, x)
    return y, x + along


@dataclass(frozen=True)
class RandomMoves:
    """Moves each image of a batch on its own; what is uncovered is zero, of normalised images the mean colour.

    Attributes:
        image_shape: Channels, height and width.
        margin: Pixels that an image is moved by at most, down and to the side.
        mirror: Whether half of the images are mirrored.

    Example:
        >>> RandomMoves((3, 4, 4), 1, mirror=True)(torch.ones(2, 48)).shape
        torch.Size([2, 48])
    """

    image_shape: tuple[int, ...]
    margin: int
    mirror: bool

    def __call__(self, rows: Tensor) -> Tensor:
        """Images as flat rows ``(n, channels · height · width)``, moved."""
        channels, height, width = self.image_shape
        y, x = random_windows(len(rows), (height, width), self.margin, mirror=self.mirror, device=rows.device)
        padded = F.pad(rows.unflatten(-1, self.image_shape), (self.margin,) * 4)
        # Lines first, then columns: `torch.vmap`, by which members run as one, knows how to gather.
        lines = padded.gather(-2, y[:, None, :, None].expand(-1, channels, -1, padded.shape[-1]))
        return lines.gather(-1, x[:, None, None, :].expand(-1, channels, height, -1)).flatten(1)
