"""How the pixels of an image are spread over the lanes that work on one pair of images.

The lanes form a grid, and each holds a patch of neighbouring pixels in registers: sums over a window then need
their neighbours' pixels only along the patch's edge. A stride that divides the patch leaves every lane with the
smaller patch of the smaller image, so that no lane falls idle as images shrink.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

#: Lanes that may share a pair: parts of a warp, a warp, or several warps of one block; more would leave each of them
#: too few registers.
GROUPS = (4, 8, 16, 32, 64, 128, 256, 512)
#: Lanes of a warp.
WARP = 32
#: Shared memory that a block can have without asking for more.
SHARED_BYTES = 48 * 1024


@dataclass(frozen=True)
class Layout:
    """A map of ``height`` × ``width`` pixels on a grid of ``rows`` × ``columns`` lanes.

    Lane (i, j) holds pixels i·patch_height … and j·patch_width …; those outside the image hold anything finite.
    A height of zero stands for a single number that every lane holds.
    """

    height: int
    width: int
    rows: int
    columns: int
    patch_height: int
    patch_width: int

    @property
    def pixels(self) -> int:
        """Pixels of a lane."""
        return self.patch_height * self.patch_width

    @property
    def single(self) -> bool:
        """Whether it is one number and not a map."""
        return self.height == 0

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width

    def lengths(self, axis: int) -> tuple[int, int, int]:
        """Pixels, lanes and pixels of a lane along an axis."""
        if axis == 0:
            return self.height, self.rows, self.patch_height
        return self.width, self.columns, self.patch_width

    def inside(self, axis: int, offset: int) -> tuple[bool, ...]:
        """Whether the pixel at an offset from a lane's first one lies in the image, for all lanes along an axis."""
        length, lanes, patch = self.lengths(axis)
        return tuple(0 <= lane * patch + offset < length for lane in range(lanes))

    def exact(self, axis: int) -> bool:
        """Whether the lanes' patches cover the image and nothing else."""
        length, lanes, patch = self.lengths(axis)
        return lanes * patch == length


#: One number that every lane of a group holds.
SINGLE = Layout(0, 0, 1, 1, 1, 1)


def grids(group: int) -> Iterator[tuple[int, int]]:
    """All grids of rows × columns that a group of lanes can form, a few lanes left over included."""
    for rows in range(1, min(group, 64) + 1):
        yield rows, group // rows
