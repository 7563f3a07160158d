"""All experiments by name: the paper's figures and tables in its order, then our own."""

from __future__ import annotations

from collections.abc import Mapping

from gdkl.experiments.bayesopt import BAYESOPT
from gdkl.experiments.benchmark import TABLE_CLASSES, TABLES, UNSEEN, UNSEEN_CLASSES
from gdkl.experiments.highdim import HIGHDIM
from gdkl.experiments.illustration import TOY
from gdkl.experiments.paper_tables import NN, OBJECTIVES, RELIABILITY, SHALLOW_GUIDE, TIMING
from gdkl.experiments.spec import Spec
from gdkl.experiments.specs import CLASSES, FEWSHOT, FULL, LARGE, UCI
from gdkl.numerics import OptionError

_PAPERS = (TOY, UCI, OBJECTIVES, HIGHDIM, FEWSHOT, NN, RELIABILITY, SHALLOW_GUIDE, TIMING, FULL)
_OWN = (CLASSES, LARGE, TABLES, TABLE_CLASSES, UNSEEN, UNSEEN_CLASSES, BAYESOPT)

SPECS: Mapping[str, Spec] = {spec.name: spec for spec in (*_PAPERS, *_OWN)}


def spec_named(name: str) -> Spec:
    """An experiment by its name.

    Example:
        >>> spec_named("uci").datasets
        ('boston', 'energy', 'concrete')
    """
    if name not in SPECS:
        raise OptionError(f"experiment {name!r} is not known: use {', '.join(SPECS)}.")
    return SPECS[name]
