"""``gdkl reproduce cifar``: all of CIFAR, by GDKL and DKL with inducing points; resumable, on one device or several."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from gdkl.cli.failures import say
from gdkl.cli.reproduce.options import (
    RUNS,
    Algebra,
    Beta,
    DataDir,
    Depth,
    Device,
    Guide,
    Networks,
    Output,
    WidenFactor,
    names_in,
    number,
    several,
    show,
)
from gdkl.numerics import OptionError, resolve_device
from gdkl.paper import check_writable, cifar_table
from gdkl.paper import cifar as experiment
from gdkl.training import EpochProgress, local_device, process_group

_USUAL = experiment.Protocol()


def cifar(
    datasets: Annotated[str, several(experiment.DATASETS, experiment.DATASETS[0])] = experiment.DATASETS[0],
    methods: Annotated[str, several(experiment.Method)] = ",".join(experiment.Method),
    seeds: Networks = 1,
    data_dir: DataDir = None,
    output: Output = RUNS,
    device: Device = "auto",
    epochs: Annotated[int, number("Times that every image is seen.", 1)] = _USUAL.epochs,
    batch_size: Annotated[int, number("Images a step.", 2)] = _USUAL.batch_size,
    beta: Beta = _USUAL.beta,
    guide: Guide = _USUAL.guide,
    guide_scale: Annotated[float, number("Mean variance of the guide.", 0.0)] = _USUAL.guide_scale,
    label_noise: Annotated[
        bool, typer.Option(help="Whether labels carry their own variances in the guide.")
    ] = _USUAL.label_noise,
    kl_weight: Annotated[float, number("DKL's weight of KL(q(u)‖p(u)).", 0.0)] = _USUAL.kl_weight,
    depth: Depth = _USUAL.depth,
    widen_factor: WidenFactor = _USUAL.widen_factor,
    dropout: Annotated[float, number("Of the wide ResNet.", 0.0, most=0.99)] = _USUAL.dropout,
    algebra: Algebra = _USUAL.algebra,
    holdout: Annotated[
        int,
        number("Training images that are held out and scored in place of the test images.", 0),
    ] = _USUAL.holdout,
    checkpoint_seconds: Annotated[float, number("Seconds between two checkpoints.", 0.0)] = 60.0,
    graph: Annotated[bool, typer.Option("--graph", help="Record a step as one CUDA graph and replay it.")] = False,
    compile_network: Annotated[
        bool, typer.Option("--compile", help="Let torch.compile fuse the network's operations.")
    ] = False,
) -> None:
    """The paper's: all of CIFAR-10 or CIFAR-100, inducing points.

    One result file a network. A run that is killed goes on from its checkpoint; torchrun may start the command on
    several GPUs. With --holdout, settings are tried without the test images.
    """
    place = resolve_device(device)
    if graph and place.type != "cuda":
        raise OptionError("--graph records a step on a GPU, and there is none here: leave it out.")
    protocol = experiment.Protocol(
        epochs=epochs,
        batch_size=batch_size,
        beta=beta,
        guide=guide,
        guide_scale=guide_scale,
        label_noise=label_noise,
        kl_weight=kl_weight,
        depth=depth,
        widen_factor=widen_factor,
        dropout=dropout,
        algebra=algebra,
        holdout=holdout,
    )
    runs = [
        experiment.Run(name, experiment.Method(method), seed, protocol)
        for name in names_in(datasets, experiment.DATASETS, "dataset")
        for method in names_in(methods, experiment.Method, "method")
        for seed in range(seeds)
    ]
    folder = output / "cifar"
    check_writable(folder)
    place = local_device(place)
    results: list[dict[str, Any]] = []
    with process_group(place) as world:
        for run in runs:
            what = f"{run.dataset} {run.method} seed {run.seed}"
            found = run.finished(folder)
            if found is not None:
                if world.rank == 0:
                    say(f"{what}: kept from {run.path(folder)}")
                results.append(found)
                continue
            if world.rank == 0:
                say(f"{what}: on {place}" + (f", {world.size} processes" if world.size > 1 else ""))
            result = experiment.complete(
                run,
                folder,
                data_dir=data_dir,
                device=place,
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
    show(cifar_table(results), folder)


def _say_scores(what: str, result: dict[str, Any]) -> None:
    for view, words in (("test", "as they are"), ("mirrored", "with mirror images"), ("shifted", "and shifted")):
        scores = result["splits"][0][view]
        say(
            f"{what}, {words}: accuracy {100 * scores['accuracy']:.2f} %, LL {scores['log_likelihood']:.4f}, ECE "
            f"{scores['ece']:.4f}, mean confidence {scores['mean_confidence']:.4f}"
        )
    if "best_temperature" in result:
        say(f"{what}: the best temperature on the held-out images is {result['best_temperature']:.3f}")
    say(f"{what}: {result['fit_seconds']:.0f} s, {1000 * (result['seconds_per_step'] or 0):.2f} ms a step")
