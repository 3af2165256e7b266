"""Bad state dicts."""

import copy
import math

import pytest
import torch
from bad_input import LINEAR, check_error, check_still_works, with_nan
from torch import nn


def loaded(change):
    """Load the optimizer's own state after a change."""

    def call(world):
        state = copy.deepcopy(world.state)
        changed = change(state)
        world.optimizer.load_state_dict(state if changed is None else changed)

    return call


def entry(index, key, value):
    """Replace one tensor of the state by `value` of the old tensor."""

    def change(state):
        state["state"][index][key] = value(state["state"][index][key])

    return loaded(change)


def group_entry(key, value, group=0):
    def change(state):
        state["param_groups"][group][key] = value

    return loaded(change)


CASES = {
    "state is None": (
        lambda world: world.optimizer.load_state_dict(None),
        TypeError,
        "state_dict must be a dict, got NoneType",
    ),
    "state is a list": (loaded(lambda state: [state]), TypeError, "state_dict must be a dict, got list"),
    "state is empty": (
        loaded(lambda state: {}),
        ValueError,
        "expected a state dict with 'state' and 'param_groups', got one with []",
    ),
    "state is a model's": (
        loaded(lambda state: LINEAR.state_dict()),
        ValueError,
        "expected a state dict with 'state' and 'param_groups', got one with ['bias', 'weight']",
    ),
    "state of another optimizer": (
        loaded(lambda state: torch.optim.SGD([nn.Parameter(torch.ones(4, 6))]).state_dict()),
        ValueError,
        "expected the state of 2 param groups, got 1",
    ),
    "state of AdamW": (
        loaded(
            lambda state: torch.optim.AdamW(
                [{"params": [torch.ones(3, 4, 5)]}, {"params": [torch.ones(4, 6), torch.ones(5)]}]
            ).state_dict()
        ),
        ValueError,
        "expected the state of algorithm 'tensorion' for parameter 'kernel', shape [3, 4, 5], got 'None'",
    ),
    "'state' is text": (
        loaded(lambda state: {**state, "state": "x"}),
        ValueError,
        "expected 'state' to be a dict, got str",
    ),
    "'param_groups' is a number": (
        loaded(lambda state: {**state, "param_groups": 3}),
        ValueError,
        "expected 'param_groups' to be a list, got int",
    ),
    "a saved group is a number": (
        loaded(lambda state: {**state, "param_groups": [3, state["param_groups"][1]]}),
        ValueError,
        "expected saved group 0 to be a dict with a list 'params'",
    ),
    "a saved group's params are None": (
        group_entry("params", None),
        ValueError,
        "expected saved group 0 to be a dict with a list 'params'",
    ),
    "a saved group's params are lists": (
        group_entry("params", [[]], group=1),
        ValueError,
        "expected 'params' of saved group 1 to be numbers or names, got []",
    ),
    "a saved group has more parameters": (
        group_entry("params", [0, 1, 2]),
        ValueError,
        "expected the state of 1 parameters in group 0, got 3",
    ),
    "a parameter's state is a number": (
        loaded(lambda state: {**state, "state": {**state["state"], 0: 3}}),
        ValueError,
        "expected the state of parameter 'kernel', shape [3, 4, 5] to be a dict, got 3",
    ),
    "momentum is a list": (
        entry(0, "momentum_buffer", lambda m: m.tolist()),
        ValueError,
        "expected a momentum_buffer of shape [3, 4, 5] for parameter 'kernel', shape [3, 4, 5], got a list",
    ),
    "momentum is of integers": (
        entry(0, "momentum_buffer", lambda m: m.long()),
        ValueError,
        "real floating-point momentum_buffer for parameter 'kernel', shape [3, 4, 5], got torch.int64",
    ),
    "momentum is complex": (
        entry(0, "momentum_buffer", lambda m: m * 1j),
        ValueError,
        "'kernel', shape [3, 4, 5], got torch.complex64",
    ),
    "momentum is sparse": (
        entry(0, "momentum_buffer", lambda m: m.to_sparse()),
        ValueError,
        "got torch.float32, torch.sparse_coo",
    ),
    "momentum is on the meta device": (
        entry(0, "momentum_buffer", lambda m: m.to("meta")),
        ValueError,
        "torch.strided on meta",
    ),
    "momentum has a NaN": (
        entry(0, "momentum_buffer", with_nan),
        ValueError,
        "expected a finite momentum_buffer for parameter 'kernel', shape [3, 4, 5], got nan",
    ),
    "momentum is transposed": (entry(0, "momentum_buffer", lambda m: m.mT), ValueError, "got [3, 5, 4]"),
    "step is a number": (
        entry(1, "step", lambda step: 3),
        ValueError,
        "expected a step of shape [] for parameter 'matrix'",
    ),
    "step is negative": (
        entry(1, "step", lambda step: -step),
        ValueError,
        "expected a nonnegative step for parameter 'matrix', shape [4, 6], got -1",
    ),
    "step is NaN": (
        entry(2, "step", lambda step: step * math.nan),
        ValueError,
        "expected a finite step for parameter 'bias'",
    ),
    "exp_avg is infinite": (
        entry(2, "exp_avg", lambda x: x * math.inf),
        ValueError,
        "expected a finite exp_avg for parameter 'bias'",
    ),
    "exp_avg_sq is negative": (
        entry(1, "exp_avg_sq", lambda x: -x),
        ValueError,
        "expected a nonnegative exp_avg_sq for parameter 'matrix', shape [4, 6], got -",
    ),
    "saved lr is text": (group_entry("lr", "x"), TypeError, "lr must be a number, got 'x'"),
    "saved unfolding does not fit": (
        group_entry("unfolding", (7,)),
        ValueError,
        "unfolding (7,) does not fit parameter 'kernel', shape [3, 4, 5]",
    ),
    "saved count of skipped steps is text": (
        loaded(lambda state: {**state, "skipped_steps": "x"}),
        ValueError,
        "skipped_steps must be a nonnegative integer, got 'x'",
    ),
}


@pytest.mark.filterwarnings("ignore:.*(sparse|Sparse|nested|beta state)")
@pytest.mark.parametrize("case", CASES)
def test_bad_input_raises_and_changes_nothing(case, world):
    check_error(world, *CASES[case])


def test_optimizer_still_works_afterwards(world):
    check_still_works(world)
