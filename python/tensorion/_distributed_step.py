"""One step of tensors that ranks share: each solves for some of them, and gets the directions of all.

In each round of the plan, on a grid of ranks (`RankGrid`),

    1. ranks of a row send the pieces of each momentum to the one that solves for it;
    2. that rank puts them together, finds the direction, and sends its pieces back;
    3. rows send each other what they found.

If tensors are not cut, nothing is sent in 1 and 2; if there is one row, nothing is sent in 3. Messages travel while the
next round is solved. All ranks start them in the same order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    columns = range(grid.cols)
    row, mine = rows[grid.row], rows[grid.row][grid.col]
    like = next(task.target for tasks in by_rank for task in tasks)

    targets = [task.target for task in mine]
    if grid.cols > 1:
        received = _all_to_all(
            grid,
            [[task.target for task in tasks] for tasks in row],
            [[task.layout.piece_numel(col) for task in mine] for col in columns],
            like,
        )
        yield
        targets = _gather(mine, received(), grid)
    found = _solve(mine, targets)
    del targets  # memory is given back as early as it can be
    if grid.cols > 1:
        received = _all_to_all(
            grid,
            [[_piece(task.layout, x, col) for task, x in zip(mine, found, strict=True)] for col in columns],
            [[task.param.numel() for task in tasks] for tasks in row],
            like,
        )
        del found
        yield
        found = received()
    sizes = [sum(task.param.numel() for tasks in other for task in tasks) for other in rows]
    device = _device(grid.along_col, like)
    all_pieces = like.new_empty(sum(sizes), device=device)
    pieces = all_pieces.split(sizes)
    torch.cat([like.new_empty(0, device=device), *(x.reshape(-1).to(device) for x in found)], out=pieces[grid.row])
    del found
    if grid.rows > 1:
        works = [
            dist.broadcast(piece, group=grid.along_col, group_src=number, async_op=True)
            for number, piece in enumerate(pieces)
            if piece.numel() > 0
        ]
        yield
        for work in works:
            work.wait()
    _apply([task for tasks in by_rank for task in tasks], all_pieces.to(like.device))


def _device(group: Any, like: Tensor) -> torch.device:
    """The device of messages, which with CPU offload is not that of the tensors."""
    return like.device if group is None else communication_device(group, like.device)


def _all_to_all(
    grid: RankGrid, sent: Sequence[Sequence[Tensor]], counts: Sequence[Sequence[int]], like: Tensor
) -> Callable[[], list[Tensor]]:
    """Start to send tensors to each column of the row, and to receive flat ones of `counts` entries from each.

    The result waits for them.
    """
    device = _device(grid.along_row, like)
    outgoing = torch.cat([like.new_empty(0), *(x.reshape(-1) for tensors in sent for x in tensors)]).to(device)
    incoming = like.new_empty(sum(map(sum, counts)), device=device)
    work = dist.all_to_all_single(
        incoming,
        outgoing,
        [sum(column) for column in counts],
        [sum(x.numel() for x in tensors) for tensors in sent],
        group=grid.along_row,
        async_op=True,
    )

    def received() -> list[Tensor]:
        nonlocal incoming, outgoing
        work.wait()
        pieces = incoming.to(like.device).split([count for column in counts for count in column])
        incoming = outgoing = like  # were needed until now
        return list(pieces)

    return received


def _piece(layout: ShardLayout, x: Tensor, col: int) -> Tensor:
    return x.narrow(layout.mode, *layout.span(col))


def _gather(tasks: Sequence[Task], pieces: Sequence[Tensor], grid: RankGrid) -> list[Tensor]:
    """Whole tensors from flat pieces, which come by column, then by task."""
    whole = [task.target.new_empty(task.layout.shape) for task in tasks]
    for index, piece in enumerate(pieces):
        col, number = divmod(index, len(tasks))
        layout = tasks[number].layout
        _piece(layout, whole[number], col).copy_(piece.view(layout.piece_shape(col)))
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
