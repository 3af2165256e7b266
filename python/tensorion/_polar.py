"""The orthogonal polar factor."""

import torch
from torch import Tensor

from . import _arguments


def polar(
    matrix: Tensor,
    method: str = "auto",
    *,
    ns_coefficients: _arguments.CoefficientsLike | None = None,
    ns_steps: int | None = None,
) -> Tensor:
    """The polar factor `U V^T` of each matrix `A = U diag(s) V^T` of a `(..., m, n)` tensor.

    It solves `max <A, X>` over `||X||_2 <= 1`, whose optimum is the nuclear norm `||A||_*`. How well an
    approximate answer does is `q = <A, X> / (||X||_2 ||A||_*)`, at most 1. Zero gives zero, and the
    answer does not depend on the scale of the input. The result has the dtype of `matrix`; it is
    detached, since the function is not differentiable.

    Args:
        matrix: real floating-point. Half precision is computed in fp32 on the CPU. Input that is not finite
            is an error; with "newton_schulz" on an accelerator it gives NaN.
        method: "halley", a rational iteration that stops once q >= 0.97 is certified; "newton_schulz",
            polynomials, matrix products only; "svd", exact; "auto", halley on the CPU and newton_schulz
            elsewhere. On accelerators only newton_schulz runs on the device itself (in fp16); for the other
            methods matrices are copied to the CPU and back.
        ns_coefficients: of "newton_schulz", whose steps are `X <- a X + (b R + c R^2) X` with
            `R = X X^T`: "muon", "polar_express", "cans", one row `(a, b, c)`, or a row for each step; if
            there are more steps than rows, the last row is used again. None: "muon" on the CPU; elsewhere
            the polynomials of Polar Express that suit the number of steps best.
        ns_steps: the number of steps. None: 5; with the coefficients None, 6 on accelerators, where 4 are a
            faster choice that is good enough for most momenta.
    """
    return torch.ops.tensorion.polar(
        _arguments.tensor(matrix, "polar.matrix"),
        _arguments.text(method, "polar.method"),
        None if ns_coefficients is None else _arguments.coefficients(ns_coefficients, "polar.ns_coefficients"),
        None if ns_steps is None else _arguments.integer(ns_steps, "polar.ns_steps"),
    )
