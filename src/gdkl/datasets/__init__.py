"""Named datasets, each under a checksum, and the splits of the published experiments.

`load` finds a dataset by name in a local folder, in the cache, or at its public source.
"""

from gdkl.datasets.content import ImageSet, Table, content_digest, image_digest
from gdkl.datasets.download import MissingDatasetError
from gdkl.datasets.embedded import toy, toy_function
from gdkl.datasets.files import DATA_VARIABLE
from gdkl.datasets.loading import fetch, load, load_images, locate
from gdkl.datasets.registry import DatasetInfo, ImageInfo, Origin, describe, describe_images, image_names, names
from gdkl.datasets.splits import published_split
from gdkl.numerics import cache_dir

__all__ = [
    "DATA_VARIABLE",
    "DatasetInfo",
    "ImageInfo",
    "ImageSet",
    "MissingDatasetError",
    "Origin",
    "Table",
    "cache_dir",
    "content_digest",
    "describe",
    "describe_images",
    "fetch",
    "image_digest",
    "image_names",
    "load",
    "load_images",
    "locate",
    "names",
    "published_split",
    "toy",
    "toy_function",
]
