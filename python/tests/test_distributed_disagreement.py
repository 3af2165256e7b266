"""Ranks with different tensors or options. All ranks raise if they disagree about shared tensors, and only then."""

import pytest
import torch
import torch.distributed as dist
from distributed_cases import assert_near, optimizer_of, raised, tensors, train, whole
from support import assert_same, copies, gaussian, set_gradients
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

from tensorion import Tensorion


def distributed(tensor, mesh, *placements):
    return nn.Parameter(distribute_tensor(tensor, mesh, placements, src_data_rank=None))


def set_any_gradients(named, seed):
    """Set gradients of DTensors and plain tensors. They depend only on the name of the tensor and the seed."""
    for name, param in named.items():
        grad = gaussian(param.shape, 1000 * seed + sum(map(ord, name)))
        is_dtensor = isinstance(param, DTensor)
        param.grad = (
            distribute_tensor(grad, param.device_mesh, param.placements, src_data_rank=None) if is_dtensor else grad
        )


def values(named):
    return {
        name: (param.full_tensor() if isinstance(param, DTensor) else param).detach().clone()
        for name, param in named.items()
    }


# ---- Plain tensors that only one rank has, besides shared ones


def with_own_tensors(rank, bad, policy="error"):
    """Make a step with two shared DTensors, some plain tensors that only one rank has, and a NaN on rank 0."""
    mesh = init_device_mesh("cpu", (2,))
    own = {f"own{rank}.{i}": nn.Parameter(gaussian((3, 2, 2), i)) for i in range(2 - rank)}
    shared = {f"shared{i}": distributed(gaussian((4, 3, 2), i), mesh, Shard(0)) for i in range(2)}
    named = {**own, **shared}
    optimizer = Tensorion(named.items(), nonfinite=policy)
    set_any_gradients(named, 1)
    if rank == 0:
        grad = named[bad].grad
        (grad.to_local() if isinstance(grad, DTensor) else grad)[0, 0, 0] = float("nan")
    before = values(named)
    error = raised(optimizer)
    after = values(named)
    assert_same(after.values(), before.values())
    set_any_gradients(named, 2)
    optimizer.step()
    return error, optimizer.skipped_steps


def nan_beside_own_tensors(rank, world_size, bad, policy):
    return with_own_tensors(rank, bad, policy)


@pytest.mark.parametrize("bad", ["shared0", "shared1"])
def test_error_names_nan_if_ranks_have_additional_tensors(run, bad):
    # Regression: ranks counted from the end of their own lists. One raised, and the other waited forever.
    for error, _ in run(2, nan_beside_own_tensors, bad, "error"):
        assert error == (
            f"ValueError: [tensorion.Tensorion] the gradient of parameter '{bad}', shape [4, 3, 2] is not finite; "
            "nothing was changed"
        )


def test_nan_in_tensor_of_one_rank_stops_all_ranks(run):
    (first, _), (second, _) = run(2, nan_beside_own_tensors, "own0.1", "error")
    assert "the gradient of parameter 'own0.1', shape [3, 2, 2] is not finite" in first
    assert second == (
        "ValueError: [tensorion.Tensorion] rank 0 has a gradient that is not finite, of a parameter that this rank "
        "does not share; nothing was changed"
    )


@pytest.mark.parametrize("bad", ["shared1", "own0.0"])
def test_nan_is_skipped_if_ranks_have_additional_tensors(run, bad):
    assert run(2, nan_beside_own_tensors, bad, "skip") == [(None, 1), (None, 1)]


def skipping_alone(rank, world_size):
    mesh = init_device_mesh("cpu", (2,))
    shared = distributed(gaussian((4, 3, 2), 0), mesh, Shard(0))
    own = nn.Parameter(gaussian((3, 2, 2), 1))
    # Only rank 0 has a group that skips.
    groups = [{"params": [shared]}] + [{"params": [own], "nonfinite": "skip"}] * (rank == 0)
    optimizer = Tensorion(groups)
    set_any_gradients({"shared": shared, "own": own}, 1)
    own.grad[0] = float("inf")
    before = shared.full_tensor().detach().clone()
    optimizer.step()
    return torch.equal(shared.full_tensor(), before), optimizer.skipped_steps


def test_all_ranks_skip_because_of_tensor_of_one_rank(run):
    # Regression: the rank continued and waited for the rank that skipped.
    assert run(2, skipping_alone) == [(True, 1), (True, 1)]


# ---- Experts on the rows of a mesh


def experts(rank, counts):
    """Create a dense tensor on a 2 x 2 mesh, and `counts[row]` experts on each row."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("row", "col"))
    row = rank // 2
    named = {"dense": distributed(gaussian((6, 4, 3), 9), mesh, Replicate(), Shard(0))}
    for i in range(counts[row]):
        named[f"expert{row}.{i}"] = distributed(gaussian((5, 3, 2), 10 * row + i), mesh["col"], Shard(0))
    return named, Tensorion(named.items(), lr=0.02)


def reference_of_experts(counts, steps, without=()):
    named = {"dense": nn.Parameter(gaussian((6, 4, 3), 9))}
    for row, count in enumerate(counts):
        for i in range(count):
            named[f"expert{row}.{i}"] = nn.Parameter(gaussian((5, 3, 2), 10 * row + i))
    optimizer = Tensorion(named.items(), lr=0.02)
    for k in range(steps):
        set_any_gradients(named, k)
        for name in without:
            named[name].grad = None
        optimizer.step()
    return values(named)


def expert_steps(rank, world_size, counts, without):
    named, optimizer = experts(rank, counts)
    for k in range(3):
        set_any_gradients(named, k)
        for name in without:
            if name in named:
                named[name].grad = None
        optimizer.step()
    return values(named)


@pytest.mark.parametrize(
    ("counts", "without"),
    [
        # Regression: votes had two entries per tensor, and gloo aborted the processes.
        ((3, 2), ()),
        ((0, 2), ()),
        # Regression: this raised because the experts of the other row had gradients.
        ((2, 2), ("expert0.0", "expert0.1")),
        ((3, 2), ("expert1.1",)),
    ],
)
def test_rows_may_have_different_experts(run, counts, without):
    expected = reference_of_experts(counts, 3, without)
    for found in run(4, expert_steps, counts, without):
        assert_near(found.values(), [expected[name] for name in found])


def expert_fault(rank, world_size, fault):
    named, optimizer = experts(rank, (3, 2))
    set_any_gradients(named, 1)
    if rank == 1 and fault == "nan":
        named["expert0.1"].grad.to_local().fill_(float("nan"))
    if rank == 1 and fault == "None":
        named["expert0.1"].grad = None
    before = values(named)
    error = raised(optimizer)
    assert_same(values(named).values(), before.values())
    set_any_gradients(named, 2)
    optimizer.step()
    return error


def test_nan_in_expert_stops_all_rows(run):
    errors = run(4, expert_fault, "nan")
    for rank in (0, 1):
        assert "the gradient of parameter 'expert0.1', shape [5, 3, 2] is not finite" in errors[rank]
    for rank in (2, 3):
        assert errors[rank].startswith("ValueError: [tensorion.Tensorion] rank 1 has a gradient that is not finite")


def test_missing_gradient_of_expert_stops_all_rows(run):
    errors = run(4, expert_fault, "None")
    for rank in (0, 1):
        assert errors[rank] == (
            "ValueError: [tensorion.Tensorion] expected a gradient of parameter 'expert0.1', shape [5, 3, 2] on all "
            "ranks that share it or on none, got one on rank 0 and None on rank 1; nothing was changed"
        )
    for rank in (2, 3):
        assert "disagrees with ranks that it shares tensors with, and its error says on what" in errors[rank]


# ---- Ranks that disagree


def change_order(rank, optimizer):
    for key in ("params", "param_names"):
        optimizer.param_groups[0][key].reverse()


def change_option(key, value):
    def change(rank, optimizer):
        optimizer.param_groups[0][key] = value

    return change


def change_algorithm(rank, optimizer):
    group = optimizer.param_groups[1]
    assert group["algorithm"] == "adamw"
    group.update(algorithm="sgd", momentum=0.9)


def change_dtype(rank, optimizer):
    param = optimizer.param_groups[0]["params"][0]
    grad, param.grad = param.grad, None
    param.data = param.data.double()
    param.grad = grad.double()


def add_group(rank, optimizer):
    optimizer.add_param_group({"params": [("new", nn.Parameter(torch.ones(3)))]})


CHANGES = {
    "order": (change_order, "the names, shapes, dtypes, placements or order"),
    "dtype": (change_dtype, "the names, shapes, dtypes, placements or order"),
    "lr": (change_option("lr", 0.3), "the learning rates"),
    "momentum": (change_option("momentum", 0.5), "the options"),
    "unfolding": (change_option("unfolding", (0,)), "the options"),
    "nonfinite": (change_option("nonfinite", "ignore"), "the options"),
    "algorithm": (change_algorithm, "the algorithms"),
}


def disagreeing(rank, world_size, name, first):
    """One rank changes something before its first step or later."""
    params = tensors()
    optimizer = optimizer_of(params, "plain", process_group=dist.group.WORLD)
    train(optimizer, params, 0, first)
    set_gradients(params, first)
    before = copies(params)
    if rank == 1:
        CHANGES[name][0](rank, optimizer)
    error = raised(optimizer)
    assert [param.detach().to(old.dtype).equal(old) for param, old in zip(params, before, strict=True)] == [True] * 8
    if rank != 1:
        CHANGES[name][0](rank, optimizer)  # all the same again
    return error, raised(optimizer)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("name", CHANGES)
def test_disagreement_raises_on_all_ranks(run, name, first):
    # Regression: ranks diverged or waited for each other.
    for error, later in run(3, disagreeing, name, first):
        assert error.startswith(
            f"ValueError: [tensorion.Tensorion] expected ranks to agree on {CHANGES[name][1]} of the parameters that "
            "they share, but rank "
        )
        assert " 1 " in error
        # AdamW's state is not SGD's, but all ranks see that alike.
        assert later is None


def sharded_disagreement(rank, world_size):
    mesh = init_device_mesh("cpu", (2,))
    named = {f"p{i}": distributed(gaussian((4, 3, 2), i), mesh, Shard(0)) for i in range(3)}
    order = sorted(named, reverse=rank == 1)
    optimizer = Tensorion([(name, named[name]) for name in order])
    set_any_gradients(named, 1)
    before = whole(named.values())
    error = raised(optimizer)
    assert_same(whole(named.values()), before)
    return error


def test_different_order_of_sharded_tensors_raises(run):
    # Regression: with tensors of equal shape, each rank would have sent its shard as a shard of another tensor.
    for error in run(2, sharded_disagreement):
        assert "expected ranks to agree on the names, shapes, dtypes, placements or order" in error
        assert error.endswith("but rank 0 and rank 1 do not; nothing was changed") or "rank 1 and rank 0" in error


def unequal_counts(rank, world_size):
    params = tensors()
    optimizer = optimizer_of(params, "plain", process_group=dist.group.WORLD)
    train(optimizer, params, 0, 1)
    set_gradients(params, 1)
    if rank == 2:
        add_group(rank, optimizer)
    before = copies(params)
    error = raised(optimizer)
    assert_same(params, before)
    if rank != 2:
        add_group(rank, optimizer)
    optimizer.step()
    return error


def test_different_numbers_of_parameters_raise(run):
    # Regression: gloo aborted the processes.
    for error in run(3, unequal_counts):
        assert error.startswith(
            "ValueError: [tensorion.Tensorion] expected the same number of parameters on all ranks that share them, "
            "got 9 on rank 2 and 8 on rank "
        )


def none_to_share(rank, world_size):
    mesh = init_device_mesh("cpu", (2,))
    named = {"sharded": distributed(gaussian((4, 3, 2), 0), mesh, Shard(0))}
    if rank == 0:
        named["plain"] = nn.Parameter(gaussian((4, 3, 2), 1))
    optimizer = Tensorion(named.items(), process_group=dist.new_group([0, 1]))
    set_any_gradients(named, 1)
    return raised(optimizer)


def test_rank_without_shared_tensors_raises(run):
    # Regression: the rank did not take part in the vote.
    for error in run(2, none_to_share):
        assert "got 1 on rank 0 and 0 on rank 1" in error


def interleaved(rank, world_size):
    """Make a step with two kinds of tensors whose order differs between ranks."""
    mesh = init_device_mesh("cpu", (2,))
    named = {
        "sharded": distributed(gaussian((4, 3, 2), 0), mesh, Shard(0)),
        "plain": nn.Parameter(gaussian((4, 3, 2), 1)),
    }
    order = sorted(named, reverse=rank == 1)
    optimizer = Tensorion([(name, named[name]) for name in order], process_group=dist.new_group([0, 1]))
    set_any_gradients(named, 1)
    optimizer.step()
    return values(named)


def test_order_of_tensors_of_several_meshes_does_not_matter(run):
    # Regression: the order of the parameters decided which mesh communicated first, which caused a deadlock.
    first, second = run(2, interleaved)
    assert_same(first.values(), second.values())
