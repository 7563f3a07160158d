"""Tasks side by side: processes of this machine, or workers of a cluster, by joblib's backends."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from gdkl.numerics import GdklError, OptionError

#: Backends with a cluster: what their scheduler's address is read from.
_ADDRESSES = {"ray": "RAY_ADDRESS", "dask": "DASK_SCHEDULER_ADDRESS"}


def in_parallel(tasks: Iterable[Any], backend: str, jobs: int | None) -> list[Any]:
    """Results of joblib's delayed tasks, in their order.

    Args:
        tasks: What ``joblib.delayed`` made.
        backend: "loky" for processes of this machine; "ray" or "dask" for workers of the cluster whose address
            RAY_ADDRESS or DASK_SCHEDULER_ADDRESS holds, or of one that is started here; or another that joblib knows.
        jobs: Tasks at a time; None for one per core, or as many as the cluster takes.
    """
    from joblib import Parallel  # noqa: PLC0415  (slow to import)

    with _workers(backend, jobs):
        try:
            # More than the workers can take would hold tasks back from a cluster that grows.
            return list(Parallel(n_jobs=-1 if jobs is None else jobs, pre_dispatch="n_jobs")(tasks))
        except Exception as error:
            # Ray wraps what a task raised into an error of its own, with the whole traceback as text.
            cause = getattr(error, "cause", None)
            if isinstance(cause, GdklError):
                raise cause from None
            raise


@contextmanager
def _workers(backend: str, jobs: int | None) -> Generator[None]:
    """Tell joblib where to run, and stop what was started for it."""
    from joblib import parallel_config  # noqa: PLC0415

    starts = {"ray": _ray, "dask": _dask}
    stop = starts[backend](jobs, os.environ.get(_ADDRESSES[backend])) if backend in starts else None
    try:
        try:
            config = parallel_config(backend=backend)
        except ValueError as error:
            raise OptionError(f"--backend {backend} is not known to joblib: use loky, ray or dask.") from error
        with config:
            yield
    finally:
        if stop is not None:
            stop()


#: A new cluster of this machine. Without an address Ray takes the last one that anybody started here.
_LOCAL_RAY = {"address": "local", "include_dashboard": False}


def _ray(jobs: int | None, address: str | None) -> Any:
    try:
        ray: Any = import_module("ray")
        register: Any = import_module("ray.util.joblib").register_ray
    except ImportError as error:
        raise _lacking("ray", "Ray") from error
    ray.init(**({"address": address} if address else _LOCAL_RAY | {"num_cpus": jobs}))
    register()
    return ray.shutdown


def _dask(jobs: int | None, address: str | None) -> Any:
    try:
        client: Any = import_module("distributed").Client
    except ImportError as error:
        raise _lacking("dask", "Dask") from error
    local = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
    return (client(address) if address else client(**local)).close


def _lacking(extra: str, name: str) -> OptionError:
    return OptionError(f"--backend {extra} needs {name}: pip install 'gdkl[{extra}]'.")
