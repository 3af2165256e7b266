"""The table of the optimizer's options, their checks, and the values that each param group keeps."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _arguments


def _learning_rate(lr: float | Tensor, name: str) -> float | Tensor:
    """Convert a learning rate to a float. A tensor on an accelerator stays a tensor, to avoid a synchronization."""
    if not isinstance(lr, Tensor):
        return _arguments.number(lr, name)
    if lr.numel() != 1:
        option = name.split(".")[1]
        raise ValueError(f"[tensorion.Tensorion] {option} must have one element, got shape {list(lr.shape)}")
    if lr.is_complex() or lr.dtype == torch.bool:
        _arguments.raise_type_error(name, "a real number", lr)
    if lr.is_meta:
        _arguments.raise_type_error(name, "a number or a tensor with a value", lr)
    return lr.item() if lr.device.type == "cpu" else lr.reshape(())


def _betas(betas: tuple[float, float], name: str) -> list[float]:
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        _arguments.raise_type_error(name, "two numbers", betas)
    return [_arguments.number(beta, name) for beta in betas]


class Option(NamedTuple):
    """An option of the optimizer."""

    name: str
    #: Checks the type of a value and converts the value to the form that the operators take.
    convert: Callable[[Any, str], Any]
    #: The algorithms that read the option. Only their param groups hold it.
    algorithms: tuple[str, ...] = ()
    #: The key in those param groups and the argument's name in their operator, if it differs from `name`.
    group_key: str | None = None
    may_be_none: bool = False
    #: Whether the option is an argument of those algorithms' operators.
    is_argument: bool = True

    @property
    def key(self) -> str:
        return self.group_key or self.name


_ALL = ("tensorion", "adamw", "sgd")
#: All options. Their defaults are in the signature of `Tensorion`. Their ranges are in TENSORION_OPTIONS, the table of
#: the C++ library in tensorion/optimizer.h. Tests check that all three list the same names.
TABLE = (
    Option("lr", _learning_rate, _ALL),
    Option("momentum", _arguments.number, ("tensorion", "sgd")),
    Option("nesterov", _arguments.boolean, ("tensorion",)),
    Option("weight_decay", _arguments.number, _ALL),
    Option("unfolding", _arguments.unfolding, ("tensorion",)),
    Option("online_interval", _arguments.integer, ("tensorion",), is_argument=False),
    Option("batch_modes", _arguments.ints, ("tensorion",)),
    Option("split_sizes", _arguments.split_sizes, ("tensorion",)),
    Option("polar", _arguments.string, ("tensorion",)),
    Option("ns_coefficients", _arguments.coefficients, ("tensorion",), may_be_none=True),
    Option("ns_steps", _arguments.integer, ("tensorion",), may_be_none=True),
    Option("adjust_lr_fn", _arguments.string, ("tensorion",)),
    Option("min_order", _arguments.integer),
    Option("fallback", _arguments.string, may_be_none=True),
    Option("fallback_lr", _learning_rate, may_be_none=True),
    Option("fallback_weight_decay", _arguments.number, may_be_none=True),
    Option("fallback_betas", _betas, ("adamw",), group_key="betas"),
    Option("fallback_eps", _arguments.number, ("adamw",), group_key="eps"),
    Option("fallback_momentum", _arguments.number),
    Option("nonfinite", _arguments.string, _ALL, is_argument=False),
    Option("maximize", _arguments.boolean, _ALL),
)
#: Options that earlier versions did not save, with the values that reproduce the behavior of those versions.
ADDED = {"online_interval": 1, "batch_modes": (), "split_sizes": None}
#: The keys of each algorithm's param groups, besides "params" and "algorithm".
KEYS = {algorithm: tuple(option.key for option in TABLE if algorithm in option.algorithms) for algorithm in _ALL}
#: The names of each algorithm's options, which are the keys in the result of `checked`.
VALUES = {algorithm: tuple(option.name for option in TABLE if algorithm in option.algorithms) for algorithm in _ALL}
#: The arguments of each algorithm's operator, as (key in its param groups, name of the option).
_ARGUMENTS = {
    algorithm: tuple((o.key, o.name) for o in TABLE if algorithm in o.algorithms and o.is_argument)
    for algorithm in _ALL
}
#: The names of all values in the result of `checked`.
_NAMES = (*(option.name for option in TABLE), "algorithm")
#: The options whose key in param groups differs from their name: "betas" and "eps".
_RENAMED = {option.key: option.name for option in TABLE if option.key != option.name}


def checked(options: Mapping[str, Any], defaults: Mapping[str, Any], *, ranges: bool) -> dict[str, Any]:
    """Check all options and convert them to the form that the operators take.

    Args:
        options: options, for example a param group. Missing ones are taken from `defaults`.
        defaults: values of all options.
        ranges: whether to check ranges as well as types. Use it only for options that the user gives: a scheduler may
            leave a range because of rounding, as torch's LinearLR does.
    """
    options = {"algorithm": "", **defaults, **options}
    for key, name in _RENAMED.items():
        options[name] = options.get(key, options[name])
    lr = options["lr"]
    if ranges or type(lr) is not float or not isfinite(lr) or torch.compiler.is_compiling():
        return _converted(options, ranges)
    # Mostly, only the learning rate differs between the options of two steps.
    given = tuple([0.0 if name == "lr" else options[name] for name in _NAMES])
    types = _types(given)
    if Tensor in types or list in types:
        return _converted(options, ranges)
    try:
        return {**_converted_once(given, types), "lr": lr}
    except TypeError:  # A value is not hashable, or its type is wrong.
        return _converted(options, ranges)


def _types(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the types of values and of the elements of tuples, since 1, 1.0 and True are equal."""
    return tuple([_types(value) if type(value) is tuple else type(value) for value in values])


@lru_cache(maxsize=1024)
def _converted_once(given: tuple[Any, ...], types: tuple[Any, ...]) -> dict[str, Any]:
    return _converted(dict(zip(_NAMES, given, strict=True)), ranges=False)


def _converted(options: Mapping[str, Any], ranges: bool) -> dict[str, Any]:
    values = {}
    for option in TABLE:
        value = options[option.name]
        is_none = value is None and option.may_be_none
        values[option.name] = None if is_none else option.convert(value, f"Tensorion.{option.name}")
    values["algorithm"] = _arguments.string(options["algorithm"], "Tensorion.algorithm")
    numbers = {key: 0.0 if isinstance(value, Tensor) else value for key, value in values.items()}
    torch.ops.tensorion.check_options(**numbers, ranges=ranges)
    return values


def arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of the operator of a group's algorithm, given the result of `checked`.

    If the learning rate is a tensor, `lr` is 0 here, and the operators take the tensor as `lr_tensor`.
    """
    algorithm = values["algorithm"]
    taken = {key: values[name] for key, name in _ARGUMENTS[algorithm]}
    if "betas" in taken:
        taken["beta1"], taken["beta2"] = taken.pop("betas")
    return {**taken, "lr": 0.0 if isinstance(values["lr"], Tensor) else values["lr"]}


def lr_tensor(values: Mapping[str, Any]) -> Tensor | None:
    """Return the learning rate if it is a tensor, else None. Operators use it instead of `lr`."""
    return values["lr"] if isinstance(values["lr"], Tensor) else None


def keeps_unfolding(values: Mapping[str, Any]) -> bool:
    """Return whether "online" keeps its choice for several steps, so that the choice is part of the state."""
    return values["algorithm"] == "tensorion" and values["unfolding"] == "online" and values["online_interval"] > 1


def resolve(algorithm: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Compute the options of a param group for one algorithm from the keys that the user gave.

    If the group names a fallback as its "algorithm", its `lr`, `weight_decay` and `momentum` apply to the fallback. If
    the group is split by order, they apply to Tensorion.
    """
    merged = {**defaults, **given}
    if algorithm != "tensorion":
        for key in ("lr", "weight_decay", "momentum"):
            fallback = merged[f"fallback_{key}"]
            if fallback is not None and not ("algorithm" in given and key in given):
                merged[key] = fallback
        for key, name in _RENAMED.items():
            merged.setdefault(key, merged[name])
    # Schedulers write to the tensor of each group, so groups must not share one.
    if isinstance(merged["lr"], Tensor):
        with torch.inference_mode(False):
            merged["lr"] = merged["lr"].detach().clone()
    extra = {key: value for key, value in given.items() if key not in defaults and key not in _RENAMED}
    return {**extra, **{key: merged[key] for key in KEYS[algorithm]}, "algorithm": algorithm}
