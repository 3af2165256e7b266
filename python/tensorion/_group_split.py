"""Param groups as they are given to the optimizer, and as it keeps them."""

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
    """How errors call the parameters of a group: by name, or else by position."""
    params, names = group["params"], group.get("param_names")
    known = names and [f"parameter '{name}'" for name in names]
    known = known or [f"parameter {index} of group {number}" for index in range(len(params))]
    return [f"{name}, shape {list(param.shape)}" for name, param in zip(known, params, strict=True)]


def normalized(param_group: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A copy of the group whose "params" are a list of tensors, each once, and "param_names" their names."""
    if not isinstance(param_group, dict):
        raise TypeError(f"[tensorion.Tensorion] a param group must be a dict, got {type(param_group).__name__}")
    if "params" not in param_group:
        raise ValueError(f"[tensorion.Tensorion] group {number} has no 'params', only {sorted(param_group)}")
    group = dict(param_group)
    params = group["params"]
    if isinstance(params, set):
        raise TypeError("[tensorion.Tensorion] expected parameters in an order, got a set")
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
                f"[tensorion.Tensorion] expected pairs of a name and a Tensor in group {number}, got a tuple of "
                f"({', '.join(type(entry).__name__ for entry in pair)})"
            )
    if named:
        if len(named) != len(params):
            raise ValueError(
                f"[tensorion.Tensorion] expected names for all parameters of group {number} or for none, "
                f"got {len(named)} for {len(params)}"
            )
        group["param_names"] = [name for name, _ in named]
        params = [param for _, param in named]
    for index, param in enumerate(params):
        if not isinstance(param, Tensor):
            raise TypeError(
                f"[tensorion.Tensorion] expected Tensors, got {type(param).__name__} as parameter {index} of "
                f"group {number}"
            )
        # As torch.distributed.fsdp marks the parameters that it has flattened, and itself tells them by.
        if getattr(param, "_fsdp_flattened", False):
            raise ValueError(
                f"[tensorion.Tensorion] parameter {index} of group {number} is part of a flat parameter of "
                f"FullyShardedDataParallel, which keeps no tensor's shape: {USE_FSDP2}"
            )
        if hasattr(param, "ds_id"):  # as DeepSpeed marks the parameters that it has partitioned
            raise ValueError(
                f"[tensorion.Tensorion] parameter {index} of group {number} is partitioned by DeepSpeed's ZeRO stage "
                f"3, which keeps no tensor's shape: {USE_FSDP2}"
            )
        if param.is_nested:
            raise ValueError(
                f"[tensorion.Tensorion] expected dense parameters, got a nested tensor as parameter {index} of "
                f"group {number}"
            )
        if is_lazy(param):
            raise ValueError(
                f"[tensorion.Tensorion] parameter {index} of group {number} has no shape yet: run its lazy "
                "module once before"
            )
    first: dict[int, int] = {}  # of each tensor
    for index, param in enumerate(params):
        first.setdefault(id(param), index)
    if len(first) < len(params):
        warnings.warn(
            "optimizer contains a parameter group with duplicate parameters; each will be updated once",
            stacklevel=5,  # where the optimizer is made
        )
    group["params"] = [params[index] for index in first.values()]
    if "param_names" in group:
        group["param_names"] = [group["param_names"][index] for index in first.values()]
    return group


def split(
    group: dict[str, Any],
    number: int,
    defaults: Mapping[str, Any],
    others: Sequence[Mapping[str, Any]],
    process_group: Any,
) -> list[dict[str, Any]]:
    """A normalized group in up to two: by order (see `Tensorion`), unless it names its algorithm or has `use_fallback`.

    `others` are the groups that the optimizer already has.
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
    is_marked = bool(given.get("use_fallback"))  # as timm marks the groups of its fallback_list
    members: dict[str, list[int]] = {}  # of each algorithm, tensorion first
    for index, (param, label) in enumerate(zip(params, own_labels, strict=True)):
        reason = "" if options["algorithm"] else _fallback_reason(param, label, options)
        if is_marked and not options["algorithm"]:
            reason = "use_fallback"
        algorithm = options["algorithm"] or (options["fallback"] if reason else "tensorion")
        if algorithm is None:
            raise ValueError(f"[tensorion.Tensorion] {label} is not Tensorion's ({reason}), and there is no fallback")
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
    """Why the fallback updates the parameter; empty if Tensorion does."""
    try:
        return torch.ops.tensorion.fallback_reason(
            param.shape, options["min_order"], options["batch_modes"], options["split_sizes"]
        )
    except ValueError as error:
        raise ValueError(f"[tensorion.Tensorion] batch_modes or split_sizes does not fit {label}: {error}") from None


def _check_unfolding(param: Tensor, label: str, options: Mapping[str, Any]) -> None:
    found = _misfit(tuple(param.shape), *_shape_options(options))
    if found:
        raise ValueError(f"[tensorion.Tensorion] {found[0]} does not fit {label}: {found[1]}")


def _shape_options(options: Mapping[str, Any]) -> tuple[str, str, tuple[int, ...], tuple[int, ...]]:
    """The options that shapes must fit."""
    slicing = tuple(options["batch_modes"]), tuple(options["split_sizes"])
    return options["unfolding"], options["adjust_lr_fn"], *slicing


@lru_cache(maxsize=4096)
def _misfit(
    shape: tuple[int, ...],
    unfolding: str,
    adjust_lr_fn: str,
    batch_modes: tuple[int, ...],
    split_sizes: tuple[int, ...],
) -> tuple[str, str] | None:
    """The option that does not fit tensors of this shape, and why."""
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
    """Raise if a group has no algorithm, or one that does not fit its parameters."""
    if not options["algorithm"]:
        raise ValueError(f"[tensorion.Tensorion] group {number} has no 'algorithm'")
    if options["algorithm"] != "tensorion" or torch.compiler.is_compiling():
        return
    known = _shape_options(options)
    for index, param in enumerate(group["params"]):
        # It was given to Tensorion for its order, which it no longer has.
        if param.dim() == 1 and "why" in group and options["min_order"] > 1:
            raise ValueError(
                f"[tensorion.Tensorion] {labels(number, group)[index]} has lost its shape since the optimizer was "
                f"made, as DeepSpeed's ZeRO stages 1 and 2 flatten parameters: {USE_FSDP2}"
            )
        if _misfit(tuple(param.shape), *known):
            _check_unfolding(param, labels(number, group)[index], options)


def check_gradients(group: Mapping[str, Any], number: int) -> None:
    """Raise if a gradient is not like its parameter."""
    for index, param in enumerate(group["params"]):
        grad = param.grad
        if grad is None:
            continue
        if param.is_meta:
            raise ValueError(
                f"[tensorion.Tensorion] {labels(number, group)[index]} is on the meta device, where it has no values: "
                "give the optimizer the parameters that hold them"
            )
        if not torch.compiler.is_compiling() and param.is_inference() and not torch.is_inference_mode_enabled():
            raise ValueError(
                f"[tensorion.Tensorion] {labels(number, group)[index]} was made in inference mode, and can only be "
                "updated there"
            )
        if grad.layout != torch.strided:
            raise ValueError(
                f"[tensorion.Tensorion] expected a dense gradient, got {grad.layout} for {labels(number, group)[index]}"
            )
        if grad.shape != param.shape or grad.dtype != param.dtype or grad.device != param.device:
            raise ValueError(
                f"[tensorion.Tensorion] expected a gradient like {labels(number, group)[index]} "
                f"({param.dtype} on {param.device}), got shape {list(grad.shape)}, {grad.dtype} on "
                f"{grad.device}"
            )
        if _sharding.is_dtensor(param) and not _sharding.is_placed_as(grad, param):
            raise ValueError(
                f"[tensorion.Tensorion] expected a gradient placed as {labels(number, group)[index]} "
                f"({_sharding.describe(param)}), got {_sharding.describe(grad)}"
            )
