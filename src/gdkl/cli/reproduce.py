"""``gdkl reproduce``: run one of the experiments, the paper's or our own, and print our figures beside the paper's."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gdkl.cli.cifar import reproduce_cifar
from gdkl.cli.classes import reproduce_classes
from gdkl.cli.failures import PIPE_WIDTH, say
from gdkl.cli.fewshot import parse_draw, parse_sizes, plan, reproduce_fewshot
from gdkl.cli.large import reproduce_large
from gdkl.numerics import OptionError, resolve_device
from gdkl.paper import check_writable, cifar, classes, fewshot, large, read_result, uci, uci_table, write_result
from gdkl.paper.fewshot_data import SIZES
from gdkl.paper.fewshot_guides import GuideName
from gdkl.training import ProgressDisplay


def _choices(text: str, allowed: tuple[str, ...], what: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in allowed]
    if unknown or not names:
        problem = f"unknown {what} {', '.join(unknown)}" if unknown else f"no {what} given"
        raise OptionError(f"{problem}: use {', '.join(allowed)}.")
    return names


def reproduce(
    experiment: Annotated[str, typer.Argument(help="Which experiment: uci, fewshot, classes, large or cifar.")],
    datasets: Annotated[
        str | None,
        typer.Option(
            help=f"Comma-separated. uci: {', '.join(uci.DATASETS)}; classes: {', '.join(classes.DATASETS)}; large: "
            f"{', '.join(large.DATASETS)}; cifar: {', '.join(cifar.DATASETS)}.",
            show_default=False,
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help=f"Comma-separated. uci: {', '.join(uci.Method)}; fewshot: {', '.join(fewshot.Method)}; classes: "
            f"{', '.join(classes.Method)}; large: {', '.join(large.Method)}; cifar: {', '.join(cifar.Method)}. "
            "Default: those of the paper's main table.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Seeds 0 … N−1 (large: from 3 on): uci 10, classes 5, large 3 splits; fewshot 3, cifar 1 networks.",
            min=1,
            show_default=False,
        ),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the dataset files are.")] = None,
    output: Annotated[Path, typer.Option(help="Where result files go.")] = Path("runs"),
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    gdkl_steps: Annotated[
        int | None,
        typer.Option(
            help="GDKL's gradient steps: 7000 (uci), 6000 (fewshot), 500 (classes).", min=1, show_default=False
        ),
    ] = None,
    dkl_steps: Annotated[
        int | None,
        typer.Option(
            help="Gradient steps of DKL and of the network: 8000 (uci), 7000 (fewshot), 500 (classes).",
            min=1,
            show_default=False,
        ),
    ] = None,
    sizes: Annotated[str, typer.Option(help="fewshot: numbers of labelled images, comma-separated.")] = ",".join(
        map(str, SIZES)
    ),
    draw: Annotated[str, typer.Option(help="fewshot: which images: paper, or a seed.")] = "paper",
    guide: Annotated[str, typer.Option(help=f"fewshot, cifar: of {', '.join(GuideName)}.")] = GuideName.DENSE.value,
    guide_scale: Annotated[
        float | None,
        typer.Option(
            help="The guide's output scale as the student sees it. fewshot: 64, 0 for the guide's own best; cifar: 25.",
            min=0.0,
            show_default=False,
        ),
    ] = None,
    parametrisation: Annotated[
        str, typer.Option(help=f"fewshot: of the student's kernel: {' or '.join(fewshot.Parametrisation)}.")
    ] = fewshot.Parametrisation.SOFTPLUS.value,
    stratified: Annotated[
        bool,
        typer.Option(
            "--stratified/--random-splits", help="fewshot: halves with as many images of each class, or random ones."
        ),
    ] = False,
    mirror: Annotated[
        bool,
        typer.Option(
            "--mirror", help="fewshot: mirror images in GDKL's training, and a guide that does not tell them."
        ),
    ] = False,
    both_ways: Annotated[
        bool, typer.Option("--both-ways", help="fewshot: hold out each half of a split in turn.")
    ] = False,
    validation: Annotated[
        bool,
        typer.Option("--validation", help="fewshot: score 5000 other training images, to choose settings by."),
    ] = False,
    beta: Annotated[
        float | None,
        typer.Option(help="Weight of the KL term: 3 (fewshot), 1 (large), 0.1 (cifar).", min=0.0, show_default=False),
    ] = None,
    depth: Annotated[int, typer.Option(help="fewshot, cifar: depth of the wide ResNet.")] = 28,
    widen_factor: Annotated[int, typer.Option(help="fewshot, cifar: width of the wide ResNet.", min=1)] = 5,
    algebra: Annotated[str, typer.Option(help="fewshot, cifar: precision of the GPs, float64 or float32.")] = "float64",
    epochs: Annotated[int | None, typer.Option(help="cifar: 200; large: 30.", min=1, show_default=False)] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Rows a step. cifar: 256; large: 512.", min=2, show_default=False)
    ] = None,
    exact_rows: Annotated[int, typer.Option(help="large: rows that exact GDKL is trained on.", min=4)] = 3000,
    label_noise: Annotated[
        bool, typer.Option(help="cifar: whether labels carry their own variances in the guide.")
    ] = True,
    dropout: Annotated[float, typer.Option(help="cifar: of the wide ResNet.", min=0.0, max=0.99)] = 0.3,
    kl_weight: Annotated[float, typer.Option(help="cifar: DKL's weight of KL(q(u)‖p(u)).", min=0.0)] = 1.0,
    holdout: Annotated[
        int,
        typer.Option(help="cifar: training images that are held out and scored in place of the test images.", min=0),
    ] = 0,
    checkpoint_seconds: Annotated[float, typer.Option(help="cifar: time between two checkpoints.", min=0.0)] = 60.0,
    graph: Annotated[
        bool, typer.Option("--graph", help="cifar: record a step as one CUDA graph and replay it.")
    ] = False,
    compile_network: Annotated[
        bool, typer.Option("--compile", help="cifar: let torch.compile fuse the network's operations.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="fewshot: runs at a time, each a process.", min=1)] = 1,
    together: Annotated[bool, typer.Option("--together", help="fewshot: train the seeds as one batch.")] = False,
) -> None:
    """Run an experiment of the paper (uci, fewshot, cifar) or our own (classes, large) and print all figures.

    Result files hold seeds, settings and versions. A file that is already there with the same settings is kept, so that
    an interrupted command goes on where it stopped; fewshot and cifar go on within a run as well. cifar may be started
    by torchrun on several GPUs.
    """
    if experiment not in ("uci", "fewshot", "classes", "large", "cifar"):
        raise OptionError(f"experiment {experiment!r} is not known: use uci, fewshot, classes, large or cifar.")
    place = resolve_device(device)
    if experiment == "large":
        plain = large.Protocol()
        reproduce_large(
            _choices(datasets or ",".join(large.DATASETS), large.DATASETS, "dataset"),
            _choices(methods or ",".join(large.Method), tuple(large.Method), "method"),
            large.Protocol(
                seeds=seeds or plain.seeds,
                epochs=epochs or plain.epochs,
                batch_size=batch_size or plain.batch_size,
                beta=plain.beta if beta is None else beta,
                exact_rows=exact_rows,
                exact_steps=gdkl_steps or plain.exact_steps,
            ),
            data_dir=data_dir,
            output=output,
            device=place,
        )
        return
    if experiment == "cifar":
        usual = cifar.Protocol()
        reproduce_cifar(
            _choices(datasets or cifar.DATASETS[0], cifar.DATASETS, "dataset"),
            _choices(methods or ",".join(cifar.Method), tuple(cifar.Method), "method"),
            seeds or 1,
            cifar.Protocol(
                epochs=epochs or usual.epochs,
                batch_size=batch_size or usual.batch_size,
                beta=usual.beta if beta is None else beta,
                guide=GuideName(_choices(guide, tuple(GuideName), "guide")[0]),
                guide_scale=usual.guide_scale if guide_scale is None else guide_scale,
                label_noise=label_noise,
                kl_weight=kl_weight,
                depth=depth,
                widen_factor=widen_factor,
                dropout=dropout,
                algebra=algebra,
                holdout=holdout,
            ),
            data_dir=data_dir,
            output=output,
            device=place,
            checkpoint_seconds=checkpoint_seconds,
            compile_network=compile_network,
            graph=graph,
        )
        return
    if experiment == "classes":
        reproduce_classes(
            _choices(datasets or ",".join(classes.DATASETS), classes.DATASETS, "dataset"),
            _choices(methods or ",".join(classes.Method), tuple(classes.Method), "method"),
            classes.Protocol(classes.PARTS[0], seeds or 5, gdkl_steps, dkl_steps),
            classes.PARTS,
            output=output,
            device=place,
        )
        return
    if experiment == "fewshot":
        published = fewshot.Protocol()
        settings = fewshot.Protocol(
            gdkl_iterations=gdkl_steps or published.gdkl_iterations,
            other_iterations=dkl_steps or published.other_iterations,
            beta=published.beta if beta is None else beta,
            guide=GuideName(_choices(guide, tuple(GuideName), "guide")[0]),
            guide_scale=(published.guide_scale if guide_scale is None else guide_scale) or None,
            stratified=stratified,
            parametrisation=fewshot.Parametrisation(
                _choices(parametrisation, tuple(fewshot.Parametrisation), "parametrisation")[0]
            ),
            mirror=mirror,
            both_ways=both_ways,
            depth=depth,
            widen_factor=widen_factor,
            algebra=algebra,
        )
        chosen = _choices(methods or ",".join(fewshot.Method), tuple(fewshot.Method), "method")
        runs = list(plan(chosen, parse_sizes(sizes), seeds or 3, parse_draw(draw), settings, together, validation))
        reproduce_fewshot(runs, data_dir=data_dir, output=output, device=place, jobs=jobs)
        return
    seeds = seeds or 10
    protocol = uci.Protocol(seeds=seeds, gdkl_iterations=gdkl_steps or 7000, dkl_iterations=dkl_steps or 8000)
    check_writable(output / "uci")
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    results: list[dict[str, Any]] = []
    for name in _choices(datasets or ",".join(uci.DATASETS), uci.DATASETS, "dataset"):
        for method in _choices(methods or ",".join(uci.MAIN_METHODS), tuple(uci.Method), "method"):
            path = output / "uci" / f"{name}-{method}.json"
            if path.exists() and (found := read_result(path)).get("protocol") == asdict(protocol):
                say(f"{name} {method}: kept from {path}")
                results.append(found)
                continue
            say(f"{name} {method}: {seeds} splits on {place}")
            progress = ProgressDisplay(f"{name} {method}", sys.stderr)
            result = uci.run(name, uci.Method(method), protocol, data_dir=data_dir, device=place, callbacks=[progress])
            write_result(path, result)
            results.append(result)
    console.print(uci_table(results))
    console.print(f"Result files: {output / 'uci'}")
