"""Automatic mixed precision: unscales gradients inside `step`, without a device synchronization.

If an optimizer has the attribute `_step_supports_amp_scaling`, GradScaler sets `grad_scale` and `found_inf` on it
before it calls `step`. torch's fused optimizers use the same protocol.
"""

import torch
from torch import Tensor
from torch.optim import Optimizer

from . import _sharding


def unscale(optimizer: Optimizer) -> Tensor | None:
    """Unscale the gradients in place if a GradScaler is in use.

    Returns:
        A tensor that is nonzero if some gradient is not finite, or None if no GradScaler is in use.
    """
    found_inf: Tensor | None = getattr(optimizer, "found_inf", None)
    scale: Tensor | None = getattr(optimizer, "grad_scale", None)
    if scale is None:  # No GradScaler is in use, or scaler.unscale_() has already run.
        return found_inf
    by_device_and_dtype: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for group in optimizer.param_groups:
        for param in group["params"]:
            if param.grad is not None:
                grad = _sharding.to_local(param.grad)
                by_device_and_dtype.setdefault((grad.device, grad.dtype), []).append(grad)
    for (device, _), grads in by_device_and_dtype.items():
        found = torch.zeros((), dtype=torch.float32, device=device)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale.to(device).reciprocal())
        found_inf = found if found_inf is None else torch.maximum(found_inf, found.to(found_inf.device))
    return found_inf
