"""Norms of a tensor, defined by its unfoldings `x_(tau)`, and the norm of a convolution."""

from collections.abc import Sequence

import torch
from torch import Tensor

from . import _arguments


def nuclear_norm(x: Tensor, modes: Sequence[int]) -> Tensor:
    """Compute the nuclear norm of an unfolding: the sum of the singular values of `unfold(x, modes)`.

    The function is differentiable once: the gradient is the folded polar factor of the unfolding. A second derivative
    raises an error.

    Args:
        x (Tensor): real floating-point tensor.
        modes (sequence of int): modes that become the rows.

    Returns:
        Tensor: the norm, as a 0-dim tensor with the dtype of `x`.
    """
    return torch.ops.tensorion.nuclear_norm(
        _arguments.tensor(x, "nuclear_norm.x"), _arguments.ints(modes, "nuclear_norm.modes")
    )


def dual_norm(x: Tensor, *, family: _arguments.FamilyLike = None) -> Tensor:
    """Compute the dual norm `max over tau of ||x_(tau)||_*`, written `||x||_Sigma^dagger` in the paper.

    The function is differentiable once: the gradient is the maximizer found by `lmo`. A second derivative raises an
    error.

    Args:
        x (Tensor): real floating-point tensor.
        family (sequence of tuples of int, optional): the unfoldings that define the norm, each given by the modes that
            become its rows, for example `[(0,), (0, 1)]` (default: None, all unfoldings).

    Returns:
        Tensor: the norm, as a 0-dim tensor with the dtype of `x`.
    """
    return torch.ops.tensorion.dual_norm(
        _arguments.tensor(x, "dual_norm.x"), _arguments.family(family, "dual_norm.family")
    )


def relaxed_norm(x: Tensor, *, tol: float = 1e-3, family: _arguments.FamilyLike = None) -> tuple[float, float]:
    """Compute certified bounds of the relaxed spectral norm, written `||x||_Sigma` in the paper:

        max <m, x> over dual_norm(m) <= 1  =  min sum_tau ||xi^tau_(tau)||_2 over sum_tau xi^tau = x

    Every feasible `m` gives a lower bound, and every decomposition of `x` gives an upper bound. The search stops once
    `upper - lower <= tol * upper`. The function is not differentiable.

    Args:
        x (Tensor): real floating-point tensor.
        tol (float, optional): relative gap between the bounds (default: 1e-3).
        family (sequence of tuples of int, optional): the unfoldings that define the norm (default: None, all
            unfoldings).

    Returns:
        tuple of float: the bounds `(lower, upper)`.
    """
    lower, upper = torch.ops.tensorion.relaxed_norm(
        _arguments.tensor(x, "relaxed_norm.x"),
        _arguments.number(tol, "relaxed_norm.tol"),
        _arguments.family(family, "relaxed_norm.family"),
    )
    return lower.item(), upper.item()


def spectral_norm(x: Tensor, *, restarts: int = 32, field: str = "real") -> tuple[float, float]:
    """Compute bounds of the spectral norm `max <x, u_1 (x) ... (x) u_d>` over unit vectors `u_i`.

    The paper writes this norm as `||x||_sigma`. The lower bound is the best result of the higher-order power method
    from `restarts` random starting points and one deterministic one; the random numbers have a fixed seed. The upper
    bound is the one of `relaxed_norm`. The two bounds need not meet. The function is not differentiable.

    Args:
        x (Tensor): real floating-point tensor.
        restarts (int, optional): number of random starting points (default: 32).
        field (str, optional): "real", or "complex" for the maximum of `|<x, u_1 (x) ... (x) u_d>|` over complex unit
            vectors, which may be larger. The inequality `conv_norm(kernel, ...) <= sqrt(h w) spectral_norm(kernel)`
            holds for the complex norm (default: "real").

    Returns:
        tuple of float: the bounds `(lower, upper)`.
    """
    lower, upper = torch.ops.tensorion.spectral_norm(
        _arguments.tensor(x, "spectral_norm.x"),
        _arguments.integer(restarts, "spectral_norm.restarts"),
        _arguments.string(field, "spectral_norm.field"),
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
    """Compute the spectral norm `||T_K||_2` of a convolution as a linear map.

    The output of a convolution with stride 1 has the size of its input. Stride `s` keeps every `s`-th output. The
    function is not differentiable.

    Args:
        kernel (Tensor): kernel of shape `(c_out, c_in, *kernel_size)` with one to three spatial modes.
        input_size (int or sequence of int): spatial size of the input, one number for all modes or one per mode.
        padding (str, optional): "circular" continues the input periodically; "zeros" pads it with zeros (default:
            "circular").
        stride (int or sequence of int, optional): stride, one number for all modes or one per mode (default: 1).
        dilation (int or sequence of int, optional): dilation, one number for all modes or one per mode (default: 1).

    Returns:
        float: the norm.
    """
    return torch.ops.tensorion.conv_norm(
        _arguments.tensor(kernel, "conv_norm.kernel"),
        _sizes(input_size, "conv_norm.input_size"),
        _arguments.string(padding, "conv_norm.padding"),
        _sizes(stride, "conv_norm.stride"),
        _sizes(dilation, "conv_norm.dilation"),
    ).item()


def _sizes(value: int | Sequence[int], name: str) -> list[int]:
    """Convert a size to a list with one number for all spatial modes or one per mode."""
    return [_arguments.integer(value, name)] if isinstance(value, int) else _arguments.ints(value, name)


class _FirstDerivative(torch.autograd.Function):
    """Computes `gradient * derivative`, the gradient with respect to `x`. Its own backward raises an error.

    torch's `once_differentiable` does not serve here: it does not see that `derivative` depends on `x`.
    """

    @staticmethod
    def forward(ctx, x: Tensor, gradient: Tensor, derivative: Tensor, name: str) -> Tensor:
        ctx.name = name
        return gradient * derivative

    @staticmethod
    def backward(ctx, *_: Tensor):
        raise RuntimeError(
            f"[tensorion.{ctx.name}] the function is differentiable only once; its second derivative is not implemented"
        )


def _setup_context(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.unfoldings = inputs[1]  # The modes of nuclear_norm, or the family of dual_norm.


def _nuclear_norm_backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
    (x,) = ctx.saved_tensors
    with torch.no_grad():
        if x.dim() == 0:
            derivative = x.sign()
        else:
            matrix = torch.ops.tensorion.unfold(x, ctx.unfoldings)
            factor = torch.ops.tensorion.polar(matrix, "svd")
            derivative = torch.ops.tensorion.fold(factor, ctx.unfoldings, x.shape)
    return _FirstDerivative.apply(x, gradient, derivative, "nuclear_norm"), None


def _dual_norm_backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
    (x,) = ctx.saved_tensors
    with torch.no_grad():
        derivative = x.sign() if x.dim() == 0 else torch.ops.tensorion.lmo(x, "online", "svd", ctx.unfoldings)[0]
    return _FirstDerivative.apply(x, gradient, derivative, "dual_norm"), None


torch.library.register_autograd("tensorion::nuclear_norm", _nuclear_norm_backward, setup_context=_setup_context)
torch.library.register_autograd("tensorion::dual_norm", _dual_norm_backward, setup_context=_setup_context)
