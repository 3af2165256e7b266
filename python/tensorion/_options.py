"""The options of the optimizer: their checks, and what each param group makes of them."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from . import _arguments

#: What the param groups of each algorithm hold beside their parameters.
KEYS = {
    "tensorion": (
        "lr",
        "momentum",
        "nesterov",
        "weight_decay",
        "unfolding",
        "polar",
        "ns_coefficients",
        "ns_steps",
        "adjust_lr_fn",
        "nonfinite",
        "maximize",
    ),
    "adamw": ("lr", "betas", "eps", "weight_decay", "nonfinite", "maximize"),
    "sgd": ("lr", "momentum", "weight_decay", "nonfinite", "maximize"),
}
#: The same as keys of what `checked` returns.
VALUES = {
    algorithm: tuple(f"fallback_{key}" if key in ("betas", "eps") else key for key in keys)
    for algorithm, keys in KEYS.items()
}


def _learning_rate(lr: float | Tensor, name: str) -> float | Tensor:
    """A number, but a tensor on a device other than the CPU stays one and is not read."""
    if not isinstance(lr, Tensor):
        return _arguments.number(lr, name)
    if lr.numel() != 1:
        option = name.split(".")[1]
        raise ValueError(f"[tensorion.Tensorion] {option} must have one element, got shape {list(lr.shape)}")
    if lr.is_complex() or lr.dtype == torch.bool:
        _arguments.refuse(name, "a real number", lr)
    if lr.is_meta:
        _arguments.refuse(name, "a number, or a tensor that holds one", lr)
    return lr.item() if lr.device.type == "cpu" else lr.reshape(())


def _betas(betas: tuple[float, float], name: str) -> list[float]:
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        _arguments.refuse(name, "two numbers", betas)
    return [_arguments.number(beta, name) for beta in betas]


#: How each option becomes what the operators take.
_KINDS: dict[str, Callable[[Any, str], Any]] = {
    "lr": _learning_rate,
    "momentum": _arguments.number,
    "nesterov": _arguments.boolean,
    "weight_decay": _arguments.number,
    "unfolding": _arguments.unfolding,
    "polar": _arguments.text,
    "ns_coefficients": _arguments.coefficients,
    "ns_steps": _arguments.integer,
    "adjust_lr_fn": _arguments.text,
    "min_order": _arguments.integer,
    "fallback_betas": _betas,
    "fallback_eps": _arguments.number,
    "fallback_momentum": _arguments.number,
    "nonfinite": _arguments.text,
    "maximize": _arguments.boolean,
    "algorithm": _arguments.text,
    "fallback": _arguments.text,
    "fallback_lr": _learning_rate,
    "fallback_weight_decay": _arguments.number,
}
_MAY_BE_NONE = ("fallback", "fallback_lr", "fallback_weight_decay")


def checked(options: Mapping[str, Any], defaults: Mapping[str, Any], *, ranges: bool) -> dict[str, Any]:
    """All options as the operators take them; raises if one has the wrong type or is not finite.

    `options` may be those of a param group: what they lack comes from `defaults`. With `ranges` it also raises if one
    is out of range. That is for options that the user gives: a scheduler may leave the ranges, as torch's LinearLR does
    by a rounding error.
    """
    options = {"algorithm": "", **defaults, **options}
    for key in ("betas", "eps"):
        options[f"fallback_{key}"] = options.get(key, options[f"fallback_{key}"])
    values = {}
    for key, kind in _KINDS.items():
        is_none = options[key] is None and key in _MAY_BE_NONE
        values[key] = None if is_none else kind(options[key], f"Tensorion.{key}")
    ranged = {key: value for key, value in values.items() if key not in ("nesterov", "maximize")}
    for key in ("lr", "fallback_lr"):
        if isinstance(ranged[key], Tensor):
            ranged[key] = 0.0
    torch.ops.tensorion.check_options(**ranged, ranges=ranges)
    return values


def resolve(algorithm: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a param group for one algorithm, from the keys that it was given.

    In a group that names a fallback as its algorithm, `lr`, `weight_decay` and `momentum` are the
    fallback's; in one that is split by order they are Tensorion's.
    """
    merged = {**defaults, **given}
    if algorithm != "tensorion":
        for key in ("lr", "weight_decay", "momentum"):
            fallback = merged[f"fallback_{key}"]
            if fallback is not None and not ("algorithm" in given and key in given):
                merged[key] = fallback
        merged.setdefault("betas", merged["fallback_betas"])
        merged.setdefault("eps", merged["fallback_eps"])
    # Schedulers write to a tensor, group by group: groups must not share it.
    if isinstance(merged["lr"], Tensor):
        with torch.inference_mode(False):
            merged["lr"] = merged["lr"].detach().clone()
    foreign = {key: value for key, value in given.items() if key not in defaults and key not in ("betas", "eps")}
    return {**foreign, **{key: merged[key] for key in KEYS[algorithm]}, "algorithm": algorithm}
