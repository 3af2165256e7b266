"""Automatic mixed precision: gradients that a GradScaler has scaled, without a read from the device.

GradScaler sets the attributes `grad_scale` and `found_inf` of an optimizer that has `_step_supports_amp_scaling` before
it calls `step`, as it does for torch's fused optimizers.
"""

import torch
from torch import Tensor
from torch.optim import Optimizer

from . import _sharding


def unscale(optimizer: Optimizer) -> Tensor | None:
    """Unscale the gradients. The result is not 0 if some are not finite; None if no GradScaler asks."""
    found_inf: Tensor | None = getattr(optimizer, "found_inf", None)
    scale: Tensor | None = getattr(optimizer, "grad_scale", None)
    if scale is None:  # there is no scaler, or it has unscaled them already
        return found_inf
    by_kind: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for group in optimizer.param_groups:
        for param in group["params"]:
            if param.grad is not None:
                grad = _sharding.to_local(param.grad)
                by_kind.setdefault((grad.device, grad.dtype), []).append(grad)
    for (device, _), grads in by_kind.items():
        found = torch.zeros((), dtype=torch.float32, device=device)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale.to(device).reciprocal())
        found_inf = found if found_inf is None else torch.maximum(found_inf, found.to(found_inf.device))
    return found_inf
