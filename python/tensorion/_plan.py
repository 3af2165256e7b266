"""The plan of a distributed step: which rank orthogonalizes which tensor."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapreplace
from math import prod

import torch

from . import _arguments

#: An upper limit for the number of ranks. A plan stores an entry per rank.
MAX_WORLD_SIZE = 2**20


@dataclass(frozen=True)
class Plan:
    """The assignment of tensors to ranks. It is deterministic, so all ranks compute it without communication."""

    #: The shape of each tensor.
    shapes: tuple[tuple[int, ...], ...]
    #: The estimated cost of each tensor in multiply-adds: `m^2 (n + m)` for an `m x n` unfolding with `m <= n`.
    costs: tuple[float, ...]
    #: The rank that orthogonalizes each tensor.
    owners: tuple[int, ...]
    #: `rounds[i][rank]` lists the indices of the tensors that the rank orthogonalizes in round i.
    rounds: tuple[tuple[tuple[int, ...], ...], ...]
    world_size: int

    @property
    def loads(self) -> tuple[float, ...]:
        """The total cost of each rank's tensors."""
        loads = [0.0] * self.world_size
        for owner, cost in zip(self.owners, self.costs, strict=True):
            loads[owner] += cost
        return tuple(loads)

    @property
    def speedup(self) -> float:
        """The total cost divided by the load of the busiest rank."""
        return sum(self.costs) / max(self.loads) if any(self.costs) else 1.0

    @property
    def imbalance(self) -> float:
        """The load of the busiest rank divided by the mean: 1 is perfect; `world_size` means one rank does it all."""
        return self.world_size / self.speedup


def plan(shapes: Iterable[Sequence[int]], world_size: int, *, unfolding: _arguments.UnfoldingLike = "balanced") -> Plan:
    """Assign tensors to ranks greedily: the costliest tensor first, each to the rank with the smallest load so far.

    A rank orthogonalizes its tensors in rounds, the costliest first. The tensors of a round have at most as many
    elements as the largest tensor. This bounds the memory that a rank needs, and small tensors share a message.

    Args:
        shapes (iterable): shapes of the tensors that Tensorion updates.
        world_size (int): number of ranks.
        unfolding (str or tuple of int, optional): see `Tensorion`. "online" is assumed to cost as much as "balanced"
            (default: "balanced").

    Returns:
        Plan: the assignment.

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if `world_size` is out of range, or if `unfolding` does not fit a shape.

    Example:
        >>> tensorion.plan([(512, 256, 3, 3)] * 4, world_size=2).owners
        (0, 1, 0, 1)
    """
    name = _arguments.unfolding(unfolding, "plan.unfolding")
    if not isinstance(shapes, Iterable):
        _arguments.raise_type_error("plan.shapes", "a sequence of shapes", shapes)
    checked = tuple(tuple(_arguments.ints(shape, "plan.shapes")) for shape in shapes)
    return share(checked, (name,) * len(checked), _arguments.integer(world_size, "plan.world_size"))


@lru_cache(maxsize=64)
def share(shapes: tuple[tuple[int, ...], ...], unfoldings: tuple[str, ...], world_size: int) -> Plan:
    """Assign tensors to ranks like `plan`, with one unfolding per tensor."""
    if world_size < 1:
        raise ValueError(f"[tensorion.plan] world_size must be at least 1, got {world_size}")
    if world_size > MAX_WORLD_SIZE:
        raise ValueError(f"[tensorion.plan] world_size must be at most {MAX_WORLD_SIZE}, got {world_size}")
    costs = [
        torch.ops.tensorion.solving_cost(shape, unfolding) for shape, unfolding in zip(shapes, unfoldings, strict=True)
    ]
    owners = [0] * len(shapes)
    members: list[list[int]] = [[] for _ in range(world_size)]
    heap = [(0.0, rank) for rank in range(world_size)]  # (load, rank), so ties go to the lowest rank
    for index in sorted(range(len(shapes)), key=lambda i: -costs[i]):
        load, rank = heap[0]
        owners[index] = rank
        members[rank].append(index)
        heapreplace(heap, (load + costs[index], rank))
    capacity = max((prod(shape) for shape in shapes), default=0)
    by_rank = [_rounds(indices, shapes, capacity) for indices in members]
    count = max(map(len, by_rank))
    rounds = [tuple(rounds[i] if i < len(rounds) else () for rounds in by_rank) for i in range(count)]
    return Plan(shapes, tuple(costs), tuple(owners), tuple(rounds), world_size)


def _rounds(indices: list[int], shapes: Sequence[tuple[int, ...]], capacity: int) -> list[tuple[int, ...]]:
    """Divide one rank's tensors into rounds of at most `capacity` elements."""
    rounds: list[list[int]] = []
    remaining = -1
    for index in indices:
        remaining -= prod(shapes[index])
        if remaining < 0:
            rounds.append([])
            remaining = capacity - prod(shapes[index])
        rounds[-1].append(index)
    return [tuple(run) for run in rounds]
