"""The independent tensors of a parameter: slices along `batch_modes`, and blocks along mode 0 of each slice."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, product
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ._sharding import RankGrid, ShardLayout


class Slice(NamedTuple):
    """What this rank has of an independent tensor: one view of each tensor that was cut, and where the rest lies."""

    views: tuple[Tensor, ...]
    layout: ShardLayout


def block_shapes(
    shape: Sequence[int], batch_modes: Sequence[int], split_sizes: Sequence[int]
) -> list[tuple[int, tuple[int, ...]]]:
    """The shapes of the independent tensors of a parameter: runs of equal ones, as (count, shape)."""
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
    """The slices of which this rank has a part, from its pieces of tensors that all lie as `layout` says.

    A slice that lies whole on this rank, and on the ranks with copies of it, is shared with those alone.
    """
    grid, shape = layout.grid, layout.shape
    batch = sorted(batch_modes)
    rest = [mode for mode in range(len(shape)) if mode not in batch]
    column = grid._replace(order=(grid.order[0], f"{grid.order[1]} slices"), cols=1, col=0, along_row=None)
    sizes = [block[0] for block in torch.ops.tensorion.block_shapes(shape, batch_modes, split_sizes)] if rest else []
    ends = list(accumulate(sizes))
    is_cut = grid.cols > 1 and layout.mode not in batch
    for index in product(*(range(pieces[0].shape[mode]) for mode in batch)):
        views = tuple(_selected(piece, batch, index) for piece in pieces)
        if not rest:
            yield Slice(views, ShardLayout(column, (), 0))
            continue
        for size, end in zip(sizes, ends, strict=True):
            whole = (size, *(shape[mode] for mode in rest[1:]))
            if not is_cut:
                blocks = tuple(view.narrow(0, end - size, size) for view in views)
                yield Slice(blocks, ShardLayout(column if grid.cols > 1 else grid, whole, 0))
            elif layout.mode != rest[0]:
                blocks = tuple(view.narrow(0, end - size, size) for view in views)
                spans = tuple(layout.span(col) for col in range(grid.cols))
                yield Slice(blocks, ShardLayout(grid, whole, rest.index(layout.mode), spans))
            else:
                yield from _cut_block(views, layout, whole, end - size, grid, column)


def _selected(piece: Tensor, batch: Sequence[int], index: Sequence[int]) -> Tensor:
    for mode, i in zip(reversed(batch), reversed(index), strict=True):
        piece = piece.select(mode, i)
    return piece


def _cut_block(
    views: Sequence[Tensor], layout: ShardLayout, whole: tuple[int, ...], first: int, grid: RankGrid, column: RankGrid
) -> Iterator[Slice]:
    """The block from index `first` of the mode that is cut among ranks, if this rank has a part in it."""
    spans: list[tuple[int, int]] = []
    for col in range(grid.cols):
        start, length = layout.span(col)
        begin, end = max(start, first), min(start + length, first + whole[0])
        spans.append((begin - first, end - begin) if end > begin else (0, 0))
    start = layout.span(grid.col)[0]
    offset, length = spans[grid.col]
    blocks = tuple(view.narrow(0, first + offset - start if length else 0, length) for view in views)
    if whole[0] not in (span[1] for span in spans):
        yield Slice(blocks, ShardLayout(grid, whole, 0, tuple(spans)))
    elif length:
        yield Slice(blocks, ShardLayout(column, whole, 0))


def text(shape: Sequence[int], group: dict[str, Any]) -> str:
    """A shape as `describe` shows it: "8 x (512x2048)" for the slices of a group that has them."""
    plain = "x".join(map(str, shape)) or "scalar"
    if group["algorithm"] != "tensorion" or not (group["batch_modes"] or group["split_sizes"]):
        return plain
    runs = block_shapes(shape, group["batch_modes"], sizes_of(group["split_sizes"]))
    return " + ".join(f"{count} x ({'x'.join(map(str, block))})" for count, block in runs)


def sizes_of(split_sizes: Any) -> list[int]:
    """As the operators take it: a number of equal blocks as a list of one."""
    return [] if split_sizes is None else [split_sizes] if isinstance(split_sizes, int) else list(split_sizes)
