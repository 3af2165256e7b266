"""Which parameter of a model goes where, and why."""

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

#: What sends parameters to the fallback: a pattern of names, a type of modules, or a function of a
#: parameter's name and itself.
Rule = str | type[nn.Module] | Callable[[str, Tensor], bool]


@dataclass
class _Use:
    """A parameter, and everywhere it is used: one that is tied has several names."""

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
    """The parameters of a model in groups for `Tensorion`, by the first of these rules that applies:

    1. what `to_fallback` names goes to the fallback;
    2. depthwise convolution kernels (one input channel for each filter) go to the fallback, unless
       `depthwise`: their filters act on different channels, so that there is no common matrix to
       orthogonalize;
    3. parameters that `batch` or `split` names go to Tensorion, in slices, if these have at least two modes larger
       than 1, else to the fallback;
    4. tensors of order below `min_order`, or with fewer than two modes larger than 1, go to the fallback; leading
       modes of size 1 do not count in the order;
    5. all others go to Tensorion; kernels of grouped convolutions as one tensor for each group of channels.

    Each rule makes a group, with named parameters, the `"algorithm"` and the reason, `"why"`. Options such
    as the learning rates come from the optimizer: `Tensorion(param_groups(model), lr=..., fallback_lr=...)`.

    Args:
        model: its parameters are taken, frozen ones too.
        min_order: as of `Tensorion`.
        fallback: "adamw" or "sgd".
        to_fallback: glob patterns of the names of parameters or of modules that hold them (`"head"`,
            `"*.embed*"`), types of modules (`torch.nn.Embedding`), or functions of a name and a tensor.
            One that fits nothing is an error.
        depthwise: whether depthwise kernels stay with Tensorion.
        pointwise: False leaves convolution kernels of size 1 to the fallback, as matrices are: no mode of size 1 counts
            in the order then. With `depthwise=True` beside it, the groups are those of optimizers before
            kernels of size 1 became Tensorion's, whose states then load.
        decay_vectors: False sets weight_decay to 0 for biases, norms' scales and all other tensors of
            effective order 0 or 1.
        batch: patterns of names, as in `to_fallback`, with the `batch_modes` of what they fit:
            `{"*.experts.*": (0,)}`. Of several patterns that fit, the first one counts.
        split: patterns with `split_sizes`: `{"*.qkv.weight": 3, "*.qkv_proj.weight": (2048, 512, 512)}`. 1 keeps the
            kernel of a grouped convolution whole.
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
                f"[tensorion.param_groups] '{use.names[0]}' has no shape yet: run its lazy module once before"
            )
    if not isinstance(to_fallback, (str, type, Iterable)):
        _arguments.refuse("param_groups.to_fallback", "a sequence of rules", to_fallback)
    rules = [to_fallback] if isinstance(to_fallback, (str, type)) else list(to_fallback)
    for rule in rules:
        if not isinstance(rule, str) and not callable(rule):
            _arguments.refuse("param_groups.to_fallback", "patterns, types of modules or functions", rule)
        if not any(_applies(rule, use) for use in uses):
            raise ValueError(
                f"[tensorion.param_groups] {_text(rule)} in to_fallback fits no parameter of the model, "
                f"whose names are such as {', '.join(use.names[0] for use in uses[:3])}"
            )
    batch_rules = _slicing_rules("batch", batch, uses)
    split_rules = _slicing_rules("split", split, uses)
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for use in uses:
        shape = list(use.param.shape) if pointwise else drop_ones(use.param.shape)
        named = next((rule for rule in rules if _applies(rule, use)), None)
        slicing = _slicing(use, batch_rules, split_rules)
        if named is not None:
            algorithm, why = fallback, _text(named)
        elif not depthwise and any(map(_is_depthwise, use.modules)) and use.param.dim() > 1:
            algorithm, why = fallback, "depthwise"
        elif slicing:
            reason = _slicing_reason(use, slicing)
            algorithm, why = (fallback, reason) if reason else ("tensorion", "slices")
        elif torch.ops.tensorion.fallback_reason(shape, min_order, [], []):
            algorithm, why = fallback, f"order < {min_order}"
        else:
            algorithm, why = "tensorion", f"order >= {min_order}"
            slicing = _by_channels(use)
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
    """A table of all parameters of the optimizer: what updates each of them, why, and how.

    For Tensorion's own, `unfolding` names the modes that become the rows, `matrix` is the size of the
    unfolded momentum, and `scale` the factor of the learning rate that follows from it. The last line says which
    share of the elements each algorithm updates.
    """
    if not isinstance(optimizer, Tensorion):
        raise TypeError(f"[tensorion.describe] expected a Tensorion, got {type(optimizer).__name__}")
    rows = [("group", "parameter", "shape", "algorithm", "why", "unfolding", "matrix", "scale", "lr")]
    for number, group in enumerate(optimizer.param_groups):
        for index, param in enumerate(group["params"]):
            name = group["param_names"][index] if "param_names" in group else str(index)
            shape = _slices.text(param.shape, group)
            why = _why(group, param)
            plan = _plan(group, param) if group["algorithm"] == "tensorion" else ("", "", "")
            lr = f"{float(group['lr']):.3g}"
            rows.append((str(number), name, shape, group["algorithm"], why, *plan, lr))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in [*lines, _share.summary(optimizer.param_groups)])


def _why(group: dict[str, Any], param: Tensor) -> str:
    """Why the group's algorithm updates the parameter."""
    why = group.get("why", "its group")
    order = re.fullmatch(r"order < (\d+)", why)
    if not order:
        return why
    return torch.ops.tensorion.fallback_reason(param.shape, int(order[1]), [], []) or "pointwise"


def _plan(group: dict[str, Any], param: Tensor) -> tuple[str, str, str]:
    """The unfolding, the size of the matrix and the scale, as text; of unlike slices those of each."""
    unfolding = group["unfolding"] if isinstance(group["unfolding"], str) else str(tuple(group["unfolding"]))
    if unfolding == "online":
        return "online", "", ""
    texts = []
    for _, block in _slices.block_shapes(param.shape, group["batch_modes"], _slices.sizes_of(group["split_sizes"])):
        modes, rows, cols, scale = torch.ops.tensorion.describe_unfolding(block, unfolding, group["adjust_lr_fn"])
        texts.append((str(tuple(modes)), f"{rows}x{cols}", f"{scale:.4g}"))
    modes_text, matrix, scale_text = (" + ".join(dict.fromkeys(column)) for column in zip(*texts, strict=True))
    return modes_text, matrix, scale_text


def _uses(model: nn.Module) -> list[_Use]:
    uses: dict[int, _Use] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, param in module.named_parameters(prefix, recurse=False, remove_duplicate=False):
            use = uses.setdefault(id(param), _Use(param))
            use.names.append(name)
            use.modules.append(module)
    # In the order of model.parameters().
    return [uses[id(param)] for param in model.parameters()]


def _applies(rule: Rule, use: _Use) -> bool:
    if isinstance(rule, str):
        # The name itself, or that of a module it is in.
        parts = [name.split(".") for name in use.names]
        return any(fnmatchcase(".".join(part[:i]), rule) for part in parts for i in range(1, len(part) + 1))
    if isinstance(rule, type):
        return any(isinstance(module, rule) for module in use.modules)
    return any(rule(name, use.param) for name in use.names)


def _slicing_rules(
    name: str, rules: Mapping[str, Any] | None, uses: Sequence[_Use]
) -> list[tuple[str, tuple[int, ...] | int]]:
    """The patterns of `batch` or `split`, each with its checked value."""
    if rules is None:
        return []
    argument = f"param_groups.{name}"
    if not isinstance(rules, Mapping) or not all(isinstance(pattern, str) for pattern in rules):
        _arguments.refuse(argument, "a dict by patterns of names", rules)
    found: list[tuple[str, tuple[int, ...] | int]] = []
    for pattern, value in rules.items():
        if not any(_applies(pattern, use) for use in uses):
            raise ValueError(
                f"[tensorion.param_groups] '{pattern}' in {name} fits no parameter of the model, whose names are such "
                f"as {', '.join(use.names[0] for use in uses[:3])}"
            )
        if name == "batch":
            found.append((pattern, tuple(_arguments.ints(value, argument))))
        else:
            sizes = _arguments.split_sizes(value, argument)
            found.append((pattern, sizes[0] if len(sizes) == 1 else tuple(sizes)))
    return found


def _slicing(use: _Use, batch: Sequence[tuple[str, Any]], split: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The options of the first patterns that fit the parameter."""
    found = {}
    for option, rules in (("batch_modes", batch), ("split_sizes", split)):
        value = next((value for pattern, value in rules if _applies(pattern, use)), None)
        if value is not None:
            found[option] = value
    return found


def _slicing_reason(use: _Use, slicing: Mapping[str, Any]) -> str:
    """Why the fallback updates the parameter despite its slices; empty if Tensorion does."""
    batch_modes, split_sizes = slicing.get("batch_modes", ()), _slices.sizes_of(slicing.get("split_sizes"))
    try:
        torch.ops.tensorion.check_options(batch_modes=list(batch_modes), split_sizes=split_sizes, ranges=True)
        return torch.ops.tensorion.fallback_reason(use.param.shape, 1, batch_modes, split_sizes)
    except ValueError as error:
        raise ValueError(
            f"[tensorion.param_groups] {' and '.join(slicing)} do not fit '{use.names[0]}', shape "
            f"{list(use.param.shape)}: {error}"
        ) from None


def _by_channels(use: _Use) -> dict[str, Any]:
    """The groups of a grouped convolution, whose channels do not mix, as blocks of its kernel."""
    groups = {module.groups for module in use.modules if isinstance(module, _ConvNd)} if use.param.dim() > 1 else set()
    if len(groups) != 1 or any(map(_is_depthwise, use.modules)):
        return {}
    (count,) = groups
    if count == 1 or torch.ops.tensorion.fallback_reason(use.param.shape, 1, [], [count]):
        return {}
    return {"split_sizes": count}


def _text(rule: Rule) -> str:
    return f"'{rule}'" if isinstance(rule, str) else getattr(rule, "__name__", repr(rule))


def _is_depthwise(module: nn.Module) -> bool:
    return isinstance(module, _ConvNd) and 1 < module.groups == module.in_channels
