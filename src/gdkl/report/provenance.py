"""Where a report comes from: versions, options, and digests of options and data."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import joblib
import numpy as np
import pandas as pd

from gdkl._version import __version__
from gdkl.estimators.diagnostics import Evidence

#: What `gdkl fit` notes in a model, with the words for it.
_NOTED = {"command": "fitted by", "data": "fitted to", "sha256": "SHA-256 of that file"}

_LIBRARIES = ("torch", "numpy", "scikit-learn", "gpytorch", "pandas")


def provenance(e: Evidence, train: tuple[Any, Any] | None, command: str | None) -> list[tuple[str, str]]:
    """Facts by name, in the order of reading."""
    estimator = e.estimator
    options = {
        name: value
        for name, value in estimator.get_params(deep=False).items()
        if not _is_default(name, value, estimator)
    }
    told = ", ".join(f"{name}={value!r}" for name, value in options.items())
    versions = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    facts = [
        ("model", f"{type(estimator).__name__}({told})"),
        ("seed", _seed(estimator)),
        ("inference", f"{estimator.inference_}, {estimator.n_iter_} steps"),
        ("written", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
        ("versions", f"gdkl {__version__}, Python {platform.python_version()}, {versions}"),
        (
            "digest of the options",
            digest({name: repr(value) for name, value in estimator.get_params(deep=False).items()}),
        ),
        ("digest of the held-out data", digest(e.X, e.y)),
    ]
    noted: dict[str, Any] = getattr(estimator, "provenance_", {})
    fit = [(title, str(noted[name])) for name, title in _NOTED.items() if noted.get(name) is not None]
    facts[1:1] = fit
    if command is not None:
        facts.insert(0, ("command", command))
    if train is not None:
        facts.append(("digest of the training data", digest(*train)))
    return facts


def digest(*values: Any) -> str:
    """A hash of data: equal for equal values, whatever library holds them."""
    return str(joblib.hash([_plain(value) for value in values]))


def _plain(value: Any) -> Any:
    if hasattr(value, "to_pandas"):
        value = value.to_pandas()
    if isinstance(value, pd.DataFrame):
        return [(str(name), value.iloc[:, i].to_numpy()) for i, name in enumerate(value.columns)]
    return value if isinstance(value, dict) else np.asarray(value)


def _is_default(name: str, value: Any, estimator: Any) -> bool:
    default = type(estimator)().get_params(deep=False).get(name)
    return value is default or repr(value) == repr(default)


def _seed(estimator: Any) -> str:
    seed = estimator.random_state
    return "none was set: another fit differs" if seed is None else str(seed)
