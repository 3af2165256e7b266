"""Replicated tensors: ranks share the work, and the result equals the result of one process."""

import copy

import pytest
import torch
import torch.distributed as dist
from distributed_cases import (
    OPTIONS,
    Solved,
    alone,
    assert_all_solved_once,
    assert_near,
    optimizer_of,
    tensors,
    train,
    train_network,
)
from support import (
    assert_same,
    conv_net,
    copies,
    gaussian,
    set_gradients,
)
from torch import nn
from torch.profiler import ProfilerActivity, profile

import tensorion
from tensorion import Tensorion


def replicated(rank, world_size, name, dtype=torch.float32):
    params = tensors(dtype)
    optimizer = optimizer_of(params, name, process_group=dist.group.WORLD)
    with Solved() as solved:
        train(optimizer, params, 0, 1)
    train(optimizer, params, 1, 4)
    return copies(params), [sorted(optimizer.state[param]) for param in params], solved.shapes


def replicated_in_all_ways(rank, world_size):
    return {name: replicated(rank, world_size, name) for name in OPTIONS}


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_replicated_tensors(run, world_size):
    results = run(world_size, replicated_in_all_ways)
    for name in OPTIONS:
        expected, optimizer = alone(name)
        for result in results:
            params, keys, _ = result[name]
            assert_same(params, results[0][name][0])
            assert_near(params, expected)
            assert keys == [sorted(optimizer.state[param]) for param in expected]
        assert_all_solved_once([result[name][2] for result in results], name)


def test_replicated_half_precision(run):
    results = run(2, replicated, "plain", torch.bfloat16)
    assert_same(results[1][0], results[0][0])
    assert_near(results[0][0], alone(dtype=torch.bfloat16)[0], tolerance=0.02)


def replicated_by_plan(rank, world_size):
    shapes = [(8, 4, 3, 3), (6, 4, 3, 3), (5, 4, 3, 3), (4, 4, 3, 3), (3, 4, 3, 3)]
    params = [nn.Parameter(gaussian(shape, i)) for i, shape in enumerate(shapes)]
    set_gradients(params, 1)
    with Solved() as solved:
        Tensorion(params, process_group=dist.group.WORLD).step()
    plan = tensorion.plan(shapes, world_size)
    return solved.shapes, [shapes[i] for i, owner in enumerate(plan.owners) if owner == rank]


@pytest.mark.parametrize("world_size", [2, 4])
def test_ranks_orthogonalize_tensors_of_their_plan(run, world_size):
    for solved, planned in run(world_size, replicated_by_plan):
        assert sorted(solved) == sorted(planned)


def largest_allocation(rank, world_size):
    params = [nn.Parameter(gaussian((64, 64, 3, 3), i)) for i in range(2 * world_size)]
    optimizer = Tensorion(params, process_group=dist.group.WORLD)
    train(optimizer, params, 0, 4)  # The first steps determine the size of the scratch memory.
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        optimizer.step()
    events = profiler.profiler.kineto_results.events()
    return max(event.nbytes() for event in events if event.name() == "[memory]")


# Regression: messages were allocated anew at each step, and page faults took a tenth of the step.
def test_steps_reuse_the_memory_of_messages(run):
    one_tensor = 4 * 64 * 64 * 9
    assert max(run(2, largest_allocation)) < one_tensor


def data_parallel(rank, world_size, process_group):
    model = nn.parallel.DistributedDataParallel(conv_net().to(memory_format=torch.channels_last))
    return copies(train_network(model, rank, world_size, process_group=dist.group.WORLD if process_group else None))


def test_distributed_data_parallel(run):
    shared, unshared = run(2, data_parallel, True), run(2, data_parallel, False)
    assert_same(shared[0], shared[1])
    assert_near(shared[0], unshared[0])
    assert_near(shared[0], train_network(conv_net()), tolerance=1e-5)


def subgroup(rank, world_size):
    group = dist.new_group([0, 2])
    if rank == 1:
        with pytest.raises(ValueError, match="process_group must contain this rank"):
            Tensorion(tensors(), process_group=group)
        return None
    params = tensors()
    train(optimizer_of(params, "plain", process_group=group), params)
    return copies(params)


def test_process_group_of_some_ranks(run):
    first, _, second = run(3, subgroup)
    assert_same(first, second)
    assert_near(first, alone()[0])


def copied(rank, world_size):
    params = tensors()
    optimizer = optimizer_of(params, "plain", process_group=dist.group.WORLD)
    train(optimizer, params, 0, 1)
    twins, twin = copy.deepcopy((params, optimizer))
    if rank == 0:
        train(twin, twins, 1, 2)  # other ranks do not take part
    dist.barrier()
    train(optimizer, params, 1, 2)
    return copies(params), copies(twins)


def test_copy_steps_without_other_ranks(run):
    (params, twins), _ = run(2, copied)
    assert_near(twins, params)
