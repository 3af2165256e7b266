"""Checkpoints of several processes: they load at other world sizes, and errors are raised on all ranks or on none."""

import pytest
import torch
import torch.distributed as dist
from distributed_cases import (
    OPTIONS,
    Bag,
    alone,
    assert_near,
    mesh_of,
    optimizer_of,
    raised_by,
    sharded,
    tensors,
    train,
    train_sharded,
    whole,
)
from support import copies, set_gradients
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

from tensorion import Tensorion


def checkpoint(rank, world_size, kind, folder, load, first, last):
    """Resume from a checkpoint, make steps, and save a checkpoint."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    bag = Bag()
    if kind != "replicated":
        fully_shard(bag, mesh=mesh_of(world_size, kind))
    params = list(bag.params)
    named = list(zip([name for name, _ in bag.named_parameters()], params, strict=True))
    groups = [{"params": named[i::2], **options} for i, options in enumerate(OPTIONS["online, nesterov, sgd"])]
    # The options come from the checkpoint too.
    options = {"lr": 0.02, "weight_decay": 0.1} if not load else {"lr": 99.0}
    group = dist.group.WORLD if kind == "replicated" else None
    optimizer = Tensorion(groups, **options, nonfinite="skip", process_group=group)
    if load:
        model_state, optimizer_state = get_state_dict(bag, optimizer)
        dcp.load({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder / load)
        set_state_dict(bag, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
    (train if kind == "replicated" else train_sharded)(optimizer, params, first, last)
    model_state, optimizer_state = get_state_dict(bag, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder / f"{last}")
    keys = {name: sorted(state) for name, state in optimizer_state["state"].items()}
    return copies(params) if kind == "replicated" else whole(params), keys


def test_checkpoints_resume_at_other_world_sizes(run, tmp_path):
    folder = tmp_path / "checkpoints"
    sequence = [("fsdp", 4), ("fsdp", 2), ("hsdp", 4), ("fsdp", 1), ("fsdp", 3), ("replicated", 2), ("fsdp", 2)]
    for k, (kind, world_size) in enumerate(sequence):
        results = run(world_size, checkpoint, kind, folder, f"{k}" if k else None, k, k + 1)
        expected, optimizer = alone("online, nesterov, sgd", last=k + 1)
        for params, keys in results:
            assert_near(params, expected)
            # The state is on all ranks, whether or not they own a tensor or have a shard of it.
            assert keys == {f"params.{i}": sorted(optimizer.state[param]) for i, param in enumerate(expected)}


# ---- States that do not fit on one rank


def replaced(state, param, change):
    """Replace the momentum of one parameter in a state dict."""
    entry = dict(state["state"][param])
    entry["momentum_buffer"] = change(entry["momentum_buffer"])
    return {**state, "state": {**state["state"], param: entry}}


def with_nan(momentum):
    momentum = momentum.clone()
    momentum.to_local().view(-1)[:1] = float("nan")
    return momentum


def on_another_mesh(momentum):
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("a", "b"))
    return distribute_tensor(momentum.full_tensor(), mesh, [Shard(0), Replicate()])


def raising_hook(optimizer, state_dict):
    raise KeyError("a hook's own")


#: A change of the state, the rank or ranks that it applies to, and their error.
BAD_STATES = {
    # Regression: the state was accepted. Then the step failed after the check, or one rank waited forever.
    "another placement": (
        lambda s: replaced(s, 0, lambda m: m.redistribute(placements=[Shard(1)])),
        "both",
        "expected a momentum_buffer with the placements of parameter 'p0', shape [6, 4, 3, 3] ((Shard(dim=0),)",
    ),
    "replicated": (
        lambda s: replaced(s, 0, lambda m: m.redistribute(placements=[Replicate()])),
        "both",
        "expected a momentum_buffer with the placements of parameter 'p0', shape [6, 4, 3, 3] ((Shard(dim=0),)",
    ),
    "another mesh": (lambda s: replaced(s, 0, on_another_mesh), "both", "with the placements of parameter 'p0'"),
    "a plain tensor": (lambda s: replaced(s, 0, lambda m: m.to_local().new_zeros(m.shape)), "one", "a plain tensor"),
    # Regression: only the rank with the bad state raised an error.
    "a NaN": (lambda s: replaced(s, 0, with_nan), "one", "expected a finite momentum_buffer for parameter 'p0'"),
    "no lr": (
        lambda s: {**s, "param_groups": [{k: v for k, v in g.items() if k != "lr"} for g in s["param_groups"]]},
        "one",
        "expected 'lr' in saved group 0",
    ),
    "not a dict": (lambda s: [], "one", "TypeError: [tensorion.Tensorion] state_dict must be a dict, got list"),
}


def loading_fault(rank, world_size, name):
    change, where, _ = BAD_STATES[name]
    params = sharded("fsdp", world_size)
    optimizer = optimizer_of(params, "plain")
    train_sharded(optimizer, params, 0, 2)
    good = optimizer.state_dict()
    other_params = sharded("fsdp", world_size)
    other = optimizer_of(other_params, "plain")
    train_sharded(other, other_params, 0, 1)
    changed = change(good) if where == "both" or rank == 1 else good
    momentum = other.state[other_params[0]]["momentum_buffer"].full_tensor().clone()
    error = raised_by(lambda: other.load_state_dict(changed))
    assert torch.equal(other.state[other_params[0]]["momentum_buffer"].full_tensor(), momentum)
    train_sharded(other, other_params, 1, 2)
    other.load_state_dict(good)
    train_sharded(other, other_params, 2, 4)
    return error, whole(other_params)


@pytest.mark.parametrize("name", BAD_STATES)
def test_bad_state_on_one_rank_raises_on_all_ranks(run, name):
    _, where, message = BAD_STATES[name]
    expected = alone()[0]
    for rank, (error, params) in enumerate(run(2, loading_fault, name)):
        if where == "both" or rank == 1:
            assert message in error
        else:
            assert error == (
                "RuntimeError: [tensorion.Tensorion] rank 1 could not load this state, and its error says why; nothing "
                "was changed"
            )
        assert_near(params, expected)


def loading_beside_a_hook(rank, world_size):
    params = tensors()
    optimizer = optimizer_of(params, "plain", process_group=dist.group.WORLD)
    train(optimizer, params, 0, 1)
    state = optimizer.state_dict()
    if rank == 1:
        handle = optimizer.register_load_state_dict_pre_hook(raising_hook)
    error = raised_by(lambda: optimizer.load_state_dict(state))
    if rank == 1:
        handle.remove()
    # The other rank has a state for fewer tensors.
    if rank == 0:
        state = {**state, "state": {k: v for k, v in state["state"].items() if k != 2}}
    missing = raised_by(lambda: optimizer.load_state_dict(state))
    # One rank loads a state while the other makes a step.
    set_gradients(params, 1)
    call = optimizer.step if rank == 0 else lambda: optimizer.load_state_dict(state)
    mixed = raised_by(call)
    train(optimizer, params, 1, 4)
    return error, missing, mixed, copies(params)


def test_ranks_load_together(run):
    results = run(2, loading_beside_a_hook)
    assert results[1][0] == 'KeyError: "a hook\'s own"'
    assert "rank 1 could not load this state" in results[0][0]
    expected = alone()[0]
    for _, missing, mixed, params in results:
        assert missing == (
            "ValueError: [tensorion.Tensorion] expected a state of parameter 'p6', shape [2, 3, 4] on all ranks that "
            "share it or on none, got one on rank 1 and None on rank 0; nothing was changed"
        )
        assert mixed == (
            "ValueError: [tensorion.Tensorion] expected the same call on all ranks, got load_state_dict on rank 1 and "
            "step on rank 0; nothing was changed"
        )
        assert_near(params, expected)
