"""Cases for the distributed tests: replicated and sharded tensors, and one process as the reference."""

import torch
from support import gaussian, images, set_gradients
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

from tensorion import Tensorion, _distributed_step

# Sharded along the first mode over 4 ranks, these have shards of unequal sizes, some of them empty.
SHAPES = [(6, 4, 3, 3), (5, 7), (9,), (5, 3, 2), (16, 8, 3, 3), (7, 5, 3), (2, 3, 4), (1, 6, 5, 2)]

NAMES = [f"p{i}" for i in range(len(SHAPES))]

#: The options of two param groups. The first group has every other tensor.
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

#: The tensors that Tensorion updates.
ORDER_3 = [0, 3, 4, 5, 6, 7]

TENSORION = {"plain": ORDER_3, "online, nesterov, sgd": ORDER_3, "matrices, svd": [0, 1, 3, 4, 5, 6, 7]}


def tensors(dtype=torch.float32):
    return [nn.Parameter(gaussian(shape, i, dtype)) for i, shape in enumerate(SHAPES)]


def optimizer_of(params, name, **others):
    named = list(zip(NAMES, params, strict=True))
    groups = [{"params": named[i::2], **options} for i, options in enumerate(OPTIONS[name])]
    return Tensorion(groups, lr=0.02, weight_decay=0.1, **others)


def train(optimizer, params, first=0, last=4):
    """Make steps with gradients that depend only on the number of the step."""
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
    """Records the shapes of the tensors that this rank orthogonalizes."""

    def __enter__(self):
        self.shapes, self._solve = [], _distributed_step._solve

        def solved(tasks, targets, results):
            self.shapes += [tuple(target.shape) for target in targets]
            self._solve(tasks, targets, results)

        _distributed_step._solve = solved
        return self

    def __exit__(self, *_):
        _distributed_step._solve = self._solve


def assert_all_solved_once(solved, name):
    # A single process does not use the distributed step.
    expected = [SHAPES[i] for i in TENSORION[name]] if len(solved) > 1 else []
    assert sorted(shape for shapes in solved for shape in shapes) == sorted(expected)


def train_network(model, rank=0, world_size=1, *, process_group=None, clip=None, scale=1.0):
    """Make five steps on the rank's part of the images. By default, one process has all of them."""
    optimizer = Tensorion(model.parameters(), lr=0.02, process_group=process_group)
    x, y = images()
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[rank::world_size]), y[rank::world_size])
        (scale * loss).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return model.parameters()


def mesh_of(world_size, kind):
    if kind == "hsdp":
        return init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh("cpu", (world_size,))


class Bag(nn.Module):
    """A module that holds the tensors as parameters."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.params = nn.ParameterList(tensors(dtype))


def sharded(kind, world_size):
    bag = Bag()
    # Some tensors are sharded along their last mode.
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


def raised_by(call):
    try:
        call()
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def raised(optimizer):
    return raised_by(optimizer.step)
