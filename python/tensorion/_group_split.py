"""Normalizes and checks param groups, and splits each one between Tensorion and the fallback."""

import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from . import _options, _sharding

USE_FSDP2 = "use FSDP2, torch.distributed.fsdp.fully_shard, instead"


def labels(number: int, group: Mapping[str, Any]) -> list[str]:
    """Label the parameters of a group for error messages: by name if they have names, else by position."""
    params, names = group["params"], group.get("param_names")
    found = names and [f"parameter '{name}'" for name in names]
    found = found or [f"parameter {index} of group {number}" for index in range(len(params))]
    return [f"{name}, shape {list(param.shape)}" for name, param in zip(found, params, strict=True)]


def normalized(param_group: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Copy a group so that "params" is a list of distinct tensors and "param_names" lists their names, if any."""
    if not isinstance(param_group, dict):
        raise TypeError(f"[tensorion.Tensorion] a param group must be a dict, got {type(param_group).__name__}")
    if "params" not in param_group:
        raise ValueError(f"[tensorion.Tensorion] expected 'params' in group {number}, got only {sorted(param_group)}")
    group = dict(param_group)
    params = group["params"]
    if isinstance(params, set):
        raise TypeError("[tensorion.Tensorion] expected an ordered collection of parameters, got a set")
    try:
        params = [params] if isinstance(params, Tensor) else list(params)
    except TypeError:
        raise TypeError(
            f"[tensorion.Tensorion] expected Tensors in group {number}, got {type(params).__name__}"
        ) from None
    named = [pair for pair in params if isinstance(pair, tuple)]
    for pair in named:
        if len(pair) != 2 or not isinstance(pair[0], str):
            raise TypeError(
                f"[tensorion.Tensorion] expected (name, Tensor) pairs in group {number}, got a tuple of "
                f"({', '.join(type(entry).__name__ for entry in pair)})"
            )
    if named:
        if len(named) != len(params):
            raise ValueError(
                f"[tensorion.Tensorion] expected names for all parameters of group {number} or for none of them, "
                f"got {len(named)} names for {len(params)} parameters"
            )
        group["param_names"] = [name for name, _ in named]
        params = [param for _, param in named]
    for index, param in enumerate(params):
        if not isinstance(param, Tensor):
            raise TypeError(
                f"[tensorion.Tensorion] expected Tensors, got {type(param).__name__} as parameter {index} of "
                f"group {number}"
            )
        # FSDP1 sets this attribute on parameters that are views into a flat parameter.
        if getattr(param, "_fsdp_flattened", False):
            raise ValueError(
                f"[tensorion.Tensorion] parameter {index} of group {number} is part of a flat parameter of "
                f"FullyShardedDataParallel, which does not keep the shapes of tensors: {USE_FSDP2}"
            )
        if hasattr(param, "ds_id"):  # DeepSpeed sets this attribute on parameters that it has partitioned.
            raise ValueError(
                f"[tensorion.Tensorion] parameter {index} of group {number} is partitioned by DeepSpeed's ZeRO stage "
                f"3, which does not keep the shapes of tensors: {USE_FSDP2}"
            )
        if param.is_nested:
            raise ValueError(
                f"[tensorion.Tensorion] expected dense parameters, got a nested tensor as parameter {index} of "
                f"group {number}"
            )
        if is_lazy(param):
            raise ValueError(
                f"[tensorion.Tensorion] parameter {index} of group {number} has no shape yet: run its lazy "
                "module once before you create the optimizer"
            )
    first_index: dict[int, int] = {}  # by id of the tensor
    for index, param in enumerate(params):
        first_index.setdefault(id(param), index)
    if len(first_index) < len(params):
        warnings.warn(
            "optimizer contains a parameter group with duplicate parameters; each will be updated once",
            stacklevel=5,  # the caller of the constructor
        )
    group["params"] = [params[index] for index in first_index.values()]
    if "param_names" in group:
        group["param_names"] = [group["param_names"][index] for index in first_index.values()]
    return group


def split(
    group: dict[str, Any],
    number: int,
    defaults: Mapping[str, Any],
    others: Sequence[Mapping[str, Any]],
    process_group: Any,
) -> list[dict[str, Any]]:
    """Split a normalized group into at most two: Tensorion's parameters and the fallback's.

    Parameters are assigned by their order (see `Tensorion`), unless the group has the key "algorithm" or
    "use_fallback". `others` are the groups that the optimizer already has.
    """
    params, names = group["params"], group.get("param_names")
    own_labels = labels(number, group)
    given = {key: value for key, value in group.items() if key not in ("params", "param_names")}
    options = _options.checked(given, defaults, ranges=True)
    with torch.no_grad():
        pieces = [
            _sharding.to_local(param) for param in params + [param for other in others for param in other["params"]]
        ]
    torch.ops.tensorion.check_parameters(
        pieces,
        own_labels + [f"the optimizer's {label}" for i, other in enumerate(others) for label in labels(i, other)],
    )
    is_marked = bool(given.get("use_fallback"))  # timm sets this key in the groups of its fallback_list.
    members: dict[str, list[int]] = {}  # indices of the parameters, by algorithm
    for index, (param, label) in enumerate(zip(params, own_labels, strict=True)):
        reason = "" if options["algorithm"] else _fallback_reason(param, label, options)
        if is_marked and not options["algorithm"]:
            reason = "use_fallback"
        algorithm = options["algorithm"] or (options["fallback"] if reason else "tensorion")
        if algorithm is None:
            raise ValueError(f"[tensorion.Tensorion] {label} needs a fallback ({reason}), got none")
        if algorithm == "tensorion":
            _check_unfolding(param, label, options)
            _check_layout(param, label, process_group)
        members.setdefault(algorithm, []).append(index)
    parts = []
    for algorithm in sorted(members, key=lambda name: name != "tensorion"):
        part = _options.resolve(algorithm, given, defaults)
        if "algorithm" not in given:
            part["why"] = f"order {'>=' if algorithm == 'tensorion' else '<'} {options['min_order']}"
            if options["batch_modes"] or options["split_sizes"]:
                part["why"] = "slices" if algorithm == "tensorion" else "one mode > 1"
            if is_marked:
                part["why"] = "use_fallback"
        part["params"] = [(names[i], params[i]) if names else params[i] for i in members[algorithm]]
        parts.append(part)
    return parts


def _fallback_reason(param: Tensor, label: str, options: Mapping[str, Any]) -> str:
    """Return why the fallback updates the parameter, or an empty string if Tensorion does."""
    try:
        return torch.ops.tensorion.fallback_reason(
            param.shape, options["min_order"], options["batch_modes"], options["split_sizes"]
        )
    except ValueError as error:
        raise ValueError(f"[tensorion.Tensorion] batch_modes or split_sizes does not fit {label}: {error}") from None


def _check_unfolding(param: Tensor, label: str, options: Mapping[str, Any]) -> None:
    found = _shape_error(tuple(param.shape), *_shape_options(options))
    if found:
        raise ValueError(f"[tensorion.Tensorion] {found[0]} does not fit {label}: {found[1]}")


def _shape_options(options: Mapping[str, Any]) -> tuple[str, str, tuple[int, ...], tuple[int, ...]]:
    """Return the options that must fit the shape of each parameter."""
    slicing = tuple(options["batch_modes"]), tuple(options["split_sizes"])
    return options["unfolding"], options["adjust_lr_fn"], *slicing


@lru_cache(maxsize=4096)
def _shape_error(
    shape: tuple[int, ...],
    unfolding: str,
    adjust_lr_fn: str,
    batch_modes: tuple[int, ...],
    split_sizes: tuple[int, ...],
) -> tuple[str, str] | None:
    """Return the option that does not fit this shape and the reason, or None if all options fit."""
    try:
        blocks = torch.ops.tensorion.block_shapes(shape, batch_modes, split_sizes)
    except ValueError as error:
        return "batch_modes or split_sizes", str(error)
    try:
        for block in blocks:
            torch.ops.tensorion.describe_unfolding(block, unfolding, adjust_lr_fn)
    except ValueError as error:
        return f"unfolding {unfolding}", str(error)
    return None


def _check_layout(param: Tensor, label: str, process_group: Any) -> None:
    try:
        with torch.no_grad():
            _sharding.layout_of(param, process_group)
    except ValueError as error:
        raise ValueError(f"[tensorion.Tensorion] {label}: {error}") from None


def check_algorithm(group: Mapping[str, Any], number: int, options: Mapping[str, Any]) -> None:
    """Raise if a group has no algorithm, or if its options do not fit the shapes of its parameters."""
    if not options["algorithm"]:
        raise ValueError(f"[tensorion.Tensorion] expected 'algorithm' in group {number}, got none")
    if options["algorithm"] != "tensorion" or torch.compiler.is_compiling():
        return
    shape_options = _shape_options(options)
    for index, param in enumerate(group["params"]):
        # The parameter was assigned to Tensorion because of its order, but it has become 1-D since then.
        if param.dim() == 1 and "why" in group and options["min_order"] > 1:
            raise ValueError(
                f"[tensorion.Tensorion] {labels(number, group)[index]} was flattened after the optimizer was "
                f"created, as DeepSpeed's ZeRO stages 1 and 2 do: {USE_FSDP2}"
            )
        if _shape_error(tuple(param.shape), *shape_options):
            _check_unfolding(param, labels(number, group)[index], options)


def check_gradients(group: Mapping[str, Any], number: int) -> None:
    """Raise if a gradient does not match its parameter."""
    for index, param in enumerate(group["params"]):
        grad = param.grad
        if grad is None:
            continue
        if param.is_meta:
            raise ValueError(
                f"[tensorion.Tensorion] {labels(number, group)[index]} is on the meta device and has no values: "
                "create the optimizer after the parameters are materialized"
            )
        if not torch.compiler.is_compiling() and param.is_inference() and not torch.is_inference_mode_enabled():
            raise ValueError(
                f"[tensorion.Tensorion] {labels(number, group)[index]} was created in inference mode and can only be "
                "updated in inference mode"
            )
        if grad.layout != torch.strided:
            raise ValueError(
                f"[tensorion.Tensorion] expected a dense gradient, got {grad.layout} for {labels(number, group)[index]}"
            )
        if grad.shape != param.shape or grad.dtype != param.dtype or grad.device != param.device:
            raise ValueError(
                f"[tensorion.Tensorion] expected a gradient that matches {labels(number, group)[index]} "
                f"({param.dtype} on {param.device}), got shape {list(grad.shape)}, {grad.dtype} on "
                f"{grad.device}"
            )
        if _sharding.is_dtensor(param) and not _sharding.is_placed_as(grad, param):
            raise ValueError(
                f"[tensorion.Tensorion] expected a gradient with the placements of {labels(number, group)[index]} "
                f"({_sharding.describe(param)}), got {_sharding.describe(grad)}"
            )
