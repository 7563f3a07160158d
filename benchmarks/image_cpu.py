"""A pass and its gradient of the networks for few images on a CPU: large and small, in float32 and in bfloat16.

    python benchmarks/image_cpu.py [--images 200] [--threads 1] [--json results.json]

Random images of CIFAR-10's size; what a pass costs does not depend on them. The four take turns, and the shortest of
the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

import gdkl
from gdkl.nets import ImageFeatures, WideResNet

IMAGE = (3, 32, 32)
#: Depth and widening factor: the paper's network, and the one that the classifiers have for few images.
LARGE, SMALL = (28, 5), (10, 2)


def seconds(features: ImageFeatures, rows: torch.Tensor) -> float:
    """Of one pass and its gradient."""
    started = time.perf_counter()
    features(rows).square().mean().backward()
    return time.perf_counter() - started


def main() -> None:
    """Time the four and print what the small network and bfloat16 gain."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = torch.randn(arguments.images, 3 * 32 * 32, generator=torch.Generator().manual_seed(0))
    nets = {
        (size, low): ImageFeatures(WideResNet(*size), IMAGE, torch.float64, autocast=low)
        for size in (SMALL, LARGE)
        for low in (True, False)
    }
    best = {key: float("inf") for key in nets}
    for turn in range(arguments.rounds + 1):
        for key, features in nets.items():
            taken = seconds(features, rows)
            # The first turn sets up libraries and memory.
            best[key] = min(best[key], taken) if turn else best[key]
    found = {
        "bfloat16_gain_of_the_small": best[SMALL, False] / best[SMALL, True],
        "bfloat16_gain_of_the_large": best[LARGE, False] / best[LARGE, True],
        "small_over_large": best[LARGE, True] / best[SMALL, True],
        "both": best[LARGE, False] / best[SMALL, True],
    }
    for (size, low), taken in best.items():
        print(f"WRN-{size[0]}-{size[1]}, {'bfloat16 where there is' if low else 'float32'}: {1e3 * taken:.0f} ms")
    print(", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in found.items()))
    if arguments.json:
        content = {
            "versions": {"gdkl": gdkl.__version__, "torch": torch.__version__},
            "images": arguments.images,
            "threads": arguments.threads,
            "seconds": {
                f"{size[0]}-{size[1]}-{'low' if low else 'float32'}": taken for (size, low), taken in best.items()
            },
            **found,
        }
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
