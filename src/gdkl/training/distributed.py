"""Data-parallel training: each process takes its own batches, gradients are averaged, the first process writes.

Started by ``torchrun``. By hand and not by Lightning Fabric, which averages gradients in DistributedDataParallel: there
a step must be one call of the wrapped module's ``forward``. Here an objective calls several methods of a student whose
members may run through `torch.vmap`, and a step may be one CUDA graph of loss and gradients; what would be left for
Fabric is to start the process group. So gradients are averaged after a step, however it was taken, as one flat tensor.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gdkl.training.batches import ALONE, World


def launched() -> bool:
    """Whether ``torchrun`` started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def process_group(device: torch.device) -> Generator[World]:
    """Join the processes that ``torchrun`` started; a world of one elsewhere.

    Example:
        >>> with process_group(torch.device("cpu")) as world:
        ...     world.size
        1
    """
    if not launched():
        yield ALONE
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def current_world() -> World:
    """The processes that this one trains with: those of the process group it has joined, or itself alone.

    Example:
        >>> current_world().size
        1
    """
    joined = dist.is_available() and dist.is_initialized()
    return World(dist.get_rank(), dist.get_world_size()) if joined else ALONE


def local_device(device: torch.device) -> torch.device:
    """The GPU of this process where there are several of both."""
    if device == torch.device("cuda") and launched():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return device


@torch.no_grad()
def share_state(module: nn.Module, world: World) -> None:
    """Broadcast the parameters and buffers of the first process."""
    if world.size > 1:
        for value in module.state_dict().values():
            dist.broadcast(value, src=0)


@torch.no_grad()
def average_gradients(parameters: Iterable[Tensor], world: World) -> None:
    """Replace gradients by their mean over the processes, one call for each precision."""
    if world.size == 1:
        return
    by_type: dict[torch.dtype, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            by_type.setdefault(parameter.grad.dtype, []).append(parameter.grad)
    for gradients in by_type.values():
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        flat /= world.size
        for gradient, mean in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))


@torch.no_grad()
def any_of(flags: Sequence[bool], device: torch.device, world: World) -> list[bool]:
    """Whether each of several flags is set in any of the processes.

    Example:
        >>> any_of([True, False], torch.device("cpu"), ALONE)
        [True, False]
    """
    if world.size == 1:
        return list(flags)
    counts = torch.tensor(flags, dtype=torch.int32, device=device)
    dist.all_reduce(counts, dist.ReduceOp.MAX)
    return [flag > 0 for flag in counts.tolist()]


def wait_for_all(world: World) -> None:
    """Wait until every process is here: the first may be writing what the others will read."""
    if world.size > 1:
        dist.barrier()
