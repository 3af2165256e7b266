"""What the optimizer remembers of each parameter."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import _group_split, _options, _sharding
from ._unfolding import effective_order

#: The state that each algorithm keeps, in the order of its operator's arguments.
KEYS = {
    "tensorion": ("momentum_buffer",),
    "adamw": ("exp_avg", "exp_avg_sq", "step"),
    "sgd": ("momentum_buffer",),
}


def missing(state: Mapping[str, Any], param: Tensor, algorithm: str) -> dict[str, Tensor]:
    """What the state of a parameter lacks: zeros, as torch's own optimizers keep them."""
    keys = [key for key in KEYS[algorithm] if key not in state]
    if not keys:
        return {}
    # Tensors made in inference mode could never be updated outside of it.
    with torch.inference_mode(False), torch.no_grad():
        return {
            key: torch.zeros((), dtype=torch.float32, device=param.device)
            if key == "step"
            else torch.zeros_like(param, memory_format=torch.preserve_format)
            for key in keys
        }


def convert(state: dict[str, Any], param: Tensor) -> None:
    """Loaded state as a step needs it: counts in single precision, and no tensors of inference mode."""
    with torch.inference_mode(False), torch.no_grad():
        for key, value in state.items():
            if isinstance(value, Tensor):
                found = value.to(param.device, torch.float32) if key == "step" else value
                state[key] = found.clone() if found.is_inference() else found


def completed(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """The state with the options that were added after it was saved."""
    groups = []
    for group in state_dict["param_groups"]:
        added = {key: value for key, value in _options.ADDED.items() if key in _options.KEYS[group["algorithm"]]}
        groups.append({**added, **group})
    return {**state_dict, "param_groups": groups}


def check_state_dict(
    state_dict: Mapping[str, Any], groups: Sequence[Mapping[str, Any]], defaults: Mapping[str, Any]
) -> None:
    """Raise if the state is not one of these param groups."""
    if not {"state", "param_groups"} <= state_dict.keys():
        raise ValueError(
            "[tensorion.Tensorion] expected a state dict with 'state' and 'param_groups', got one with "
            f"{sorted(map(str, state_dict))}"
        )
    skipped = state_dict.get("skipped_steps", 0)
    if isinstance(skipped, bool) or not isinstance(skipped, int) or skipped < 0:
        raise ValueError(f"[tensorion.Tensorion] expected skipped_steps to be a count, got {skipped!r}")
    saved_groups, saved_state = state_dict["param_groups"], state_dict["state"]
    _check_form(saved_state, saved_groups)
    _check_split(saved_groups, groups)
    if len(saved_groups) != len(groups):
        raise ValueError(
            f"[tensorion.Tensorion] expected the state of {len(groups)} param groups, got {len(saved_groups)}"
        )
    for number, (group, saved) in enumerate(zip(groups, saved_groups, strict=True)):
        labels = _group_split.labels(number, group)
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
        for key in _options.KEYS[group["algorithm"]]:
            if key not in saved and key not in _options.ADDED:
                raise ValueError(
                    f"[tensorion.Tensorion] expected '{key}' in saved group {number}, of algorithm "
                    f"'{group['algorithm']}', got only {sorted(map(str, saved))}"
                )
        values = _options.checked(saved, defaults, ranges=False)
        _group_split.check_algorithm(group, number, values)
        for param, label, key in zip(group["params"], labels, saved["params"], strict=True):
            state = saved_state.get(key)
            if state is not None and not isinstance(state, Mapping):
                raise ValueError(f"[tensorion.Tensorion] expected the state of {label} to be a dict, got {state!r}")
            if state:
                _check_state(state, group["algorithm"], param, label)
                if values["nonfinite"] != "ignore":
                    _check_values(state, group["algorithm"], label)


def _check_form(state: object, groups: object) -> None:
    """Raise if these are not what a state dict consists of."""
    if not isinstance(state, Mapping):
        raise ValueError(f"[tensorion.Tensorion] expected 'state' to be a dict, got {type(state).__name__}")
    if not isinstance(groups, Sequence):
        raise ValueError(f"[tensorion.Tensorion] expected 'param_groups' to be a list, got {type(groups).__name__}")
    for number, group in enumerate(groups):
        if not isinstance(group, Mapping) or not isinstance(group.get("params"), Sequence):
            raise ValueError(f"[tensorion.Tensorion] expected saved group {number} to be a dict with a list 'params'")
        for key in group["params"]:
            if not isinstance(key, (int, str)):
                where = f"'params' of saved group {number}"
                raise ValueError(f"[tensorion.Tensorion] expected {where} to be numbers or names, got {key!r}")


def _check_split(saved_groups: Sequence[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]]) -> None:
    """Raise if the state is older than the rule that kernels of size 1 are Tensorion's: no mode of size 1 counted."""
    moved, count = [], 0
    for number, group in enumerate(groups):
        rule = re.fullmatch(r"order >= (\d+)", group.get("why", ""))
        if group["algorithm"] == "tensorion":
            count += len(group["params"])
            for param, label in zip(group["params"], _group_split.labels(number, group), strict=True):
                if rule and effective_order(param.shape) < int(rule[1]):
                    moved.append(label)
    saved = sum(len(group["params"]) for group in saved_groups if group.get("algorithm") == "tensorion")
    if moved and saved + len(moved) == count:
        raise ValueError(
            "[tensorion.Tensorion] expected the state of algorithm 'tensorion' for parameters that are kernels of size "
            "1, got a state saved when the fallback updated them. To go on with it, make the optimizer of "
            "tensorion.param_groups(model, pointwise=False), with depthwise=True unless its groups came from "
            f"param_groups before. These are the parameters: {'; '.join(moved)}"
        )


def _check_values(state: Mapping[str, Any], algorithm: str, label: str) -> None:
    """Raise if the state would put a NaN into the parameter."""
    for key in KEYS[algorithm]:
        value = _sharding.to_local(state[key])
        # Second moments may overflow, as torch's do: that parameter then stands still.
        bad = value.isnan() if key == "exp_avg_sq" else ~value.isfinite()
        if bad.any():
            raise ValueError(
                f"[tensorion.Tensorion] expected a finite {key} for {label}, got {value[bad].flatten()[0].item()}"
            )
        if key in ("step", "exp_avg_sq") and (value < 0).any():
            raise ValueError(
                f"[tensorion.Tensorion] expected a {key} that is not negative for {label}, got {value.min().item():g}"
            )


def _check_state(state: Mapping[str, Any], algorithm: str, param: Tensor, label: str) -> None:
    for key in KEYS[algorithm]:
        expected = [] if key == "step" else list(param.shape)
        value = state.get(key)
        if not isinstance(value, Tensor) or list(value.shape) != expected:
            got = list(value.shape) if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise ValueError(f"[tensorion.Tensorion] expected a {key} of shape {expected} for {label}, got {got}")
        if not value.is_floating_point() or value.layout != torch.strided or value.is_meta:
            raise ValueError(
                f"[tensorion.Tensorion] expected a dense, real floating-point {key} for {label}, got {value.dtype}, "
                f"{value.layout} on {value.device}"
            )
        if key != "step" and not _sharding.is_placed_as(value, param):
            raise ValueError(
                f"[tensorion.Tensorion] expected a {key} placed as {label} ({_sharding.describe(param)}), got "
                f"{_sharding.describe(value)}: torch.distributed.checkpoint.state_dict converts between them"
            )
