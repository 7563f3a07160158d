"""A training step on batches of images with inducing points: GDKL and DKL, as they are and as a CUDA graph, in one run.

    python benchmarks/image_batch_step.py [--batch-size 256] [--device cuda] [--json results.json]

Random images of CIFAR-10's size; what a step costs does not depend on them. The guide is asked about the augmented
images of every batch, as in `gdkl reproduce cifar`. A fit of more steps less one of fewer, so that building, recording
and warming up do not count; methods take turns, and the shortest of the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

import gdkl
from gdkl.experiments.guides import GUIDES, guide
from gdkl.guide import fit_class_guide, image_kernel_function
from gdkl.methods import fit_sparse_dkl_classes, fit_sparse_gdkl_classes
from gdkl.nets import ImageFeatures, WideResNet
from gdkl.training import ImageBatches, Schedule, StudentOptions

IMAGE = (3, 32, 32)
CLASSES = 10
IMAGES = 5000


def main() -> None:
    """Time both methods and print the guide's overhead."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--fewer", type=int, default=40, help="steps of the shorter fit")
    parser.add_argument("--more", type=int, default=240, help="steps of the longer fit")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--depth", type=int, default=28)
    parser.add_argument("--widen-factor", type=int, default=5)
    parser.add_argument("--guide", choices=GUIDES, default="dense")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (IMAGES, *IMAGE), generator=generator, dtype=torch.uint8)
    labels = torch.arange(IMAGES) % CLASSES
    source = ImageBatches(
        images, labels, arguments.batch_size, 0, means=(0.5,) * 3, deviations=(0.25,) * 3, device=device
    )
    subset = source.sample(500, 0)
    kernel = image_kernel_function(guide(arguments.guide), IMAGE)
    known = subset.rows[None], subset.targets[None]
    class_guide = fit_class_guide(kernel, *known, CLASSES, scale=25.0).for_batches()

    def network(columns: int) -> ImageFeatures:
        net = WideResNet(arguments.depth, arguments.widen_factor, 0.3)
        if device.type == "cuda":
            net = net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        return ImageFeatures(net, IMAGE, torch.float64)

    def seconds(method: str, graph: bool, steps: int) -> float:
        schedule = Schedule(steps, 0.1, milestones=(0.5, 0.75))
        options = StudentOptions(schedule, n_inducing=10, feature_net=network, momentum=0.9, graph=graph)
        started = time.perf_counter()
        if method == "gdkl":
            fit_sparse_gdkl_classes(source, class_guide, options)
        else:
            fit_sparse_dkl_classes(source, CLASSES, options)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    ways = [False, True] if device.type == "cuda" else [False]
    best: dict[tuple[str, bool, int], float] = {}
    for _ in range(arguments.rounds):
        for graph in ways:
            for steps in (arguments.fewer, arguments.more):
                for method in ("gdkl", "dkl"):
                    key = (method, graph, steps)
                    best[key] = min(best.get(key, float("inf")), seconds(*key))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    found: dict[str, dict[str, float]] = {}
    for graph in ways:
        gdkl_ms, dkl_ms = (
            1e3
            * (best[method, graph, arguments.more] - best[method, graph, arguments.fewer])
            / (arguments.more - arguments.fewer)
            for method in ("gdkl", "dkl")
        )
        what = "recorded as a graph" if graph else "as it is"
        found[what] = {"gdkl_ms": gdkl_ms, "dkl_ms": dkl_ms, "ratio": gdkl_ms / dkl_ms}
        print(
            f"{name}, batches of {arguments.batch_size}, {what}: GDKL {gdkl_ms:.2f} ms a step, DKL {dkl_ms:.2f}: "
            f"{gdkl_ms / dkl_ms:.2f}"
        )
    if arguments.json:
        content = {
            "device": name,
            "versions": {"gdkl": gdkl.__version__, "torch": torch.__version__},
            "batch_size": arguments.batch_size,
            "guide": str(arguments.guide),
            **found,
        }
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
