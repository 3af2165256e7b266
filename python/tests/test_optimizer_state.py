"""Saving, loading and pickling of the optimizer."""

import copy
import io
import pickle

import pytest
import torch
from support import assert_same, copies, gaussian, parameters, set_gradients
from torch import nn
from torch.optim import lr_scheduler

from tensorion import Tensorion

OPTIONS = {
    "lr": 0.02,
    "momentum": 0.8,
    "unfolding": "online",
    "fallback_lr": 0.003,
    "ns_coefficients": [(3.0, -4.0, 2.0), (1.5, -0.5, 0.0)],
}


def run(optimizer, params, first, last):
    for k in range(first, last):
        set_gradients(params, k)
        optimizer.step()


def reloaded(state):
    """Save and load a state with `torch.load`, which by default reads only tensors and plain containers."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("fallback", ["adamw", "sgd"])
@pytest.mark.parametrize("unfolding", ["balanced", "online", (0, 3)])
def test_resuming_is_bit_exact(fallback, unfolding):
    options = {**OPTIONS, "fallback": fallback, "unfolding": unfolding}
    whole = parameters()
    run(Tensorion(whole, **options), whole, 0, 10)

    half = parameters()
    first = Tensorion(half, **options)
    run(first, half, 0, 5)
    saved = reloaded(first.state_dict())
    resumed = [nn.Parameter(param) for param in copies(half)]
    second = Tensorion(resumed, lr=99.0, fallback=fallback)
    second.load_state_dict(saved)
    assert second.param_groups[0]["lr"] == 0.02
    assert second.param_groups[0]["unfolding"] == unfolding
    assert second.param_groups[1]["lr"] == 0.003
    run(second, resumed, 5, 10)
    assert_same(resumed, whole)


def test_resuming_with_a_scheduler_is_bit_exact():
    def make(params):
        optimizer = Tensorion(params, **OPTIONS)
        return optimizer, lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=12)

    def go(optimizer, scheduler, params, first, last):
        for k in range(first, last):
            run(optimizer, params, k, k + 1)
            scheduler.step()

    whole = parameters()
    go(*make(whole), whole, 0, 10)
    half = parameters()
    optimizer, scheduler = make(half)
    go(optimizer, scheduler, half, 0, 5)
    states = [reloaded(optimizer.state_dict()), scheduler.state_dict()]
    resumed = [nn.Parameter(param) for param in copies(half)]
    other, other_scheduler = make(resumed)
    other_scheduler.load_state_dict(states[1])
    other.load_state_dict(states[0])
    go(other, other_scheduler, resumed, 5, 10)
    assert_same(resumed, whole)


def test_state_has_torch_format():
    params = parameters()
    optimizer = Tensorion(params)
    run(optimizer, params, 0, 2)
    state = optimizer.state_dict()
    assert sorted(state) == ["param_groups", "state"]
    assert [group["params"] for group in state["param_groups"]] == [[0], [1, 2]]
    assert {key: sorted(value) for key, value in state["state"].items()} == {
        0: ["momentum_buffer"],
        1: ["exp_avg", "exp_avg_sq", "step"],
        2: ["exp_avg", "exp_avg_sq", "step"],
    }
    assert state["state"][0]["momentum_buffer"].shape == (6, 4, 3, 3)
    # torch's AdamW continues from the fallback's part of the state.
    twins = [nn.Parameter(param) for param in copies(params[1:])]
    theirs = torch.optim.AdamW(twins, lr=1e-3, weight_decay=0.01, fused=True)
    group = {**theirs.state_dict()["param_groups"][0], "params": [1, 2]}
    theirs.load_state_dict(copy.deepcopy({"state": {i: state["state"][i] for i in (1, 2)}, "param_groups": [group]}))
    set_gradients(params, 7)
    for twin, param in zip(twins, params[1:], strict=True):
        twin.grad = param.grad
    optimizer.step()
    theirs.step()
    assert_same(params[1:], twins)


def test_state_does_not_depend_on_the_unfolding():
    params = parameters()
    optimizer = Tensorion(params, unfolding=(0,))
    run(optimizer, params, 0, 2)
    other = Tensorion(params, unfolding="balanced")
    state = copy.deepcopy(optimizer.state_dict())
    state["param_groups"][0]["unfolding"] = "balanced"
    other.load_state_dict(state)
    assert torch.equal(other.state[params[0]]["momentum_buffer"], optimizer.state[params[0]]["momentum_buffer"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_state_across_dtypes(dtype):
    params = parameters()
    optimizer = Tensorion(params)
    run(optimizer, params, 0, 3)
    others = [nn.Parameter(param.detach().to(dtype)) for param in params]
    other = Tensorion(others)
    other.load_state_dict(optimizer.state_dict())
    for param, twin in zip(params, others, strict=True):
        for key, value in optimizer.state[param].items():
            loaded = other.state[twin][key]
            assert loaded.dtype == (torch.float32 if key == "step" else dtype)
            assert torch.equal(loaded, value.to(loaded.dtype))
    run(other, others, 3, 5)
    run(optimizer, params, 3, 5)
    for param, twin in zip(params, others, strict=True):
        torch.testing.assert_close(twin.detach().float(), param.detach(), atol=0.02, rtol=0.01)


def test_state_before_the_first_step():
    params, others = parameters(), parameters()
    optimizer, other = Tensorion(params, lr=0.3), Tensorion(others)
    other.load_state_dict(reloaded(optimizer.state_dict()))
    assert other.param_groups[0]["lr"] == 0.3
    run(optimizer, params, 0, 2)
    run(other, others, 0, 2)
    assert_same(others, params)


def test_partial_state():
    # A parameter that never had a gradient has no state.
    params, others = parameters(), parameters()
    optimizer, other = Tensorion(params), Tensorion(others)
    set_gradients(params[:2], 0)
    optimizer.step()
    other.load_state_dict(optimizer.state_dict())
    assert others[2] not in other.state


def test_defaults_after_loading():
    params = parameters()
    optimizer = Tensorion(params, lr=0.3, weight_decay=0.4)
    optimizer.load_state_dict(Tensorion(parameters(), lr=0.1).state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert (optimizer.defaults["lr"], optimizer.defaults["weight_decay"]) == (0.3, 0.4)
    optimizer.add_param_group({"params": [nn.Parameter(gaussian((3, 4, 5), 1)), nn.Parameter(torch.ones(2))]})
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.1, 0.3, 0.3]
    assert optimizer.param_groups[2].keys() == optimizer.param_groups[0].keys()


def test_names_are_saved_with_the_groups():
    params = parameters()
    names = ["kernel", "matrix", "bias"]
    named = Tensorion(zip(names, params, strict=True))
    run(named, params, 0, 1)
    plain, renamed = Tensorion(parameters()), Tensorion(zip("kmb", parameters(), strict=True))
    for other in (plain, renamed):
        other.load_state_dict(reloaded(named.state_dict()))
        assert [group["param_names"] for group in other.param_groups] == [["kernel"], ["matrix", "bias"]]
    renamed = Tensorion(zip("kmb", parameters(), strict=True))
    renamed.load_state_dict(Tensorion(parameters()).state_dict())
    assert renamed.param_groups[1]["param_names"] == ["m", "b"]


def test_tensor_learning_rates_are_saved():
    optimizer, other = Tensorion(parameters(), lr=torch.tensor(0.5)), Tensorion(parameters())
    other.load_state_dict(reloaded(optimizer.state_dict()))
    assert isinstance(other.param_groups[1]["lr"], torch.Tensor)
    assert other.param_groups[1]["lr"].item() == 0.5
    other.param_groups[1]["lr"].fill_(9.0)
    assert optimizer.param_groups[1]["lr"].item() == 0.5


def test_state_dict_hooks():
    params = parameters()
    optimizer = Tensorion(params)
    run(optimizer, params, 0, 1)
    calls = []
    optimizer.register_state_dict_pre_hook(lambda o: calls.append("save"))
    optimizer.register_state_dict_post_hook(lambda o, s: {**s, "note": "saved"})
    state = optimizer.state_dict()
    assert state["note"] == "saved"

    def convert(optimizer, state):
        # The hook converts a state of another program before it is checked.
        calls.append("load")
        state = copy.deepcopy(state)
        state["state"][0]["momentum_buffer"] = state["state"][0].pop("m")
        return state

    other = Tensorion(parameters())
    other.register_load_state_dict_pre_hook(convert)
    other.register_load_state_dict_post_hook(lambda o: calls.append("loaded"))
    foreign = copy.deepcopy(state)
    foreign["state"][0]["m"] = foreign["state"][0].pop("momentum_buffer")
    other.load_state_dict(foreign)
    assert calls == ["save", "load", "loaded"]
    loaded = other.state[other.param_groups[0]["params"][0]]["momentum_buffer"]
    assert torch.equal(loaded, optimizer.state[params[0]]["momentum_buffer"])


def test_skipped_steps_are_read_after_pre_hooks():
    # Regression: they were read before the hook ran.
    params = parameters()
    optimizer = Tensorion(params, nonfinite="skip")
    run(optimizer, params, 0, 1)
    state = optimizer.state_dict()
    optimizer.register_load_state_dict_pre_hook(lambda o, s: {**s, "skipped_steps": 5})
    optimizer.load_state_dict({**state, "skipped_steps": 2})
    assert optimizer.skipped_steps == 5


def test_pickling():
    params = parameters()
    optimizer = Tensorion(params, **OPTIONS, nonfinite="skip")
    run(optimizer, params, 0, 3)
    params[0].grad.fill_(float("nan"))
    optimizer.step()
    other = pickle.loads(pickle.dumps(optimizer))
    others = [param for group in other.param_groups for param in group["params"]]
    assert other.skipped_steps == 1
    run(optimizer, params, 3, 6)
    run(other, others, 3, 6)
    assert_same(others, params)
    other.add_param_group({"params": [nn.Parameter(torch.ones(3))]})
    assert other.param_groups[-1]["lr"] == 0.003


def test_skipped_steps_are_part_of_the_state():
    params = parameters()
    optimizer = Tensorion(params, **OPTIONS, nonfinite="skip")
    run(optimizer, params, 0, 1)
    for _ in range(2):
        params[0].grad.fill_(float("nan"))
        optimizer.step()
    state = optimizer.state_dict()
    assert state["skipped_steps"] == 2
    others = parameters()
    other = Tensorion(others, **OPTIONS, nonfinite="skip")
    other.load_state_dict(state)
    others[0].grad = torch.full_like(others[0], float("inf"))
    other.step()
    assert other.skipped_steps == 3
    assert "skipped_steps" not in Tensorion(parameters()).state_dict()
    with pytest.raises(ValueError, match="skipped_steps must be a nonnegative integer, got -1"):
        other.load_state_dict(state | {"skipped_steps": -1})
    assert other.skipped_steps == 3


def stepped(params, **options):
    optimizer = Tensorion(params, **options)
    run(optimizer, [param for group in optimizer.param_groups for param in group["params"]], 0, 1)
    return optimizer.state_dict()


def without(state, index, key):
    state = copy.deepcopy(state)
    del state["state"][index][key]
    return state


def with_option(state, key, value):
    state = copy.deepcopy(state)
    state["param_groups"][0][key] = value
    return state


def without_option(state, group, key):
    state = copy.deepcopy(state)
    del state["param_groups"][group][key]
    return state


OTHER_SHAPE = [nn.Parameter(gaussian((6, 4, 2, 2), 1)), *parameters()[1:]]
BAD_STATES = {
    "shape": (
        lambda: stepped(OTHER_SHAPE),
        "expected a momentum_buffer of shape [6, 4, 3, 3] for parameter 'kernel', shape [6, 4, 3, 3], got [6, 4, 2, 2]",
    ),
    "fewer parameters": (
        lambda: stepped(parameters()[:2]),
        "expected the state of 2 parameters in group 1, got 1; there is none for parameter 'bias', shape [8]",
    ),
    "more parameters": (
        lambda: stepped([*parameters(), nn.Parameter(torch.ones(3))]),
        "expected the state of 2 parameters in group 1, got 3",
    ),
    "fewer groups": (lambda: stepped(parameters()[:1]), "expected the state of 2 param groups, got 1"),
    "algorithm": (
        lambda: stepped(parameters(), fallback="sgd"),
        "expected the state of algorithm 'adamw' for parameter 'matrix', shape [5, 7], got 'sgd'",
    ),
    "another optimizer's": (
        lambda: torch.optim.SGD([{"params": parameters()[:1]}, {"params": parameters()[1:]}]).state_dict(),
        "expected the state of algorithm 'tensorion' for parameter 'kernel', shape [6, 4, 3, 3], got 'None'",
    ),
    "missing tensor": (
        lambda: without(stepped(parameters()), 2, "exp_avg_sq"),
        "expected a exp_avg_sq of shape [8] for parameter 'bias', shape [8], got a NoneType",
    ),
    "bad option": (
        lambda: with_option(stepped(parameters()), "lr", float("nan")),
        "lr must be finite, got nan",
    ),
    # Regression: such states were accepted, and `describe` or a scheduler failed later.
    "no lr": (
        lambda: without_option(stepped(parameters()), 1, "lr"),
        "expected 'lr' in saved group 1, of algorithm 'adamw', got only ['algorithm', 'betas', 'eps',",
    ),
    "no unfolding": (
        lambda: without_option(stepped(parameters()), 0, "unfolding"),
        "expected 'unfolding' in saved group 0, of algorithm 'tensorion', got only ['adjust_lr_fn', 'algorithm', ",
    ),
    "not a state": (
        lambda: {"model": 1},
        "expected a state dict with 'state' and 'param_groups', got one with",
    ),
}


@pytest.mark.parametrize("case", BAD_STATES)
def test_bad_state_raises_and_changes_nothing(case):
    make, message = BAD_STATES[case]
    params = parameters()
    optimizer = Tensorion(zip(["kernel", "matrix", "bias"], params, strict=True), lr=0.5)
    run(optimizer, params, 0, 1)
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(ValueError) as caught:
        optimizer.load_state_dict(make())
    assert message in str(caught.value)
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    for index, state in before["state"].items():
        for key, value in state.items():
            assert torch.equal(after["state"][index][key], value)
    # The pre-hook with the check has been removed.
    optimizer.load_state_dict(before)
    run(optimizer, params, 1, 2)
