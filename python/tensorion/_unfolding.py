"""Unfoldings, which arrange a tensor as a matrix."""

from collections.abc import Sequence

import torch
from torch import Tensor

from . import _arguments


def effective_order(shape: Sequence[int]) -> int:
    """Return the number of modes whose size is not 1."""
    return sum(size != 1 for size in shape)


def drop_ones(shape: Sequence[int]) -> list[int]:
    """Return the sizes that are not 1."""
    return [size for size in shape if size != 1]


def unfoldings(shape: Sequence[int]) -> list[tuple[int, ...]]:
    """List all unfoldings of a shape, each given by the modes that become the rows.

    If `d` modes have a size other than 1, there are `2**(d - 1) - 1` unfoldings. A set of modes and its complement give
    transposed matrices and count as one unfolding. It is represented by the smaller set, or by the set that contains
    the lowest mode if both have the same size. Unfoldings are sorted by number of modes, then lexicographically.

    Args:
        shape (sequence of int): shape of the tensor.

    Returns:
        list of tuple of int: the unfoldings.

    Example:
        >>> tensorion.unfoldings((8, 4, 3))
        [(0,), (1,), (2,)]
    """
    shape = _arguments.ints(shape, "unfoldings.shape")
    return [tuple(modes) for modes in torch.ops.tensorion.unfoldings(shape)]


def balanced_unfolding(shape: Sequence[int]) -> tuple[int, ...]:
    """Find the unfolding with the largest `min(rows, cols)`. The first one in `unfoldings(shape)` wins a tie.

    Args:
        shape (sequence of int): shape of the tensor.

    Returns:
        tuple of int: the modes that become the rows.

    Example:
        >>> tensorion.balanced_unfolding((64, 32, 3, 3))
        (0, 2)
    """
    shape = _arguments.ints(shape, "balanced_unfolding.shape")
    return tuple(torch.ops.tensorion.balanced_unfolding(shape))


def unfold(x: Tensor, modes: Sequence[int]) -> Tensor:
    """Unfold a tensor to a matrix whose rows enumerate `modes` and whose columns enumerate the other modes.

    Rows and columns are in row-major order of the ascending modes, whatever the order of `modes`.

    Args:
        x (Tensor): tensor to unfold.
        modes (sequence of int): modes that become the rows.

    Returns:
        Tensor: a contiguous matrix that does not share memory with `x`.

    Example:
        >>> tensorion.unfold(torch.zeros(8, 4, 3), (0, 2)).shape
        torch.Size([24, 4])
    """
    return torch.ops.tensorion.unfold(
        _arguments.tensor(x, "unfold.x"),
        _arguments.ints(modes, "unfold.modes"),
    )


def fold(matrix: Tensor, modes: Sequence[int], shape: Sequence[int]) -> Tensor:
    """Fold a matrix to a tensor. This is the inverse of `unfold`.

    Args:
        matrix (Tensor): matrix to fold.
        modes (sequence of int): modes that the rows enumerate.
        shape (sequence of int): shape of the tensor.

    Returns:
        Tensor: a contiguous tensor that does not share memory with `matrix`.
    """
    return torch.ops.tensorion.fold(
        _arguments.tensor(matrix, "fold.matrix"),
        _arguments.ints(modes, "fold.modes"),
        _arguments.ints(shape, "fold.shape"),
    )
