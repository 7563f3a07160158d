"""A kernel without a GPU: programs run by the emulator, behind the interface that the engine knows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gdkl.infinite.fused.emulate import emulate
from gdkl.infinite.fused.program import Program


@dataclass
class EmulatedNotes:
    x: torch.Tensor
    exact: torch.Tensor


class EmulatedKernel:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.pairs_computed = 0

    bytes_per_input = 1000

    def notes(self, x: torch.Tensor) -> EmulatedNotes:
        return EmulatedNotes(x, torch.from_numpy(emulate(self.program, x.numpy())[1]))

    def pairs(self, first, second, result, mirror, *, triangle) -> None:
        K = emulate(self.program, first.x.numpy(), second.x.numpy())[0]
        keep = np.triu(np.ones_like(K, dtype=bool), 1) if triangle else np.ones_like(K, dtype=bool)
        self.pairs_computed += int(keep.sum())
        keep = torch.from_numpy(keep)
        values = torch.from_numpy(K).to(result.dtype)
        result[keep] = values[keep]
        if mirror is not None:
            mirror.T[keep] = values[keep]
