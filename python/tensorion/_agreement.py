"""Agreement among ranks that share tensors: before anything changes, either all ranks continue or all raise an error.

Each rank votes once in each of its process groups, in an order that is the same on all ranks. A vote is a vector whose
length does not depend on the rank. The votes of a process group are reduced by their elementwise maximum:

    refused, disagreeing, nonfinite   a rank that found an error of this kind, or -1
    skip                              1 if the step is to be skipped
    first                             the first tensor of this process group whose gradient is not finite, counted
                                      from the end; 0 if there is none
    two entries for each fact         (value, rank) and (-value, rank): the largest and the smallest value, each with a
                                      rank that has it

The first four entries are passed from each process group to the next, so that all ranks of the largest mesh know them
in the end. Facts are compared only among ranks that share the tensors in question. A disagreement may be found only in
the last process group, so meshes of several dimensions pass `disagreeing` on a second time.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import torch
import torch.distributed as dist

from ._plan import MAX_WORLD_SIZE
from ._sharding import Sharing

#: The facts that ranks must agree on in every process group, with their description in error messages.
SUBJECTS = {
    "tensors": "the names, shapes, dtypes, placements or order",
    "algorithm": "the algorithms",
    "lr": "the learning rates",
    "options": "the options",
}
#: The calls that ranks make together. A parameter must have what the call needs on all ranks or on none.
_CALLS = {"step": "a gradient", "load_state_dict": "a state"}
_RANK_BITS = (MAX_WORLD_SIZE - 1).bit_length()
_DIGEST_BITS = 62 - _RANK_BITS


@dataclass
class Ballot:
    """One rank's contribution to the vote about a call."""

    call: str  # one of _CALLS
    label: Callable[[int], str]  # the description of a parameter in error messages
    present: Sequence[bool]  # whether each parameter has what the call needs
    error: Exception | None = None  # the error that this rank found
    nonfinite: int = -1  # the first parameter whose gradient must be finite but is not
    skip: bool = False
    #: For each subject, one digest per parameter. Empty if this rank found an error.
    facts: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def facts_of(self, members: Sequence[int]) -> dict[str, int]:
        """Return the facts that are compared among the ranks that share these parameters."""
        digests = {
            subject: _digest_of_all(self.facts[subject][i] for i in members) if self.facts else 0
            for subject in SUBJECTS
        }
        present = _digest_of_all(self.present[i] for i in members)
        return {"call": list(_CALLS).index(self.call), "count": len(members), **digests, "present": present}


def digest(value: object) -> int:
    """Hash a value that consists of plain Python objects. The result is the same in all processes."""
    return _digest_of_bytes(repr(value).encode())


def _digest_of_all(numbers: Iterable[int]) -> int:
    return _digest_of_bytes(array("q", numbers).tobytes())


def _digest_of_bytes(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big") >> (64 - _DIGEST_BITS)


def agree_across_ranks(ballot: Ballot, sharings: Sequence[Sharing]) -> bool:
    """Return whether some rank wants to skip the step.

    If one rank found an error or the ranks disagree, this raises on all ranks.
    """
    rank = dist.get_rank()
    refused = -1 if ballot.error is None else rank
    disagreeing, nonfinite, skip = -1, -1 if ballot.nonfinite < 0 else rank, int(ballot.skip)
    bad = ballot.nonfinite
    difference = ""
    for sharing in sharings:
        members = sharing.members
        first = len(members) - members.index(bad) if bad in members else 0
        facts = ballot.facts_of(members)
        tagged = [_tagged(value, rank) for fact in facts.values() for value in (fact, -fact)]
        votes = _all_reduce_max([refused, disagreeing, nonfinite, skip, first, *tagged], sharing)
        refused, disagreeing, nonfinite, skip, first, *tagged = votes
        found = _difference(list(facts), tagged) or _missing(ballot, tagged, sharing)
        if found:
            difference = difference or found
            disagreeing = max(disagreeing, rank)
        elif first:
            shared = members[len(members) - first]
            bad = min(bad, shared) if bad >= 0 else shared
    for sharing in sharings[:-1]:
        if sharing.mesh_size == sharings[-1].mesh_size:
            (disagreeing,) = _all_reduce_max([disagreeing], sharing)
    unchanged = "nothing was changed"
    if ballot.error is not None:
        raise ballot.error
    if refused >= 0:
        what = "make this step" if ballot.call == "step" else "load this state"
        raise RuntimeError(
            f"[tensorion.Tensorion] rank {refused} could not {what}, and its error says why; {unchanged}"
        )
    if difference:
        raise ValueError(f"[tensorion.Tensorion] {difference}; {unchanged}")
    if disagreeing >= 0:
        raise RuntimeError(
            f"[tensorion.Tensorion] rank {disagreeing} disagrees with ranks that it shares tensors with, and its error "
            f"says on what; {unchanged}"
        )
    if bad >= 0:
        raise ValueError(f"[tensorion.Tensorion] the gradient of {ballot.label(bad)} is not finite; {unchanged}")
    if nonfinite >= 0:
        raise ValueError(
            f"[tensorion.Tensorion] rank {nonfinite} has a gradient that is not finite, of a parameter that this rank "
            f"does not share; {unchanged}"
        )
    return bool(skip)


def _tagged(value: int, rank: int) -> int:
    """Combine a value and a rank into a number that is ordered by value, then by rank."""
    return (value << _RANK_BITS) | rank


def _untagged(tagged: int) -> tuple[int, int]:
    return tagged >> _RANK_BITS, tagged & ((1 << _RANK_BITS) - 1)


def _all_reduce_max(votes: Sequence[int], sharing: Sharing) -> list[int]:
    """Return the elementwise maximum over the process group."""
    numbers = torch.tensor(votes, device=sharing.device)
    dist.all_reduce(numbers, op=dist.ReduceOp.MAX, group=sharing.group)
    return numbers.tolist()


def _difference(facts: Sequence[str], tagged: Sequence[int]) -> str:
    """Describe the first fact other than "present" that ranks disagree on. Return "" if there is none."""
    for number, fact in enumerate(facts):
        (most, one), (least, other) = map(_untagged, tagged[2 * number : 2 * number + 2])
        if most == -least or fact == "present":
            continue
        if fact == "call":
            calls = list(_CALLS)
            return (
                f"expected the same call on all ranks, got {calls[most]} on rank {one} and {calls[-least]} on rank "
                f"{other}"
            )
        if fact == "count":
            return (
                "expected the same number of parameters on all ranks that share them, got "
                f"{most} on rank {one} and {-least} on rank {other}"
            )
        return (
            f"expected ranks to agree on {SUBJECTS[fact]} of the parameters that they share, but rank {one} and rank "
            f"{other} do not"
        )
    return ""


def _missing(ballot: Ballot, tagged: Sequence[int], sharing: Sharing) -> str:
    """Describe the first parameter that has what the call needs on some ranks only. Return "" if there is none."""
    (most, _), (least, _) = map(_untagged, tagged[-2:])
    if most == -least:
        return ""
    # All ranks of the process group get here, with the same number of parameters.
    rank = dist.get_rank()
    present = [ballot.present[i] for i in sharing.members]
    votes = [rank if here else -1 for here in present] + [-1 if here else rank for here in present]
    ranks = _all_reduce_max(votes, sharing)
    for member, having, lacking in zip(sharing.members, ranks, ranks[len(present) :], strict=False):
        if having >= 0 and lacking >= 0:
            return (
                f"expected {_CALLS[ballot.call]} of {ballot.label(member)} on all ranks that share it or on none, got "
                f"one on rank {having} and None on rank {lacking}"
            )
    return ""
