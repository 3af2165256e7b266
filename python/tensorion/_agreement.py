"""What ranks must agree on before a step changes anything, so that none of them goes on, or waits, alone."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist


class Findings(NamedTuple):
    """What a rank found in its own gradients, or what was found anywhere."""

    #: Of each shared parameter: whether there is a gradient, and whether there is none.
    given: Sequence[bool]
    missing: Sequence[bool]
    #: The first parameter whose gradient must be finite and is not; -1 where there is none.
    nonfinite: int = -1
    #: Whether the step is to be left out.
    skip: bool = False
    #: The rank that refused the step; -1 where none did.
    refused: int = -1


def agreed(own: Findings, process_groups: Sequence[tuple[Any, torch.device]]) -> Findings:
    """The findings of all ranks together. All of them call it."""
    count = len(own.given)
    # The largest wins. The first parameter that is not finite is therefore counted from above.
    above = 1 << 40
    first = 0 if own.nonfinite < 0 else above - own.nonfinite
    votes = torch.tensor([own.refused, int(own.skip), first, *own.given, *own.missing], dtype=torch.int64)
    for group, device in process_groups:
        votes = votes.to(device)
        dist.all_reduce(votes, op=dist.ReduceOp.MAX, group=group)
    refused, skip, first, *presence = votes.tolist()
    nonfinite = above - first if first else -1
    given, missing = map(bool, presence[:count]), map(bool, presence[count:])
    return Findings(list(given), list(missing), nonfinite, bool(skip), refused)
