"""Where a tensor lies: whole in this process, the same on several ranks, or cut into pieces among them."""

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
    index: int  # of this rank
    group: Any  # the process group of the ranks that differ in this dimension alone


class RankGrid(NamedTuple):
    """Ranks in rows. Each row holds the whole tensor, in as many pieces as there are columns.

    Rows are the ranks of all copies, and columns those of all cuts, in row-major order.
    """

    #: Sorts grids in the same order on all of their ranks.
    order: tuple[int, str]
    copies: tuple[Side, ...]  # the dimensions over which the tensor is replicated
    cuts: tuple[Side, ...]  # those over which it is sharded

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
    """The number of this rank among those of these dimensions."""
    number = 0
    for side in sides:
        number = number * side.size + side.index
    return number


#: A part of a tensor: the first index, and the number of indices, along each mode.
Box = tuple[tuple[int, int], ...]


class ShardLayout(NamedTuple):
    """Where a tensor lies: a grid, and the part of the tensor in each of its columns."""

    grid: RankGrid
    shape: tuple[int, ...]
    boxes: tuple[Box, ...]  # of each column
    modes: tuple[int, ...] = ()  # which mode each of the grid's cuts divides

    def piece_shape(self, col: int) -> tuple[int, ...]:
        return tuple(length for _, length in self.boxes[col])

    def piece_numel(self, col: int) -> int:
        return prod(self.piece_shape(col))


def whole_layout(grid: RankGrid, shape: tuple[int, ...]) -> ShardLayout:
    """Of a tensor that is not cut."""
    return ShardLayout(grid, shape, (tuple((0, size) for size in shape),))


@lru_cache(maxsize=2**12)
def _boxes(shape: tuple[int, ...], cuts: tuple[tuple[int, int], ...], order: tuple[int, ...]) -> tuple[Box, ...]:
    """The part of each column. `cuts`: (mode, parts); in this order each divides, as torch.chunk does, what the ones
    before it left."""
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
    """The placements of a DTensor; None for a plain tensor."""
    return tensor.placements if is_dtensor(tensor) else None  # type: ignore[attr-defined]


def is_placed_as(tensor: Tensor, param: Tensor) -> bool:
    """Whether both are plain tensors, or DTensors with one mesh and the same placements."""
    if not is_dtensor(tensor) or not is_dtensor(param):
        return is_dtensor(tensor) == is_dtensor(param)
    return tensor.device_mesh == param.device_mesh and tensor.placements == param.placements  # type: ignore[attr-defined]


def to_local(tensor: Tensor) -> Tensor:
    """The piece in this process. Writing to it writes to the tensor."""
    return tensor.to_local() if is_dtensor(tensor) else tensor  # type: ignore[operator]


def layout_of(param: Tensor, process_group: Any) -> ShardLayout | None:
    """Where the parameter lies among ranks; None if this process has it to itself."""
    shape = tuple(param.shape)
    if not is_dtensor(param):
        size = 1 if process_group is None else process_group.size()
        if size == 1:
            return None
        copies = (Side(size, process_group.rank(), process_group),)
        return whole_layout(RankGrid((size, process_group.group_name), copies, ()), shape)
    mesh, placements = param.device_mesh, param.placements  # type: ignore[attr-defined]
    # Dimensions of one rank divide nothing.
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
        raise ValueError(f"expected a piece of shape {list(expected)} on this rank, got {list(got)}")
    return found


def _is_cut(placement: Any) -> bool:
    return placement.is_shard() or hasattr(placement, "split_factor")


def _cut_order(placements: Any, cuts: Sequence[int], sizes: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The order in which cuts divide: that of the mesh's dimensions, but for `_StridedShard`.

    This is what `fully_shard` makes of a tensor that tensor parallelism has divided along the same mode: it divides
    the pieces, so it comes after the dimensions behind it, whose number of pieces is its `split_factor`.
    """
    factors = [getattr(placements[dimension], "split_factor", 1) for dimension in cuts]
    for number, factor in enumerate(factors):
        mode = sizes[number][0]
        if factor not in (1, prod(parts for other, parts in sizes[number + 1 :] if other == mode)):
            raise ValueError(f"expected a DTensor whose pieces are contiguous along each mode, got {placements}")
    plain = [number for number, factor in enumerate(factors) if factor == 1]
    strided = [number for number, factor in enumerate(factors) if factor > 1]
    return (*plain, *reversed(strided))


#: Of meshes. A strong reference would keep their connections open until the interpreter ends.
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
    device: torch.device  # for messages
    mesh_size: int  # of the largest mesh that it belongs to
    members: list[int]  # the parameters that are shared in it, by number among all


def sharings(params: Iterable[Tensor], process_group: Any) -> list[Sharing]:
    """The process groups that a step of these parameters talks in, with what is shared in each.

    They come in an order that is the same on all ranks: by the size of the largest mesh that they belong to, then by
    dimension. So what is handed on from one to the next reaches all ranks of the largest mesh, or of `process_group`.
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
    """`preferred` if the group can send tensors from there, else a device it can send from.

    With CPU offload, parameters are on the CPU while NCCL sends from GPUs only.
    """
    types = [device.type for device in group._device_types]
    return preferred if preferred.type in types or not types else torch.device(types[0])


def checked_group(process_group: Any) -> Any:
    """The process group, which must be one that this rank belongs to, or None."""
    if process_group is None:
        return None
    if dist.is_available() and isinstance(process_group, dist.ProcessGroup):
        return process_group
    if dist.is_available() and process_group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("[tensorion.Tensorion] process_group must be one that this rank belongs to")
    raise TypeError(f"[tensorion.Tensorion] process_group must be a ProcessGroup or None, got {process_group!r}")
