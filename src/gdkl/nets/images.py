"""Image networks inside algebra that knows rows alone: flat rows in, features in the algebra's precision out."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from gdkl.nets.augmentation import RandomCrops


class ImageFeatures(nn.Module):
    """A network over images as one over flat rows.

    Args:
        network: Takes images ``(n, channels, height, width)`` and returns features ``(n, p)``.
        image_shape: Channels, height and width; one number for a network that takes the rows flat.
        dtype: Precision of the features that come out; the network computes in that of its weights.
        autocast: Whether a float32 network runs in bfloat16, its weights and sums staying in float32: on a GPU, and in
            training also on a CPU that multiplies bfloat16 (AVX-512 BF16, AMX), where a step takes half of the time.
        augmentation: Random crops in training; None for none.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())
        >>> ImageFeatures(net, (3, 8, 8), torch.float64)(torch.zeros(2, 192)).dtype
        torch.float64
    """

    def __init__(
        self,
        network: nn.Module,
        image_shape: tuple[int, ...],
        dtype: torch.dtype,
        autocast: bool = True,
        augmentation: RandomCrops | None = None,
    ):
        super().__init__()
        self.network = network
        self.image_shape = image_shape
        self.dtype = dtype
        self.autocast = autocast
        self.augmentation = augmentation

    def forward(self, rows: Tensor) -> Tensor:
        """Features ``(n, p)`` of flat rows ``(n, channels · height · width)``."""
        if self.training and self.augmentation is not None:
            rows = self.augmentation(rows)
        images = rows.unflatten(-1, self.image_shape)
        low = self.autocast and rows.dtype == torch.float32 and (rows.is_cuda or (self.training and _fast_on_cpu()))
        if (rows.is_cuda or low) and len(self.image_shape) == 3:
            images = _channels_last(images)
        with torch.autocast(rows.device.type, dtype=torch.bfloat16, enabled=low):
            features = self.network(images)
        if not isinstance(features, Tensor):
            raise TypeError(f"a network must return a tensor; got {type(features).__name__}")
        return features.to(self.dtype) if features.is_floating_point() else features


@cache
def _fast_on_cpu() -> bool:
    """Whether this CPU multiplies bfloat16; where it does not, torch would emulate it."""
    # Names that torch does not promise to keep.
    tests = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(test() for test in tests if callable(test))


def _channels_last(images: Tensor) -> Tensor:
    """The layout in which convolutions are fastest; members that run as one batch have none to choose."""
    try:
        return images.contiguous(memory_format=torch.channels_last)
    except RuntimeError:  # torch.vmap knows one layout only
        return images


def images_at_a_time(device: torch.device) -> int:
    """Images that a network had best see at a time where nothing is learned: on a CPU those that its caches hold."""
    return 32 if device.type == "cpu" else 1000
