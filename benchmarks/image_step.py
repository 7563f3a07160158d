"""A training step on a few labelled images: GDKL and DKL with the paper's wide ResNet, in one run.

    python benchmarks/image_step.py [--images 800] [--device cuda] [--json results.json]

GDKL with one half of the images held out, as published, and with symmetric splits, as the library does.
Random images of CIFAR-10's size; what a step costs does not depend on them. A fit of more steps less one of fewer, so
that building and warming up do not count; the guide answers for 64 splits at a time: steps are multiples of 64.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

import gdkl
from gdkl import infinite
from gdkl.gp import ClassLikelihood
from gdkl.guide import fit_class_guide, image_kernel_function
from gdkl.methods import fit_dkl_classes, fit_gdkl_classes
from gdkl.nets import ImageFeatures, WideResNet
from gdkl.training import ClassData, Schedule, StudentOptions

IMAGE = (3, 32, 32)
CLASSES = 10
METHODS = ("gdkl", "gdkl_symmetric", "dkl")


def main() -> None:
    """Time the methods in turns and print their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=800)
    parser.add_argument("--fewer", type=int, default=64, help="steps of the shorter fit")
    parser.add_argument("--more", type=int, default=192, help="steps of the longer fit")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--depth", type=int, default=28)
    parser.add_argument("--widen-factor", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(1, arguments.images, 3 * 32 * 32, generator=generator).to(device)
    labels = (torch.arange(arguments.images) % CLASSES)[None].to(device)
    data = ClassData.make(rows, labels, CLASSES, ClassLikelihood.DIRICHLET, torch.float64)
    kernel = image_kernel_function(infinite.mlp(3, weight_var=1.6, bias_var=0.2), IMAGE)
    guide = fit_class_guide(kernel, data.rows, data.labels, CLASSES, scale=64.0, dtype=torch.float64)

    def network(columns: int) -> ImageFeatures:
        net = WideResNet(arguments.depth, arguments.widen_factor, 0.3)
        if device.type == "cuda":
            net = net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        return ImageFeatures(net, IMAGE, torch.float64)

    def seconds(method: str, steps: int) -> float:
        options = StudentOptions(Schedule(steps, 1e-2), feature_net=network, momentum=0.9)
        started = time.perf_counter()
        if method == "dkl":
            fit_dkl_classes(data, options)
        else:
            fit_gdkl_classes(data, guide, options, start_at_guide=False, symmetric=method == "gdkl_symmetric")
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    best: dict[tuple[str, int], float] = {}
    for _ in range(arguments.rounds):
        for method in METHODS:
            for steps in (arguments.fewer, arguments.more):
                took = seconds(method, steps)
                best[method, steps] = min(best.get((method, steps), took), took)
    span = arguments.more - arguments.fewer
    step = {method: (best[method, arguments.more] - best[method, arguments.fewer]) / span for method in METHODS}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    ratio, both = step["gdkl"] / step["dkl"], step["gdkl_symmetric"] / step["dkl"]
    print(
        f"{name}, {arguments.images} images: GDKL {1e3 * step['gdkl']:.1f} ms a step, DKL {1e3 * step['dkl']:.1f}: "
        f"{ratio:.2f} (the paper: 1.17); symmetric splits {1e3 * step['gdkl_symmetric']:.1f}: {both:.2f}"
    )
    if arguments.json:
        content = {
            "device": name,
            "versions": {"gdkl": gdkl.__version__, "torch": torch.__version__},
            "images": arguments.images,
            "depth": arguments.depth,
            "widen_factor": arguments.widen_factor,
            "gdkl_ms": 1e3 * step["gdkl"],
            "dkl_ms": 1e3 * step["dkl"],
            "ratio": ratio,
            "gdkl_symmetric_ms": 1e3 * step["gdkl_symmetric"],
            "ratio_symmetric": both,
        }
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
