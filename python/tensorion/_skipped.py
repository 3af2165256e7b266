"""The number of steps that `nonfinite="skip"` has skipped, counted on the device of the gradients."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def counter(groups: Sequence[Mapping[str, Any]], count: int = 0) -> Tensor | None:
    """Create a counter that starts at `count`. The result is None if no group skips steps and `count` is 0.

    The counter must exist before the first step, because torch.compile does not keep new attributes of an optimizer.
    """
    skipping = [group["params"][0] for group in groups if group.get("nonfinite") == "skip"]
    devices = [param.device for param in skipping if not param.is_meta]
    if not devices and not count:
        return None
    return _new(count, devices[0] if devices else torch.device("cpu"))


def moved(count: Tensor | None, device: torch.device) -> Tensor:
    """Move the counter to another device, or create it: parameters may move and `nonfinite` may change later."""
    return _new(0, device) if count is None else count.to(device)


def _new(count: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.full((), float(count), device=device)
