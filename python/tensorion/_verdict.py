"""Whether a step may be made: everything is looked at before anything changes.

Ranks that share tensors decide together, so that none of them goes on, or waits, alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from . import _grid, _groups, _options

Groups = Sequence[Mapping[str, Any]]


class Verdict(NamedTuple):
    """The step may be made."""

    #: Of each group, as operators take them.
    options: list[dict[str, Any]]
    #: 1 where it is to be skipped, else 0, on the gradients' device; None where nobody asks.
    found_inf: Tensor | None


def reach(groups: Groups, defaults: Mapping[str, Any], process_group: Any) -> Verdict:
    """Raises where an option or a gradient is not right: on all ranks that share tensors, or on none."""
    process_groups = _grid.process_groups(groups, process_group)
    if process_groups:
        return _together(groups, defaults, process_group, process_groups)
    options = _checked_options(groups, defaults)
    _refuse_nonfinite(groups, _first_nonfinite(groups, options))
    return Verdict(options, _any_nonfinite(groups, options))


def _together(
    groups: Groups, defaults: Mapping[str, Any], process_group: Any, process_groups: Sequence[tuple[Any, torch.device]]
) -> Verdict:
    labels = _labels(groups)
    params = [param for group in groups for param in group["params"]]
    shared = [i for i, param in enumerate(params) if process_group is not None or _grid.is_dtensor(param)]
    given = [params[i].grad is not None for i in shared]
    rank, refused, nonfinite, skip = dist.get_rank(), -1, -1, False
    options: list[dict[str, Any]] = []
    error = None
    try:
        options = _checked_options(groups, defaults)
        nonfinite = _first_nonfinite(groups, options)
        found_inf = _any_nonfinite(groups, options)
        skip = found_inf is not None and bool(found_inf.item())
    except Exception as caught:
        refused, error = rank, caught
    # The largest wins; so the first gradient that is not finite is counted from above.
    from_above = len(params) - nonfinite if nonfinite >= 0 else 0
    votes = [refused, skip, from_above, *given, *(not is_given for is_given in given)]
    refused, skip, from_above, *presence = _largest(votes, process_groups)
    if error is not None:
        raise error
    if refused >= 0:
        raise RuntimeError(
            f"[tensorion.Tensorion] rank {refused} could not make this step, and its error says why; nothing "
            "was changed"
        )
    for place, i in enumerate(shared):
        if presence[place] and presence[len(shared) + place]:
            raise ValueError(
                f"[tensorion.Tensorion] expected a gradient of {labels[i]} on all ranks that share it or on none, got "
                f"{'one' if given[place] else 'None'} on rank {rank} and not on another; nothing was changed"
            )
    _refuse_nonfinite(groups, len(params) - from_above if from_above else -1)
    asked = any(values["nonfinite"] == "skip" for values in options)
    return Verdict(options, torch.tensor(float(skip)) if asked else None)


def _largest(votes: Sequence[int], process_groups: Sequence[tuple[Any, torch.device]]) -> list[int]:
    """Each vote's largest value on any rank."""
    numbers = torch.tensor([int(vote) for vote in votes])
    for group, device in process_groups:
        numbers = numbers.to(device)
        dist.all_reduce(numbers, op=dist.ReduceOp.MAX, group=group)
    return numbers.tolist()


def _labels(groups: Groups) -> list[str]:
    return [label for number, group in enumerate(groups) for label in _groups.labels(number, group)]


def _checked_options(groups: Groups, defaults: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Raises where options, or gradients, are not right."""
    options = [_options.checked(group, defaults) for group in groups]
    for number, (group, values) in enumerate(zip(groups, options, strict=True)):
        _groups.check_algorithm(group, number, values)
        _groups.check_gradients(group, number)
    return options


def _gradients(groups: Groups, options: Sequence[Mapping[str, Any]], nonfinite: str) -> tuple[list[Tensor], list[int]]:
    """The gradients of the groups with this policy, and the number of each one's parameter among all."""
    params = [
        (param, values["nonfinite"] == nonfinite)
        for group, values in zip(groups, options, strict=True)
        for param in group["params"]
    ]
    watched = [i for i, (param, is_watched) in enumerate(params) if is_watched and param.grad is not None]
    return [_grid.local(params[i][0].grad) for i in watched], watched


def _first_nonfinite(groups: Groups, options: Sequence[Mapping[str, Any]]) -> int:
    """The number of the first parameter whose gradient must be finite and is not; -1 where there is none."""
    grads, numbers = _gradients(groups, options, "error")
    bad = torch.ops.tensorion.first_nonfinite(grads).item() if grads else -1
    return numbers[bad] if bad >= 0 else -1


def _refuse_nonfinite(groups: Groups, bad: int) -> None:
    if bad >= 0:
        raise ValueError(
            f"[tensorion.Tensorion] the gradient of {_labels(groups)[bad]} is not finite; nothing was changed"
        )


def _any_nonfinite(groups: Groups, options: Sequence[Mapping[str, Any]]) -> Tensor | None:
    grads, _ = _gradients(groups, options, "skip")
    return torch.ops.tensorion.any_nonfinite(grads) if grads else None
