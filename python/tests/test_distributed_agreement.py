"""Errors on one rank: all ranks raise or skip the step, without changes and without a deadlock."""

import os

import processes
import pytest
import torch
import torch.distributed as dist
from distributed_cases import (
    alone,
    assert_near,
    optimizer_of,
    raised,
    set_sharded_gradients,
    sharded,
    tensors,
    train,
    train_sharded,
    whole,
)
from support import assert_same, conv_net, copies, set_gradients
from torch.distributed.tensor import Shard

from tensorion import Tensorion, _state


def nonfinite(rank, world_size, policy):
    params = sharded("fsdp", world_size)
    optimizer = optimizer_of(params, "plain", nonfinite=policy)
    train_sharded(optimizer, params, 0, 2)
    before = whole(params)
    set_sharded_gradients(params, 9)
    # Only one rank has the last element.
    grad = params[4].grad.to_local()
    if rank == world_size - 1:
        grad[-1, -1] = float("inf")
    error = raised(optimizer)
    after = whole(params)
    train_sharded(optimizer, params, 2, 4)
    return error, before, after, optimizer.skipped_steps, whole(params)


def test_nonfinite_error_on_one_rank(run):
    expected = alone()[0]
    for error, before, after, _, last in run(3, nonfinite, "error"):
        assert error == (
            "ValueError: [tensorion.Tensorion] the gradient of parameter 'p4', shape [16, 8, 3, 3] is not finite; "
            "nothing was changed"
        )
        assert_same(before, after)
        assert_near(last, expected)


def test_nonfinite_skip_on_one_rank(run):
    expected = alone()[0]
    for error, before, after, skipped, last in run(3, nonfinite, "skip"):
        assert error is None
        assert skipped == 1
        assert_same(before, after)
        assert_near(last, expected)


def test_nonfinite_ignore_on_one_rank(run):
    for error, _, after, _, _ in run(3, nonfinite, "ignore"):
        assert error is None
        assert after[4].isnan().all()
        assert all(param.isfinite().all() for i, param in enumerate(after) if i != 4)


def missing(rank, world_size, kind):
    params = tensors() if kind == "replicated" else sharded("fsdp", world_size)
    group = dist.group.WORLD if kind == "replicated" else None
    optimizer = optimizer_of(params, "plain", process_group=group)
    set_all = set_gradients if kind == "replicated" else set_sharded_gradients
    set_all(params, 1)
    params[3].grad = params[2].grad = None  # missing on all ranks
    before = [(param if kind == "replicated" else param.full_tensor()).detach().clone() for param in params]
    grad = params[5].grad
    if rank == 1:
        params[5].grad = None  # missing on one rank
    error = raised(optimizer)
    states = len(optimizer.state)
    params[5].grad = grad
    optimizer.step()
    after = [(param if kind == "replicated" else param.full_tensor()).detach().clone() for param in params]
    return error, states, before, after


@pytest.mark.parametrize("kind", ["replicated", "sharded"])
def test_missing_gradients(run, kind):
    for error, states, before, after in run(3, missing, kind):
        assert error == (
            "ValueError: [tensorion.Tensorion] expected a gradient of parameter 'p5', shape [7, 5, 3] on all ranks "
            "that share it or on none, got one on rank 2 and None on rank 1; nothing was changed"
        )
        assert states == 0
        for i, (old, new) in enumerate(zip(before, after, strict=True)):
            assert torch.equal(old, new) == (i in (2, 3))


def refusal(rank, world_size):
    params = tensors()
    optimizer = optimizer_of(params, "plain", process_group=dist.group.WORLD)
    set_gradients(params, 1)
    before = copies(params)
    if rank == 1:
        optimizer.param_groups[0]["lr"] = float("nan")
    error = raised(optimizer)
    assert_same(params, before)
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    return error


def test_bad_option_on_one_rank_stops_all_ranks(run):
    errors = run(3, refusal)
    assert errors[1] == "ValueError: [tensorion.step] lr must be finite, got nan"
    for rank in (0, 2):
        assert errors[rank] == (
            "RuntimeError: [tensorion.Tensorion] rank 1 could not make this step, and its error says why; nothing "
            "was changed"
        )


def out_of_memory(rank, world_size):
    params = tensors()
    optimizer = optimizer_of(params, "plain", process_group=dist.group.WORLD)
    set_gradients(params, 1)
    before = copies(params)
    missing_state = _state.missing

    def failing(*arguments):
        raise RuntimeError("not enough memory")

    if rank == 1:
        _state.missing = failing
    error = raised(optimizer)
    _state.missing = missing_state
    assert_same(params, before)
    assert not optimizer.state
    optimizer.step()
    return error


def test_out_of_memory_on_one_rank_stops_all_ranks(run):
    # Regression: the state was allocated after the vote, and the other ranks waited.
    errors = run(2, out_of_memory)
    assert "rank 1 could not make this step" in errors[0]
    assert errors[1] == "RuntimeError: not enough memory"


def dying(rank, world_size, kind):
    params = tensors() if kind == "replicated" else sharded("fsdp", world_size)
    optimizer = optimizer_of(params, "plain", process_group=dist.group.WORLD if kind == "replicated" else None)
    steps = train if kind == "replicated" else train_sharded
    steps(optimizer, params, 0, 2)
    if rank == 1:
        os._exit(7)
    steps(optimizer, params, 2, 4)


@pytest.mark.parametrize("kind", ["replicated", "sharded"])
def test_dead_rank_makes_other_ranks_raise(tmp_path, kind):
    results = processes.outcomes(3, dying, kind, folder=tmp_path, timeout=10)
    assert all(isinstance(result, processes.Failure) for result in results)
    assert str(results[1]) == "exit code 7"
    for rank in (0, 2):
        assert "in step" in str(results[rank])


def unsupported(rank, world_size):
    from torch.distributed.fsdp import FullyShardedDataParallel

    def error_of(make):
        with pytest.raises((TypeError, ValueError)) as caught:
            make()
        return f"{type(caught.value).__name__}: {caught.value}"

    errors = {}
    for name in (False, True):
        flat = FullyShardedDataParallel(conv_net(), use_orig_params=name, device_id=torch.device("cpu"))
        errors[f"flat {name}"] = error_of(lambda flat=flat: Tensorion(flat.parameters()))
    errors["group"] = error_of(lambda: Tensorion(tensors(), process_group="world"))
    params = sharded("fsdp", world_size)
    optimizer = optimizer_of(params, "plain")
    set_sharded_gradients(params, 1)
    grad = params[4].grad
    params[4].grad = grad.redistribute(placements=[Shard(1)])
    errors["gradient"] = error_of(optimizer.step)
    assert not optimizer.state
    params[4].grad = grad
    optimizer.step()
    errors["state"] = error_of(lambda: optimizer.load_state_dict(alone(last=1)[1].state_dict()))
    return errors


def test_unsupported_sharding_raises(run):
    results = run(4, unsupported)
    for errors in results:
        for name in ("flat False", "flat True"):
            assert errors[name].startswith("ValueError: [tensorion.Tensorion] parameter 0 of group 0 is part of a flat")
            assert errors[name].endswith("use FSDP2, torch.distributed.fsdp.fully_shard, instead")
        assert errors["group"] == (
            "TypeError: [tensorion.Tensorion] process_group must be a ProcessGroup or None, got 'world'"
        )
        assert (
            "expected a gradient with the placements of parameter 'p4', shape [16, 8, 3, 3] ((Shard(dim=0),)"
            in errors["gradient"]
        )
        assert "expected a momentum_buffer with the placements of parameter 'p0'" in errors["state"]
        assert "got a plain tensor; torch.distributed.checkpoint.state_dict converts" in errors["state"]
