"""The linear minimization oracle."""

from dataclasses import dataclass

import torch
from torch import Tensor

from . import _arguments


@dataclass(frozen=True, eq=False, repr=False)
class LmoResult:
    """An answer of `lmo`. Numbers are kept as tensors and become Python's when they are asked for."""

    #: The answer, in the shape and dtype of the input.
    x: Tensor
    _rows: Tensor
    _value: Tensor
    _upper: Tensor
    _solve: Tensor

    @property
    def modes(self) -> tuple[int, ...]:
        """The modes that become the rows of the unfolding that was solved."""
        return tuple(mode for mode, is_row in enumerate(self._rows.tolist()) if is_row)

    @property
    def value(self) -> float:
        """`<M, x>`, less if the method may exceed the unit ball: `value <= optimum`."""
        return self._value.item()

    @property
    def upper(self) -> float:
        """`optimum <= upper`, up to rounding."""
        return self._upper.item()

    @property
    def solved(self) -> int:
        """How many unfoldings' nuclear norms had to be computed."""
        return int(self._solve.item())

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
    """`argmax <x, X>` over `||X||_Sigma <= 1`, with its certificate.

    The optimum is the dual norm, `max over tau of ||x_(tau)||_*`. It is attained by folding the polar
    factor of the unfolding with the largest nuclear norm. The answer is detached: the function is not
    differentiable.

    Args:
        x: real floating-point, with at least one mode.
        unfolding: "online" finds the unfolding with the largest nuclear norm, but solves only those that
            bounds cannot rule out; "balanced" takes the squarest; a tuple of modes, the one they name.
        polar: as `method` of `tensorion.polar`.
        family: sets of modes, as `[(0,), (0, 1)]`: the norms are over these unfoldings alone. "online" searches
            among them; other values of `unfolding` do not go with it.
    """
    return LmoResult(
        *torch.ops.tensorion.lmo(
            _arguments.tensor(x, "lmo.x"),
            _arguments.unfolding(unfolding, "lmo.unfolding"),
            _arguments.text(polar, "lmo.polar"),
            _arguments.family(family, "lmo.family"),
        )
    )
