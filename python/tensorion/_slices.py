"""The independent tensors of a parameter: slices along `batch_modes`, and blocks along mode 0 of each slice."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, product
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ._sharding import Box, RankGrid, ShardLayout, whole_layout


class Slice(NamedTuple):
    """The part of an independent tensor on this rank: one view per sliced tensor, and the layout of the slice."""

    views: tuple[Tensor, ...]
    layout: ShardLayout


def block_shapes(
    shape: Sequence[int], batch_modes: Sequence[int], split_sizes: Sequence[int]
) -> list[tuple[int, tuple[int, ...]]]:
    """Return the shapes of the independent tensors of a parameter. Runs of equal shapes become (count, shape)."""
    batch = prod(shape[mode] for mode in batch_modes)
    runs: list[tuple[int, tuple[int, ...]]] = []
    for block in torch.ops.tensorion.block_shapes(shape, batch_modes, split_sizes):
        if runs and runs[-1][1] == tuple(block):
            runs[-1] = (runs[-1][0] + batch, tuple(block))
        else:
            runs.append((batch, tuple(block)))
    return runs


def slices(
    pieces: Sequence[Tensor], layout: ShardLayout, batch_modes: Sequence[int], split_sizes: Sequence[int]
) -> Iterator[Slice]:
    """Iterate over the slices of which this rank has a part.

    `pieces` are this rank's shards of tensors that all have the layout `layout`. A slice is shared only with the ranks
    that have the same indices along the batch modes. If a slice lies entirely on this rank, it is shared only with the
    ranks that have copies of it.
    """
    grid, shape = layout.grid, layout.shape
    batch = sorted(batch_modes)
    rest = [mode for mode in range(len(shape)) if mode not in batch]
    column = _subgrid(grid, [])
    kept = [number for number, mode in enumerate(layout.modes) if mode not in batch]
    shared = _subgrid(grid, kept) if len(kept) < len(grid.cuts) else grid
    boxes = [tuple(box[mode] for mode in rest) for box in _boxes_alike(layout, kept)]
    sizes = [block[0] for block in torch.ops.tensorion.block_shapes(shape, batch_modes, split_sizes)] if rest else []
    for index in product(*(range(pieces[0].shape[mode]) for mode in batch)):
        views = tuple(_selected(piece, batch, index) for piece in pieces)
        if not rest:
            yield Slice(views, whole_layout(column, ()))
            continue
        for size, end in zip(sizes, accumulate(sizes), strict=True):
            whole = (size, *(shape[mode] for mode in rest[1:]))
            parts = tuple((_common(box[0], end - size, size), *box[1:]) for box in boxes)
            first, length = parts[shared.col][0]
            start = end - size + first - boxes[shared.col][0][0] if length else 0
            blocks = tuple(view.narrow(0, start, length) for view in views)
            found = ShardLayout(shared, whole, parts, tuple(rest.index(layout.modes[number]) for number in kept))
            owners = [col for col in range(shared.cols) if found.piece_shape(col) == whole]
            if not owners:
                yield Slice(blocks, found)
            elif shared.col in owners:
                yield Slice(blocks, whole_layout(column if grid.cuts else grid, whole))


def _subgrid(grid: RankGrid, kept: Sequence[int]) -> RankGrid:
    """Return the grid of the ranks that differ from this rank only in the replicated dimensions and the kept cuts."""
    order = (grid.order[0], f"{grid.order[1]} slices {kept}")
    return grid._replace(order=order, cuts=tuple(grid.cuts[number] for number in kept))


def _boxes_alike(layout: ShardLayout, kept: Sequence[int]) -> list[Box]:
    """Return the boxes in the columns of `_subgrid(layout.grid, kept)`."""
    cuts = layout.grid.cuts
    return [
        box
        for box, place in zip(layout.boxes, product(*(range(side.size) for side in cuts)), strict=True)
        if all(place[number] == side.index for number, side in enumerate(cuts) if number not in kept)
    ]


def _common(span: tuple[int, int], first: int, size: int) -> tuple[int, int]:
    """Intersect the span (offset, length) with the block of `size` indices from `first`, and return offsets in it."""
    begin, end = max(span[0], first), min(sum(span), first + size)
    return (begin - first, end - begin) if end > begin else (0, 0)


def _selected(piece: Tensor, batch: Sequence[int], index: Sequence[int]) -> Tensor:
    for mode, i in zip(reversed(batch), reversed(index), strict=True):
        piece = piece.select(mode, i)
    return piece


def shape_text(shape: Sequence[int], group: dict[str, Any]) -> str:
    """Format a shape for `describe`, for example "8 x (512x2048)" if the group has slices."""
    plain = "x".join(map(str, shape)) or "scalar"
    if group["algorithm"] != "tensorion" or not (group["batch_modes"] or group["split_sizes"]):
        return plain
    runs = block_shapes(shape, group["batch_modes"], as_size_list(group["split_sizes"]))
    return " + ".join(f"{count} x ({'x'.join(map(str, block))})" for count, block in runs)


def as_size_list(split_sizes: Any) -> list[int]:
    """Convert `split_sizes` to the list that the operators take. A number of equal blocks becomes a list of one."""
    return [] if split_sizes is None else [split_sizes] if isinstance(split_sizes, int) else list(split_sizes)
