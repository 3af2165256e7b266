"""Assigns the parameters of a model to Tensorion or the fallback, and describes the assignment."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.parameter import is_lazy

from . import _arguments, _share, _slices
from ._optimizer import Tensorion
from ._unfolding import drop_ones, effective_order

#: A rule that sends parameters to the fallback: a glob pattern of names, a module type, or a predicate of a parameter's
#: name and the parameter.
Rule = str | type[nn.Module] | Callable[[str, Tensor], bool]


@dataclass
class _ParamUse:
    """A parameter with its names and modules. A tied parameter has several of them."""

    param: Tensor
    names: list[str] = field(default_factory=list)
    modules: list[nn.Module] = field(default_factory=list)


def param_groups(
    model: nn.Module,
    *,
    min_order: int = 3,
    fallback: str = "adamw",
    to_fallback: Iterable[Rule] = (),
    depthwise: bool = False,
    pointwise: bool = True,
    decay_vectors: bool = True,
    batch: Mapping[str, Sequence[int]] | None = None,
    split: Mapping[str, int | Sequence[int]] | None = None,
) -> list[dict[str, Any]]:
    """Divide the parameters of a model into param groups for `Tensorion`.

    The first rule that applies to a parameter decides:

    1. Parameters that match `to_fallback` go to the fallback.
    2. Depthwise convolution kernels (one input channel per filter) go to the fallback unless `depthwise` is True. Their
       filters act on different channels, so there is no common matrix to orthogonalize.
    3. Parameters that match `batch` or `split` go to Tensorion, in slices, if all slices have at least two modes larger
       than 1. Otherwise they go to the fallback.
    4. Parameters of order below `min_order`, or with fewer than two modes larger than 1, go to the fallback. Leading
       modes of size 1 do not count in the order.
    5. All other parameters go to Tensorion. The kernel of a grouped convolution is split into one tensor per group of
       channels.

    Each group has named parameters, the key "algorithm", and the reason for the choice under the key "why". Options
    such as learning rates come from the optimizer: `Tensorion(param_groups(model), lr=..., fallback_lr=...)`.

    Args:
        model (Module): all of its parameters are included, frozen ones too.
        min_order (int, optional): see `Tensorion` (default: 3).
        fallback (str, optional): "adamw" or "sgd" (default: "adamw").
        to_fallback (iterable, optional): glob patterns of the names of parameters or of the modules that hold them
            (`"head"`, `"*.embed*"`), module types (`torch.nn.Embedding`), or predicates of a name and a parameter. A
            rule that matches no parameter raises an error (default: ()).
        depthwise (bool, optional): sends depthwise kernels to Tensorion (default: False).
        pointwise (bool, optional): False sends convolution kernels of size 1 to the fallback: no mode of size 1 counts
            in the order then. Together with `depthwise=True`, this reproduces the groups of early versions, so that
            their states can be loaded (default: True).
        decay_vectors (bool, optional): False sets `weight_decay` to 0 for biases, normalization scales and all other
            parameters with at most one mode whose size is not 1 (default: True).
        batch (dict, optional): maps glob patterns to the `batch_modes` of the parameters that match, for example
            `{"*.experts.*": (0,)}`. The first pattern that matches applies (default: None).
        split (dict, optional): maps glob patterns to `split_sizes`, for example
            `{"*.qkv.weight": 3, "*.qkv_proj.weight": (2048, 512, 512)}`. The value 1 keeps the kernel of a grouped
            convolution whole (default: None).

    Returns:
        list of dict: the param groups, Tensorion's first.

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if a pattern matches no parameter, if an option does not fit a parameter that it applies to, or if a
            lazy parameter has no shape yet.

    Example:
        >>> model = torch.nn.TransformerEncoderLayer(64, 4)
        >>> groups = tensorion.param_groups(model, split={"*.in_proj_weight": 3})
        >>> [group["algorithm"] for group in groups]
        ['tensorion', 'adamw']
        >>> optimizer = tensorion.Tensorion(groups, lr=1e-3)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"[tensorion.param_groups] model must be a Module, got {type(model).__name__}")
    if fallback not in ("adamw", "sgd"):
        raise ValueError(f"[tensorion.param_groups] fallback must be 'adamw' or 'sgd', got {fallback!r}")
    if _arguments.integer(min_order, "param_groups.min_order") < 1:
        raise ValueError(f"[tensorion.param_groups] min_order must be at least 1, got {min_order}")
    _arguments.boolean(depthwise, "param_groups.depthwise")
    _arguments.boolean(pointwise, "param_groups.pointwise")
    _arguments.boolean(decay_vectors, "param_groups.decay_vectors")
    uses = _uses(model)
    for use in uses:
        if is_lazy(use.param):
            raise ValueError(
                f"[tensorion.param_groups] '{use.names[0]}' has no shape yet: run its lazy module once before you call "
                "param_groups"
            )
    if not isinstance(to_fallback, (str, type, Iterable)):
        _arguments.raise_type_error("param_groups.to_fallback", "a sequence of rules", to_fallback)
    rules = [to_fallback] if isinstance(to_fallback, (str, type)) else list(to_fallback)
    for rule in rules:
        if not isinstance(rule, str) and not callable(rule):
            _arguments.raise_type_error("param_groups.to_fallback", "patterns, module types or functions", rule)
        if not any(_applies(rule, use) for use in uses):
            raise ValueError(
                f"[tensorion.param_groups] {_rule_name(rule)} in to_fallback matches no parameter of the model, "
                f"{_example_names(uses)}"
            )
    batch_rules = _slicing_rules("batch", batch, uses)
    split_rules = _slicing_rules("split", split, uses)
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for use in uses:
        shape = list(use.param.shape) if pointwise else drop_ones(use.param.shape)
        named = next((rule for rule in rules if _applies(rule, use)), None)
        slicing = _slicing(use, batch_rules, split_rules)
        if named is not None:
            algorithm, why = fallback, _rule_name(named)
        elif not depthwise and any(map(_is_depthwise, use.modules)) and use.param.dim() > 1:
            algorithm, why = fallback, "depthwise"
        elif slicing:
            reason = _slicing_reason(use, slicing)
            algorithm, why = (fallback, reason) if reason else ("tensorion", "slices")
        elif torch.ops.tensorion.fallback_reason(shape, min_order, [], []):
            algorithm, why = fallback, f"order < {min_order}"
        else:
            algorithm, why = "tensorion", f"order >= {min_order}"
            slicing = _channel_groups(use)
        decays = decay_vectors or effective_order(use.param.shape) > 1
        options = slicing if algorithm == "tensorion" else {}
        group: dict[str, Any] = {"params": [], "algorithm": algorithm, "why": why, **options}
        if not decays:
            group["weight_decay"] = 0.0
        groups.setdefault((algorithm, why, decays, *sorted(options.items())), group)["params"].append(
            (use.names[0], use.param)
        )
    return sorted(groups.values(), key=lambda group: group["algorithm"] != "tensorion")


def describe(optimizer: Tensorion) -> str:
    """Describe the optimizer in a table that lists the algorithm of each parameter and the reason for it.

    For the parameters that Tensorion updates, the column `unfolding` lists the modes that become the rows, `matrix` is
    the size of the unfolded momentum, and `scale` is the factor of the learning rate that results from this size. The
    last line shows the share of the elements that each algorithm updates.

    Args:
        optimizer (Tensorion): the optimizer.

    Returns:
        str: the table.
    """
    if not isinstance(optimizer, Tensorion):
        raise TypeError(f"[tensorion.describe] expected a Tensorion, got {type(optimizer).__name__}")
    rows = [("group", "parameter", "shape", "algorithm", "why", "unfolding", "matrix", "scale", "lr")]
    for number, group in enumerate(optimizer.param_groups):
        for index, param in enumerate(group["params"]):
            name = group["param_names"][index] if "param_names" in group else str(index)
            shape = _slices.shape_text(param.shape, group)
            why = _why(group, param)
            plan = _plan(group, param) if group["algorithm"] == "tensorion" else ("", "", "")
            lr = f"{float(group['lr']):.3g}"
            rows.append((str(number), name, shape, group["algorithm"], why, *plan, lr))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in [*lines, _share.summary(optimizer.param_groups)])


def _why(group: dict[str, Any], param: Tensor) -> str:
    """Return why the group's algorithm updates the parameter."""
    why = group.get("why", "its group")
    order = re.fullmatch(r"order < (\d+)", why)
    if not order:
        return why
    return torch.ops.tensorion.fallback_reason(param.shape, int(order[1]), [], []) or "pointwise"


def _plan(group: dict[str, Any], param: Tensor) -> tuple[str, str, str]:
    """Format the unfolding, the size of the matrix and the scale. Slices of different shapes are joined by " + "."""
    unfolding = group["unfolding"] if isinstance(group["unfolding"], str) else str(tuple(group["unfolding"]))
    if unfolding == "online":
        return "online", "", ""
    texts = []
    for _, block in _slices.block_shapes(param.shape, group["batch_modes"], _slices.as_size_list(group["split_sizes"])):
        modes, rows, cols, scale = torch.ops.tensorion.describe_unfolding(block, unfolding, group["adjust_lr_fn"])
        texts.append((str(tuple(modes)), f"{rows}x{cols}", f"{scale:.4g}"))
    modes_text, matrix, scale_text = (" + ".join(dict.fromkeys(column)) for column in zip(*texts, strict=True))
    return modes_text, matrix, scale_text


def _uses(model: nn.Module) -> list[_ParamUse]:
    """Collect the names and modules of each parameter, in the order of `model.parameters()`."""
    uses: dict[int, _ParamUse] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, param in module.named_parameters(prefix, recurse=False, remove_duplicate=False):
            use = uses.setdefault(id(param), _ParamUse(param))
            use.names.append(name)
            use.modules.append(module)
    return [uses[id(param)] for param in model.parameters()]


def _example_names(uses: Sequence[_ParamUse]) -> str:
    """Quote a few names of parameters, for error messages."""
    return f"which has names such as {', '.join(use.names[0] for use in uses[:3])}"


def _applies(rule: Rule, use: _ParamUse) -> bool:
    if isinstance(rule, str):
        # The pattern may match the parameter's name or the name of a module that contains the parameter.
        parts = [name.split(".") for name in use.names]
        return any(fnmatchcase(".".join(part[:i]), rule) for part in parts for i in range(1, len(part) + 1))
    if isinstance(rule, type):
        return any(isinstance(module, rule) for module in use.modules)
    return any(rule(name, use.param) for name in use.names)


def _slicing_rules(
    name: str, rules: Mapping[str, Any] | None, uses: Sequence[_ParamUse]
) -> list[tuple[str, tuple[int, ...] | int]]:
    """Return the patterns of `batch` or `split`, each with its checked value."""
    if rules is None:
        return []
    argument = f"param_groups.{name}"
    if not isinstance(rules, Mapping) or not all(isinstance(pattern, str) for pattern in rules):
        _arguments.raise_type_error(argument, "a dict whose keys are patterns of names", rules)
    found: list[tuple[str, tuple[int, ...] | int]] = []
    for pattern, value in rules.items():
        if not any(_applies(pattern, use) for use in uses):
            raise ValueError(
                f"[tensorion.param_groups] '{pattern}' in {name} matches no parameter of the model, "
                f"{_example_names(uses)}"
            )
        if name == "batch":
            found.append((pattern, tuple(_arguments.ints(value, argument))))
        else:
            sizes = _arguments.split_sizes(value, argument)
            found.append((pattern, sizes[0] if len(sizes) == 1 else tuple(sizes)))
    return found


def _slicing(use: _ParamUse, batch: Sequence[tuple[str, Any]], split: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the options of the first patterns that match the parameter."""
    found = {}
    for option, rules in (("batch_modes", batch), ("split_sizes", split)):
        value = next((value for pattern, value in rules if _applies(pattern, use)), None)
        if value is not None:
            found[option] = value
    return found


def _slicing_reason(use: _ParamUse, slicing: Mapping[str, Any]) -> str:
    """Return why the fallback updates the sliced parameter, or an empty string if Tensorion does."""
    batch_modes, split_sizes = slicing.get("batch_modes", ()), _slices.as_size_list(slicing.get("split_sizes"))
    try:
        torch.ops.tensorion.check_options(batch_modes=list(batch_modes), split_sizes=split_sizes, ranges=True)
        return torch.ops.tensorion.fallback_reason(use.param.shape, 1, batch_modes, split_sizes)
    except ValueError as error:
        raise ValueError(
            f"[tensorion.param_groups] expected {' and '.join(slicing)} that fit '{use.names[0]}', shape "
            f"{list(use.param.shape)}: {error}"
        ) from None


def _channel_groups(use: _ParamUse) -> dict[str, Any]:
    """Return the option that splits the kernel of a grouped convolution by groups, whose channels do not mix."""
    groups = {module.groups for module in use.modules if isinstance(module, _ConvNd)} if use.param.dim() > 1 else set()
    if len(groups) != 1 or any(map(_is_depthwise, use.modules)):
        return {}
    (count,) = groups
    if count == 1 or torch.ops.tensorion.fallback_reason(use.param.shape, 1, [], [count]):
        return {}
    return {"split_sizes": count}


def _rule_name(rule: Rule) -> str:
    return f"'{rule}'" if isinstance(rule, str) else getattr(rule, "__name__", repr(rule))


def _is_depthwise(module: nn.Module) -> bool:
    return isinstance(module, _ConvNd) and 1 < module.groups == module.in_channels
