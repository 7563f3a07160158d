"""Options of an estimator and of its preset in one dictionary, as tests like to write them."""

from __future__ import annotations

from gdkl import Preset

#: Options that estimators have themselves.
_OWN = {"n_iter", "beta", "guide_share", "n_inducing"}


def with_preset(**options):
    """Options in which every field of a preset has moved into ``preset``."""
    fields = set(Preset().get_params()) - _OWN
    inner = {name: options.pop(name) for name in list(options) if name in fields}
    if inner:
        options["preset"] = Preset(**inner)
    return options


def make(kind, **options):
    """An estimator of a kind with options and fields of its preset."""
    return kind(**with_preset(**options))
