"""``gdkl doctor``: what this installation runs on, and whether it computes what it should."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import typer

from gdkl._version import __version__
from gdkl.cli.answers import AsJson, print_json, size_of
from gdkl.numerics import CACHE_VARIABLE, GdklError, cache_dir, file_beside

#: Exit code if something is wrong with the installation.
BROKEN = 1

_PACKAGES = ("torch", "gpytorch", "scikit-learn", "numpy", "scipy", "pandas", "pyarrow", "matplotlib", "typer")
#: What some commands or options need beside them.
_EXTRAS = ("botorch", "cupy", "ray", "polars")
_VARIABLES = (
    CACHE_VARIABLE,
    "GDKL_DATA",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
)


def doctor(as_json: AsJson = False) -> None:
    """Show versions, devices, threads and folders, and test a fit.

    The test fits two models to forty rows, saves them and loads them again, in about two seconds. If it fails the
    exit code is 1.
    """
    found = {"versions": _versions(), "machine": _machine(), "cache": _cache(), "environment": _environment()}
    found["self_test"] = _self_test()
    problems = [text for text in (found["cache"]["problem"], found["self_test"]["problem"]) if text]
    if as_json:
        print_json(found | {"problems": problems})
    else:
        typer.echo("\n".join(_lines(found)))
    if problems:
        raise typer.Exit(BROKEN)


def _versions() -> dict[str, str | None]:
    def of(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    found = {"gdkl": __version__, "python": platform.python_version()} | {name: of(name) for name in _PACKAGES}
    return found | {name: of(name) for name in _EXTRAS if of(name)}


def _machine() -> dict[str, Any]:
    import torch  # noqa: PLC0415  (it takes seconds to import)

    from gdkl.numerics import available_memory, resolve_device  # noqa: PLC0415

    gpus = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    # Those that this process may use: a container often has fewer than the machine.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": cores,
        "threads": torch.get_num_threads(),
        "free_memory_bytes": available_memory("cpu"),
        "gpus": gpus,
        "device": str(resolve_device("auto")),
    }


def _cache() -> dict[str, Any]:
    folder = cache_dir()
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    problem = None
    try:
        file_beside(there / "doctor").unlink()
    except OSError as error:
        problem = f"cannot write to {there} ({error.strerror or error}): set {CACHE_VARIABLE} to another folder"
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    return {"folder": str(folder), "bytes": sum(path.stat().st_size for path in files), "problem": problem}


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _VARIABLES if name in os.environ}


def _self_test() -> dict[str, Any]:
    """Fit a curve, and compare with what is known of it."""
    import numpy as np  # noqa: PLC0415

    import gdkl  # noqa: PLC0415
    from gdkl.estimators import GDKLRegressor, NNGPRegressor  # noqa: PLC0415  (before the clock starts)

    started = time.perf_counter()
    x = np.linspace(0, 6, 40).reshape(-1, 1)
    y, new = np.sin(x[:, 0]), np.linspace(0.1, 5.9, 30).reshape(-1, 1)
    problem = None
    try:
        for model in (NNGPRegressor(), GDKLRegressor(preset="paper", n_iter=30, random_state=0)):
            model.fit(x, y)
            mean, std = model.predict(new, return_std=True)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.gdkl"
                model.save(path)
                again = gdkl.load(path).predict(new)
            name = type(model).__name__
            if not bool(np.isfinite(mean).all() and (std > 0).all()):
                problem = f"{name} predicts numbers that are not finite"
            elif not bool((again == mean).all()):
                problem = f"{name} predicts other numbers once it was saved and loaded"
            elif isinstance(model, NNGPRegressor) and np.abs(mean - np.sin(new[:, 0])).max() > 0.01:
                problem = f"{name} does not follow a sine: largest error {np.abs(mean - np.sin(new[:, 0])).max():.2g}"
            if problem:
                break
    except (GdklError, RuntimeError, OSError) as error:
        problem = f"the self-test failed: {type(error).__name__}: {str(error).splitlines()[0]}"
    return {"seconds": round(time.perf_counter() - started, 2), "problem": problem}


def _lines(found: dict[str, Any]) -> list[str]:
    machine, cache, test = found["machine"], found["cache"], found["self_test"]
    memory = size_of(machine["free_memory_bytes"])
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items() if number)
    gpus = ", ".join(machine["gpus"]) or "no GPU"
    variables = ", ".join(f"{name}={value}" for name, value in found["environment"].items()) or "none set"
    return [
        f"versions     {versions}",
        f"machine      {machine['system']}, {machine['cores']} cores, {memory} of memory free, {gpus}",
        f"computes on  {machine['device']}, {machine['threads']} threads",
        f"cache        {cache['folder']}, {size_of(cache['bytes'])}"
        + (f"; {cache['problem']}" if cache["problem"] else ""),
        f"environment  {variables}",
        f"self-test    {test['problem'] or 'passed'} ({test['seconds']} s)",
    ]
