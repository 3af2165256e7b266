"""What the optimizer remembers of each parameter."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import _grid, _groups, _options

#: The state that each algorithm keeps, in the order of its operator's arguments.
KEYS = {
    "tensorion": ("momentum_buffer",),
    "adamw": ("exp_avg", "exp_avg_sq", "step"),
    "sgd": ("momentum_buffer",),
}


def initialize(state: dict[str, Any], param: Tensor, algorithm: str) -> None:
    """Add what is missing, zero, as torch's own optimizers keep it."""
    for key in KEYS[algorithm]:
        if key in state:
            continue
        if key == "step":
            state[key] = torch.zeros((), dtype=torch.float32, device=param.device)
        else:
            state[key] = torch.zeros_like(param, memory_format=torch.preserve_format)


def check_state_dict(
    state_dict: Mapping[str, Any], groups: Sequence[Mapping[str, Any]], defaults: Mapping[str, Any]
) -> None:
    """Raise where the state is not one of these param groups."""
    if not {"state", "param_groups"} <= state_dict.keys():
        raise ValueError(
            "[tensorion.Tensorion] expected a state dict with 'state' and 'param_groups', got one with "
            f"{sorted(map(str, state_dict))}"
        )
    skipped = state_dict.get("skipped_steps", 0)
    if isinstance(skipped, bool) or not isinstance(skipped, int) or skipped < 0:
        raise ValueError(f"[tensorion.Tensorion] expected skipped_steps to be a count, got {skipped!r}")
    saved_groups = state_dict["param_groups"]
    if len(saved_groups) != len(groups):
        raise ValueError(
            f"[tensorion.Tensorion] expected the state of {len(groups)} param groups, got {len(saved_groups)}"
        )
    for number, (group, saved) in enumerate(zip(groups, saved_groups, strict=True)):
        labels = _groups.labels(number, group)
        count = len(saved["params"])
        if count != len(labels):
            raise ValueError(
                f"[tensorion.Tensorion] expected the state of {len(labels)} parameters in group {number}, "
                f"got {count}" + (f": none for {labels[count]}" if count < len(labels) else "")
            )
        if saved.get("algorithm") != group["algorithm"]:
            raise ValueError(
                f"[tensorion.Tensorion] expected the state of algorithm '{group['algorithm']}' for "
                f"{labels[0]}, got '{saved.get('algorithm')}'"
            )
        _options.checked(saved, defaults)
        for param, label, key in zip(group["params"], labels, saved["params"], strict=True):
            state = state_dict["state"].get(key)
            if state:
                _check_state(state, group["algorithm"], param, label)


def _check_state(state: Mapping[str, Any], algorithm: str, param: Tensor, label: str) -> None:
    for key in KEYS[algorithm]:
        expected = [] if key == "step" else list(param.shape)
        value = state.get(key)
        if not isinstance(value, Tensor) or list(value.shape) != expected:
            got = list(value.shape) if isinstance(value, Tensor) else value
            raise ValueError(f"[tensorion.Tensorion] expected a {key} of shape {expected} for {label}, got {got}")
        if key != "step" and _grid.is_dtensor(param) != _grid.is_dtensor(value):
            raise ValueError(
                f"[tensorion.Tensorion] expected a {key} placed as {label} ({_grid.describe(param)}), got "
                f"{_grid.describe(value)}: torch.distributed.checkpoint.state_dict converts between them"
            )
