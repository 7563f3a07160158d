"""Run-time compilation through NVRTC, which CuPy brings, with what was compiled kept on disk.

Binaries lie in the folder ``kernels`` of the library's cache (``GDKL_CACHE`` moves it), named by a hash of the source,
the options, the compiler and the device's architecture, each with a checksum in front.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from gdkl.infinite.program import UnsupportedError
from gdkl.numerics import cache_dir, write_atomically

#: Products are not merged into sums behind the program's back: it says itself where they are.
OPTIONS = ("--std=c++17", "--fmad=false")
CHECKSUM_BYTES = 32
#: Modules of this process by key and device.
_LOADED: dict[tuple[str, int], Any] = {}


def cupy() -> Any:
    """CuPy, an extra; unsupported where it is not installed, or finds no CUDA that it knows."""
    try:
        # An extra, and slow to import.
        found = import_module("cupy")
        import_module("cupy.cuda.compiler")
        import_module("cupy.cuda.function")
    except Exception as error:  # whatever a broken installation makes of the import
        raise UnsupportedError(f"CuPy cannot be imported ({error})") from error
    return found


def load(text: str, device: int) -> Any:
    """The module of CUDA text on the current device: from memory, from disk, or compiled now."""
    cp = cupy()
    try:
        architecture = cp.cuda.Device(device).compute_capability
        version = ".".join(map(str, cp.cuda.nvrtc.getVersion()))
    except Exception as error:
        raise UnsupportedError(f"CuPy finds no CUDA device ({error})") from error
    key = content_key(text, architecture, version)
    found = _LOADED.get((key, device))
    if found is None:
        # Without a lock: several networks compile side by side, and compiling one twice does no harm.
        found = _LOADED.setdefault((key, device), _module(cp, text, key))
    return found


def content_key(text: str, architecture: str, version: str) -> str:
    """The name of a binary."""
    return hashlib.sha256("\0".join([text, *OPTIONS, architecture, version]).encode()).hexdigest()


def _module(cp: Any, text: str, key: str) -> Any:
    path = cache_dir() / "kernels" / f"{key}.cubin"
    binary = read_binary(path)
    if binary is None:
        try:
            binary, _ = cp.cuda.compiler.compile_using_nvrtc(text, options=OPTIONS)
        except Exception as error:
            reason = str(error).strip().splitlines()
            raise UnsupportedError(f"NVRTC does not compile the kernel ({reason[0] if reason else error!r})") from error
        keep_binary(path, binary)
    module = cp.cuda.function.Module()
    try:
        module.load(binary)
    except Exception as error:  # a device that refuses the binary, such as one without room for it
        raise UnsupportedError(f"the device does not load the kernel ({error})") from error
    return module


def read_binary(path: Path) -> bytes | None:
    """A binary from the disk; None if it is not there or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    checksum, binary = content[:CHECKSUM_BYTES], content[CHECKSUM_BYTES:]
    return binary if hashlib.sha256(binary).digest() == checksum else None


def keep_binary(path: Path, binary: bytes) -> None:
    """Put a binary on the disk for the next process; a disk that cannot be written to costs only time."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: file.write(hashlib.sha256(binary).digest() + binary))
