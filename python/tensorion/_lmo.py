"""The linear minimization oracle."""

from dataclasses import dataclass

import torch
from torch import Tensor

from . import _arguments


@dataclass(frozen=True, eq=False, repr=False)
class LmoResult:
    """The result of `lmo`. Its numbers are stored as tensors and are read from the device on access."""

    #: The maximizer, with the shape and dtype of the input.
    x: Tensor
    _rows: Tensor
    _value: Tensor
    _upper: Tensor
    _solved: Tensor

    @property
    def modes(self) -> tuple[int, ...]:
        """The modes that become the rows of the chosen unfolding."""
        return tuple(mode for mode, is_row in enumerate(self._rows.tolist()) if is_row)

    @property
    def value(self) -> float:
        """A lower bound of the optimum: the inner product of the input and `x`.

        If the polar method may leave the unit ball, the inner product is scaled down accordingly.
        """
        return self._value.item()

    @property
    def upper(self) -> float:
        """An upper bound of the optimum, up to rounding."""
        return self._upper.item()

    @property
    def solved(self) -> int:
        """The number of unfoldings whose nuclear norm was computed."""
        return int(self._solved.item())

    def __repr__(self) -> str:
        return (
            f"LmoResult(x=<{'x'.join(map(str, self.x.shape))}>, modes={self.modes}, value={self.value}, "
            f"upper={self.upper}, solved={self.solved})"
        )


def lmo(
    x: Tensor,
    *,
    unfolding: _arguments.UnfoldingLike = "online",
    polar: str = "auto",
    family: _arguments.FamilyLike = None,
) -> LmoResult:
    r"""Solve the linear minimization oracle: `argmax <x, X>` over `||X||_Sigma <= 1`.

    The optimum is the dual norm, `max over tau of ||x_(tau)||_*`. The maximizer is the folded polar factor of the
    unfolding with the largest nuclear norm. The result comes with a lower and an upper bound of the optimum. It is
    detached from the autograd graph: the function is not differentiable.

    Args:
        x (Tensor): real floating-point tensor with at least one mode.
        unfolding (str or tuple of int, optional): "online" searches for the unfolding with the largest nuclear norm
            and computes only the norms that bounds cannot rule out; "balanced" takes the squarest unfolding; a tuple
            of modes names the rows of a fixed unfolding (default: "online").
        polar (str, optional): the `method` of `tensorion.polar` (default: "auto").
        family (sequence of tuples of int, optional): the unfoldings that define the norms, each given by the modes
            that become its rows, for example `[(0,), (0, 1)]`. It requires `unfolding="online"` (default: None, all
            unfoldings).

    Returns:
        LmoResult: the maximizer `x`, the chosen `modes`, the bounds `value` and `upper`, and the count `solved`.

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if `x` is not a finite real tensor with at least one mode, or if another argument does not fit it.

    Example:
        >>> result = tensorion.lmo(torch.eye(4).reshape(4, 2, 2))
        >>> result.modes
        (0,)
    """
    return LmoResult(
        *torch.ops.tensorion.lmo(
            _arguments.tensor(x, "lmo.x"),
            _arguments.unfolding(unfolding, "lmo.unfolding"),
            _arguments.string(polar, "lmo.polar"),
            _arguments.family(family, "lmo.family"),
        )
    )
