"""Unfoldings: a tensor seen as a matrix."""

from collections.abc import Sequence

import torch
from torch import Tensor

from . import _arguments


def effective_order(shape: Sequence[int]) -> int:
    """The number of modes whose size is not 1."""
    return sum(size != 1 for size in shape)


def drop_ones(shape: Sequence[int]) -> list[int]:
    """The sizes other than 1."""
    return [size for size in shape if size != 1]


def unfoldings(shape: Sequence[int]) -> list[tuple[int, ...]]:
    """All unfoldings of a shape, each by the modes that become the rows.

    A shape of effective order d (modes of size 1 do not count) has `2**(d - 1) - 1`: a set of modes
    and its complement give transposes, and the one with fewer modes stands for both, on equal count
    the one that holds the lowest mode. They come by number of modes, then lexicographic.
    """
    shape = _arguments.ints(shape, "unfoldings.shape")
    return [tuple(modes) for modes in torch.ops.tensorion.unfoldings(shape)]


def balanced_unfolding(shape: Sequence[int]) -> tuple[int, ...]:
    """The unfolding with the largest `min(rows, cols)`, the first in `unfoldings` among equals."""
    shape = _arguments.ints(shape, "balanced_unfolding.shape")
    return tuple(torch.ops.tensorion.balanced_unfolding(shape))


def unfold(x: Tensor, modes: Sequence[int]) -> Tensor:
    """The matrix whose rows run over `modes` of `x` and whose columns run over the others.

    Both in ascending order and row-major, whatever the order of `modes`. The matrix is contiguous and
    has memory of its own.
    """
    return torch.ops.tensorion.unfold(
        _arguments.tensor(x, "unfold.x"),
        _arguments.ints(modes, "unfold.modes"),
    )


def fold(matrix: Tensor, modes: Sequence[int], shape: Sequence[int]) -> Tensor:
    """The tensor of shape `shape` that `unfold(..., modes)` makes into `matrix`.

    The tensor is contiguous and has memory of its own.
    """
    return torch.ops.tensorion.fold(
        _arguments.tensor(matrix, "fold.matrix"),
        _arguments.ints(modes, "fold.modes"),
        _arguments.ints(shape, "fold.shape"),
    )
