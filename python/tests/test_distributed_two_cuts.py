"""Tensors sharded over several mesh dimensions, for example by tensor parallelism and `fully_shard`."""

import pytest
import torch
from distributed_cases import Solved, assert_near, raised_by
from support import assert_same, gaussian, images, set_gradients
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard
from torch_versions import loss_scale

from tensorion import Tensorion

# Most sizes are not divisible by the number of ranks.
SHAPES = [(8, 6, 3, 3), (7, 5, 3), (12, 10), (5, 3, 2), (9, 7, 4)]


def piece_of(x, mesh, cuts):
    """Return the shard on this rank. `cuts` are (mesh dimension, mode) in the order in which torch.chunk is applied."""
    for dimension, mode in cuts:
        chunks = x.chunk(mesh.size(dimension), mode)
        index = mesh.get_local_rank(dimension)
        x = chunks[index] if index < len(chunks) else x.narrow(mode, 0, 0)
    return x.contiguous()


class Case:
    """Tensors with their mesh and cuts. Their shards are created without DTensor's own functions."""

    def __init__(self, mesh, placements, cuts):
        self.mesh, self.placements, self.cuts = mesh, placements, cuts
        self.params = [nn.Parameter(self.distributed(gaussian(shape, i), i)) for i, shape in enumerate(SHAPES)]

    def distributed(self, x, i):
        piece = piece_of(x, self.mesh, self.cuts[i])
        return DTensor.from_local(
            piece, self.mesh, self.placements[i], run_check=False, shape=x.shape, stride=x.stride()
        )

    def train(self, **options):
        optimizer = optimizer_of(self.params, **options)
        with Solved() as solved:
            for k in range(3):
                for i, param in enumerate(self.params):
                    param.grad = self.distributed(gaussian(SHAPES[i], 1000 + 10 * k + i), i)
                optimizer.step()
        momenta = [optimizer.state[param]["momentum_buffer"] for param in self.params]
        assert all(
            momentum.placements == param.placements for momentum, param in zip(momenta, self.params, strict=True)
        )
        return (
            [param.to_local().detach() for param in self.params],
            [momentum.to_local() for momentum in momenta],
            len(solved.shapes),
        )

    def pieces(self, tensors):
        return [piece_of(x.detach(), self.mesh, cuts) for x, cuts in zip(tensors, self.cuts, strict=True)]


def optimizer_of(params, **options):
    groups = [{"params": params[::2]}, {"params": params[1::2], "nesterov": True, "unfolding": (0,)}]
    return Tensorion(groups, lr=0.02, weight_decay=0.1, min_order=2, **options)


def alone(**options):
    params = [nn.Parameter(gaussian(shape, i)) for i, shape in enumerate(SHAPES)]
    optimizer = optimizer_of(params, **options)
    for k in range(3):
        set_gradients(params, k)
        optimizer.step()
    return params, [optimizer.state[param]["momentum_buffer"] for param in params]


S, R, P = Shard, Replicate(), Partial()
#: The shape of the mesh, the placements, and the corresponding cuts in order.
CASES = {
    "two modes": ((2, 2), [S(0), S(1)], [(0, 0), (1, 1)]),
    "other modes": ((2, 2), [S(1), S(0)], [(0, 1), (1, 0)]),
    "one mode": ((2, 2), [S(0), S(0)], [(0, 0), (1, 0)]),
    "strided": ((2, 2), [_StridedShard(0, split_factor=2), S(0)], [(1, 0), (0, 0)]),
    "strided, unequal sides": ((3, 2), [_StridedShard(1, split_factor=2), S(1)], [(1, 1), (0, 1)]),
    "two copies": ((2, 2), [R, R], []),
    "copies and two cuts": ((2, 2, 2), [R, _StridedShard(0, split_factor=2), S(0)], [(2, 0), (1, 0)]),
    "copies on both sides": ((2, 2, 2), [R, S(1), R], [(1, 1)]),
    "three cuts": ((2, 2, 2), [_StridedShard(0, split_factor=2), S(1), S(0)], [(1, 1), (2, 0), (0, 0)]),
}


def trained(rank, world_size, name, options):
    mesh_shape, placements, cuts = CASES[name]
    mesh = init_device_mesh("cpu", mesh_shape)
    case = Case(mesh, [placements] * len(SHAPES), [cuts] * len(SHAPES))
    params, momenta, solved = case.train(**options)
    expected, expected_momenta = map(case.pieces, alone(**options))
    return params, momenta, expected, expected_momenta, solved


@pytest.mark.parametrize("options", [{}, {"unfolding": "online", "polar": "svd"}], ids=["", "online"])
@pytest.mark.parametrize("name", CASES)
def test_matches_one_process(run, name, options):
    world_size = torch.Size(CASES[name][0]).numel()
    results = run(world_size, trained, name, options)
    for params, momenta, expected, expected_momenta, _ in results:
        assert_near(params, expected)
        assert_near(momenta, expected_momenta)
    # One rank orthogonalizes each tensor, once per step.
    assert sum(result[-1] for result in results) == 3 * len(SHAPES)


SLICED = [(4, 6, 5), (6, 4, 3), (12, 8), (16, 6)]
SLICING = [
    {"batch_modes": (0,)},
    {"batch_modes": (1,), "nesterov": True},
    {"split_sizes": (6, 3, 3)},
    {"split_sizes": 4},
]


def sliced_optimizer(params):
    return Tensorion([{"params": [p], **slicing} for p, slicing in zip(params, SLICING, strict=True)], lr=0.02)


def sliced(rank, world_size, name):
    mesh_shape, placements, cuts = CASES[name]
    mesh = init_device_mesh("cpu", mesh_shape)

    def distributed(x):
        return DTensor.from_local(
            piece_of(x, mesh, cuts), mesh, placements, run_check=False, shape=x.shape, stride=x.stride()
        )

    params = [nn.Parameter(distributed(gaussian(shape, i))) for i, shape in enumerate(SLICED)]
    twins = [nn.Parameter(gaussian(shape, i)) for i, shape in enumerate(SLICED)]
    optimizer, reference = sliced_optimizer(params), sliced_optimizer(twins)
    with Solved() as solved:
        for k in range(3):
            set_gradients(twins, k)
            for param, twin in zip(params, twins, strict=True):
                param.grad = distributed(twin.grad)
            optimizer.step()
    for k in range(3):
        set_gradients(twins, k)
        reference.step()
    return (
        [param.to_local().detach() for param in params],
        [piece_of(twin.detach(), mesh, cuts) for twin in twins],
        len(solved.shapes),
    )


@pytest.mark.parametrize("name", ["two modes", "other modes", "strided", "copies and two cuts", "three cuts"])
def test_slices(run, name):
    results = run(torch.Size(CASES[name][0]).numel(), sliced, name)
    for params, expected, _ in results:
        assert_near(params, expected)
    assert sum(solved for _, _, solved in results) == 3 * (4 + 4 + 3 + 4)


def network():
    torch.manual_seed(0)
    x = images()[0]
    return nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 16), nn.ReLU(), nn.Linear(16, 12), nn.Linear(12, 10))


def training(model, first, last, rank=0, world_size=1, state=None, scale=1.0):
    optimizer = Tensorion(model.parameters(), lr=0.02, min_order=2)
    if state is not None:
        set_optimizer_state_dict(model, optimizer, state)
    x, y = images()
    for _ in range(first, last):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[rank::world_size]), y[rank::world_size])
        (scale * loss).backward()
        optimizer.step()
    return optimizer


def tensor_parallel(rank, world_size):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = network()
    parallelize_module(model, mesh["tp"], {"1": ColwiseParallel(), "3": RowwiseParallel()})
    for module in (model[1], model[3], model):
        fully_shard(module, mesh=mesh["dp"])
    found = [param.placements for param in (model[1].weight, model[3].weight)]
    place = {"rank": mesh.get_local_rank("dp"), "world_size": 2, "scale": loss_scale(2)}
    optimizer = training(model, 0, 3, **place)
    training(model, 3, 6, **place, state=get_optimizer_state_dict(model, optimizer))
    return [param.full_tensor().detach() for param in model.parameters()], found


def test_training_with_tensor_parallelism_below_fully_shard(run):
    model = network()
    optimizer = training(model, 0, 3)
    training(model, 3, 6, state=get_optimizer_state_dict(model, optimizer))
    results = run(4, tensor_parallel)
    for params, placements in results:
        assert_same(params, results[0][0])
        assert_near(params, list(model.parameters()), tolerance=1e-5)
        # Check the case itself: one tensor is sharded twice along one mode, the other along two modes.
        assert placements == [(_StridedShard(0, split_factor=2), Shard(0)), (Shard(0), Shard(1))]


def refused(rank, world_size):
    mesh = init_device_mesh("cpu", (2, 2))
    whole = gaussian((8, 6, 3), 1)
    partial = DTensor.from_local(piece_of(whole, mesh, [(1, 0)]), mesh, [P, S(0)], run_check=False)
    local = piece_of(whole, mesh, [(0, 0), (1, 0)])
    strided = DTensor.from_local(local, mesh, [_StridedShard(0, split_factor=4), S(0)], run_check=False)
    return [raised_by(lambda x=x: Tensorion([("w", nn.Parameter(x.detach()))])) for x in (partial, strided)]


def test_unsupported_placements_raise(run):
    for partial, strided in run(4, refused):
        assert "parameter 'w', shape [8, 6, 3]: expected a DTensor that is sharded or replicated, got" in partial
        assert "expected a DTensor whose shards are contiguous along each mode, got" in strided
