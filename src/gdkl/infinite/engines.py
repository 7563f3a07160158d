"""The choice of an engine for a network, its inputs and a device."""

from __future__ import annotations

import logging
from contextlib import suppress

from torch import Tensor

from gdkl.infinite.covariance import CovarianceEngine
from gdkl.infinite.fused.engine import CompiledEngine
from gdkl.infinite.gram import Engine
from gdkl.infinite.precise import Kind, PreciseEngine
from gdkl.infinite.program import Program, UnsupportedError

logger = logging.getLogger(__name__)


def engine_for(program: Program, x1: Tensor, x2: Tensor, kind: Kind) -> Engine:
    """The fastest engine that takes a network and inputs; ``x2`` is ``x1`` where the first set meets itself."""
    if kind == "nngp":
        if x1.device.type == "cuda":
            try:
                return CompiledEngine.compiled(program, x1, x2)
            except UnsupportedError as reason:
                logger.debug("no compiled kernel: %s; torch computes it", reason)
        with suppress(UnsupportedError):
            return CovarianceEngine(program, x1, x2)
    return PreciseEngine(program, x1, x2, kind)
