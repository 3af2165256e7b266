"""Norms of a tensor, over its unfoldings `x_(tau)`, and of a convolution."""

from collections.abc import Sequence

import torch
from torch import Tensor

from . import _arguments


def nuclear_norm(x: Tensor, modes: Sequence[int]) -> Tensor:
    """`||x_(tau)||_*`, the sum of the singular values of `unfold(x, modes)`, in the dtype of `x`.

    Differentiable once: the gradient is the folded polar factor of the unfolding. A second derivative is an error.
    """
    return torch.ops.tensorion.nuclear_norm(
        _arguments.tensor(x, "nuclear_norm.x"), _arguments.ints(modes, "nuclear_norm.modes")
    )


def dual_norm(x: Tensor, *, family: _arguments.FamilyLike = None) -> Tensor:
    """`max over tau of ||x_(tau)||_*`, the paper's `||x||_Sigma^dagger`, in the dtype of `x`.

    With a `family` of sets of modes, as `[(0,), (0, 1)]`, over these unfoldings alone.

    Differentiable once: the gradient is the answer of `lmo`. A second derivative is an error.
    """
    return torch.ops.tensorion.dual_norm(
        _arguments.tensor(x, "dual_norm.x"), _arguments.family(family, "dual_norm.family")
    )


def relaxed_norm(x: Tensor, *, tol: float = 1e-3, family: _arguments.FamilyLike = None) -> tuple[float, float]:
    """Certified bounds `(lower, upper)` of the relaxed spectral norm, the paper's `||x||_Sigma`:

        max <m, x> over dual_norm(m) <= 1  =  min sum_tau ||xi^tau_(tau)||_2 over sum_tau xi^tau = x

    Every `m` bounds it from below and every decomposition from above; the search stops once
    `upper - lower <= tol upper`. With a `family` of sets of modes the unfoldings are these alone. Not differentiable.
    """
    lower, upper = torch.ops.tensorion.relaxed_norm(
        _arguments.tensor(x, "relaxed_norm.x"),
        _arguments.number(tol, "relaxed_norm.tol"),
        _arguments.family(family, "relaxed_norm.family"),
    )
    return lower.item(), upper.item()


def spectral_norm(x: Tensor, *, restarts: int = 32, field: str = "real") -> tuple[float, float]:
    """Bounds `(lower, upper)` of `max <x, u_1 (x) ... (x) u_d>` over unit vectors, the paper's `||x||_sigma`.

    Below: the best of `restarts` random starts (and one more) of the higher-order power method, seeded.
    Above: `relaxed_norm`. The two need not meet. Not differentiable.

    `field="complex"` takes the maximum of `|<x, u_1 (x) ... (x) u_d>|` over complex unit vectors. It may be larger, and
    is the norm for which `conv_norm(kernel, ...) <= sqrt(h w) spectral_norm(kernel)` holds.
    """
    lower, upper = torch.ops.tensorion.spectral_norm(
        _arguments.tensor(x, "spectral_norm.x"),
        _arguments.integer(restarts, "spectral_norm.restarts"),
        _arguments.text(field, "spectral_norm.field"),
    )
    return lower.item(), upper.item()


def conv_norm(
    kernel: Tensor,
    input_size: int | Sequence[int],
    *,
    padding: str = "circular",
    stride: int | Sequence[int] = 1,
    dilation: int | Sequence[int] = 1,
) -> float:
    """`||T_K||_2`, the spectral norm of a convolution as a linear map.

    With stride 1 its output is as large as its input; stride s keeps every s-th output. Not differentiable.

    Args:
        kernel: `(c_out, c_in, size...)`, with one to three spatial modes.
        input_size: the spatial sizes of the input: one for each mode, or one for all.
        padding: what is outside the input: "circular", itself again; "zeros", nothing.
        stride: likewise.
        dilation: likewise.
    """
    return torch.ops.tensorion.conv_norm(
        _arguments.tensor(kernel, "conv_norm.kernel"),
        _sizes(input_size, "conv_norm.input_size"),
        _arguments.text(padding, "conv_norm.padding"),
        _sizes(stride, "conv_norm.stride"),
        _sizes(dilation, "conv_norm.dilation"),
    ).item()


def _sizes(value: int | Sequence[int], name: str) -> list[int]:
    """One number for all spatial modes, or one for each."""
    return [_arguments.integer(value, name)] if isinstance(value, int) else _arguments.ints(value, name)


class _Gradient(torch.autograd.Function):
    """`gradient * derivative`, the gradient with respect to `x`, which cannot be differentiated further.

    As torch's `once_differentiable`, which does not notice that the derivative depends on `x`.
    """

    @staticmethod
    def forward(ctx, x: Tensor, gradient: Tensor, derivative: Tensor, name: str) -> Tensor:
        ctx.name = name
        return gradient * derivative

    @staticmethod
    def backward(ctx, *_: Tensor):
        raise RuntimeError(
            f"[tensorion.{ctx.name}] expected to be differentiated once, got a second derivative, which is not "
            "implemented"
        )


def _keep_input(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.unfoldings = inputs[1]  # the modes of one, or the family


def _nuclear_norm_backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
    (x,) = ctx.saved_tensors
    with torch.no_grad():
        if x.dim() == 0:
            derivative = x.sign()
        else:
            matrix = torch.ops.tensorion.unfold(x, ctx.unfoldings)
            factor = torch.ops.tensorion.polar(matrix, "svd")
            derivative = torch.ops.tensorion.fold(factor, ctx.unfoldings, x.shape)
    return _Gradient.apply(x, gradient, derivative, "nuclear_norm"), None


def _dual_norm_backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
    (x,) = ctx.saved_tensors
    with torch.no_grad():
        derivative = x.sign() if x.dim() == 0 else torch.ops.tensorion.lmo(x, "online", "svd", ctx.unfoldings)[0]
    return _Gradient.apply(x, gradient, derivative, "dual_norm"), None


torch.library.register_autograd("tensorion::nuclear_norm", _nuclear_norm_backward, setup_context=_keep_input)
torch.library.register_autograd("tensorion::dual_norm", _dual_norm_backward, setup_context=_keep_input)
