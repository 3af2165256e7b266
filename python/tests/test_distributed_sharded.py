"""Sharded tensors: the result equals the result of one process, also if the shards have unequal sizes."""

import pytest
import torch.distributed as dist
from distributed_cases import (
    OPTIONS,
    Solved,
    alone,
    assert_all_solved_once,
    assert_near,
    mesh_of,
    optimizer_of,
    set_sharded_gradients,
    sharded,
    tensors,
    train_network,
    train_sharded,
    whole,
)
from support import assert_same, conv_net, gaussian
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch_versions import loss_scale

from tensorion import Tensorion, _distributed_step


def fully_sharded(rank, world_size, kind, name):
    params = sharded(kind, world_size)
    optimizer = optimizer_of(params, name)
    with Solved() as solved:
        train_sharded(optimizer, params, 0, 1)
    train_sharded(optimizer, params, 1, 4)
    keys = []
    for param in params:
        state = optimizer.state[param]
        keys.append(sorted(state))
        for key in set(state) - {"step"}:
            assert isinstance(state[key], DTensor)
            assert state[key].placements == param.placements
            assert state[key].to_local().shape == param.to_local().shape
    states = [
        optimizer.state[param]["momentum_buffer"] for param in params if "momentum_buffer" in optimizer.state[param]
    ]
    return whole(params), whole(states), keys, solved.shapes, [param.to_local().numel() for param in params]


def fully_sharded_in_all_ways(rank, world_size, kind):
    return {name: fully_sharded(rank, world_size, kind, name) for name in OPTIONS}


@pytest.mark.parametrize(
    ("kind", "world_size"),
    [("fsdp", 1), ("fsdp", 2), ("fsdp", 3), ("fsdp", 4), ("modes", 3), ("hsdp", 2), ("hsdp", 4)],
)
def test_sharded_tensors(run, kind, world_size):
    results = run(world_size, fully_sharded_in_all_ways, kind)
    for name in OPTIONS:
        expected, optimizer = alone(name)
        states = [optimizer.state[param] for param in expected]
        for result in results:
            params, momenta, keys, _, _ = result[name]
            assert_same(params, results[0][name][0])
            assert_near(params, expected)
            assert_near(momenta, [state["momentum_buffer"] for state in states if "momentum_buffer" in state])
            assert keys == [sorted(state) for state in states]
        assert_all_solved_once([result[name][3] for result in results], name)
    # Check the case itself: shards have unequal sizes.
    if (kind, world_size) == ("fsdp", 4):
        sizes = [result["plain"][4] for result in results]
        assert any(0 in one for one in sizes)
        assert any(len(set(column)) > 1 for column in zip(*sizes, strict=True))


def fsdp_training(rank, world_size, offload):
    model = conv_net()
    policy = {"offload_policy": CPUOffloadPolicy(pin_memory=False)} if offload else {}
    for module in (model[2], model):
        fully_shard(module, **policy)
    return whole(train_network(model, rank, world_size, clip=1.0, scale=loss_scale(world_size)))


@pytest.mark.parametrize("offload", [False, True])
def test_training_with_fully_shard(run, offload):
    results = run(4, fsdp_training, offload)
    expected = list(train_network(conv_net(), clip=1.0))
    for params in results:
        assert_near(params, expected, tolerance=1e-5)


def mixed(rank, world_size):
    """Train sharded and replicated tensors together, in single and double precision."""
    params = tensors()
    mesh = mesh_of(world_size, "fsdp")
    cuts = {0: [Shard(0)], 5: [Shard(1)]}  # The second is sharded unevenly.
    for i, placements in cuts.items():
        params[i] = nn.Parameter(distribute_tensor(params[i].detach(), mesh, placements, src_data_rank=None))
    params[4] = nn.Parameter(params[4].detach().double())
    optimizer = optimizer_of(params, "plain", process_group=dist.group.WORLD)
    for k in range(4):
        for i, param in enumerate(params):
            grad = gaussian(param.shape, 1000 + 10 * k + i).to(param.dtype)
            param.grad = distribute_tensor(grad, mesh, cuts[i], src_data_rank=None) if i in cuts else grad
        optimizer.step()
    return [(param.full_tensor() if isinstance(param, DTensor) else param).detach().clone() for param in params]


def test_sharded_and_replicated_tensors_in_one_optimizer(run):
    results = run(3, mixed)
    expected = alone()[0]
    for params in results:
        assert_same(params, results[0])
        assert_near([param.float() for param in params], expected)


def assembled(rank, world_size):
    """Return the largest number of elements of whole tensors that this rank held at a time."""
    params = [nn.Parameter(gaussian((world_size, 5, 4), i)) for i in range(4 * world_size)]
    bag = nn.Module()
    bag.params = nn.ParameterList(params)
    fully_shard(bag)
    params = list(bag.params)
    set_sharded_gradients(params, 1)
    sizes, joined = [], _distributed_step._gather

    def watched(*arguments):
        found = joined(*arguments)
        sizes.append(sum(tensor.numel() for tensor in found))
        return found

    _distributed_step._gather = watched
    Tensorion(params).step()
    return sizes


def test_rank_gathers_tensors_one_round_at_a_time(run):
    for sizes in run(4, assembled):
        assert sizes == [4 * 5 * 4] * 4
