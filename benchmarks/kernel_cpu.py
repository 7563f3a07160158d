"""Pairs per second of infinite-width kernels on a CPU, ours beside a plain reading and other libraries.

    python benchmarks/kernel_cpu.py [--repeats 7] [--json results.json]

Every contender is timed in turn, several times over, and its best time counts, so that a busy moment of
the machine hits no one alone. A 2000 × 2000 float32 product is timed in the same run as a yardstick:
neural-tangents 0.6.5 was measured once at the rates below on a machine where that product takes 0.13 s,
and is scaled by it. All runs are in float32 and give the full symmetric matrix.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import gdkl.infinite as inf
import plain_torch

#: neural-tangents' pairs per second, where the yardstick takes `NT_YARDSTICK` seconds.
NT_RATES = {"dense n=5000 d=385": 8.5e6, "wide resnet n=32": 3050.0}
NT_YARDSTICK = 0.13
#: What ours must reach: times the plain reading, times neural-tangents by the yardstick.
WANTED = {"dense n=1000 d=13": (2.0, 0.0), "dense n=5000 d=385": (2.0, 2.0), "wide resnet n=32": (4.0, 6.0)}


def median_times(contenders: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median time of each contender, taken in turns after one run to warm up."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(repeats + 1):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            if turn > 0:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def botorch_dense(x: torch.Tensor) -> Callable[[], Any] | None:
    """BoTorch's kernel for the same dense network, if BoTorch is there."""
    if importlib.util.find_spec("botorch") is None:
        return None
    from botorch.models.kernels.infinite_width_bnn import InfiniteWidthBNNKernel  # noqa: PLC0415

    kernel = InfiniteWidthBNNKernel(depth=3)
    kernel.weight_var, kernel.bias_var = 1.6, 0.2

    def run() -> torch.Tensor:
        with torch.no_grad():
            return kernel(x).to_dense()

    return run


def neural_tangents_dense(x: torch.Tensor) -> Callable[[], Any] | None:
    """neural-tangents' kernel for the same dense network, if it can be imported."""
    try:
        from neural_tangents import stax  # noqa: PLC0415
    except Exception:  # whatever a version of JAX that it does not know makes of the import
        return None
    layer = stax.Dense(1, W_std=1.6**0.5, b_std=0.2**0.5)
    _, _, kernel_fn = stax.serial(layer, stax.Relu(), layer, stax.Relu(), layer, stax.Relu(), layer)
    array = x.numpy()
    return lambda: kernel_fn(array, None, "nngp").block_until_ready()


def contenders_of(name: str) -> tuple[int, dict[str, Callable[[], Any]]]:
    """Number of pairs and who computes them."""
    generator = torch.Generator().manual_seed(0)
    if name.startswith("wide"):
        x = torch.randn(32, 3, 32, 32, generator=generator)
        net = inf.wide_resnet()
        return 32 * 32, {"ours": lambda: net.kernel(x), "plain torch": lambda: plain_torch.wide_resnet(x, x)}
    n, d = (1000, 13) if "1000" in name else (5000, 385)
    x, net = torch.randn(n, d, generator=generator), inf.mlp()
    runs: dict[str, Callable[[], Any]] = {
        "ours": lambda: net.kernel(x),
        "plain torch": lambda: plain_torch.dense(x, x),
    }
    for other, run in (("botorch", botorch_dense(x)), ("neural-tangents", neural_tangents_dense(x))):
        if run is not None:
            runs[other] = run
    return n * n, runs


def peak_memory_of_512() -> float:
    """Peak memory in GiB of the process that computes the wide residual network for 512 images."""
    x = torch.randn(512, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    start = time.perf_counter()
    inf.wide_resnet().kernel(x)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 2**30
    print(f"wide resnet n=512: {512 * 512 / seconds:,.0f} pairs/s, peak memory of the process {peak:.2f} GiB")
    return peak


def main() -> None:
    """Run everything and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--memory", action="store_true", help="measure 512 images alone, for their peak memory")
    arguments = parser.parse_args()
    if arguments.memory:
        sys.exit(0 if peak_memory_of_512() < 2 else 1)

    a = torch.randn(2000, 2000)
    results: dict[str, Any] = {"threads": torch.get_num_threads(), "torch": torch.__version__}
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for name, (wanted_plain, wanted_nt) in WANTED.items():
        pairs, runs = contenders_of(name)
        times = median_times({**runs, "yardstick": lambda: a @ a}, arguments.repeats)
        yardstick = times.pop("yardstick")
        rates = {who: pairs / seconds for who, seconds in times.items()}
        print(f"\n{name}  (2000 x 2000 product: {yardstick:.3f} s)")
        for who, rate in rates.items():
            print(f"  {who:<16} {rate:>14,.0f} pairs/s   {rates['ours'] / rate:6.2f} x")
        plain = rates["ours"] / rates["plain torch"]
        print(f"  times the plain reading: {plain:.2f} (wanted {wanted_plain:g})")
        results[name] = {"rates": rates, "yardstick": yardstick, "times_plain": plain}
        if name in NT_RATES:
            stored = rates["ours"] / (NT_RATES[name] * NT_YARDSTICK / yardstick)
            print(f"  times neural-tangents by the yardstick: {stored:.2f} (wanted {wanted_nt:g})")
            results[name]["times_neural_tangents"] = stored
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
