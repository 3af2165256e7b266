"""One step of tensors that ranks share: each solves for some of them, and gets the directions of all.

In each round of the plan, on a grid of ranks (`RankGrid`),

    1. ranks of a row send the pieces of each momentum to the one that solves for it;
    2. that rank puts them together, finds the direction, and sends its pieces back;
    3. rows send each other what they found.

If tensors are not cut, nothing is sent in 1 and 2; if there is one row, nothing is sent in 3. Messages travel while the
next round is solved. All ranks start them in the same order.
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

    param: Tensor  # the piece on this rank
    target: Tensor  # the piece of what is orthogonalized: the momentum, or Nesterov's look-ahead
    layout: ShardLayout
    options: Mapping[str, Any]  # of its param group, as operators take them


def run(tasks: Sequence[Task]) -> None:
    """Update the parameters. All ranks call it with their pieces of the same tensors, in the same order."""
    # What travels in one message is of one type.
    kinds: dict[tuple[RankGrid, torch.dtype, torch.device], list[Task]] = {}
    for task in tasks:
        kinds.setdefault((task.layout.grid, task.target.dtype, task.target.device), []).append(task)
    # In an order that does not depend on that of the parameters, which ranks with other tensors may have in between.
    order = sorted(kinds, key=lambda kind: (kind[0].order, str(kind[1:])))
    for grid, alike in ((kind[0], kinds[kind]) for kind in order):
        shapes = tuple(task.layout.shape for task in alike)
        plan = share(shapes, tuple(task.options["unfolding"] for task in alike), grid.size)
        waiting = [_round(grid, [[alike[i] for i in indices] for indices in members]) for members in plan.rounds]
        active: list[Iterator[None]] = []
        while waiting or active:
            # The youngest first: it starts its messages before the others wait for theirs, and solve.
            active = [steps for steps in [*waiting[:1], *active] if next(steps, steps) is None]
            waiting = waiting[1:]


def _round(grid: RankGrid, by_rank: Sequence[Sequence[Task]]) -> Iterator[None]:
    """One round, paused wherever messages are on their way. `by_rank`: who solves for which tensors."""
    rows = [by_rank[row * grid.cols : (row + 1) * grid.cols] for row in range(grid.rows)]
    row, mine = rows[grid.row], rows[grid.row][grid.col]
    like = next(task.target for tasks in by_rank for task in tasks)

    def numel(owner: int, col: int) -> int:
        """The elements in a column of the tensors that another column of this row solves for."""
        return sum(task.layout.piece_numel(col) for task in row[owner])

    # Nothing here keeps what is on its way, so that memory is given back as early as it can be.
    targets = [task.target for task in mine]
    if grid.cuts:
        received = yield from _exchange(
            grid, [[task.target for task in tasks] for tasks in row], lambda source, col: numel(col, source), like
        )
        targets = _gather(mine, received)
        del received
    found = _solve(mine, targets)
    del targets
    if grid.cuts:
        sending = _exchange(grid, _pieces(mine, found, grid.cols), numel, like)
        del found
        found = yield from sending
    sizes = [sum(task.param.numel() for tasks in other for task in tasks) for other in rows]
    device = like.device
    for side in grid.copies:
        device = communication_device(side.group, device)
    all_pieces = like.new_empty(sum(sizes), device=device)
    by_row = all_pieces.split(sizes)
    torch.cat([like.new_empty(0, device=device), *(x.reshape(-1).to(device) for x in found)], out=by_row[grid.row])
    del found, by_row
    first, count = grid.row, 1  # of the rows whose pieces this rank has
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
    """Send tensors to each column of the row; what each of them has sent here, as one flat tensor.

    `numel(source, target)`: how many elements one column sends to another. They travel along one of the grid's cuts
    after the other, so that tensors that are sharded over several dimensions of their mesh need no process group but
    those of the dimensions.
    """
    places = list(product(*(range(side.size) for side in grid.cuts)))
    columns = {place: col for col, place in enumerate(places)}
    own = places[grid.col]
    # What this rank has, by place: its target along the cuts ahead, and its source along those behind.
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
    """Start to send tensors to each rank of the group, and to receive flat ones of `counts` entries from each.

    The result waits for them.
    """
    device = communication_device(group, like.device)  # with CPU offload not that of the tensors
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
        incoming = outgoing = like  # were needed until now
        return list(pieces)

    return received


def _piece(layout: ShardLayout, x: Tensor, col: int) -> Tensor:
    for mode, (first, length) in enumerate(layout.boxes[col]):
        x = x.narrow(mode, first, length)
    return x


def _pieces(tasks: Sequence[Task], whole: Sequence[Tensor], cols: int) -> list[list[Tensor]]:
    """The pieces of whole tensors, by column."""
    return [[_piece(task.layout, x, col) for task, x in zip(tasks, whole, strict=True)] for col in range(cols)]


def _gather(tasks: Sequence[Task], parcels: Sequence[Tensor]) -> list[Tensor]:
    """Whole tensors from the pieces of each column, which come one after the other."""
    whole = [task.target.new_empty(task.layout.shape) for task in tasks]
    for col, parcel in enumerate(parcels):
        pieces = parcel.split([task.layout.piece_numel(col) for task in tasks])
        for task, x, piece in zip(tasks, whole, pieces, strict=True):
            _piece(task.layout, x, col).copy_(piece.view(task.layout.piece_shape(col)))
    return whole


def _solve(tasks: Sequence[Task], targets: Sequence[Tensor]) -> list[Tensor]:
    """The directions of whole targets. Those of a param group are found side by side."""
    directions = list(targets)
    for options, members in _by_group(tasks):
        found = torch.ops.tensorion.directions([targets[i] for i in members], **_options.arguments(options))
        for i, x in zip(members, found, strict=True):
            directions[i] = x
    return directions


def _apply(tasks: Sequence[Task], pieces: Tensor) -> None:
    """The update, with this rank's pieces of the directions one after the other."""
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
    """The options of each param group among the tasks, with the indices of its tasks."""
    groups: dict[int, tuple[Mapping[str, Any], list[int]]] = {}
    for index, task in enumerate(tasks):
        groups.setdefault(id(task.options), (task.options, []))[1].append(index)
    return list(groups.values())
