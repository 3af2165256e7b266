"""The options of the optimizer: their checks, and what each param group makes of them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _arguments


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


class Option(NamedTuple):
    """An option of the optimizer."""

    name: str
    #: Makes what the operators take of a value; raises if its type is wrong.
    convert: Callable[[Any, str], Any]
    #: The algorithms that read it: their param groups hold it.
    algorithms: tuple[str, ...] = ()
    #: Its key in those groups and its name in their operator, if that is not `name`.
    group_key: str | None = None
    may_be_none: bool = False
    #: Whether the operators of those algorithms take it.
    is_argument: bool = True

    @property
    def key(self) -> str:
        return self.group_key or self.name


_ALL = ("tensorion", "adamw", "sgd")
#: Every option, once. Defaults are in the signature of `Tensorion`, ranges in tensorion/optimizer.h, TENSORION_OPTIONS:
#: the table of the C++ library. The tests hold all of these to the same names.
TABLE = (
    Option("lr", _learning_rate, _ALL),
    Option("momentum", _arguments.number, ("tensorion", "sgd")),
    Option("nesterov", _arguments.boolean, ("tensorion",)),
    Option("weight_decay", _arguments.number, _ALL),
    Option("unfolding", _arguments.unfolding, ("tensorion",)),
    Option("online_interval", _arguments.integer, ("tensorion",), is_argument=False),
    Option("batch_modes", _arguments.ints, ("tensorion",)),
    Option("split_sizes", _arguments.split_sizes, ("tensorion",)),
    Option("polar", _arguments.text, ("tensorion",)),
    Option("ns_coefficients", _arguments.coefficients, ("tensorion",), may_be_none=True),
    Option("ns_steps", _arguments.integer, ("tensorion",), may_be_none=True),
    Option("adjust_lr_fn", _arguments.text, ("tensorion",)),
    Option("min_order", _arguments.integer),
    Option("fallback", _arguments.text, may_be_none=True),
    Option("fallback_lr", _learning_rate, may_be_none=True),
    Option("fallback_weight_decay", _arguments.number, may_be_none=True),
    Option("fallback_betas", _betas, ("adamw",), group_key="betas"),
    Option("fallback_eps", _arguments.number, ("adamw",), group_key="eps"),
    Option("fallback_momentum", _arguments.number),
    Option("nonfinite", _arguments.text, _ALL, is_argument=False),
    Option("maximize", _arguments.boolean, _ALL),
)
#: Options that states of earlier versions lack, and what such a state means.
ADDED = {"online_interval": 1, "batch_modes": (), "split_sizes": None}
#: What the param groups of each algorithm hold beside their parameters.
KEYS = {algorithm: tuple(option.key for option in TABLE if algorithm in option.algorithms) for algorithm in _ALL}
#: The same as keys of what `checked` returns.
VALUES = {algorithm: tuple(option.name for option in TABLE if algorithm in option.algorithms) for algorithm in _ALL}
#: What the operator of each algorithm takes: the key in its groups, and the option's name.
_ARGUMENTS = {
    algorithm: tuple((o.key, o.name) for o in TABLE if algorithm in o.algorithms and o.is_argument)
    for algorithm in _ALL
}
#: The options that have another key in param groups: "betas" and "eps".
_RENAMED = {option.key: option.name for option in TABLE if option.key != option.name}


def checked(options: Mapping[str, Any], defaults: Mapping[str, Any], *, ranges: bool) -> dict[str, Any]:
    """All options as the operators take them; raises if one has the wrong type or is not finite.

    `options` may be those of a param group: what they lack comes from `defaults`. With `ranges` it also raises if one
    is out of range. That is for options that the user gives: a scheduler may leave the ranges, as torch's LinearLR does
    by a rounding error.
    """
    options = {"algorithm": "", **defaults, **options}
    for key, name in _RENAMED.items():
        options[name] = options.get(key, options[name])
    values = {}
    for option in TABLE:
        value = options[option.name]
        is_none = value is None and option.may_be_none
        values[option.name] = None if is_none else option.convert(value, f"Tensorion.{option.name}")
    values["algorithm"] = _arguments.text(options["algorithm"], "Tensorion.algorithm")
    numbers = {key: 0.0 if isinstance(value, Tensor) else value for key, value in values.items()}
    torch.ops.tensorion.check_options(**numbers, ranges=ranges)
    return values


def arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the operator of a group's algorithm takes by name, from what `checked` returned for the group.

    A learning rate that is a tensor is 0 here: operators take it as `lr_tensor`.
    """
    algorithm = values["algorithm"]
    taken = {key: values[name] for key, name in _ARGUMENTS[algorithm]}
    if "betas" in taken:
        taken["beta1"], taken["beta2"] = taken.pop("betas")
    return {**taken, "lr": 0.0 if isinstance(values["lr"], Tensor) else values["lr"]}


def lr_tensor(values: Mapping[str, Any]) -> Tensor | None:
    """The learning rate of a group if it is a tensor, which operators then use instead of `lr`."""
    return values["lr"] if isinstance(values["lr"], Tensor) else None


def keeps_unfolding(values: Mapping[str, Any]) -> bool:
    """Whether the choice of "online" is kept for some steps, and so is part of the state."""
    return values["algorithm"] == "tensorion" and values["unfolding"] == "online" and values["online_interval"] > 1


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
        for key, name in _RENAMED.items():
            merged.setdefault(key, merged[name])
    # Schedulers write to a tensor, group by group: groups must not share it.
    if isinstance(merged["lr"], Tensor):
        with torch.inference_mode(False):
            merged["lr"] = merged["lr"].detach().clone()
    foreign = {key: value for key, value in given.items() if key not in defaults and key not in _RENAMED}
    return {**foreign, **{key: merged[key] for key in KEYS[algorithm]}, "algorithm": algorithm}
