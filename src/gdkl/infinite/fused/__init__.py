"""Networks compiled to one GPU kernel: see `docs/gpu.md`.

A network becomes a `program.Program` (`lower`), which `emulate` runs with NumPy and `source` turns into CUDA text;
`compile` has it compiled, `kernel` launches it, `engine` fills Gram matrices with it.
"""

from gdkl.infinite.fused.engine import FusedEngine, fused_engine

__all__ = ["FusedEngine", "fused_engine"]
