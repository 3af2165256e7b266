"""Param groups: how they are split, and which options they have."""

import pytest
import torch
from support import AlgorithmOne, assert_same, gaussian, parameters, set_gradients
from torch import nn

from tensorion import Tensorion


def test_constructor_splits_by_order():
    params = [*parameters(), nn.Parameter(gaussian((1, 6, 4), 9))]
    optimizer = Tensorion(params, lr=0.1, fallback_lr=0.01, fallback_weight_decay=0.5)
    high, low = optimizer.param_groups
    assert (high["algorithm"], low["algorithm"]) == ("tensorion", "adamw")
    assert high["params"] == params[:1]
    assert low["params"] == params[1:]
    assert (high["lr"], high["weight_decay"], high["momentum"]) == (0.1, 0.01, 0.95)
    assert (low["lr"], low["weight_decay"], low["betas"], low["eps"]) == (0.01, 0.5, (0.9, 0.999), 1e-8)
    assert [len(g["params"]) for g in Tensorion(params, min_order=2).param_groups] == [3, 1]
    sgd = Tensorion(params, fallback="sgd", fallback_momentum=0.7).param_groups[1]
    assert (sgd["algorithm"], sgd["momentum"], sgd["lr"]) == ("sgd", 0.7, 1e-3)
    # A group does not have options that its algorithm does not read.
    assert "momentum" not in low
    assert "unfolding" not in low
    assert "betas" not in high
    assert "fallback_lr" not in high


@pytest.mark.parametrize("form", ["tensors", "generator", "names", "dicts", "dicts of names", "one tensor"])
def test_forms_of_parameters(form):
    params = parameters()
    names = ["kernel", "matrix", "bias"]
    given = {
        "tensors": params,
        "generator": (param for param in params),
        "names": zip(names, params, strict=True),
        "dicts": [{"params": params}],
        "dicts of names": [{"params": zip(names, params, strict=True)}],
        "one tensor": [{"params": param} for param in params],
    }[form]
    optimizer = Tensorion(given)
    held = [param for group in optimizer.param_groups for param in group["params"]]
    assert {id(param) for param in held} == {id(param) for param in params}
    if "names" in form:
        assert [group["param_names"] for group in optimizer.param_groups] == [["kernel"], ["matrix", "bias"]]
    set_gradients(params, 1)
    optimizer.step()
    expected = parameters()
    set_gradients(expected, 1)
    Tensorion(expected).step()
    assert_same(params, expected)


def test_groups_override_options_and_inherit_the_rest():
    params = parameters()
    given = {"params": params[:1], "lr": 0.5, "unfolding": (0,), "name": "kernels"}
    optimizer = Tensorion([given, {"params": params[1:], "weight_decay": 0.3}], lr=0.1, momentum=0.7, weight_decay=0.2)
    first, second = optimizer.param_groups
    assert (first["lr"], first["momentum"], first["weight_decay"]) == (0.5, 0.7, 0.2)
    assert (first["unfolding"], first["name"]) == ((0,), "kernels")
    assert (second["algorithm"], second["lr"], second["weight_decay"]) == ("adamw", 0.1, 0.3)
    assert given == {"params": params[:1], "lr": 0.5, "unfolding": (0,), "name": "kernels"}


def test_group_with_algorithm_is_not_split():
    kernel, matrix, bias = parameters()
    optimizer = Tensorion(
        [
            {"params": [kernel], "algorithm": "adamw", "betas": (0.5, 0.6), "eps": 1e-3},
            {"params": [matrix], "algorithm": "tensorion"},
            {"params": [bias], "algorithm": "sgd", "momentum": 0.3, "lr": 7.0},
        ],
        lr=0.1,
        fallback_lr=0.02,
    )
    adamw, tensorion, sgd = optimizer.param_groups
    assert [g["algorithm"] for g in optimizer.param_groups] == ["adamw", "tensorion", "sgd"]
    # In groups of the fallback, the names without prefix are options of the fallback.
    assert (adamw["lr"], adamw["betas"], adamw["eps"]) == (0.02, (0.5, 0.6), 1e-3)
    assert (tensorion["lr"], tensorion["momentum"]) == (0.1, 0.95)
    assert (sgd["lr"], sgd["momentum"]) == (7.0, 0.3)


def test_options_of_groups_take_effect():
    options = {"momentum": 0.8, "weight_decay": 0.4}
    params = [nn.Parameter(gaussian((3, 4, 5), i, torch.float64)) for i in range(2)]
    optimizer = Tensorion(
        [{"params": params[:1], "lr": 0.3, "unfolding": (1,)}, {"params": params[1:], "nesterov": True}],
        lr=0.1,
        polar="svd",
        **options,
    )
    references = [
        AlgorithmOne(params[0], lr=0.3, unfolding=(1,), **options),
        AlgorithmOne(params[1], lr=0.1, unfolding="balanced", nesterov=True, **options),
    ]
    for k in range(5):
        for i in range(2):
            params[i].grad = gaussian((3, 4, 5), 10 * k + i, torch.float64)
            references[i].step(params[i].grad)
        optimizer.step()
    for param, reference in zip(params, references, strict=True):
        torch.testing.assert_close(param.detach(), torch.from_numpy(reference.w), atol=1e-10, rtol=0)


def test_add_param_group():
    kernel, matrix, bias = parameters()
    optimizer = Tensorion([kernel], lr=0.1, fallback_lr=0.3)
    set_gradients([kernel], 1)
    optimizer.step()
    optimizer.add_param_group({"params": [matrix, nn.Parameter(gaussian((2, 3, 4), 8)), bias], "momentum": 0.5})
    assert [g["algorithm"] for g in optimizer.param_groups] == ["tensorion", "tensorion", "adamw"]
    assert [g["lr"] for g in optimizer.param_groups] == [0.1, 0.1, 0.3]
    assert optimizer.param_groups[1]["momentum"] == 0.5
    alone = parameters()[1]
    set_gradients([matrix], 2)
    set_gradients([alone], 2)
    kernel.grad = None
    optimizer.step()
    Tensorion([alone], lr=0.3).step()
    assert_same([matrix], [alone])


def test_group_with_use_fallback():
    # Regression: the key that timm sets for its fallback_list was ignored.
    params = parameters()
    optimizer = Tensorion([{"params": params[:1], "use_fallback": True}, {"params": params[1:]}], min_order=2, lr=0.1)
    assert [(group["algorithm"], group["why"]) for group in optimizer.param_groups] == [
        ("adamw", "use_fallback"),
        ("tensorion", "order >= 2"),
        ("adamw", "order < 2"),
    ]
    named = Tensorion([{"params": params[:1], "use_fallback": True, "algorithm": "tensorion"}])
    assert named.param_groups[0]["algorithm"] == "tensorion"
    with pytest.raises(ValueError, match=r"needs a fallback \(use_fallback\), got none"):
        Tensorion([{"params": params[:1], "use_fallback": True}], fallback=None)


def test_group_without_parameters_is_ignored():
    # The Trainer of Transformers creates a group of all biases and norms, which may be empty.
    params, twins = parameters(), parameters()
    optimizer = Tensorion([{"params": []}, {"params": params}, {"params": [], "weight_decay": 0.0}])
    optimizer.add_param_group({"params": []})
    reference = Tensorion(twins)
    assert [group["algorithm"] for group in optimizer.param_groups] == ["tensorion", "adamw"]
    set_gradients(params, 1)
    set_gradients(twins, 1)
    optimizer.step()
    reference.step()
    assert_same(params, twins)
    optimizer.load_state_dict(reference.state_dict())
