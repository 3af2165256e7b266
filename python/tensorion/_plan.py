"""Which rank solves which tensor, if processes share the work of a step."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapreplace
from math import prod

import torch

from . import _arguments

#: More ranks than any machine has; a plan has an entry for each.
MAX_WORLD_SIZE = 2**20


@dataclass(frozen=True)
class Plan:
    """The tensors that each rank solves for. All ranks make the same plan, without asking each other."""

    #: The shape of each tensor.
    shapes: tuple[tuple[int, ...], ...]
    #: What solving for each tensor costs, in products of entries: `m^2 (n + m)` on `m x n`, `m <= n`.
    costs: tuple[float, ...]
    #: The rank that solves for each tensor.
    owners: tuple[int, ...]
    #: By round, then by rank: the tensors that the rank solves for in that round.
    rounds: tuple[tuple[tuple[int, ...], ...], ...]
    world_size: int

    @property
    def loads(self) -> tuple[float, ...]:
        """The cost of each rank's tensors."""
        loads = [0.0] * self.world_size
        for owner, cost in zip(self.owners, self.costs, strict=True):
            loads[owner] += cost
        return tuple(loads)

    @property
    def speedup(self) -> float:
        """How many times less the busiest rank does than a process on its own would."""
        return sum(self.costs) / max(self.loads) if any(self.costs) else 1.0

    @property
    def imbalance(self) -> float:
        """The busiest rank's load over the mean: 1 is perfect, `world_size` is one rank doing it all."""
        return self.world_size / self.speedup


def plan(shapes: Iterable[Sequence[int]], world_size: int, *, unfolding: _arguments.UnfoldingLike = "balanced") -> Plan:
    """Share tensors out among ranks: the costliest first, each to the rank with the least to do so far.

    A rank works through its tensors in rounds, costliest first. A round holds no more entries than the largest
    tensor has, so that what a rank assembles at a time is bounded by that, and small tensors travel together.

    Args:
        shapes: of the tensors that Tensorion updates.
        world_size: how many ranks there are.
        unfolding: as of `Tensorion`; "online" is counted with the cost of the balanced unfolding.
    """
    name = _arguments.unfolding(unfolding, "plan.unfolding")
    if not isinstance(shapes, Iterable):
        _arguments.refuse("plan.shapes", "a sequence of shapes", shapes)
    known = tuple(tuple(_arguments.ints(shape, "plan.shapes")) for shape in shapes)
    return share(known, (name,) * len(known), _arguments.integer(world_size, "plan.world_size"))


@lru_cache(maxsize=64)
def share(shapes: tuple[tuple[int, ...], ...], unfoldings: tuple[str, ...], world_size: int) -> Plan:
    """As `plan`, with an unfolding for each tensor."""
    if world_size < 1:
        raise ValueError(f"[tensorion.plan] world_size must be at least 1, got {world_size}")
    if world_size > MAX_WORLD_SIZE:
        raise ValueError(f"[tensorion.plan] world_size must be at most {MAX_WORLD_SIZE}, got {world_size}")
    costs = [
        torch.ops.tensorion.solving_cost(shape, unfolding) for shape, unfolding in zip(shapes, unfoldings, strict=True)
    ]
    owners = [0] * len(shapes)
    members: list[list[int]] = [[] for _ in range(world_size)]
    least = [(0.0, rank) for rank in range(world_size)]  # a heap: ties go to the lowest rank
    for index in sorted(range(len(shapes)), key=lambda i: -costs[i]):
        load, rank = least[0]
        owners[index] = rank
        members[rank].append(index)
        heapreplace(least, (load + costs[index], rank))
    capacity = max((prod(shape) for shape in shapes), default=0)
    by_rank = [_rounds(indices, shapes, capacity) for indices in members]
    count = max(map(len, by_rank))
    rounds = [tuple(rounds[i] if i < len(rounds) else () for rounds in by_rank) for i in range(count)]
    return Plan(shapes, tuple(costs), tuple(owners), tuple(rounds), world_size)


def _rounds(indices: list[int], shapes: Sequence[tuple[int, ...]], capacity: int) -> list[tuple[int, ...]]:
    """One rank's tensors in runs of at most `capacity` entries."""
    rounds: list[list[int]] = []
    room = -1
    for index in indices:
        room -= prod(shapes[index])
        if room < 0:
            rounds.append([])
            room = capacity - prod(shapes[index])
        rounds[-1].append(index)
    return [tuple(run) for run in rounds]
