"""The state of each parameter: its initial values, and the checks of a loaded state dict."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import _group_split, _options, _sharding, _slices
from ._unfolding import effective_order

#: The state tensors of each algorithm, in the order of its operator's arguments.
KEYS = {
    "tensorion": ("momentum_buffer",),
    "adamw": ("exp_avg", "exp_avg_sq", "step"),
    "sgd": ("momentum_buffer",),
}
#: The additional state of "online" with `online_interval > 1`: the index of the unfolding, and the number of steps.
CHOICE_KEYS = ("unfolding", "step")
#: The state that does not have the shape of the parameter.
_NUMBERS = CHOICE_KEYS


def _choice_shape(param: Tensor, values: Mapping[str, Any]) -> list[int]:
    """Return the shape of the state "unfolding": a scalar, or one number per slice of the parameter."""
    slicing = values["batch_modes"], values["split_sizes"]
    return [sum(count for count, _ in _slices.block_shapes(param.shape, *slicing))] if any(slicing) else []


def _number_device(key: str, param: Tensor, algorithm: str) -> torch.device:
    """Return the device of a number. Only Tensorion's "step" is on the CPU, because the host reads it."""
    return torch.device("cpu") if algorithm == "tensorion" and key == "step" else param.device


def missing(state: Mapping[str, Any], param: Tensor, values: Mapping[str, Any]) -> dict[str, Tensor]:
    """Create the state that a parameter does not have yet, as zeros. `values` are the options of its group."""
    algorithm = values["algorithm"]
    wanted = KEYS[algorithm] + (CHOICE_KEYS if _options.keeps_unfolding(values) else ())
    keys = [key for key in wanted if key not in state]
    if not keys:
        return {}
    # Tensors that are created in inference mode cannot be updated outside of it.
    with torch.inference_mode(False), torch.no_grad():
        return {
            key: torch.zeros(
                _choice_shape(param, values) if key == "unfolding" else [],
                dtype=torch.float32,
                device=_number_device(key, param, algorithm),
            )
            if key in _NUMBERS
            else torch.zeros_like(param, memory_format=torch.preserve_format)
            for key in keys
        }


def by_decision(
    params: Sequence[Tensor], state: Mapping[Tensor, Mapping[str, Any]], interval: int
) -> list[tuple[bool, list[Tensor]]]:
    """Group parameters by whether "online" chooses their unfolding in this step (True) or keeps it (False)."""
    found: dict[bool, list[Tensor]] = {True: [], False: []}
    for param in params:
        found[int(state[param]["step"].item()) % interval == 0].append(param)
    return [(decide, members) for decide, members in found.items() if members]


def count_steps(params: Sequence[Tensor], state: Mapping[Tensor, Mapping[str, Any]], found_inf: Tensor | None) -> None:
    """Count a step of "online". A skipped step does not count, unless only the accelerator knows that it is skipped."""
    steps = [state[param]["step"] for param in params]
    torch._foreach_add_(steps, 1)
    if found_inf is not None and found_inf.is_cpu:
        torch._foreach_sub_(steps, [found_inf] * len(steps))


def convert(state: dict[str, Any], param: Tensor, saved: Mapping[str, Any], algorithm: str) -> None:
    """Convert loaded state in place: numbers to fp32, and inference tensors to normal tensors.

    `saved` is the state before torch converted it to the dtype of the parameter, which may have rounded the numbers.
    """
    with torch.inference_mode(False), torch.no_grad():
        for key, value in state.items():
            if isinstance(value, Tensor):
                if key in _NUMBERS:
                    value = saved[key].to(_number_device(key, param, algorithm), torch.float32, copy=True)
                state[key] = value.clone() if value.is_inference() else value


def completed(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Add the options that did not exist when the state was saved."""
    groups = []
    for group in state_dict["param_groups"]:
        added = {key: value for key, value in _options.ADDED.items() if key in _options.KEYS[group["algorithm"]]}
        groups.append({**added, **group})
    return {**state_dict, "param_groups": groups}


def check_state_dict(
    state_dict: Mapping[str, Any], groups: Sequence[Mapping[str, Any]], defaults: Mapping[str, Any]
) -> None:
    """Raise if the state does not fit these param groups."""
    if not {"state", "param_groups"} <= state_dict.keys():
        raise ValueError(
            "[tensorion.Tensorion] expected a state dict with 'state' and 'param_groups', got one with "
            f"{sorted(map(str, state_dict))}"
        )
    skipped = state_dict.get("skipped_steps", 0)
    if isinstance(skipped, bool) or not isinstance(skipped, int) or skipped < 0:
        raise ValueError(f"[tensorion.Tensorion] skipped_steps must be a nonnegative integer, got {skipped!r}")
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
                f"got {count}" + (f"; there is none for {labels[count]}" if count < len(labels) else "")
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
                keys = KEYS[group["algorithm"]] + (CHOICE_KEYS if "unfolding" in state else ())
                _check_state(state, keys, param, label, values)
                if values["nonfinite"] != "ignore":
                    _check_values(state, keys, label)
                if "unfolding" in state:
                    _check_choices(state["unfolding"], param, label, values)


def _check_form(state: object, groups: object) -> None:
    """Raise if the parts of a state dict have the wrong types."""
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
    """Raise if the state comes from an early version, in which the fallback updated kernels of size 1."""
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
            "[tensorion.Tensorion] expected the state of algorithm 'tensorion' for kernels of size 1, got a state from "
            "an earlier version, in which the fallback updated them. To load it, create the optimizer with "
            "tensorion.param_groups(model, pointwise=False). Add depthwise=True if the earlier groups did not come "
            f"from param_groups. These are the parameters: {'; '.join(moved)}"
        )


def _check_choices(choices: Tensor, param: Tensor, label: str, values: Mapping[str, Any]) -> None:
    """Raise if the choices are not indices of unfoldings."""
    blocks = _slices.block_shapes(param.shape, values["batch_modes"], values["split_sizes"])
    count = max(1, *(len(torch.ops.tensorion.unfoldings(shape)) for _, shape in blocks))
    for choice in choices.flatten().cpu().tolist():
        if choice not in range(count):
            raise ValueError(
                f"[tensorion.Tensorion] expected the index of an unfolding in [0, {count}) for {label}, got {choice:g}"
            )


def _check_values(state: Mapping[str, Any], keys: Sequence[str], label: str) -> None:
    """Raise if the state would make the parameter NaN."""
    for key in keys:
        value = _sharding.to_local(state[key])
        # Second moments may overflow, as in torch's AdamW. The parameter then stops changing.
        bad = value.isnan() if key == "exp_avg_sq" else ~value.isfinite()
        if bad.any():
            raise ValueError(
                f"[tensorion.Tensorion] expected a finite {key} for {label}, got {value[bad].flatten()[0].item()}"
            )
        if key in ("step", "exp_avg_sq") and (value < 0).any():
            raise ValueError(
                f"[tensorion.Tensorion] expected a nonnegative {key} for {label}, got {value.min().item():g}"
            )


def _check_state(
    state: Mapping[str, Any], keys: Sequence[str], param: Tensor, label: str, values: Mapping[str, Any]
) -> None:
    for key in keys:
        expected = [] if key == "step" else _choice_shape(param, values) if key == "unfolding" else list(param.shape)
        value = state.get(key)
        if not isinstance(value, Tensor) or list(value.shape) != expected:
            got = list(value.shape) if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise ValueError(f"[tensorion.Tensorion] expected a {key} of shape {expected} for {label}, got {got}")
        if not value.is_floating_point() or value.layout != torch.strided or value.is_meta:
            raise ValueError(
                f"[tensorion.Tensorion] expected a dense, real floating-point {key} for {label}, got {value.dtype}, "
                f"{value.layout} on {value.device}"
            )
        if key not in _NUMBERS and not _sharding.is_placed_as(value, param):
            raise ValueError(
                f"[tensorion.Tensorion] expected a {key} with the placements of {label} ({_sharding.describe(param)}), "
                f"got {_sharding.describe(value)}; torch.distributed.checkpoint.state_dict converts between them"
            )
