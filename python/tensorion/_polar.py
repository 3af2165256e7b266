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
    r"""Compute the polar factor `U V^T` of each matrix `A = U diag(s) V^T` in a `(..., m, n)` tensor.

    The polar factor solves `max <A, X>` over `||X||_2 <= 1`, whose optimum is the nuclear norm `||A||_*`. The quality
    of an approximation is `q = <A, X> / (||X||_2 ||A||_*)`, which is at most 1. The polar factor of zero is zero. The
    result does not depend on the scale of the input.

    Args:
        matrix (Tensor): real floating-point tensor of shape `(..., m, n)`. On the CPU, half precision is computed in
            fp32.
        method (str, optional): "halley" is a rational iteration that stops once `q >= 0.97` is certified;
            "newton_schulz" is a polynomial iteration that consists of matrix products only; "svd" is exact; "auto" is
            "halley" on the CPU and "newton_schulz" on other devices. On accelerators only "newton_schulz" runs on the
            device itself (in fp16); the other methods copy the matrices to the CPU and back (default: "auto").
        ns_coefficients (str or sequence, optional): coefficients of "newton_schulz", whose steps are
            `X <- a X + (b R + c R^2) X` with `R = X X^T`: "muon", "polar_express", "cans", one row `(a, b, c)`, or one
            row per step. If there are more steps than rows, the last row is repeated. None means "muon" on the CPU, and
            on other devices the Polar Express polynomials for the given number of steps (default: None).
        ns_steps (int, optional): number of Newton-Schulz steps. None means 6 on accelerators if `ns_coefficients` is
            also None, and 5 otherwise. On accelerators, 4 steps are faster and good enough for most momenta (default:
            None).

    Returns:
        Tensor: the polar factors, with the shape and dtype of `matrix`, detached from the autograd graph. The function
        is not differentiable.

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if `matrix` has fewer than two modes, is not real floating-point or is not finite, or if an option
            is unknown. With "newton_schulz" on an accelerator, input that is not finite gives NaN instead.
    """
    return torch.ops.tensorion.polar(
        _arguments.tensor(matrix, "polar.matrix"),
        _arguments.string(method, "polar.method"),
        None if ns_coefficients is None else _arguments.coefficients(ns_coefficients, "polar.ns_coefficients"),
        None if ns_steps is None else _arguments.integer(ns_steps, "polar.ns_steps"),
    )
