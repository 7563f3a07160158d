"""The kind of input, chosen once per fit: how tables and images reach network and guide, and how they are augmented."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gdkl.estimators.factories import FeatureNet, image_network_builder, network_builder
from gdkl.estimators.presets import Preset
from gdkl.gp import KernelFunction
from gdkl.guide import Guide, GuideKernel, as_kernel_function, image_guides, image_kernel_function, table_guides
from gdkl.infinite import InfiniteNetwork
from gdkl.inputs import ImageInput, TableInput, is_image_batch
from gdkl.nets import RandomCrops, WideResNet, images_at_a_time
from gdkl.numerics import DataError, OptionError, resolve_dtype
from gdkl.predictive import Views, image_views
from gdkl.training import ImageBatches, TensorBatches, World

AUTO, CROP = "auto", "crop"

#: How far a crop may be off centre, as part of the image's shorter side: four pixels of 32 of many images, as
#: published, and two of few, by which that was measured.
_MARGIN, _MARGIN_OF_FEW = 1 / 8, 1 / 16

#: Images that a guide evaluates at a time.
GUIDE_IMAGES = 512

#: A guide of images predicts well if it is this part of the way from chance to certainty on held-out labels: one minus
#: their negative log-likelihood over that of chance. Photographs are below, pictures of clothes and digits above.
_PREDICTS_WELL = 0.25


@dataclass(frozen=True)
class Augmentation:
    """What training sees besides the rows as they are.

    Attributes:
        crop: Whether images are cropped at random at every step.
        mirror: Whether half of the cropped images are mirrored.
        recombine: The user's column that each column comes from, if the guide is followed at rows recombined from two
            training rows, column by column.
    """

    crop: bool = False
    mirror: bool = False
    recombine: tuple[int, ...] = ()


@dataclass(frozen=True)
class TableKind:
    """Rows of a table."""

    input: TableInput
    #: Training sees rows as they are: the guide's marginals can be precomputed, and long tables may stay on disk.
    fixed_rows: ClassVar[bool] = True

    def precision(self, dtype: str, *, exact: bool) -> torch.dtype:
        """Precision of the network: over mini-batches it loses nothing in float32, and is twice as fast."""
        return torch.float32 if dtype == AUTO and not exact else resolve_dtype(dtype)

    def augmentation(self, option: bool | str, *, exact: bool, recombines: bool) -> Augmentation:
        """What the option ``augment`` means here.

        Args:
            option: The user's.
            exact: Whether inference is exact.
            recombines: Whether the method can follow its guide at rows without labels.
        """
        words = isinstance(option, str)
        if option == CROP or (not recombines and not words and bool(option)):
            raise OptionError(f"augment={option!r} is for images: a table has nothing to crop or to mirror.")
        return Augmentation(recombine=tuple(self.input.groups.tolist()) if recombines and exact and option else ())

    def network(
        self,
        feature_net: FeatureNet,
        preset: Preset,
        algebra: torch.dtype,
        augmentation: Augmentation,
        *,
        exact: bool,
        cuda: bool,
    ) -> Callable[[int], nn.Module]:
        """Builds a member's network from the number of columns: a perceptron by default."""
        return network_builder(preset.widths if feature_net is None else feature_net, residual=bool(preset.residual))

    def kernel(self, guide: GuideKernel) -> KernelFunction:
        """The guide's kernel over rows."""
        return as_kernel_function(guide)

    def guides(self, device: torch.device) -> dict[str, InfiniteNetwork]:
        """Candidates of ``guide="auto"``: dense networks."""
        return table_guides()

    def trusts(self, guide: Guide, n_classes: int) -> bool:
        """Whether a guide predicts held-out labels well enough to be trusted as much as its student: always here."""
        return True

    def network_error(self, message: str) -> str:
        """What to say of a network that does not take the rows."""
        hint = "If these are flat images, pass them in 4 dimensions, as (n, channels, height, width)."
        return f"{message.rstrip('.')}. {hint}"

    def batches(
        self, rows: Tensor, targets: Tensor, augmentation: Augmentation, size: int, seed: int, world: World
    ) -> TensorBatches | ImageBatches:
        """Mini-batches of scaled rows ``(n, d)`` in memory, as they are."""
        return TensorBatches(rows, targets, size, seed, world)

    def check_views(self, views: str) -> None:
        """Refuse views of a table."""
        check_views(views)
        if views != Views.PLAIN:
            raise OptionError(f"views={views!r} is for images: leave it at 'plain' for tables.")

    def views(self, estimator: Any, X: Any, views: str) -> Iterator[NDArray[Any]]:
        """Scaled rows of X, one array for each view that predictions are averaged over; a table has one."""
        self.check_views(views)
        if is_image_batch(X):
            raise DataError(
                f"X is 4-D, and this {type(estimator).__name__} was fitted to a table of {estimator.n_features_in_} "
                "columns: pass rows in 2-D."
            )
        yield self.input.read(estimator, X)

    def rows_at_a_time(self, device: torch.device) -> tuple[int | None, int | None]:
        """Rows that the network and the guide predict at a time; None for what memory allows."""
        return None, None


@dataclass(frozen=True)
class ImageKind:
    """Images, flat rows to everything but networks and convolutional guides."""

    input: ImageInput
    fixed_rows: ClassVar[bool] = False

    def precision(self, dtype: str, *, exact: bool) -> torch.dtype:
        """Networks over images are float32, which costs their features nothing."""
        return torch.float32 if dtype == AUTO else resolve_dtype(dtype)

    def augmentation(self, option: bool | str, *, exact: bool, recombines: bool) -> Augmentation:
        """Random crops, by default of few images that every step sees all of; mirror images where asked for."""
        if isinstance(option, str):
            return Augmentation(crop=option == CROP or exact)
        return Augmentation(crop=bool(option), mirror=bool(option))

    def network(
        self,
        feature_net: FeatureNet,
        preset: Preset,
        algebra: torch.dtype,
        augmentation: Augmentation,
        *,
        exact: bool,
        cuda: bool,
    ) -> Callable[[int], nn.Module]:
        """A wide ResNet by default; with exact inference the network's own input is augmented, the guide's is not."""
        shape = self.input.image_shape

        def resnet(channels: int) -> nn.Module:
            net = WideResNet(preset.depth, preset.widen_factor, preset.dropout, in_channels=channels)
            # The layout that convolutions in bfloat16 are fastest in, on a GPU.
            return net.to(memory_format=torch.channels_last) if cuda else net  # pyright: ignore[reportCallIssue]

        crops = None
        if exact and augmentation.crop:
            crops = RandomCrops(shape, self._margin(_MARGIN_OF_FEW), flip=augmentation.mirror)
        return image_network_builder(
            feature_net, shape, algebra, resnet=resnet, residual=bool(preset.residual), augmentation=crops
        )

    def kernel(self, guide: GuideKernel) -> KernelFunction:
        """The guide's kernel over flat rows, which convolutions see as images."""
        return image_kernel_function(guide, self.input.image_shape)

    def guides(self, device: torch.device) -> dict[str, InfiniteNetwork]:
        """Dense, convolutional and residual networks."""
        return image_guides(self.input.image_shape, device)

    def trusts(self, guide: Guide, n_classes: int) -> bool:
        """Whether it is far enough from chance."""
        return float(guide.score.mean()) > (_PREDICTS_WELL - 1) * math.log(n_classes)

    def network_error(self, message: str) -> str:
        """The same of images."""
        shape = self.input.image_shape
        return message.replace(f"rows of {math.prod(shape)} columns", f"images of {' x '.join(map(str, shape))}")

    def batches(
        self, rows: Tensor, targets: Tensor, augmentation: Augmentation, size: int, seed: int, world: World
    ) -> TensorBatches | ImageBatches:
        """Mini-batches of images, augmented where they lie."""
        if not augmentation.crop:
            return TensorBatches(rows, targets, size, seed, world)
        return ImageBatches(
            rows.unflatten(1, self.input.image_shape),
            targets,
            size,
            seed,
            device=rows.device,
            margin=self._margin(_MARGIN),
            flip=augmentation.mirror,
            world=world,
        )

    def check_views(self, views: str) -> None:
        """Refuse views that are not known."""
        check_views(views)

    def views(self, estimator: Any, X: Any, views: str) -> Iterator[NDArray[Any]]:
        """The images as each view shows them."""
        self.check_views(views)
        images = self.input.check(X, type(estimator).__name__)
        for view in image_views(images, Views(views)):
            yield self.input.rows(view)

    def rows_at_a_time(self, device: torch.device) -> tuple[int | None, int | None]:
        """As many as its caches hold on a CPU; a batch on a GPU."""
        return images_at_a_time(device), GUIDE_IMAGES

    def _margin(self, part: float) -> int:
        """Pixels that are this part of the shorter side, one at least."""
        return max(1, round(part * min(self.input.image_shape[1:])))


#: The kind of input, one of the three values that a fit chooses once.
Kind: TypeAlias = TableKind | ImageKind


def check_views(views: Any) -> None:
    """Refuse views that are not known."""
    if views not in tuple(Views):
        raise OptionError(f"views={views!r} is not known: use one of {', '.join(Views)}.")


def check_augment(augment: Any) -> None:
    """Refuse what is neither a truth value, NumPy's among them, nor one of the words."""
    if isinstance(augment, (bool, np.bool_)) or (isinstance(augment, str) and augment in (CROP, AUTO)):
        return
    raise OptionError(f"augment={augment!r} is not known: use True, False, {CROP!r} or {AUTO!r}.")
