"""The count of steps that `nonfinite="skip"` has left out, kept where gradients are."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def counter(groups: Sequence[Mapping[str, Any]], count: int = 0) -> Tensor | None:
    """A counter that starts at `count`; None if no group skips steps, and none were skipped.

    It exists before the first step, since torch.compile does not keep new attributes of an optimizer.
    """
    skipping = [group["params"][0] for group in groups if group.get("nonfinite") == "skip"]
    devices = [param.device for param in skipping if not param.is_meta]
    if not devices and not count:
        return None
    return _new(count, devices[0] if devices else torch.device("cpu"))


def add(count: Tensor | None, skipped: Tensor) -> Tensor:
    """Count in place, so that replays of a captured graph count, too."""
    # Since the optimizer was made, the policy may have changed, or the parameters may have moved.
    if count is None:
        count = _new(0, skipped.device)
    elif count.device != skipped.device:
        count = count.to(skipped.device)
    return count.add_(skipped)


def _new(count: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.full((), float(count), device=device)
