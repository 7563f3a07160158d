"""Where a computation runs and in which precision."""

from __future__ import annotations

import torch

from gdkl.numerics.errors import OptionError

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


def resolve_device(device: str | torch.device) -> torch.device:
    """Turn an option into a device: ``"auto"`` is the first GPU, or the CPU where there is none.

    Example:
        >>> resolve_device("cpu")
        device(type='cpu')
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise OptionError(f"device={device!r} is not known: use 'auto', 'cpu', 'cuda' or 'cuda:1'.") from error
    if resolved.type == "mps":
        raise OptionError(f"device={device!r} has no float64, which Gaussian processes take: use 'cpu' or 'cuda'.")
    if resolved.type not in ("cpu", "cuda"):
        raise OptionError(f"device={device!r} is not supported: use 'auto', 'cpu' or 'cuda'.")
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise OptionError(f"device={device!r} was asked for and no GPU is available: use 'auto' or 'cpu'.")
    if resolved.type == "cuda" and (resolved.index or 0) >= torch.cuda.device_count():
        raise OptionError(f"device={device!r}: there are {torch.cuda.device_count()} GPUs, counted from 0.")
    return resolved


def resolve_dtype(dtype: str | torch.dtype, default: torch.dtype = torch.float64) -> torch.dtype:
    """Turn an option into a precision: ``"auto"`` is the caller's default.

    Example:
        >>> resolve_dtype("float32")
        torch.float32
    """
    if dtype == "auto":
        return default
    resolved = _DTYPES.get(dtype) if isinstance(dtype, str) else dtype
    if resolved is None or resolved not in _DTYPES.values():
        raise OptionError(f"dtype={dtype!r} is not known: use 'auto', 'float32' or 'float64'.")
    return resolved
