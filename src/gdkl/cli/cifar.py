"""``gdkl reproduce cifar``: all of CIFAR, by GDKL and DKL with inducing points; resumable, on one device or several."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from gdkl.cli.failures import PIPE_WIDTH, say
from gdkl.paper import check_writable, cifar, cifar_table
from gdkl.training import EpochProgress, local_device, process_group


def reproduce_cifar(
    names: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    protocol: cifar.Protocol,
    *,
    data_dir: Path | None,
    output: Path,
    device: torch.device,
    checkpoint_seconds: float,
    compile_network: bool,
    graph: bool,
) -> None:
    """Make the runs whose results are not there yet, and print all results beside the paper's."""
    folder = output / "cifar"
    check_writable(folder)
    device = local_device(device)
    results: list[dict[str, Any]] = []
    with process_group(device) as world:
        for run in [
            cifar.Run(name, cifar.Method(method), seed, protocol)
            for name in names
            for method in methods
            for seed in range(seeds)
        ]:
            found = run.finished(folder)
            if found is not None:
                say(f"{run.dataset} {run.method} seed {run.seed}: kept from {run.path(folder)}")
                results.append(found)
                continue
            what = f"{run.dataset} {run.method} seed {run.seed}"
            if world.rank == 0:
                say(f"{what}: on {device}" + (f", {world.size} processes" if world.size > 1 else ""))
            result = cifar.complete(
                run,
                folder,
                data_dir=data_dir,
                device=device,
                callbacks=[EpochProgress(what, protocol.batch_size, sys.stderr, lines=50)],
                checkpoint_seconds=checkpoint_seconds,
                compile_network=compile_network,
                graph=graph,
                world=world,
            )
            results.append(result)
            if world.rank == 0:
                _say_scores(what, result)
        if world.rank > 0:
            return
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(cifar_table(results))
    console.print(f"Result files: {folder}")


def _say_scores(what: str, result: dict[str, Any]) -> None:
    for view, words in (("test", "as they are"), ("mirrored", "averaged over mirror images")):
        scores = result["splits"][0][view]
        say(
            f"{what}, {words}: accuracy {100 * scores['accuracy']:.2f} %, LL {scores['log_likelihood']:.4f}, ECE "
            f"{scores['ece']:.4f}, mean confidence {scores['mean_confidence']:.4f}"
        )
    if "best_temperature" in result:
        say(f"{what}: the best temperature on the held-out images is {result['best_temperature']:.3f}")
    say(f"{what}: {result['fit_seconds']:.0f} s, {1000 * (result['seconds_per_step'] or 0):.2f} ms a step")
