"""Guided deep kernel learning: deep-kernel Gaussian processes whose uncertainty you can trust."""

from gdkl._version import __version__
from gdkl.numerics import GdklError

__all__ = ["GdklError", "__version__"]
