"""The orthogonal polar factor."""

import torch
from torch import Tensor

from . import _arguments


def polar(
    matrix: Tensor,
    method: str = "auto",
    *,
    ns_coefficients: _arguments.CoefficientsLike = "muon",
    ns_steps: int = 5,
) -> Tensor:
    """The polar factor `U V^T` of each matrix `A = U diag(s) V^T` of a `(..., m, n)` tensor.

    It solves `max <A, X>` over `||X||_2 <= 1`, whose optimum is the nuclear norm `||A||_*`. How well an
    approximate answer does is `q = <A, X> / (||X||_2 ||A||_*)`, at most 1. Zero gives zero, and the
    answer does not depend on the scale of the input. The result has the dtype of `matrix`; it is
    detached, since the function is not differentiable.

    Args:
        matrix: real floating-point. Half precision is computed in fp32 on the CPU, where non-finite
            input is an error; elsewhere it gives non-finite output.
        method: "halley", a rational iteration that stops once q >= 0.97 is certified; "newton_schulz",
            polynomials, matrix products only; "svd", exact; "auto", halley on the CPU and newton_schulz
            elsewhere.
        ns_coefficients: of "newton_schulz", whose steps are `X <- a X + (b R + c R^2) X` with
            `R = X X^T`: "muon", "polar_express", "cans", one row `(a, b, c)`, or a row for each step
            (the last one is repeated).
        ns_steps: how many of them.
    """
    return torch.ops.tensorion.polar(
        _arguments.tensor(matrix, "polar.matrix"),
        _arguments.text(method, "polar.method"),
        _arguments.coefficients(ns_coefficients, "polar.ns_coefficients"),
        _arguments.integer(ns_steps, "polar.ns_steps"),
    )
