"""The model file: tensors and a JSON header in one safetensors file, under a SHA-256, written atomically.

Reading it executes nothing. The header is one JSON text in the file's metadata; the checksum covers it and every
tensor's name, type, shape and bytes, so that a file cut short or with a flipped byte is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from gdkl._version import __version__
from gdkl.numerics import ModelFileError, write_atomically

#: Format 1 was written by gdkl 0.1, whose options had other names.
FORMAT_VERSION = 2
_KEY = "gdkl"


def write_model(path: str | os.PathLike[str], tensors: dict[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write contiguous tensors on the CPU and a JSON header, atomically: an error leaves no half-written file."""
    complete = {**header, "format_version": FORMAT_VERSION, "library_version": __version__}
    complete["sha256"] = _digest(tensors, complete)
    content = safetensors.torch.save(tensors, metadata={_KEY: json.dumps(complete, sort_keys=True)})
    if not os.fspath(path):
        raise ModelFileError("the path is empty: give the file a name, such as 'model.gdkl'.")
    try:
        write_atomically(path, lambda file: file.write(content))
    except OSError as error:
        raise ModelFileError(f"cannot write {os.fspath(path)}: {error.strerror or error}.") from error


def read_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header of a file whose checksum is right."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror or error}.") from error
    damaged = f"{path} is not a GDKL model file, or it is damaged: save the model again."
    try:
        tensors = safetensors.torch.load(content)
        length = int.from_bytes(content[:8], "little")
        raw = json.loads(content[8 : 8 + length])
        header = json.loads(raw["__metadata__"][_KEY])
        expected = header.pop("sha256")
        version = header["format_version"]
    except (
        safetensors.SafetensorError,
        ValueError,
        KeyError,
        TypeError,
        OverflowError,
        MemoryError,
    ) as error:
        raise ModelFileError(damaged) from error
    if isinstance(version, int) and version != FORMAT_VERSION:
        other = header.get("library_version")
        remedy = "upgrade gdkl" if version > FORMAT_VERSION else f"read it with gdkl {other}, or fit the model again"
        raise ModelFileError(
            f"{path} has format {version}, written by gdkl {other}; this is gdkl {__version__}, which reads format "
            f"{FORMAT_VERSION}: {remedy}."
        )
    if expected != _digest(tensors, header):
        raise ModelFileError(damaged)
    return tensors, header


def _digest(tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> str:
    """SHA-256 over the header and over every tensor's name, type, shape and bytes."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"|{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
