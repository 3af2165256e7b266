import pytest
import torch
from support import assert_error, assert_same, conv_net, copies, images
from torch import nn

import tensorion
from tensorion import Tensorion


class Net(nn.Module):
    """A model with one parameter for each rule."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.stem = nn.Conv2d(3, 8, 3)
        self.depthwise = nn.Conv2d(8, 16, 3, groups=8)
        self.grouped = nn.Conv2d(16, 16, 3, groups=4)
        self.pointwise = nn.Conv2d(16, 8, 1)
        self.gray = nn.Conv2d(1, 4, 5)
        self.norm = nn.BatchNorm2d(8)
        self.experts = nn.Parameter(torch.randn(4, 6, 5))
        self.blocks = nn.ModuleList(nn.Linear(6, 6, bias=False) for _ in range(2))
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight


def placed(groups):
    """Return (algorithm, why) of each parameter by name."""
    return {name: (group["algorithm"], group["why"]) for group in groups for name, _ in group["params"]}


HIGH, LOW = ("tensorion", "order >= 3"), ("adamw", "order < 3")


def test_rules_of_param_groups():
    model = Net()
    groups = tensorion.param_groups(model)
    assert placed(groups) == {
        "stem.weight": HIGH,
        "grouped.weight": HIGH,
        "gray.weight": HIGH,
        "experts": HIGH,
        "depthwise.weight": ("adamw", "depthwise"),
        "depthwise.bias": LOW,
        "embed.weight": LOW,
        "stem.bias": LOW,
        "grouped.bias": LOW,
        "pointwise.weight": HIGH,
        "pointwise.bias": LOW,
        "gray.bias": LOW,
        "norm.weight": LOW,
        "norm.bias": LOW,
        "blocks.0.weight": LOW,
        "blocks.1.weight": LOW,
    }
    assert groups[0]["algorithm"] == "tensorion"
    held = [param for group in groups for _, param in group["params"]]
    assert {id(p) for p in held} == {id(p) for p in model.parameters()}
    assert len(held) == len(list(model.parameters()))


def test_depthwise_kernels_on_request():
    assert placed(tensorion.param_groups(Net(), depthwise=True))["depthwise.weight"] == HIGH


def test_matrices_on_request():
    where = placed(tensorion.param_groups(Net(), min_order=2, fallback="sgd", to_fallback=["head", "pointwise.*"]))
    muon, rest = ("tensorion", "order >= 2"), ("sgd", "order < 2")
    assert where["blocks.1.weight"] == muon
    assert where["stem.weight"] == muon
    assert where["norm.weight"] == rest
    # A tied parameter matches by any of its names.
    assert where["embed.weight"] == ("sgd", "'head'")
    assert where["pointwise.weight"] == ("sgd", "'pointwise.*'")
    assert where["pointwise.bias"] == ("sgd", "'pointwise.*'")


@pytest.mark.parametrize(
    ("rule", "names"),
    [
        ("embed", ["embed.weight"]),
        ("*.0*", ["blocks.0.weight"]),
        ("blocks", ["blocks.0.weight", "blocks.1.weight"]),
        ("experts", ["experts"]),
        (nn.Embedding, ["embed.weight"]),
        (nn.BatchNorm2d, ["norm.bias", "norm.weight"]),
        (lambda name, param: param.shape[:2] == (4, 6), ["experts"]),
    ],
)
def test_to_fallback_with_names_types_and_functions(rule, names):
    for rules in ([rule], rule) if not callable(rule) or isinstance(rule, type) else ([rule],):
        where = placed(tensorion.param_groups(Net(), to_fallback=rules))
        assert sorted(name for name, (_, why) in where.items() if "order" not in why and why != "depthwise") == names


def test_decay_vectors():
    groups = tensorion.param_groups(Net(), decay_vectors=False)
    for group in groups:
        vectors = [sum(size != 1 for size in param.shape) < 2 for _, param in group["params"]]
        assert all(vectors) or not any(vectors)
        assert group.get("weight_decay") == (0.0 if vectors[0] else None)
    optimizer = Tensorion(groups, weight_decay=0.3, fallback_weight_decay=0.2)
    decays = {name: group["weight_decay"] for group in optimizer.param_groups for name in group["param_names"]}
    assert (decays["norm.weight"], decays["blocks.0.weight"], decays["stem.weight"]) == (0.0, 0.2, 0.3)


def test_groups_train_like_the_constructor_split():
    x, y = images()
    runs = []
    for make in (tensorion.param_groups, lambda model: model.parameters()):
        model = conv_net()
        optimizer = Tensorion(make(model), lr=0.02, fallback_lr=0.003)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        runs.append(copies(model.parameters()))
    assert_same(*runs)


def test_frozen_parameters_are_included():
    model = conv_net()
    model[0].requires_grad_(False)
    assert "0.weight" in placed(tensorion.param_groups(model))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tensorion.param_groups([torch.ones(3)]), TypeError, "model must be a Module, got list"),
        (lambda: tensorion.param_groups(Net(), fallback=None), ValueError, "'adamw' or 'sgd', got None"),
        (
            lambda: tensorion.param_groups(Net(), to_fallback=["haed"]),
            ValueError,
            "'haed' in to_fallback matches no parameter of the model, which has names such as experts, embed.",
        ),
        (
            lambda: tensorion.param_groups(Net(), to_fallback=[nn.LSTM]),
            ValueError,
            "LSTM in to_fallback matches no",
        ),
        (
            lambda: tensorion.describe(torch.optim.SGD([torch.ones(3)])),
            TypeError,
            "expected a Tensorion, got SGD",
        ),
    ],
)
def test_bad_input_raises(call, error, message):
    assert_error(call, error, message)


def test_describe():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.Flatten(), nn.Linear(128, 10))
    optimizer = Tensorion(tensorion.param_groups(model, to_fallback=["3"]), fallback_lr=0.25)
    assert tensorion.describe(optimizer).splitlines()[:-1] == [
        "group  parameter  shape    algorithm  why         unfolding  matrix  scale   lr",
        "0      0.weight   8x3x3x3  tensorion  order >= 3  (0, 1)     24x9    0.9798  0.001",
        "1      0.bias     8        adamw      order < 3                              0.25",
        "1      1.bias     8        adamw      order < 3                              0.25",
        "2      1.weight   8x1x3x3  adamw      depthwise                              0.25",
        "3      3.weight   10x128   adamw      '3'                                    0.25",
        "3      3.bias     10       adamw      '3'                                    0.25",
    ]


def test_describe_without_names():
    params = [nn.Parameter(torch.zeros(shape)) for shape in [(64, 32, 3, 3), (5,), ()]]
    flat = Tensorion([{"params": params[:1], "algorithm": "tensorion"}, {"params": params[1:]}], unfolding=(0,))
    assert [line.split() for line in tensorion.describe(flat).splitlines()[1:-1]] == [
        ["0", "0", "64x32x3x3", "tensorion", "its", "group", "(0,)", "64x288", "3.394", "0.001"],
        ["1", "0", "5", "adamw", "order", "<", "3", "0.001"],
        ["1", "1", "scalar", "adamw", "order", "<", "3", "0.001"],
    ]
    online = tensorion.describe(Tensorion(params, unfolding="online", lr=torch.tensor(0.5)))
    assert online.splitlines()[1].split() == [
        "0",
        "0",
        "64x32x3x3",
        "tensorion",
        "order",
        ">=",
        "3",
        "online",
        "0.5",
    ]
