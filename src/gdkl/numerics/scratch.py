"""Memory that is used again: fresh arrays of megabytes cost page faults, for some searches a third of their time."""

from __future__ import annotations

import torch
from torch import Tensor


class Scratch:
    """Arrays by name, for one thread: each call with the same name and shape returns the same one, as it was left.

    Example:
        >>> scratch = Scratch()
        >>> like = torch.zeros(1)
        >>> scratch("K", like, 2, 2) is scratch("K", like, 2, 2)
        True
    """

    def __init__(self) -> None:
        self._arrays: dict[str, Tensor] = {}

    def __call__(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """An array of this shape, of the type and on the device of another; its values are arbitrary."""
        found = self._arrays.get(name)
        if found is None or found.shape != shape:
            # Columns first, as factorisations want them.
            found = self._arrays[name] = torch.empty(shape[::-1], dtype=like.dtype, device=like.device).mT
        return found
