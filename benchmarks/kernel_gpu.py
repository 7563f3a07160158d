"""Pairs per second of infinite-width kernels on a GPU: compiled to one kernel, beside eager and compiled torch.

    python benchmarks/kernel_gpu.py [--json results.json] [--images images.npy]

All runs are in float32. Ours gives the full symmetric matrix, of which n(n + 1)/2 pairs are computed and counted;
the plain reading in torch computes a rectangle, all of whose pairs count. Dense matrices are so cheap that writing
them takes the time: there everyone fills n × n entries, and all of these count. With ``--images``, an array of
(n, 3, 32, 32) bytes, the paper's network is computed for all of them, and random entries are checked in float64.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gdkl
import gdkl.infinite as inf
import plain_torch
from gdkl.infinite.fused import compile as compiler
from gdkl.infinite.fused.cuda import Mode, Text
from gdkl.infinite.fused.interpret import run
from gdkl.infinite.fused.kernel import Kernel, kernel_of
from gdkl.infinite.precise import matched_kernel

SEED = 0
#: Means and deviations of CIFAR-10's channels that the paper's images are normalised by.
MEANS, DEVIATIONS = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
#: What must be reached; "at most" for times, "at least" for the others.
WANTED = {
    "resnet4_million_pairs": ("at least", 60.0),
    "resnet4_times_compiled": ("at least", 6.0),
    "batch_256_ms": ("at most", 0.8),
    "gram_50000_s": ("at most", 30.0),
    "gram_50000_error": ("at most", 2e-6),
    "dense_times_gemm_and_write": ("at most", 2.0),
    "compile_s": ("at most", 10.0),
    "second_process_compiles": ("at most", 0),
    "memory_growth_bytes": ("at most", 0),
}

#: Multiply-adds in eight independent chains on every lane: the ceiling of the arithmetic.
CEILING = r"""
extern "C" __global__ void chains(float* out, const int turns) {
    float a[8];
    for (int i = 0; i < 8; ++i) a[i] = threadIdx.x + i;
    #pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {
        #pragma unroll
        for (int step = 0; step < 16; ++step) {
            #pragma unroll
            for (int i = 0; i < 8; ++i) a[i] = fmaf(a[i], 0.999f, 0.001f);
        }
    }
    float total = 0.0f;
    for (int i = 0; i < 8; ++i) total += a[i];
    if (total == -1.0f) out[0] = total;
}
"""


def seconds(function: Callable[[], Any], repeats: int) -> float:
    """Median time on the device, after one run to warm up."""
    times: list[float] = []
    for turn in range(repeats + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        if turn > 0:
            times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)


def conv_net(layers: int = 3) -> inf.Sequential:
    """A plain convolutional network."""
    parts: list[inf.InfiniteNetwork] = []
    for _ in range(layers):
        parts += [inf.Conv2d(3, padding="same", weight_var=2.0, bias_var=0.1), inf.ReLU()]
    return inf.Sequential(*parts, inf.Flatten(), inf.Linear())


class Counter(Text):
    """Counts the operations of a text, those in loops as often as they happen."""

    operations, turns = 0, 1

    def let(self, expression: str) -> str:
        """Count one line."""
        self.operations += self.turns
        return super().let(expression)

    def repeat(self, count: int, values: Sequence[str], body: Callable[[list[str]], list[str]]) -> list[str]:
        """Count a loop."""
        self.turns *= count
        result = super().repeat(count, values, body)
        self.turns //= count
        return result


def operations_per_pair(kernel: Kernel) -> int:
    """Arithmetic operations and exchanges of all lanes for one pair; loads are not counted."""
    machine = Counter(kernel.program, Mode.PAIRS)
    run(kernel.program, machine, "start")
    return machine.operations * max(1, kernel.program.group)


def arithmetic_ceiling() -> float:
    """Multiply-adds a second that the device reaches on this day."""
    module, turns = compiler.load(CEILING, 0), 4000
    function, out = module.get_function("chains"), torch.zeros(1, device="cuda")
    blocks = 16 * torch.cuda.get_device_properties(0).multi_processor_count

    def launch() -> None:
        function((blocks, 1, 1), (256, 1, 1), (np.uint64(out.data_ptr()), np.int32(turns)))

    return blocks * 256 * turns * 128 / seconds(launch, 5)


def copy_bandwidth() -> float:
    """Bytes a second of a copy on the device, read and written."""
    a = torch.empty(2**30, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.nbytes / seconds(lambda: b.copy_(a), 5)


def compare(
    name: str, net: inf.InfiniteNetwork, plain: Callable[..., Any], x: torch.Tensor, side: int, repeats: int
) -> dict[str, Any]:
    """Ours beside the plain reading, eager and compiled, on a rectangle of side × side pairs at a time."""
    n = len(x)
    pairs = n * n if side == n else n * (n + 1) / 2
    ours = pairs / seconds(lambda: net.kernel(x), repeats)
    a, b = x[:side].contiguous(), x[-side:].contiguous()
    with torch.no_grad():
        eager = side * side / seconds(lambda: plain(a, b), repeats)
        faster = torch.compile(plain)
        compiled = side * side / seconds(lambda: faster(a, b), repeats)
        difference = (plain(a.double(), b.double()) - net.kernel(a, b)).abs().max() / net.diagonal(x).mean()
    row = {
        "n": n,
        "pairs_per_s": ours,
        "eager_pairs_per_s": eager,
        "compiled_pairs_per_s": compiled,
        "times_eager": ours / eager,
        "times_compiled": ours / compiled,
        "difference_from_plain_float64": float(difference),
    }
    print(
        f"{name:<28} ours {ours / 1e6:8.1f}  eager {eager / 1e6:8.2f}  torch.compile {compiled / 1e6:8.2f} "
        f"million pairs/s; {ours / compiled:5.1f} x torch.compile",
        flush=True,
    )
    return row


def batch_latency(net: inf.InfiniteNetwork, x: torch.Tensor, calls: int = 200) -> float:
    """Milliseconds of one call for a training batch by the wall clock, checks and launching included."""
    for _ in range(10):
        net.kernel(x)
    times: list[float] = []
    for _ in range(calls):
        torch.cuda.synchronize()
        start = time.perf_counter()
        net.kernel(x)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def memory_growth(net: inf.InfiniteNetwork, x: torch.Tensor, calls: int = 1000) -> int:
    """Bytes on the device that calls leave behind."""
    net.kernel(x)
    torch.cuda.synchronize()
    free, kept = torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated()
    for _ in range(calls):
        net.kernel(x)
    torch.cuda.synchronize()
    return max(free - torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated() - kept)


FIRST_CALL = """
import time, torch, gdkl.infinite as inf
from gdkl.infinite.fused import compile as compiler
compiled, keep = [], compiler.keep_binary
compiler.keep_binary = lambda path, binary: (compiled.append(path), keep(path, binary))
x = torch.randn(8, 3, 32, 32).cuda()
compiler.cupy(), torch.cuda.synchronize()
start = time.perf_counter()
inf.wide_resnet(blocks=4).kernel(x)
torch.cuda.synchronize()
print(len(compiled), time.perf_counter() - start)
"""


def two_processes() -> dict[str, Any]:
    """The first call of two processes that share an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [
            subprocess.run(
                [sys.executable, "-c", FIRST_CALL],
                env={**os.environ, "GDKL_CACHE": folder},
                capture_output=True,
                text=True,
                check=True,
            ).stdout.split()
            for _ in range(2)
        ]
    return {
        "first_process_compiles": int(outputs[0][0]),
        "compile_s": float(outputs[0][1]),
        "second_process_compiles": int(outputs[1][0]),
        "second_process_s": float(outputs[1][1]),
    }


def dense_parts(rows: torch.Tensor, repeats: int) -> dict[str, float]:
    """The dense network beside the matrix product that it begins with and one write of its result."""
    product = torch.empty(len(rows), len(rows), device="cuda")
    gemm = seconds(lambda: torch.mm(rows, rows.T, out=product), repeats)
    write = seconds(lambda: product.fill_(1.0), repeats)
    dense = seconds(lambda: inf.mlp().kernel(rows), repeats)
    return {
        "seconds": dense,
        "gemm_s": gemm,
        "write_s": write,
        "times_gemm_and_write": dense / (gemm + write),
        # Half of the product is read, all of the result written.
        "pass_bytes_per_s": 1.5 * product.nbytes / (dense - gemm),
    }


def whole_gram(path: Path, entries: int = 1000) -> dict[str, Any]:
    """The paper's network for all images of a file, with random entries computed again in float64."""
    content = np.load(path)
    x = torch.from_numpy(content).cuda().float() / 255
    mean, deviation = (torch.tensor(values, device="cuda")[:, None, None] for values in (MEANS, DEVIATIONS))
    x = (x - mean) / deviation
    net, n = inf.wide_resnet(blocks=4), len(x)
    net.kernel(x[:256])
    torch.cuda.synchronize()
    start = time.perf_counter()
    K = net.kernel(x)
    torch.cuda.synchronize()
    took = time.perf_counter() - start
    i, j = torch.randint(n, (2, entries), generator=torch.Generator().manual_seed(SEED)).cuda()
    with torch.no_grad():
        exact = matched_kernel(net.program(), x[i].double(), x[j].double(), "nngp")
        scale = (
            matched_kernel(net.program(), x[i].double(), None, "nngp")
            * matched_kernel(net.program(), x[j].double(), None, "nngp")
        ).sqrt()
    error = float(((K[i, j].double() - exact).abs() / scale).max())
    print(
        f"{n} x {n} in {took:.1f} s ({n * (n + 1) / 2 / took / 1e6:.1f} million pairs/s), error {error:.1e}", flush=True
    )
    return {
        "n": n,
        "seconds": took,
        "pairs_per_s": n * (n + 1) / 2 / took,
        "entries_checked": entries,
        "largest_error": error,
        "images_sha256": hashlib.sha256(content.tobytes()).hexdigest(),
        "symmetric": bool(torch.equal(K[:2000, -2000:], K[-2000:, :2000].T)),
        "finite": bool(torch.isfinite(K.sum(1)).all()),
    }


def main() -> None:
    """Run everything and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only-dense", action="store_true", help="measure the dense network alone")
    parser.add_argument("--images", type=Path, help="bytes of shape (n, 3, 32, 32) as a .npy file")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to measure")
        return
    generator = torch.Generator().manual_seed(SEED)
    images = torch.randn(4096, 3, 32, 32, generator=generator).cuda()
    rows = torch.randn(20000, 385, generator=generator).cuda()
    ceiling, bandwidth = arithmetic_ceiling(), copy_bandwidth()
    results: dict[str, Any] = {
        "seed": SEED,
        "device": torch.cuda.get_device_name(),
        "versions": {
            "gdkl": gdkl.__version__,
            "torch": torch.__version__,
            "cupy": compiler.cupy().__version__,
            "nvrtc": list(compiler.cupy().cuda.nvrtc.getVersion()),
        },
        "fma_per_s": ceiling,
        "copy_bytes_per_s": bandwidth,
    }
    print(f"{results['device']}: {ceiling / 1e12:.1f} trillion multiply-adds/s, copies {bandwidth / 1e12:.2f} TB/s")

    def save() -> None:
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=2) + "\n")

    def resnet(blocks: int) -> Callable[..., torch.Tensor]:
        return lambda a, b: plain_torch.wide_resnet(a, b, blocks)

    if arguments.only_dense:
        results["dense"] = compare("dense", inf.mlp(), plain_torch.dense, rows, len(rows), arguments.repeats)
        results["dense"] |= dense_parts(rows, arguments.repeats)
        save()
        print(json.dumps(results["dense"], indent=2))
        return
    resnet4, batch = inf.wide_resnet(blocks=4), images[:256].contiguous()
    results["batch_256_ms"] = batch_latency(resnet4, batch)
    results["memory_growth_bytes"] = memory_growth(resnet4, batch)
    results |= two_processes()
    if arguments.images is not None:
        results["gram"] = whole_gram(arguments.images)
    save()
    cases = {
        "resnet4": ("wide ResNet, 4 blocks", inf.wide_resnet(blocks=4), resnet(4), images, 128),
        "resnet1": ("wide ResNet, 1 block", inf.wide_resnet(blocks=1), resnet(1), images, 128),
        "conv3": ("3 convolutions, ReLU", conv_net(), plain_torch.conv_net, images, 128),
        "dense": ("3 hidden ReLU layers, d = 385", inf.mlp(), plain_torch.dense, rows, 20000),
    }
    for key, (name, net, plain, x, side) in cases.items():
        results[key] = compare(name, net, plain, x, side, arguments.repeats)
        if key != "dense":
            kernel = kernel_of(net.program(), x)
            operations = operations_per_pair(kernel)
            share = operations * results[key]["pairs_per_s"] / ceiling
            results[key] |= {"operations_per_pair": operations, "share_of_arithmetic_ceiling": share}
            print(f"    {operations:,} operations a pair: {share:.0%} of the ceiling")
        save()
    results["dense"] |= dense_parts(rows, arguments.repeats)
    save()
    figures = {
        "resnet4_million_pairs": results["resnet4"]["pairs_per_s"] / 1e6,
        "resnet4_times_compiled": results["resnet4"]["times_compiled"],
        "batch_256_ms": results["batch_256_ms"],
        "dense_times_gemm_and_write": results["dense"]["times_gemm_and_write"],
        "compile_s": results["compile_s"],
        "second_process_compiles": results["second_process_compiles"],
        "memory_growth_bytes": results["memory_growth_bytes"],
    }
    if "gram" in results and results["gram"]["n"] == 50000:
        figures |= {"gram_50000_s": results["gram"]["seconds"], "gram_50000_error": results["gram"]["largest_error"]}
    for key, value in figures.items():
        word, bound = WANTED[key]
        met = value >= bound if word == "at least" else value <= bound
        print(f"{key:<28} {value:12.4g}   wanted {word} {bound:g}   {'met' if met else 'MISSED'}")
    results["figures"] = figures
    save()


if __name__ == "__main__":
    main()
