"""One pass of a network that nothing is learned from: which shapes its layers see, how many features it has."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gdkl.numerics import DataError


def example_of(network: nn.Module) -> Tensor:
    """A tensor in the network's precision and on its device.

    Example:
        >>> example_of(nn.Linear(3, 5).double()).dtype
        torch.float64
    """
    return next((value for value in network.parameters() if value.is_floating_point()), torch.zeros(0))


@torch.no_grad()
def try_network(network: nn.Module, columns: int) -> Tensor:
    """Features of two rows of zeros, in evaluation mode.

    Raises:
        DataError: If the network does not take them.

    Example:
        >>> try_network(nn.Linear(3, 5), 3).shape
        torch.Size([2, 5])
    """
    like, training = example_of(network), network.training
    network.eval()
    try:
        found = network(torch.zeros(2, columns, dtype=like.dtype, device=like.device))
        if not isinstance(found, Tensor):
            raise TypeError(f"a network must return a tensor; got {type(found).__name__}")
        return found.flatten(1)
    except (RuntimeError, TypeError, AttributeError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"feature_net failed on 2 rows of {columns} columns: {reason}") from error
    finally:
        network.train(training)
