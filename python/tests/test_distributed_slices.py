"""Slices on several ranks: the result equals the result of one process. Slices on a single rank need no messages."""

import pytest
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from distributed_cases import assert_near, mesh_of, set_sharded_gradients, whole
from support import assert_same, gaussian, set_gradients
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from tensorion import Tensorion, _distributed_step

# For some world sizes, the shards of the last two cut across their blocks.
SHAPES = [(4, 6, 5), (5, 4, 6), (12, 8), (8, 6, 3, 3)]
SLICING = [
    {"batch_modes": (0,), "nesterov": True},
    {"batch_modes": (1,), "unfolding": "online"},
    {"split_sizes": (6, 3, 3), "unfolding": (0,)},
    {"split_sizes": 2, "polar": "svd"},
]
#: The number of independent tensors.
COUNT = 4 + 4 + 3 + 2


def optimizer_of(params, **others):
    named = [[(f"p{i}", param)] for i, param in enumerate(params)]
    groups = [{"params": pair, **slicing} for pair, slicing in zip(named, SLICING, strict=True)]
    return Tensorion(groups, lr=0.02, weight_decay=0.1, **others)


def tensors():
    return [nn.Parameter(gaussian(shape, i)) for i, shape in enumerate(SHAPES)]


def alone(steps=4):
    params = tensors()
    optimizer = optimizer_of(params)
    for k in range(steps):
        set_gradients(params, k)
        optimizer.step()
    return params


class Messages:
    """Counts the messages with data and the tensors that this rank orthogonalizes."""

    def __enter__(self):
        self.sent, self.solved = 0, 0
        self._saved = dist.all_to_all_single, dist.broadcast, _distributed_step._solve

        def counted(send):
            def call(*arguments, **options):
                self.sent += 1
                return send(*arguments, **options)

            return call

        def solve(tasks, targets, results):
            self.solved += len(tasks)
            self._saved[2](tasks, targets, results)

        dist.all_to_all_single, dist.broadcast = map(counted, self._saved[:2])
        _distributed_step._solve = solve
        return self

    def __exit__(self, *_):
        dist.all_to_all_single, dist.broadcast, _distributed_step._solve = self._saved


def replicated(rank, world_size):
    params = tensors()
    optimizer = optimizer_of(params, process_group=dist.group.WORLD)
    with Messages() as messages:
        for k in range(4):
            set_gradients(params, k)
            optimizer.step()
    return [param.detach() for param in params], messages.solved


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_share_the_slices_of_replicated_tensors(run, world_size):
    results = run(world_size, replicated)
    for params, _ in results:
        assert_same(params, results[0][0])
        assert_near(params, alone())
    assert sum(solved for _, solved in results) == 4 * COUNT
    assert all(solved > 0 for _, solved in results)


def sharded(rank, world_size, kind, modes):
    mesh = mesh_of(world_size, kind)
    placements = [[Shard(mode)] if kind == "fsdp" else [Replicate(), Shard(mode)] for mode in modes]
    params = [
        nn.Parameter(distribute_tensor(param.detach(), mesh, placement, src_data_rank=None))
        for param, placement in zip(tensors(), placements, strict=True)
    ]
    optimizer = optimizer_of(params)
    with Messages() as messages:
        for k in range(4):
            set_sharded_gradients(params, k)
            optimizer.step()
    return whole(params), messages.sent, messages.solved


@pytest.mark.parametrize("modes", [(0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 0, 3), (0, 1, 1, 2)])
@pytest.mark.parametrize(("kind", "world_size"), [("fsdp", 2), ("fsdp", 3), ("fsdp", 4), ("hsdp", 4)])
def test_tensors_sharded_along_any_mode(run, kind, world_size, modes):
    results = run(world_size, sharded, kind, modes)
    for params, _, _ in results:
        assert_same(params, results[0][0])
        assert_near(params, alone())
    assert sum(solved for _, _, solved in results) == 4 * COUNT


def lying_whole(rank, world_size):
    """Train tensors whose shards consist of whole slices, along batch modes or by blocks."""
    mesh = mesh_of(world_size, "fsdp")
    shapes = [(4, 6, 5), (3, 4, 6), (12, 8)]
    options = [{"batch_modes": (0,)}, {"batch_modes": (1,)}, {"split_sizes": 4}]
    places = [[Shard(0)], [Shard(1)], [Shard(0)]]
    params = [
        nn.Parameter(distribute_tensor(gaussian(shape, i), mesh, place, src_data_rank=None))
        for i, (shape, place) in enumerate(zip(shapes, places, strict=True))
    ]
    optimizer = Tensorion([{"params": [p], **o} for p, o in zip(params, options, strict=True)])
    with Messages() as messages:
        set_sharded_gradients(params, 1)
        optimizer.step()
    return messages.sent, messages.solved


def test_slices_on_one_rank_need_no_messages(run):
    assert run(2, lying_whole) == [(0, 6), (0, 6)]


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.params = nn.ParameterList(tensors())


def checkpointed(rank, world_size, folder, first, last, resume):
    bag = Bag()
    fully_shard(bag, mesh=mesh_of(world_size, "fsdp"))
    params = list(bag.params)
    named = dict(bag.named_parameters())
    groups = [{"params": [pair], **slicing} for pair, slicing in zip(named.items(), SLICING, strict=True)]
    optimizer = Tensorion(groups, lr=0.02, weight_decay=0.1)
    if resume:
        set_sharded_gradients(params, 0)
        optimizer.step()  # Creates the state that the checkpoint is loaded into.
        state = {"model": bag.state_dict(), "optimizer": get_optimizer_state_dict(bag, optimizer)}
        dcp.load(state, checkpoint_id=folder)
        bag.load_state_dict(state["model"])
        set_optimizer_state_dict(bag, optimizer, state["optimizer"])
    for k in range(first, last):
        set_sharded_gradients(params, k)
        optimizer.step()
    if not resume:
        dcp.save(
            {"model": bag.state_dict(), "optimizer": get_optimizer_state_dict(bag, optimizer)}, checkpoint_id=folder
        )
    return whole(params), [group["batch_modes"] for group in optimizer.param_groups]


def test_checkpoint_resumes_with_different_number_of_ranks(run, tmp_path):
    folder = str(tmp_path / "checkpoint")
    run(2, checkpointed, folder, 0, 2, False)
    for params, batch_modes in run(3, checkpointed, folder, 2, 4, True):
        assert_near(params, alone())
        assert [tuple(modes) for modes in batch_modes] == [(0,), (1,), (), ()]
