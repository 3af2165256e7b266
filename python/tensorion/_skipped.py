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


def moved(count: Tensor | None, device: torch.device) -> Tensor:
    """The counter on another device, or a new one: parameters may move, and the policy may change, after the fact."""
    return _new(0, device) if count is None else count.to(device)


def _new(count: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.full((), float(count), device=device)
