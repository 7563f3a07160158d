"""Networks compiled to one GPU kernel: see `docs/gpu.md`.

A network's program becomes a program for lanes (`lower`), which `source` turns into CUDA text; `compile` has it
compiled, `kernel` launches it, `engine` fills Gram matrices with it.
"""
