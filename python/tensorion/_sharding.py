"""The layout of a tensor among ranks: local to this process, replicated, or sharded."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor


class Side(NamedTuple):
    """One dimension of a grid of ranks."""

    size: int
    index: int  # the coordinate of this rank
    group: Any  # the process group of the ranks that differ only in this dimension


class RankGrid(NamedTuple):
    """Ranks arranged in rows and columns. Each row holds the whole tensor, one shard per column.

    The row of a rank is its row-major index over the replicated dimensions of the mesh, and its column is its row-major
    index over the sharded dimensions.
    """

    #: A sort key that is the same on all ranks of the grid.
    order: tuple[int, str]
    copies: tuple[Side, ...]  # the dimensions over which the tensor is replicated
    cuts: tuple[Side, ...]  # the dimensions over which the tensor is sharded

    @property
    def rows(self) -> int:
        return prod(side.size for side in self.copies)

    @property
    def row(self) -> int:
        return _row_major(self.copies)

    @property
    def cols(self) -> int:
        return prod(side.size for side in self.cuts)

    @property
    def col(self) -> int:
        return _row_major(self.cuts)

    @property
    def size(self) -> int:
        return self.rows * self.cols


def _row_major(sides: Sequence[Side]) -> int:
    """Return the row-major index of this rank over these dimensions."""
    number = 0
    for side in sides:
        number = number * side.size + side.index
    return number


#: A part of a tensor: (offset, length) along each mode.
Box = tuple[tuple[int, int], ...]


class ShardLayout(NamedTuple):
    """A grid of ranks, and the shard of the tensor in each column of the grid."""

    grid: RankGrid
    shape: tuple[int, ...]
    boxes: tuple[Box, ...]  # the shard in each column
    modes: tuple[int, ...] = ()  # the mode that each of the grid's cuts divides

    def piece_shape(self, col: int) -> tuple[int, ...]:
        return tuple(length for _, length in self.boxes[col])

    def piece_numel(self, col: int) -> int:
        return prod(self.piece_shape(col))


def whole_layout(grid: RankGrid, shape: tuple[int, ...]) -> ShardLayout:
    """Return the layout of a tensor that is not sharded."""
    return ShardLayout(grid, shape, (tuple((0, size) for size in shape),))


@lru_cache(maxsize=2**12)
def _boxes(shape: tuple[int, ...], cuts: tuple[tuple[int, int], ...], order: tuple[int, ...]) -> tuple[Box, ...]:
    """Return the shard in each column.

    Each entry of `cuts` is (mode, parts). The cuts are applied in the given order. Each one divides the shards of the
    cuts before it in the way of torch.chunk.
    """
    found = []
    for coordinates in product(*(range(parts) for _, parts in cuts)):
        box = [(0, size) for size in shape]
        for cut in order:
            mode, parts = cuts[cut]
            first, size = box[mode]
            length = -(-size // parts)
            begin = min(coordinates[cut] * length, size)
            box[mode] = (first + begin, min(length, size - begin))
        found.append(tuple(box))
    return tuple(found)


def is_dtensor(tensor: Tensor) -> bool:
    return hasattr(tensor, "device_mesh")


def describe(tensor: Tensor) -> str:
    if not is_dtensor(tensor):
        return "a plain tensor"
    return f"{tensor.placements} on {tensor.device_mesh}"  # type: ignore[attr-defined]


def placements(tensor: Tensor) -> Any:
    """Return the placements of a DTensor, or None for a plain tensor."""
    return tensor.placements if is_dtensor(tensor) else None  # type: ignore[attr-defined]


def is_placed_as(tensor: Tensor, param: Tensor) -> bool:
    """Return whether both are plain tensors, or DTensors with the same mesh and placements."""
    if not is_dtensor(tensor) or not is_dtensor(param):
        return is_dtensor(tensor) == is_dtensor(param)
    return tensor.device_mesh == param.device_mesh and tensor.placements == param.placements  # type: ignore[attr-defined]


def to_local(tensor: Tensor) -> Tensor:
    """Return the local shard of a DTensor, which shares its memory, or a plain tensor itself."""
    return tensor.to_local() if is_dtensor(tensor) else tensor  # type: ignore[operator]


def layout_of(param: Tensor, process_group: Any) -> ShardLayout | None:
    """Return the layout of a parameter among ranks, or None if this process does not share the parameter."""
    shape = tuple(param.shape)
    if not is_dtensor(param):
        size = 1 if process_group is None else process_group.size()
        if size == 1:
            return None
        copies = (Side(size, process_group.rank(), process_group),)
        return whole_layout(RankGrid((size, process_group.group_name), copies, ()), shape)
    mesh, placements = param.device_mesh, param.placements  # type: ignore[attr-defined]
    # Mesh dimensions of size 1 have no effect.
    wide = [dimension for dimension in range(mesh.ndim) if mesh.size(dimension) > 1]
    cuts = [dimension for dimension in wide if _is_cut(placements[dimension])]
    copies = tuple(_side(mesh, dimension) for dimension in wide if placements[dimension].is_replicate())
    if len(cuts) + len(copies) < len(wide):
        raise ValueError(f"expected a DTensor that is sharded or replicated, got {placements}")
    if not wide:
        return None
    grid = RankGrid(_order(mesh), copies, tuple(_side(mesh, dimension) for dimension in cuts))
    modes = tuple(placements[dimension].dim % param.dim() for dimension in cuts)
    sizes = tuple((mode, mesh.size(dimension)) for mode, dimension in zip(modes, cuts, strict=True))
    found = ShardLayout(grid, shape, _boxes(shape, sizes, _cut_order(placements, cuts, sizes)), modes)
    expected, got = found.piece_shape(grid.col), tuple(to_local(param).shape)
    if got != expected:
        raise ValueError(f"expected a local shard of shape {list(expected)}, got {list(got)}")
    return found


def _is_cut(placement: Any) -> bool:
    return placement.is_shard() or hasattr(placement, "split_factor")


def _cut_order(placements: Any, cuts: Sequence[int], sizes: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the order in which the cuts divide the tensor: the mesh dimensions in order, except for `_StridedShard`.

    `fully_shard` uses `_StridedShard` if tensor parallelism has already sharded the tensor along the same mode. Such a
    cut divides the shards of later mesh dimensions, so it comes after them. Its `split_factor` is the number of those
    shards.
    """
    factors = [getattr(placements[dimension], "split_factor", 1) for dimension in cuts]
    for number, factor in enumerate(factors):
        mode = sizes[number][0]
        if factor not in (1, prod(parts for other, parts in sizes[number + 1 :] if other == mode)):
            raise ValueError(f"expected a DTensor whose shards are contiguous along each mode, got {placements}")
    plain = [number for number, factor in enumerate(factors) if factor == 1]
    strided = [number for number, factor in enumerate(factors) if factor > 1]
    return (*plain, *reversed(strided))


#: Sort keys of meshes. A strong reference to a mesh would keep its connections open until the interpreter exits.
_orders: WeakKeyDictionary[Any, tuple[int, str]] = WeakKeyDictionary()


def _order(mesh: Any) -> tuple[int, str]:
    order = _orders.get(mesh)
    if order is None:
        order = _orders[mesh] = (mesh.size(), str(mesh.mesh.tolist()))
    return order


def _side(mesh: Any, dimension: int) -> Side:
    return Side(mesh.size(dimension), mesh.get_local_rank(dimension), mesh.get_group(dimension))


class Sharing(NamedTuple):
    """A process group whose ranks share parameters."""

    group: Any
    device: torch.device  # the device for messages
    mesh_size: int  # the size of the largest mesh that the group belongs to
    members: list[int]  # indices of the parameters that the group shares


def sharings(params: Iterable[Tensor], process_group: Any) -> list[Sharing]:
    """Return the process groups in which a step of these parameters communicates.

    Their order is the same on all ranks: by the size of the largest mesh that they belong to, then by dimension. A
    value that is passed from each group to the next therefore reaches all ranks of the largest mesh or of
    `process_group`.
    """
    order: dict[Any, tuple[int, int, str]] = {}
    members: dict[Any, list[int]] = {}
    devices: dict[Any, torch.device] = {}

    def add(group: Any, size: int, dimension: int, device: torch.device) -> list[int]:
        key = (size, dimension, group.group_name)
        order[group] = max(order.get(group, key), key)
        devices.setdefault(group, device)
        return members.setdefault(group, [])

    if process_group is not None and process_group.size() > 1:
        add(process_group, process_group.size(), 0, torch.device("cpu"))
    for number, param in enumerate(params):
        if is_dtensor(param):
            mesh = param.device_mesh  # type: ignore[attr-defined]
            for dimension in range(mesh.ndim):
                if mesh.size(dimension) > 1:
                    add(mesh.get_group(dimension), mesh.size(), dimension, param.device).append(number)
        elif process_group in members:
            members[process_group].append(number)
    return [
        Sharing(group, communication_device(group, devices[group]), order[group][0], members[group])
        for group in sorted(order, key=order.__getitem__)
    ]


def communication_device(group: Any, preferred: torch.device) -> torch.device:
    """Return `preferred` if the group can send tensors from this device, else a device that it can send from.

    With CPU offload, for example, parameters are on the CPU, but NCCL can send only from GPUs.
    """
    types = [device.type for device in group._device_types]
    return preferred if preferred.type in types or not types else torch.device(types[0])


def checked_group(process_group: Any) -> Any:
    """Check that `process_group` is None or a group that this rank belongs to."""
    if process_group is None:
        return None
    if dist.is_available() and isinstance(process_group, dist.ProcessGroup):
        return process_group
    if dist.is_available() and process_group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(
            "[tensorion.Tensorion] process_group must contain this rank, got a group that this rank is not a member of"
        )
    raise TypeError(f"[tensorion.Tensorion] process_group must be a ProcessGroup or None, got {process_group!r}")
