"""Whether a step may be made, or a state loaded: everything is checked before anything changes."""

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _group_split, _options, _sharding, _state
from ._agreement import Ballot, agree_across_ranks, digest

Groups = Sequence[Mapping[str, Any]]


class Update(NamedTuple):
    """A parameter that has a gradient."""

    param: Tensor
    layout: _sharding.ShardLayout | None  # None if this process updates its part by itself
    new_state: dict[str, Tensor]  # what its state still lacks


class Verdict(NamedTuple):
    """The step may be made."""

    #: Of each group, as operators take them.
    options: list[dict[str, Any]]
    #: By group.
    updates: list[list[Update]]
    #: 1 if it is to be skipped, else 0, on the gradients' device; None if nobody asks.
    found_inf: Tensor | None
    #: The same for the policy "skip" alone, which counts the steps that it skips.
    skipped: Tensor | None = None
    #: Whether ranks have agreed to skip it. `found_inf` is None then.
    skip: bool = False


def check_step(
    groups: Groups,
    defaults: Mapping[str, Any],
    state: Mapping[Tensor, Mapping[str, Any]],
    process_group: Any,
    overflow: Tensor | None,
) -> Verdict:
    """Raises if an option or a gradient is not right: on all ranks that share tensors, or on none.

    `overflow`: not 0 if a GradScaler asks for the step to be skipped.
    """
    sharings = _sharding.sharings(_params(groups), process_group)
    if not sharings:
        verdict = _with_overflow(_checked(groups, defaults, state, process_group), overflow)
        bad = _first_nonfinite(groups, verdict.options, overflow)
        if bad >= 0:
            raise ValueError(
                f"[tensorion.Tensorion] the gradient of {_label(groups, bad)} is not finite; nothing was changed"
            )
        return verdict
    ballot = Ballot("step", partial(_label, groups), [param.grad is not None for param in _params(groups)])
    verdict = Verdict([], [], None)
    try:
        verdict = _checked(groups, defaults, state, process_group)
        verdict = _with_overflow(verdict, overflow)
        ballot.nonfinite = _first_nonfinite(groups, verdict.options, overflow)
        ballot.skip = verdict.found_inf is not None and bool(verdict.found_inf.item())
        ballot.facts = _facts(groups, verdict.options)
    except Exception as error:
        ballot.error = error
    skip = agree_across_ranks(ballot, sharings)
    # Another rank may skip for a tensor that this one does not have.
    if not (skip or verdict.found_inf is not None):
        return verdict
    skipped = torch.tensor(float(skip)) if overflow is None else verdict.skipped
    return verdict._replace(found_inf=None, skipped=skipped, skip=skip)


def _with_overflow(verdict: Verdict, overflow: Tensor | None) -> Verdict:
    """The verdict if a GradScaler has found what is not finite: it skips the step, and counts it, by itself."""
    own = verdict.found_inf
    # Made anew: torch.compile of torch 2.7 does not see through _replace.
    if overflow is None:
        return Verdict(verdict.options, verdict.updates, own, own)
    overflow = (overflow != 0).to(torch.float32)  # GradScaler adds up what it found on several devices
    if own is None:
        return Verdict(verdict.options, verdict.updates, overflow)
    other = overflow.to(own.device, own.dtype)
    return Verdict(verdict.options, verdict.updates, torch.maximum(own, other), own * (other == 0))


def agree_on_load(
    groups: Groups, state_dict: Mapping[str, Any] | None, error: Exception | None, process_group: Any
) -> None:
    """Raises `error`, if there is one: on all ranks that share tensors, or on none.

    `state_dict` must have been checked if there is no error.
    """
    sharings = _sharding.sharings(_params(groups), process_group)
    if sharings:
        present = [False] * len(_params(groups))
        if error is None and state_dict is not None:
            keys = [key for group in state_dict["param_groups"] for key in group["params"]]
            present = [bool(state_dict["state"].get(key)) for key in keys]
        agree_across_ranks(Ballot("load_state_dict", partial(_label, groups), present, error), sharings)
    elif error is not None:
        raise error


def _params(groups: Groups) -> list[Tensor]:
    return [param for group in groups for param in group["params"]]


def _label(groups: Groups, index: int) -> str:
    return [label for number, group in enumerate(groups) for label in _group_split.labels(number, group)][index]


def _checked(
    groups: Groups, defaults: Mapping[str, Any], state: Mapping[Tensor, Mapping[str, Any]], process_group: Any
) -> Verdict:
    """Raises if options, or gradients, are not right."""
    options = [_options.checked(group, defaults, ranges=False) for group in groups]
    for number, (group, values) in enumerate(zip(groups, options, strict=True)):
        _group_split.check_algorithm(group, number, values)
        _group_split.check_gradients(group, number)
    # Memory for new state is what a first step runs out of, so it is allocated while all ranks can still stop.
    updates = [
        [
            Update(
                param,
                _sharding.layout_of(param, process_group) if values["algorithm"] == "tensorion" else None,
                _state.missing(state.get(param, {}), param, values),
            )
            for param in group["params"]
            if param.grad is not None
        ]
        for group, values in zip(groups, options, strict=True)
    ]
    return Verdict(options, updates, _any_nonfinite(groups, options))


def _facts(groups: Groups, options: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Digests of what ranks that share parameters must agree on, for each parameter."""
    facts: dict[str, list[int]] = {"tensors": [], "algorithm": [], "lr": [], "options": []}
    for group, values in zip(groups, options, strict=True):
        params = group["params"]
        names = group.get("param_names") or [""] * len(params)
        facts["tensors"] += [
            _tensor_digest(name, param.shape, param.dtype, _sharding.placements(param))
            for name, param in zip(names, params, strict=True)
        ]
        lr = "on a device" if isinstance(values["lr"], Tensor) else values["lr"]
        others = [values[key] for key in _options.VALUES[values["algorithm"]] if key != "lr"]
        for subject, fact in (("algorithm", values["algorithm"]), ("lr", lr), ("options", others)):
            facts[subject] += [digest(fact)] * len(params)
    return facts


@lru_cache(maxsize=2**16)
def _tensor_digest(name: str, shape: torch.Size, dtype: torch.dtype, placements: Any) -> int:
    return digest((name, tuple(shape), str(dtype), str(placements)))


def _gradients(groups: Groups, options: Sequence[Mapping[str, Any]], nonfinite: str) -> tuple[list[Tensor], list[int]]:
    """The gradients of the groups with this policy, and the number of each one's parameter among all."""
    params = [
        (param, values["nonfinite"] == nonfinite)
        for group, values in zip(groups, options, strict=True)
        for param in group["params"]
    ]
    watched = [i for i, (param, is_watched) in enumerate(params) if is_watched and param.grad is not None]
    return [_sharding.to_local(params[i][0].grad) for i in watched], watched


def _first_nonfinite(groups: Groups, options: Sequence[Mapping[str, Any]], overflow: Tensor | None) -> int:
    """The number of the first parameter whose gradient must be finite and is not; -1 if there is none.

    What a GradScaler skips need not be finite.
    """
    grads, numbers = _gradients(groups, options, "error")
    if not grads:
        return -1
    found = torch.ops.tensorion.first_nonfinite(grads)
    if overflow is not None:
        found = torch.where(overflow.to(found.device) != 0, -1, found)
    bad = int(found.item())
    return numbers[bad] if bad >= 0 else -1


def _any_nonfinite(groups: Groups, options: Sequence[Mapping[str, Any]]) -> Tensor | None:
    grads, _ = _gradients(groups, options, "skip")
    return torch.ops.tensorion.any_nonfinite(grads) if grads else None
