"""A step for tensors that are shared among ranks: each rank orthogonalizes some of them and receives the other results.

Each round of the plan has three phases on a grid of ranks (`RankGrid`):

    1. The ranks of a row send their shards of each momentum to the rank that owns the tensor in this round.
    2. The owner gathers the tensor, computes the direction, and sends its shards back.
    3. The rows broadcast their results to each other.

If tensors are not sharded, phases 1 and 2 send nothing. If there is only one row, phase 3 sends nothing. Communication
overlaps with the computation of the next round. All ranks start their messages in the same order.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from . import _options
from ._plan import share
from ._sharding import RankGrid, ShardLayout, communication_device


class Task(NamedTuple):
    """A tensor to update."""

    param: Tensor  # local shard of the parameter
    target: Tensor  # local shard of the tensor to orthogonalize (the momentum, or the Nesterov look-ahead)
    layout: ShardLayout
    options: Mapping[str, Any]  # options of the param group, in the form that operators take


def run(tasks: Sequence[Task]) -> None:
    """Update the parameters. All ranks must pass their shards of the same tensors in the same order."""
    # A message holds tensors of one dtype and device.
    kinds: dict[tuple[RankGrid, torch.dtype, torch.device], list[Task]] = {}
    for task in tasks:
        kinds.setdefault((task.layout.grid, task.target.dtype, task.target.device), []).append(task)
    # The order must not depend on the order of the parameters, since some ranks may have additional tensors.
    order = sorted(kinds, key=lambda kind: (kind[0].order, str(kind[1:])))
    for grid, alike in ((kind[0], kinds[kind]) for kind in order):
        shapes = tuple(task.layout.shape for task in alike)
        plan = share(shapes, tuple(task.options["unfolding"] for task in alike), grid.size)
        waiting = [_round(grid, [[alike[i] for i in indices] for indices in members]) for members in plan.rounds]
        active: list[Iterator[None]] = []
        while waiting or active:
            # The newest round goes first: it starts its messages before older rounds wait for theirs and compute.
            active = [steps for steps in [*waiting[:1], *active] if next(steps, steps) is None]
            waiting = waiting[1:]


def _round(grid: RankGrid, by_rank: Sequence[Sequence[Task]]) -> Iterator[None]:
    """Run one round as a generator that yields while messages are in flight. `by_rank[i]` are the tasks of rank i."""
    rows = [by_rank[row * grid.cols : (row + 1) * grid.cols] for row in range(grid.rows)]
    row, mine = rows[grid.row], rows[grid.row][grid.col]
    like = next(task.target for tasks in by_rank for task in tasks)

    def numel(owner: int, col: int) -> int:
        """Count the elements in column `col` of the tensors that column `owner` of this row owns."""
        return sum(task.layout.piece_numel(col) for task in row[owner])

    # Delete references to tensors as soon as they have been sent, so that their memory is freed early.
    targets = [task.target for task in mine]
    if grid.cuts:
        received = yield from _exchange(
            grid, [[task.target for task in tasks] for tasks in row], lambda source, col: numel(col, source), like
        )
        targets = _gather(mine, received)
        del received
    sizes = [sum(task.param.numel() for tasks in other for task in tasks) for other in rows]
    device = like.device
    for side in grid.copies:
        device = communication_device(side.group, device)
    if not grid.cuts and device == like.device:
        # Without the reuse of memory, page faults take a tenth of a step on the CPU.
        all_pieces = torch.ops.tensorion.scratch(like, sum(sizes))
        flat = all_pieces.split(sizes)[grid.row].split([target.numel() for target in targets])
        _solve(mine, targets, [x.view(target.shape) for x, target in zip(flat, targets, strict=True)])
        del flat
    else:
        found = [torch.empty_like(target, memory_format=torch.contiguous_format) for target in targets]
        _solve(mine, targets, found)
        if grid.cuts:
            sending = _exchange(grid, _pieces(mine, found, grid.cols), numel, like)
            del found
            found = yield from sending
        all_pieces = like.new_empty(sum(sizes), device=device)
        own = all_pieces.split(sizes)[grid.row]
        torch.cat([like.new_empty(0, device=device), *(x.reshape(-1).to(device) for x in found)], out=own)
        del found, own
    del targets
    first, count = grid.row, 1  # the range of rows whose results this rank has
    for side in reversed(grid.copies):
        first -= side.index * count
        works = []
        for number in range(side.size):
            begin = sum(sizes[: first + number * count])
            end = begin + sum(sizes[first + number * count :][:count])
            if end > begin:
                piece = all_pieces[begin:end]
                works.append(dist.broadcast(piece, group=side.group, group_src=number, async_op=True))
        count *= side.size
        yield
        for work in works:
            work.wait()
    _apply([task for tasks in by_rank for task in tasks], all_pieces.to(like.device))


def _exchange(
    grid: RankGrid, sent: Sequence[Sequence[Tensor]], numel: Callable[[int, int], int], like: Tensor
) -> Generator[None, None, list[Tensor]]:
    """Send tensors to each column of the row, and return what each column has sent here as one flat tensor.

    `numel(source, target)` is the number of elements that one column sends to another. Messages travel along one of the
    grid's cuts at a time. Tensors that are sharded over several mesh dimensions therefore need only the process groups
    of these dimensions.
    """
    places = list(product(*(range(side.size) for side in grid.cuts)))
    columns = {place: col for col, place in enumerate(places)}
    own = places[grid.col]
    # Parcels on this rank. A place holds the target's coordinates along the remaining cuts, and the source's along the
    # cuts that are done.
    parcels = list(sent)
    del sent
    for cut, side in enumerate(grid.cuts):
        by_peer: list[list[int]] = [[] for _ in range(side.size)]
        for i, place in enumerate(places):
            by_peer[place[cut]].append(i)
        done = cut + 1
        counts = [
            [numel(columns[places[i][:done] + own[done:]], columns[own[:done] + places[i][done:]]) for i in parcel]
            for parcel in by_peer
        ]
        received = _all_to_all(side.group, [[x for i in one for x in parcels[i]] for one in by_peer], counts, like)
        del parcels
        yield
        arrived = dict(zip((i for parcel in by_peer for i in parcel), received(), strict=True))
        parcels = [[arrived[i]] for i in range(grid.cols)]
    return [piece for (piece,) in parcels]


def _all_to_all(
    group: Any, sent: Sequence[Sequence[Tensor]], counts: Sequence[Sequence[int]], like: Tensor
) -> Callable[[], list[Tensor]]:
    """Start an all-to-all that sends tensors to each rank and receives flat tensors with `counts` elements from each.

    The returned function waits for the messages and returns the received tensors.
    """
    device = communication_device(group, like.device)  # With CPU offload, it differs from the tensors' device.
    outgoing = torch.cat([like.new_empty(0), *(x.reshape(-1) for tensors in sent for x in tensors)]).to(device)
    incoming = like.new_empty(sum(map(sum, counts)), device=device)
    work = dist.all_to_all_single(
        incoming,
        outgoing,
        [sum(parcel) for parcel in counts],
        [sum(x.numel() for x in tensors) for tensors in sent],
        group=group,
        async_op=True,
    )

    def received() -> list[Tensor]:
        nonlocal incoming, outgoing
        work.wait()
        pieces = incoming.to(like.device).split([count for parcel in counts for count in parcel])
        incoming = outgoing = like  # Free the buffers.
        return list(pieces)

    return received


def _piece(layout: ShardLayout, x: Tensor, col: int) -> Tensor:
    for mode, (first, length) in enumerate(layout.boxes[col]):
        x = x.narrow(mode, first, length)
    return x


def _pieces(tasks: Sequence[Task], whole: Sequence[Tensor], cols: int) -> list[list[Tensor]]:
    """Divide whole tensors into shards, by column."""
    return [[_piece(task.layout, x, col) for task, x in zip(tasks, whole, strict=True)] for col in range(cols)]


def _gather(tasks: Sequence[Task], parcels: Sequence[Tensor]) -> list[Tensor]:
    """Assemble whole tensors from parcels, which hold the concatenated shards of each column."""
    whole = [task.target.new_empty(task.layout.shape) for task in tasks]
    for col, parcel in enumerate(parcels):
        pieces = parcel.split([task.layout.piece_numel(col) for task in tasks])
        for task, x, piece in zip(tasks, whole, pieces, strict=True):
            _piece(task.layout, x, col).copy_(piece.view(task.layout.piece_shape(col)))
    return whole


def _solve(tasks: Sequence[Task], targets: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    """Compute the directions of whole targets, with one operator call per param group."""
    for options, members in _by_group(tasks):
        torch.ops.tensorion.directions_(
            [results[i] for i in members], [targets[i] for i in members], **_options.arguments(options)
        )


def _apply(tasks: Sequence[Task], pieces: Tensor) -> None:
    """Update the parameters. `pieces` holds the concatenated local shards of the directions."""
    flat = pieces.split([task.param.numel() for task in tasks])
    for options, members in _by_group(tasks):
        arguments = _options.arguments(options)
        torch.ops.tensorion.apply_directions_(
            [tasks[i].param for i in members],
            [flat[i].view(tasks[i].param.shape) for i in members],
            lr=arguments["lr"],
            weight_decay=arguments["weight_decay"],
            lr_tensor=_options.lr_tensor(options),
        )


def _by_group(tasks: Sequence[Task]) -> list[tuple[Mapping[str, Any], list[int]]]:
    """Return the options of each param group among the tasks, with the indices of its tasks."""
    groups: dict[int, tuple[Mapping[str, Any], list[int]]] = {}
    for index, task in enumerate(tasks):
        groups.setdefault(id(task.options), (task.options, []))[1].append(index)
    return list(groups.values())
