"""What the optimizer remembers of each parameter."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import _group_split, _options, _sharding, _slices
from ._unfolding import effective_order

#: The state that each algorithm keeps, in the order of its operator's arguments.
KEYS = {
    "tensorion": ("momentum_buffer",),
    "adamw": ("exp_avg", "exp_avg_sq", "step"),
    "sgd": ("momentum_buffer",),
}


#: What "online" keeps beside them if it does not decide at each step: the number of the unfolding, and of the step.
CHOICE_KEYS = ("unfolding", "step")
#: State that is a number rather than a tensor like the parameter.
_NUMBERS = CHOICE_KEYS


def _choice_shape(param: Tensor, values: Mapping[str, Any]) -> list[int]:
    """A number, or one for each slice of the parameter."""
    slicing = values["batch_modes"], values["split_sizes"]
    return [sum(count for count, _ in _slices.block_shapes(param.shape, *slicing))] if any(slicing) else []


def _number_device(key: str, param: Tensor, algorithm: str) -> torch.device:
    """The CPU decides by Tensorion's steps; all other numbers are used on the device."""
    return torch.device("cpu") if algorithm == "tensorion" and key == "step" else param.device


def missing(state: Mapping[str, Any], param: Tensor, values: Mapping[str, Any]) -> dict[str, Tensor]:
    """What the state of a parameter lacks: zeros, as torch's own optimizers keep them. `values`: of its group."""
    algorithm = values["algorithm"]
    wanted = KEYS[algorithm] + (CHOICE_KEYS if _options.keeps_unfolding(values) else ())
    keys = [key for key in wanted if key not in state]
    if not keys:
        return {}
    # Tensors made in inference mode could never be updated outside of it.
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
    """The parameters for which "online" decides in this step, then those that keep their unfolding."""
    found: dict[bool, list[Tensor]] = {True: [], False: []}
    for param in params:
        found[int(state[param]["step"].item()) % interval == 0].append(param)
    return [(decide, members) for decide, members in found.items() if members]


def count_steps(params: Sequence[Tensor], state: Mapping[Tensor, Mapping[str, Any]], found_inf: Tensor | None) -> None:
    """Count a step of "online". One that is skipped does not count, unless only an accelerator knows that it is."""
    steps = [state[param]["step"] for param in params]
    torch._foreach_add_(steps, 1)
    if found_inf is not None and found_inf.is_cpu:
        torch._foreach_sub_(steps, [found_inf] * len(steps))


def convert(state: dict[str, Any], param: Tensor, saved: Mapping[str, Any], algorithm: str) -> None:
    """Loaded state as a step needs it: numbers in single precision, and no tensors of inference mode.

    `saved` is the state before torch gave it the dtype of the parameter, in which numbers may not be exact.
    """
    with torch.inference_mode(False), torch.no_grad():
        for key, value in state.items():
            if isinstance(value, Tensor):
                if key in _NUMBERS:
                    value = saved[key].to(_number_device(key, param, algorithm), torch.float32, copy=True)
                state[key] = value.clone() if value.is_inference() else value


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
                keys = KEYS[group["algorithm"]] + (CHOICE_KEYS if "unfolding" in state else ())
                _check_state(state, keys, param, label, values)
                if values["nonfinite"] != "ignore":
                    _check_values(state, keys, label)
                if "unfolding" in state:
                    _check_choices(state["unfolding"], param, label, values)


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


def _check_choices(choices: Tensor, param: Tensor, label: str, values: Mapping[str, Any]) -> None:
    """Raise if they are not numbers of unfoldings."""
    blocks = _slices.block_shapes(param.shape, values["batch_modes"], values["split_sizes"])
    count = max(1, *(len(torch.ops.tensorion.unfoldings(shape)) for _, shape in blocks))
    for choice in choices.flatten().cpu().tolist():
        if choice not in range(count):
            raise ValueError(
                f"[tensorion.Tensorion] expected the number of one of {count} unfoldings for {label}, got {choice:g}"
            )


def _check_values(state: Mapping[str, Any], keys: Sequence[str], label: str) -> None:
    """Raise if the state would put a NaN into the parameter."""
    for key in keys:
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
                f"[tensorion.Tensorion] expected a {key} placed as {label} ({_sharding.describe(param)}), got "
                f"{_sharding.describe(value)}: torch.distributed.checkpoint.state_dict converts between them"
            )
