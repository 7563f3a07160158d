"""Images in the device's memory: crops and flips are one gather per batch, without worker processes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from gdkl.nets import crop_indices
from gdkl.numerics import DataError
from gdkl.training.batches import ALONE, Batch, Epochs, NumberedBatches, World, step_generator


class ImageBatches(NumberedBatches):
    """Labelled images that are normalised, cropped and flipped on the device.

    Args:
        images: ``(n, channels, height, width)``: uint8, or floats that are normalised already; copied to the device
            once, with a margin of zeros: black, or what is normalised the mean colour.
        labels: Class numbers, ``(n,)``.
        batch_size: Images per step.
        seed: Of the order, the crops and the flips.
        means: Of each channel, of pixels from 0 to 1; None for floats.
        deviations: Of each channel; None for floats.
        device: Where to train.
        margin: Pixels by which a crop may be off centre; 0 for none.
        flip: Whether half of the images are mirrored.
        world: Which of several processes this one is.

    Example:
        >>> images = torch.randint(0, 256, (8, 3, 6, 6), dtype=torch.uint8)
        >>> source = ImageBatches(images, torch.arange(8), 4, seed=0, means=(0.5,) * 3, deviations=(0.2,) * 3)
        >>> source.batch(0).rows.shape
        torch.Size([4, 108])
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        batch_size: int,
        seed: int,
        *,
        means: Sequence[float] | None = None,
        deviations: Sequence[float] | None = None,
        device: torch.device | str = "cpu",
        margin: int = 4,
        flip: bool = True,
        world: World = ALONE,
    ):
        given = means is not None and deviations is not None
        if images.dim() != 4 or labels.shape != images.shape[:1] or given != (images.dtype == torch.uint8):
            raise DataError(
                "images must be (n, channels, height, width) with a label each: uint8 with means and deviations, or "
                f"normalised floats without; got {images.dtype} {tuple(images.shape)} and labels {tuple(labels.shape)}."
            )
        super().__init__(Epochs(len(images), batch_size, seed, world))
        self.margin, self.flip, self.seed, self.world = margin, flip, seed, world
        self.shape = tuple(int(size) for size in images.shape[1:])
        self._padded = F.pad(images.to(device), (margin,) * 4)
        self._labels = labels.to(device)
        self._scaling: tuple[Tensor, Tensor] | None = None
        if means is not None and deviations is not None:
            # From a byte to a normalised pixel by one multiplication and one addition.
            mean, deviation = (torch.tensor(values, device=device)[:, None, None] for values in (means, deviations))
            self._scaling = (1 / (255 * deviation), -mean / deviation)
        # All of an epoch's positions are copied to the device at once: a copy per step would make the device wait.
        self._order: tuple[int, Tensor] | None = None

    @property
    def device(self) -> torch.device:
        """Where the images are."""
        return self._labels.device

    def batch(self, step: int) -> Batch:
        """The batch of a step, its images cropped and flipped at random, as flat rows."""
        epoch, place = divmod(step, self._epochs.steps)
        if self._order is None or self._order[0] != epoch:
            first = epoch * self._epochs.steps
            order = torch.stack([self._epochs.index(first + k) for k in range(self._epochs.steps)])
            self._order = (epoch, order.to(self.device, non_blocking=True))
        index = self._order[1][place]
        generator = step_generator(self.seed + 1, step, self.device, self.world.rank)
        return Batch(self._augmented(index, generator), self._labels.index_select(0, index), index)

    def take(self, index: Tensor) -> Batch:
        """Images at given positions, without crop or flip."""
        index = index.to(self.device)
        return Batch(self.plain(index), self._labels.index_select(0, index), index)

    def plain(self, index: Tensor) -> Tensor:
        """Normalised images without crop or flip, as flat rows."""
        height, width = self.shape[1:]
        m = self.margin
        return self._normalised(self._padded[index, :, m : m + height, m : m + width])

    def _augmented(self, index: Tensor, generator: torch.Generator) -> Tensor:
        height, width = self.shape[1:]
        n = index.shape[0]
        y, x = crop_indices(n, (height, width), self.margin, flip=self.flip, device=self.device, generator=generator)
        channel = torch.arange(self.shape[0], device=self.device)[None, :, None, None]
        picked = self._padded[index[:, None, None, None], channel, y[:, None, :, None], x[:, None, None, :]]
        return self._normalised(picked)

    def _normalised(self, images: Tensor) -> Tensor:
        if self._scaling is None:
            return images.flatten(1)
        factor, shift = self._scaling
        return torch.addcmul(shift, images.float(), factor).flatten(1)
