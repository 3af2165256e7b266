"""Agreement among ranks that share tensors, before anything changes: all of them go on, or none does.

Each rank votes once in each of its process groups, in an order that is the same everywhere. A vote has the same number
of entries on every rank, whatever that rank holds, and is reduced by the maximum:

    refused, disagreeing, nonfinite   a rank that found a fault of that kind, or -1
    skip                              1 if the step is to be skipped
    first                             the first tensor of this process group whose gradient is not finite, counted
                                      from the end; 0 if there is none
    two for each fact                 (value, rank) and (-value, rank): the extremes, and a rank that has each of them

The first four are handed on from one process group to the next, so that in the end all ranks of the largest mesh know
them. Facts are compared only among ranks that share the tensors they are about. What ranks disagree on may show only in
the last process group, so meshes of several dimensions hand `disagreeing` on once more.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import torch
import torch.distributed as dist

from ._plan import MAX_WORLD_SIZE
from ._sharding import Sharing

#: What ranks must agree on in every process group, and how errors call it.
SUBJECTS = {
    "tensors": "the names, shapes, dtypes, placements or order",
    "algorithm": "the algorithms",
    "lr": "the learning rates",
    "options": "the options",
}
#: The calls that ranks make together, and what each needs for a parameter: on all ranks or on none.
_CALLS = {"step": "a gradient", "load_state_dict": "a state"}
_RANK_BITS = (MAX_WORLD_SIZE - 1).bit_length()
_DIGEST_BITS = 62 - _RANK_BITS


@dataclass
class Ballot:
    """What one rank has to say about a call."""

    call: str  # one of _CALLS
    label: Callable[[int], str]  # how errors call a parameter
    present: Sequence[bool]  # whether each has what the call needs
    error: Exception | None = None  # why this rank refuses
    nonfinite: int = -1  # its first parameter whose gradient must be finite and is not
    skip: bool = False
    #: For each subject, a digest for each parameter. Empty if this rank refuses.
    facts: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def facts_of(self, members: Sequence[int]) -> dict[str, int]:
        """What is compared among ranks that share these parameters."""
        digests = {
            subject: _digest_of_all(self.facts[subject][i] for i in members) if self.facts else 0
            for subject in SUBJECTS
        }
        present = _digest_of_all(self.present[i] for i in members)
        return {"call": list(_CALLS).index(self.call), "count": len(members), **digests, "present": present}


def digest(value: object) -> int:
    """A number that other values hardly have, the same in all processes. `value` consists of plain Python objects."""
    return _digest_of_bytes(repr(value).encode())


def _digest_of_all(numbers: Iterable[int]) -> int:
    return _digest_of_bytes(array("q", numbers).tobytes())


def _digest_of_bytes(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big") >> (64 - _DIGEST_BITS)


def agree_across_ranks(ballot: Ballot, sharings: Sequence[Sharing]) -> bool:
    """Whether some rank wants the step to be skipped. Raises on all ranks if one refuses, or if ranks disagree."""
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
    """Ordered by value, and among equals by rank."""
    return (value << _RANK_BITS) | rank


def _untagged(tagged: int) -> tuple[int, int]:
    return tagged >> _RANK_BITS, tagged & ((1 << _RANK_BITS) - 1)


def _all_reduce_max(votes: Sequence[int], sharing: Sharing) -> list[int]:
    """Each entry's largest value in the process group."""
    numbers = torch.tensor(votes, device=sharing.device)
    dist.all_reduce(numbers, op=dist.ReduceOp.MAX, group=sharing.group)
    return numbers.tolist()


def _difference(facts: Sequence[str], tagged: Sequence[int]) -> str:
    """The first fact that ranks disagree on, but for presence, in words."""
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
                "expected as many parameters on all ranks that share them, got "
                f"{most} on rank {one} and {-least} on rank {other}"
            )
        return (
            f"expected ranks to agree on {SUBJECTS[fact]} of the parameters that they share, but rank {one} and rank "
            f"{other} do not"
        )
    return ""


def _missing(ballot: Ballot, tagged: Sequence[int], sharing: Sharing) -> str:
    """The first parameter that lacks what the call needs on some of the ranks, but not on all, in words."""
    (most, _), (least, _) = map(_untagged, tagged[-2:])
    if most == -least:
        return ""
    # All ranks of the process group come here, with equally many parameters.
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
