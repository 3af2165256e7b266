"""Several processes: the same result as one, for replicated and for sharded tensors."""

import copy
import os
import re
import subprocess
import sys
from pathlib import Path

import processes
import pytest
import torch
import torch.distributed as dist
from support import assert_same, conv_net, copies, gaussian, images, set_gradients
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor, init_device_mesh

import tensorion
from tensorion import Tensorion, _exchange

# Cut along the first mode over 4 ranks they leave pieces of unequal size, and some ranks without any.
SHAPES = [(6, 4, 3, 3), (5, 7), (9,), (5, 3, 2), (16, 8, 3, 3), (7, 5, 3), (2, 3, 4), (1, 6, 5, 2)]
NAMES = [f"p{i}" for i in range(len(SHAPES))]
#: The options of two groups; the first takes every other tensor.
OPTIONS = {
    "plain": [{}, {}],
    "online, nesterov, sgd": [
        {"unfolding": "online", "nesterov": True, "lr": 0.05, "fallback": "sgd"},
        {"unfolding": "balanced", "maximize": True, "momentum": 0.5, "weight_decay": 0.3},
    ],
    "matrices, svd": [
        {"min_order": 2, "polar": "svd"},
        {"min_order": 2, "unfolding": (0,), "adjust_lr_fn": "original"},
    ],
}
#: Which tensors are Tensorion's.
ORDER_3 = [0, 3, 4, 5, 6, 7]
TENSORION = {"plain": ORDER_3, "online, nesterov, sgd": ORDER_3, "matrices, svd": [0, 1, 3, 4, 5, 6, 7]}


@pytest.fixture
def run(tmp_path):
    def run(world_size, function, *arguments):
        return processes.run(world_size, function, *arguments, folder=tmp_path)

    return run


def tensors(dtype=torch.float32):
    return [nn.Parameter(gaussian(shape, i, dtype)) for i, shape in enumerate(SHAPES)]


def optimizer_of(params, name, **others):
    named = list(zip(NAMES, params, strict=True))
    groups = [{"params": named[i::2], **options} for i, options in enumerate(OPTIONS[name])]
    return Tensorion(groups, lr=0.02, weight_decay=0.1, **others)


def train(optimizer, params, first=0, last=4):
    """Some steps, on gradients that depend on the step alone."""
    for k in range(first, last):
        set_gradients(params, k)
        optimizer.step()


def alone(name="plain", last=4, dtype=torch.float32):
    params = tensors(dtype)
    optimizer = optimizer_of(params, name)
    train(optimizer, params, 0, last)
    return params, optimizer


def assert_near(params, expected, tolerance=1e-6):
    for param, other in zip(params, expected, strict=True):
        torch.testing.assert_close(param, other.detach(), atol=tolerance, rtol=0)


class Solved:
    """Records the shapes that this rank solves for."""

    def __enter__(self):
        self.shapes, self._solved = [], _exchange._solved

        def solved(tasks, targets):
            self.shapes += [tuple(target.shape) for target in targets]
            return self._solved(tasks, targets)

        _exchange._solved = solved
        return self

    def __exit__(self, *_):
        _exchange._solved = self._solved


# ---- Replicated tensors


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


def assert_all_solved_once(solved, name):
    # A process on its own has nobody to share with.
    expected = [SHAPES[i] for i in TENSORION[name]] if len(solved) > 1 else []
    assert sorted(shape for shapes in solved for shape in shapes) == sorted(expected)


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
def test_ranks_solve_what_the_plan_says(run, world_size):
    for solved, planned in run(world_size, replicated_by_plan):
        assert sorted(solved) == sorted(planned)


def train_network(model, rank=0, world_size=1, *, process_group=None, clip=None):
    """Five steps on the rank's part of the pictures; by default as one process does it."""
    optimizer = Tensorion(model.parameters(), lr=0.02, process_group=process_group)
    x, y = images()
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rank::world_size]), y[rank::world_size]).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return model.parameters()


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
        with pytest.raises(ValueError, match="process_group must be one that this rank belongs to"):
            Tensorion(tensors(), process_group=group)
        return None
    params = tensors()
    train(optimizer_of(params, "plain", process_group=group), params)
    return copies(params)


def test_a_group_of_some_ranks(run):
    first, _, second = run(3, subgroup)
    assert_same(first, second)
    assert_near(first, alone()[0])


def copied(rank, world_size):
    params = tensors()
    optimizer = optimizer_of(params, "plain", process_group=dist.group.WORLD)
    train(optimizer, params, 0, 1)
    twins, twin = copy.deepcopy((params, optimizer))
    if rank == 0:
        train(twin, twins, 1, 2)  # without the others
    dist.barrier()
    train(optimizer, params, 1, 2)
    return copies(params), copies(twins)


def test_a_copy_steps_by_itself(run):
    (params, twins), _ = run(2, copied)
    assert_near(twins, params)


# ---- Sharded tensors


def mesh_of(world_size, kind):
    if kind == "hsdp":
        return init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh("cpu", (world_size,))


class Bag(nn.Module):
    """A module of the tensors."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.params = nn.ParameterList(tensors(dtype))


def sharded(kind, world_size):
    bag = Bag()
    # Some along their last mode.
    last = [param for param in bag.params if kind == "modes" and param.shape[-1] % world_size == 0]
    rule = {param: Shard(param.dim() - 1) for param in last}
    fully_shard(bag, mesh=mesh_of(world_size, kind), shard_placement_fn=rule.get)
    return list(bag.params)


def set_sharded_gradients(params, seed):
    for i, param in enumerate(params):
        whole = gaussian(param.shape, 1000 + 10 * seed + i)
        param.grad = distribute_tensor(whole, param.device_mesh, param.placements, src_data_rank=None)


def train_sharded(optimizer, params, first=0, last=4):
    for k in range(first, last):
        set_sharded_gradients(params, k)
        optimizer.step()


def whole(params):
    return [param.full_tensor().detach().clone() for param in params]


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
    # The case is as hard as it should be.
    if (kind, world_size) == ("fsdp", 4):
        sizes = [result["plain"][4] for result in results]
        assert any(0 in one for one in sizes)
        assert any(len(set(column)) > 1 for column in zip(*sizes, strict=True))


def fsdp_training(rank, world_size):
    model = conv_net()
    fully_shard(model[2])
    fully_shard(model)
    return whole(train_network(model, rank, world_size, clip=1.0))


def test_training_with_fully_shard(run):
    results = run(4, fsdp_training)
    expected = list(train_network(conv_net(), clip=1.0))
    for params in results:
        assert_near(params, expected, tolerance=1e-5)


def mixed(rank, world_size):
    """Sharded tensors beside replicated ones, single precision beside double."""
    params = tensors()
    mesh = mesh_of(world_size, "fsdp")
    cuts = {0: [Shard(0)], 5: [Shard(1)]}  # the latter unevenly
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
    """The most entries of whole tensors that this rank had at a time."""
    params = [nn.Parameter(gaussian((world_size, 5, 4), i)) for i in range(4 * world_size)]
    bag = nn.Module()
    bag.params = nn.ParameterList(params)
    fully_shard(bag)
    params = list(bag.params)
    set_sharded_gradients(params, 1)
    sizes, joined = [], _exchange._joined

    def watched(*arguments):
        found = joined(*arguments)
        sizes.append(sum(tensor.numel() for tensor in found))
        return found

    _exchange._joined = watched
    Tensorion(params).step()
    return sizes


def test_a_rank_assembles_what_it_solves_one_round_at_a_time(run):
    for sizes in run(4, assembled):
        assert sizes == [4 * 5 * 4] * 4


# ---- Gradients that are not right on one rank


def raised(optimizer):
    try:
        optimizer.step()
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def nonfinite(rank, world_size, policy):
    params = sharded("fsdp", world_size)
    optimizer = optimizer_of(params, "plain", nonfinite=policy)
    train_sharded(optimizer, params, 0, 2)
    before = whole(params)
    set_sharded_gradients(params, 9)
    # The last element is on one rank.
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
    params[3].grad = params[2].grad = None  # nowhere
    before = [(param if kind == "replicated" else param.full_tensor()).detach().clone() for param in params]
    grad = params[5].grad
    if rank == 1:
        params[5].grad = None  # on some
    error = raised(optimizer)
    states = len(optimizer.state)
    params[5].grad = grad
    optimizer.step()
    after = [(param if kind == "replicated" else param.full_tensor()).detach().clone() for param in params]
    return error, states, before, after


@pytest.mark.parametrize("kind", ["replicated", "sharded"])
def test_missing_gradients(run, kind):
    for rank, (error, states, before, after) in enumerate(run(3, missing, kind)):
        assert error == (
            "ValueError: [tensorion.Tensorion] expected a gradient of parameter 'p5', shape [7, 5, 3] on all ranks "
            f"that share it or on none, got {'None' if rank == 1 else 'one'} on rank {rank} and not on another; "
            "nothing was changed"
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
        optimizer.param_groups[0]["lr"] = -1.0
    error = raised(optimizer)
    assert_same(params, before)
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    return error


def test_a_rank_that_refuses_a_step_stops_the_others(run):
    errors = run(3, refusal)
    assert errors[1] == "ValueError: [tensorion.step] lr must be finite and not negative, got -1"
    for rank in (0, 2):
        assert errors[rank] == (
            "RuntimeError: [tensorion.Tensorion] rank 1 could not make this step, and its error says why; nothing "
            "was changed"
        )


def dying(rank, world_size, kind):
    params = tensors() if kind == "replicated" else sharded("fsdp", world_size)
    optimizer = optimizer_of(params, "plain", process_group=dist.group.WORLD if kind == "replicated" else None)
    steps = train if kind == "replicated" else train_sharded
    steps(optimizer, params, 0, 2)
    if rank == 1:
        os._exit(7)
    steps(optimizer, params, 2, 4)


@pytest.mark.parametrize("kind", ["replicated", "sharded"])
def test_a_rank_that_dies_ends_the_others_with_an_error(tmp_path, kind):
    results = processes.outcomes(3, dying, kind, folder=tmp_path, timeout=10)
    assert all(isinstance(result, processes.Failure) for result in results)
    assert str(results[1]) == "exit code 7"
    for rank in (0, 2):
        assert "in step" in str(results[rank])


# ---- What is refused


def refused(rank, world_size):
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
    mesh = init_device_mesh("cpu", (2, 2))
    cut = nn.Parameter(distribute_tensor(gaussian((4, 6, 2), 1), mesh, [Shard(0), Shard(1)]))
    errors["cuts"] = error_of(lambda: Tensorion([("kernel", cut)]))
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


def test_what_cannot_be_shared_is_refused(run):
    results = run(4, refused)
    for errors in results:
        for name in ("flat False", "flat True"):
            assert errors[name].startswith("ValueError: [tensorion.Tensorion] parameter 0 of group 0 is part of a flat")
            assert errors[name].endswith("use FSDP2, torch.distributed.fsdp.fully_shard, instead")
        assert errors["group"] == (
            "TypeError: [tensorion.Tensorion] process_group must be a ProcessGroup or None, got 'world'"
        )
        assert (
            "parameter 'kernel', shape [4, 6, 2]: expected a DTensor that is sharded over at most one" in errors["cuts"]
        )
        assert (
            "expected a gradient placed as parameter 'p4', shape [16, 8, 3, 3] ((Shard(dim=0),)" in errors["gradient"]
        )
        assert "expected a momentum_buffer placed as parameter 'p0'" in errors["state"]
        assert "got a plain tensor: torch.distributed.checkpoint.state_dict converts" in errors["state"]


# ---- Checkpoints


def checkpoint(rank, world_size, kind, folder, load, first, last):
    """Steps on from a checkpoint, then saves one."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    bag = Bag()
    if kind != "replicated":
        fully_shard(bag, mesh=mesh_of(world_size, kind))
    params = list(bag.params)
    named = list(zip([name for name, _ in bag.named_parameters()], params, strict=True))
    groups = [{"params": named[i::2], **options} for i, options in enumerate(OPTIONS["online, nesterov, sgd"])]
    # Options come from the checkpoint too.
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


def test_checkpoints_at_other_world_sizes(run, tmp_path):
    folder = tmp_path / "checkpoints"
    sequence = [("fsdp", 4), ("fsdp", 2), ("hsdp", 4), ("fsdp", 1), ("fsdp", 3), ("replicated", 2), ("fsdp", 2)]
    for k, (kind, world_size) in enumerate(sequence):
        results = run(world_size, checkpoint, kind, folder, f"{k}" if k else None, k, k + 1)
        expected, optimizer = alone("online, nesterov, sgd", last=k + 1)
        for params, keys in results:
            assert_near(params, expected)
            # On all ranks, whether or not they solved for a tensor or have a piece of it.
            assert keys == {f"params.{i}": sorted(optimizer.state[param]) for i, param in enumerate(expected)}


# ---- The examples, which are documentation too

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_data_parallel_example():
    outputs = processes.run_program(2, EXAMPLES / "ddp.py")
    assert outputs[1] == ""
    assert "solve for the 3 kernels: 1." in outputs[0]
    assert "weights are the same on all ranks" in outputs[0]
    assert float(re.search(r"test accuracy ([\d.]+)", outputs[0])[1]) > 0.9


def state_of(checkpoint, file):
    dcp_to_torch_save(checkpoint, file)
    return torch.load(file, weights_only=False)


# Dies while it saves its third checkpoint.
KILLED = """
import os, runpy, signal, sys
import torch.distributed.checkpoint as dcp
save, calls = dcp.save, 0
def killed(*arguments, **options):
    global calls
    calls += 1
    if calls == 3 and os.environ["RANK"] == "1" and os.environ["LAUNCH"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    return save(*arguments, **options)
dcp.save = killed
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_torchrun_goes_on_from_the_checkpoint_exactly(tmp_path):
    options = ["--steps", "16", "--save-every", "4"]
    output = processes.run_program(2, EXAMPLES / "fsdp2.py", "--checkpoints", tmp_path / "whole", *options)[0]
    assert float(re.search(r"test accuracy ([\d.]+)", output)[1]) > 0.9
    (tmp_path / "killed.py").write_text(KILLED)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=0"]
    command += [tmp_path / "killed.py", EXAMPLES / "fsdp2.py", "--checkpoints", tmp_path / "parts", *options]
    outputs = []
    for launch in (0, 1):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "LAUNCH": str(launch)}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as torchrun:
            try:
                outputs.append(torchrun.communicate(timeout=120))
            except subprocess.TimeoutExpired:
                torchrun.terminate()  # it ends its workers, too
                raise
        assert torchrun.returncode == 1 - launch, outputs[launch][1]
    assert "exitcode: -9" in outputs[0][1]
    assert "goes on from step 8" in outputs[1][0]
    expected = state_of(tmp_path / "whole" / "000016", tmp_path / "expected.pt")
    state = state_of(tmp_path / "parts" / "000016", tmp_path / "state.pt")
    assert state["model"].keys() == expected["model"].keys()
    for name, param in expected["model"].items():
        assert torch.equal(state["model"][name], param)
        for key, value in expected["optimizer"]["state"][name].items():
            assert torch.equal(state["optimizer"]["state"][name][key], value)
