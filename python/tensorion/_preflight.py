"""Checks before a step or before a state is loaded. They raise before anything has changed."""

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
    layout: _sharding.ShardLayout | None  # None if this process updates its part without other ranks
    new_state: dict[str, Tensor]  # state that the parameter does not have yet


class Verdict(NamedTuple):
    """The result of the checks of a step that raised no error."""

    #: The options of each group, in the form that operators take.
    options: list[dict[str, Any]]
    #: The parameters to update, by group.
    updates: list[list[Update]]
    #: 1 if the step is to be skipped, else 0, on the gradients' device. None if nothing can cause a skip.
    found_inf: Tensor | None
    #: Like `found_inf`, but only for steps that `nonfinite="skip"` skips and counts.
    skipped: Tensor | None = None
    #: Whether ranks have agreed to skip the step. `found_inf` is None then.
    skip: bool = False


def check_step(
    groups: Groups,
    defaults: Mapping[str, Any],
    state: Mapping[Tensor, Mapping[str, Any]],
    process_group: Any,
    overflow: Tensor | None,
) -> Verdict:
    """Check options and gradients. An error is raised on all ranks that share tensors, or on none.

    `overflow` is nonzero if a GradScaler wants to skip the step, and None if no GradScaler is in use.
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
    # Another rank may skip the step because of a tensor that this rank does not have.
    if not (skip or verdict.found_inf is not None):
        return verdict
    skipped = torch.tensor(float(skip)) if overflow is None else verdict.skipped
    return verdict._replace(found_inf=None, skipped=skipped, skip=skip)


def _with_overflow(verdict: Verdict, overflow: Tensor | None) -> Verdict:
    """Combine the verdict with the overflow flag of a GradScaler, whose skipped steps are not counted here."""
    own = verdict.found_inf
    # Construct a new Verdict, because torch.compile of torch 2.7 cannot trace _replace.
    if overflow is None:
        return Verdict(verdict.options, verdict.updates, own, own)
    overflow = (overflow != 0).to(torch.float32)  # GradScaler sums the flags of several devices.
    if own is None:
        return Verdict(verdict.options, verdict.updates, overflow)
    other = overflow.to(own.device, own.dtype)
    return Verdict(verdict.options, verdict.updates, torch.maximum(own, other), own * (other == 0))


def agree_on_load(
    groups: Groups, state_dict: Mapping[str, Any] | None, error: Exception | None, process_group: Any
) -> None:
    """Raise `error` if there is one. If one rank has an error, all ranks that share tensors raise.

    If `error` is None, `state_dict` must have been checked.
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
    """Check options and gradients on this rank, and allocate new state."""
    options = [_options.checked(group, defaults, ranges=False) for group in groups]
    for number, (group, values) in enumerate(zip(groups, options, strict=True)):
        _group_split.check_algorithm(group, number, values)
        _group_split.check_gradients(group, number)
    # A first step may run out of memory when it allocates state, so allocate it while all ranks can still raise.
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
    """Return digests, one per parameter, of the facts on which ranks that share the parameter must agree."""
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
    """Return the gradients of the groups with this policy, and the index of each one's parameter among all."""
    params = [
        (param, values["nonfinite"] == nonfinite)
        for group, values in zip(groups, options, strict=True)
        for param in group["params"]
    ]
    watched = [i for i, (param, is_watched) in enumerate(params) if is_watched and param.grad is not None]
    return [_sharding.to_local(params[i][0].grad) for i in watched], watched


def _first_nonfinite(groups: Groups, options: Sequence[Mapping[str, Any]], overflow: Tensor | None) -> int:
    """Return the index of the first parameter whose gradient must be finite but is not, or -1.

    If a GradScaler skips the step, gradients need not be finite.
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
