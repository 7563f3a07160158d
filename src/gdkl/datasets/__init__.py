"""Named datasets, each under a checksum, and the splits of the published experiments.

`load` finds a dataset by name in a local folder, in the cache, or at its public source.
"""

from gdkl.datasets.digest import content_digest
from gdkl.datasets.embedded import toy, toy_function
from gdkl.datasets.loading import fetch, load, locate
from gdkl.datasets.registry import DatasetInfo, Origin, describe, names
from gdkl.datasets.splits import published_split
from gdkl.datasets.store import cache_dir
from gdkl.datasets.table import Table

__all__ = [
    "DatasetInfo",
    "Origin",
    "Table",
    "cache_dir",
    "content_digest",
    "describe",
    "fetch",
    "load",
    "locate",
    "names",
    "published_split",
    "toy",
    "toy_function",
]
