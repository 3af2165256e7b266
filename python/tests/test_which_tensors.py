"""The parameters that Tensorion updates: by shape, in real models, and in states of early versions."""

import pytest
import torch
from parameter_lists import is_convolution, model_of, recorded
from support import assert_same, copies, gaussian, set_gradients
from torch import nn

import tensorion
from tensorion import Tensorion

MODELS = recorded()


def algorithms(optimizer):
    """Return the algorithm of each parameter by name."""
    return {name: group["algorithm"] for group in optimizer.param_groups for name in group["param_names"]}


def reasons(optimizer):
    """Return the column `why` of `describe` by name."""
    header, *lines, _ = tensorion.describe(optimizer).splitlines()  # The last line is a summary.
    start, end = header.index("why"), header.index("unfolding")
    return {line.split()[1]: line[start:end].strip() for line in lines}


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((512, 256, 3, 3), ""),
        ((512, 256, 1, 1), ""),  # a kernel of size 1
        ((512, 256, 1), ""),
        ((8, 512, 2048), ""),  # a stack of experts
        ((96, 1, 7, 7), ""),
        ((64, 1, 5), ""),
        ((1, 16, 3, 3), "order < 4"),
        ((1, 197, 384), "order < 3"),  # a positional embedding
        ((1, 1, 384), "order < 3"),  # a class token
        ((64, 1, 1), "one mode > 1"),  # a layer scale
        ((1, 64, 1, 1), "one mode > 1"),
        ((1000, 512), "order < 3"),
        ((512,), "order < 3"),
        ((), "order < 3"),
        ((1, 1, 1), "order < 3"),
    ],
)
def test_rule_by_shape(shape, reason):
    min_order = 4 if reason == "order < 4" else 3
    optimizer = Tensorion([("w", nn.Parameter(torch.zeros(shape)))], min_order=min_order)
    assert algorithms(optimizer) == {"w": "adamw" if reason else "tensorion"}
    assert reasons(optimizer) == {"w": reason or f"order >= {min_order}"}


def test_tensorion_updates_vectors_only_if_the_group_names_it():
    shapes = [(64,), (64, 1, 1), (5, 7)]
    params = [nn.Parameter(gaussian(shape, 1)) for shape in shapes]
    assert [len(group["params"]) for group in Tensorion(params, min_order=1).param_groups] == [1, 2]
    (group,) = Tensorion([{"params": params, "algorithm": "tensorion"}]).param_groups
    assert len(group["params"]) == 3


@pytest.mark.parametrize("model", MODELS)
def test_tensorion_updates_convolution_kernels_of_real_models(model):
    rows = MODELS[model]
    kernels = {name for name, shape, kind, _ in rows if is_convolution(kind) and len(shape) > 1}
    network = model_of(rows)
    assert [(name, tuple(param.shape)) for name, param in network.named_parameters()] == [row[:2] for row in rows]
    where = algorithms(Tensorion(network.named_parameters()))
    assert {name for name, algorithm in where.items() if algorithm == "tensorion"} == kernels


@pytest.mark.parametrize("model", MODELS)
def test_param_groups_sends_depthwise_kernels_of_real_models_to_the_fallback(model):
    rows = MODELS[model]
    depthwise = {
        name for name, shape, kind, groups in rows if is_convolution(kind) and len(shape) > 1 and 1 < groups == shape[0]
    }
    assert bool(depthwise) == ("convnext" in model or "mobilenet" in model)
    optimizer = Tensorion(tensorion.param_groups(model_of(rows)))
    why = reasons(optimizer)
    assert {name for name, reason in why.items() if reason == "depthwise"} == depthwise
    kernels = {name for name, shape, kind, _ in rows if is_convolution(kind) and len(shape) > 1}
    assert {
        name for name, algorithm in algorithms(optimizer).items() if algorithm == "tensorion"
    } == kernels - depthwise


def test_half_of_resnet50_is_kernels_of_size_1():
    rows = MODELS["torchvision.resnet50"]
    kernels = [shape for _, shape, kind, _ in rows if is_convolution(kind)]
    ones = [shape for shape in kernels if shape[2:] == (1, 1)]
    total = [sum(torch.Size(shape).numel() for shape in shapes) for shapes in (ones, kernels)]
    assert len(ones) == 36
    assert total[0] / total[1] == pytest.approx(0.52, abs=0.01)
    before = Tensorion(tensorion.param_groups(model_of(rows), pointwise=False))
    assert sum(algorithm == "tensorion" for algorithm in algorithms(before).values()) == 17
    assert set(reasons(before).values()) == {"order >= 3", "order < 3", "pointwise"}


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3, stride=2))
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.attention = nn.MultiheadAttention(16, 4)
        self.last = nn.Conv2d(8, 1, 1)


class Waves(nn.Module):
    """A 1-D network."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(1, 16, 9)
        self.mix = nn.Conv1d(16, 32, 1)
        self.recurrent = nn.GRU(32, 32)
        self.head = nn.Linear(32, 10)


class Experts(nn.Module):
    """A mixture of experts."""

    def __init__(self):
        super().__init__()
        self.position = nn.Parameter(torch.zeros(1, 50, 16))
        self.router = nn.Linear(16, 4)
        self.up = nn.Parameter(torch.zeros(4, 64, 16))
        self.up_bias = nn.Parameter(torch.zeros(4, 64))
        self.down = nn.Parameter(torch.zeros(4, 16, 64))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        # The last kernel is 1 x 8 x 1 x 1: one mode is larger than 1.
        (UNet, {"down.0.weight", "down.2.weight", "up.weight"}),
        (Waves, {"stem.weight", "mix.weight"}),
        (Experts, {"up", "down"}),
    ],
)
def test_other_models(make, expected):
    where = algorithms(Tensorion(make().named_parameters()))
    assert {name for name, algorithm in where.items() if algorithm == "tensorion"} == expected


# ---- States of early versions, in which the fallback updated kernels of size 1


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.Conv2d(6, 8, 1, bias=False), nn.Conv2d(8, 8, 3, groups=8), nn.Flatten(), nn.Linear(8, 4)
    )


def old_optimizer(model):
    """Create an optimizer with the split of early versions, in which no mode of size 1 counted in the order."""
    named = list(model.named_parameters())
    orders = [sum(size != 1 for size in param.shape) for _, param in named]
    high, low = (
        [pair for pair, order in zip(named, orders, strict=True) if (order >= 3) == is_high] for is_high in (1, 0)
    )
    return Tensorion([{"params": high, "algorithm": "tensorion"}, {"params": low, "algorithm": "adamw"}], lr=0.02)


def train(optimizer, model, steps):
    for k in range(*steps):
        set_gradients(list(model.parameters()), k)
        optimizer.step()


@pytest.mark.parametrize("named", [False, True])
def test_state_of_old_split_raises_with_advice(named):
    model = net()
    old = old_optimizer(model)
    train(old, model, (0, 2))
    new = Tensorion(model.named_parameters() if named else model.parameters())
    before = new.state_dict()
    with pytest.raises(ValueError, match=r"tensorion\.param_groups\(model, pointwise=False\)") as caught:
        new.load_state_dict(old.state_dict())
    label = "parameter '1.weight'" if named else "parameter 1 of group 0"
    assert str(caught.value).endswith(f"These are the parameters: {label}, shape [8, 6, 1, 1]")
    assert new.state_dict() == before


def test_pointwise_false_restores_old_split():
    model, whole = net(), net()
    old, uninterrupted = old_optimizer(model), old_optimizer(whole)
    train(uninterrupted, whole, (0, 4))
    train(old, model, (0, 2))
    restored = Tensorion(tensorion.param_groups(model, pointwise=False, depthwise=True))
    restored.load_state_dict(old.state_dict())
    train(restored, model, (2, 4))
    assert_same(copies(model.parameters()), copies(whole.parameters()))


def test_state_of_old_split_loads_if_no_algorithm_changed():
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.Flatten(), nn.Linear(6, 4))
    old = old_optimizer(model)
    train(old, model, (0, 2))
    new = Tensorion(model.parameters())
    new.load_state_dict(old.state_dict())
    assert new.param_groups[0]["lr"] == 0.02
