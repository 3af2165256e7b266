"""Where a tensor lies: whole in this process, the same on several ranks, or cut into pieces among them."""

from collections.abc import Iterable
from math import prod
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor


class RankGrid(NamedTuple):
    """Ranks in rows. Each row holds the whole tensor, in as many pieces as there are columns."""

    #: Sorts grids in the same order on all of their ranks.
    order: tuple[int, str]
    rows: int
    cols: int
    row: int  # of this rank
    col: int
    along_row: Any  # the process group of the ranks with the other pieces; None if there are none
    along_col: Any  # that of the ranks with the same piece

    @property
    def size(self) -> int:
        return self.rows * self.cols


class ShardLayout(NamedTuple):
    """Where a tensor lies: a grid, and the mode along which it is cut there (0 if it is not)."""

    grid: RankGrid
    shape: tuple[int, ...]
    mode: int
    spans: tuple[tuple[int, int], ...] | None = None  # of each column; None if they are as torch.chunk cuts

    def span(self, col: int) -> tuple[int, int]:
        """The first index along the mode, and the number of indices, of the piece in a column."""
        if self.spans is not None:
            return self.spans[col]
        size = self.shape[self.mode]
        length = -(-size // self.grid.cols)
        first = min(col * length, size)
        return first, min(length, size - first)

    def piece_shape(self, col: int) -> tuple[int, ...]:
        return (*self.shape[: self.mode], self.span(col)[1], *self.shape[self.mode + 1 :])

    def piece_numel(self, col: int) -> int:
        return prod(self.piece_shape(col))


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
    """Where the parameter lies among ranks; None if this process has it to itself.

    Raises if it is cut along more than one dimension of its mesh.
    """
    if not is_dtensor(param):
        size = 1 if process_group is None else process_group.size()
        if size == 1:
            return None
        order = (size, process_group.group_name)
        return ShardLayout(
            RankGrid(order, size, 1, process_group.rank(), 0, None, process_group), tuple(param.shape), 0
        )
    mesh, placements = param.device_mesh, param.placements  # type: ignore[attr-defined]
    # Dimensions of one rank divide nothing.
    wide = [dimension for dimension in range(mesh.ndim) if mesh.size(dimension) > 1]
    cuts = [dimension for dimension in wide if placements[dimension].is_shard()]
    copies = [dimension for dimension in wide if placements[dimension].is_replicate()]
    if len(cuts) > 1 or len(copies) > 1 or len(cuts) + len(copies) < len(wide):
        raise ValueError(
            "expected a DTensor that is sharded over at most one dimension of its mesh and replicated over at most "
            f"one, as fully_shard makes them, got {placements}"
        )
    if not wide:
        return None
    rows, row, along_col = _dimension(mesh, copies)
    cols, col, along_row = _dimension(mesh, cuts)
    mode = placements[cuts[0]].dim % param.dim() if cuts else 0
    found = ShardLayout(RankGrid(_order(mesh), rows, cols, row, col, along_row, along_col), tuple(param.shape), mode)
    expected, got = found.piece_shape(col), tuple(to_local(param).shape)
    if got != expected:
        raise ValueError(f"expected a piece of shape {list(expected)} on this rank, got {list(got)}")
    return found


#: Of meshes. A strong reference would keep their connections open until the interpreter ends.
_orders: WeakKeyDictionary[Any, tuple[int, str]] = WeakKeyDictionary()


def _order(mesh: Any) -> tuple[int, str]:
    order = _orders.get(mesh)
    if order is None:
        order = _orders[mesh] = (mesh.size(), str(mesh.mesh.tolist()))
    return order


def _dimension(mesh: Any, dimensions: list[int]) -> tuple[int, int, Any]:
    if not dimensions:
        return 1, 0, None
    return mesh.size(dimensions[0]), mesh.get_local_rank(dimensions[0]), mesh.get_group(dimensions[0])


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
