"""Bad options and parameters of the optimizer."""

import math

import pytest
import torch
from bad_input import BIG, LINEAR, check_error, check_still_works
from torch import nn

from tensorion import Tensorion


def make(**options):
    """Create an optimizer with these options."""
    return lambda world: Tensorion(world.params, **options)


def given(params):
    """Create an optimizer of these parameters."""
    return lambda world: Tensorion(params(world))


CASES = {
    # ---- Options
    "lr is a bool": (make(lr=True), TypeError, "lr must be a number, got True"),
    "lr is complex": (make(lr=1j), TypeError, "lr must be a number, got 1j"),
    "lr has 400 digits": (make(lr=10**400), ValueError, "lr must be finite, got 1000"),
    "lr is a complex tensor": (make(lr=torch.tensor(1j)), TypeError, "lr must be a real number, got tensor(0.+1.j)"),
    "lr is a bool tensor": (make(lr=torch.tensor(True)), TypeError, "lr must be a real number, got tensor(True)"),
    "lr is a tensor without a value": (
        make(lr=torch.empty((), device="meta")),
        TypeError,
        "lr must be a number or a tensor with a value, got tensor(..., device='meta'",
    ),
    "lr is a NaN tensor": (make(lr=torch.tensor(math.nan)), ValueError, "lr must be finite and not negative, got nan"),
    "momentum is NaN": (make(momentum=math.nan), ValueError, "momentum must be in [0, 1), got nan"),
    "momentum is a tensor": (make(momentum=torch.tensor(0.9)), TypeError, "momentum must be a number, got tensor(0.9"),
    "weight_decay is infinite": (
        make(weight_decay=math.inf),
        ValueError,
        "weight_decay must be finite and not negative, got inf",
    ),
    "weight_decay is None": (make(weight_decay=None), TypeError, "weight_decay must be a number, got None"),
    "unfolding names no mode": (
        make(unfolding=()),
        ValueError,
        "unfolding () does not fit parameter 0 of group 0, shape [3, 4, 5]",
    ),
    "unfolding names a mode twice": (make(unfolding=(0, 0)), ValueError, "modes must be distinct, got [0, 0]"),
    "unfolding is negative": (make(unfolding=(-1,)), ValueError, "expected modes such as '(0, 2)', got '(-1,)'"),
    "unfolding is half a tuple": (make(unfolding="(0, 2"), ValueError, "expected modes such as '(0, 2)', got '(0, 2'"),
    "unfolding is a bracket": (make(unfolding="("), ValueError, "expected modes such as '(0, 2)', got '('"),
    "unfolding has no comma": (make(unfolding="(0 2)"), ValueError, "expected modes such as '(0, 2)', got '(0 2)'"),
    "unfolding has 70 bits": (make(unfolding=(BIG,)), ValueError, f"expected modes such as '(0, 2)', got '({BIG},)'"),
    # Regression: a regular expression matched the modes and recursed once per mode.
    "unfolding has a million modes": (
        make(unfolding=(0,) * 1_000_000),
        ValueError,
        "modes must be distinct, got [0, 0",
    ),
    "unfolding is None": (make(unfolding=None), TypeError, "or a sequence of modes, got None"),
    "unfolding is bytes": (make(unfolding=b"online"), TypeError, "or a sequence of modes, got b'online'"),
    "unfolding is of bools": (make(unfolding=(True,)), TypeError, "or a sequence of modes, got (True,)"),
    "ns_steps has 70 bits": (make(ns_steps=BIG), ValueError, f"ns_steps must have at most 63 bits, got {BIG}"),
    "ns_steps is a billion": (make(ns_steps=10**9), ValueError, "ns_steps must be at most 1000, got 1000000000"),
    "ns_steps is a fraction": (make(ns_steps=1.5), TypeError, "ns_steps must be an integer, got 1.5"),
    "ns_steps is a bool": (make(ns_steps=True), TypeError, "ns_steps must be an integer, got True"),
    "ns_coefficients is empty": (
        make(ns_coefficients=[]),
        ValueError,
        "must hold at least one row (a, b, c), got none",
    ),
    "ns_coefficients has a NaN": (make(ns_coefficients=(1.0, math.nan, 0.0)), ValueError, "must be finite, got nan"),
    "ns_coefficients has an empty row": (make(ns_coefficients=[[]]), ValueError, "3 numbers in each row, got 0 in ()"),
    "ns_coefficients is a number": (make(ns_coefficients=3), TypeError, "a sequence of such rows, got 3"),
    "ns_coefficients is a tensor": (
        make(ns_coefficients=torch.ones(3)),
        TypeError,
        "such rows, got tensor([1., 1., 1.])",
    ),
    "min_order is negative": (make(min_order=-1), ValueError, "min_order must be at least 1, got -1"),
    "min_order has 70 bits": (make(min_order=BIG), ValueError, f"min_order must have at most 63 bits, got {BIG}"),
    "fallback is a number": (make(fallback=3), TypeError, "fallback must be a string, got 3"),
    "three betas": (
        make(fallback_betas=(0.9, 0.9, 0.9)),
        TypeError,
        "fallback_betas must be two numbers, got (0.9, 0.9, 0.9)",
    ),
    "beta is NaN": (make(fallback_betas=(math.nan, 0.9)), ValueError, "fallback_betas must be in [0, 1), got nan"),
    "eps is NaN": (make(fallback_eps=math.nan), ValueError, "fallback_eps must be finite and not negative, got nan"),
    "process_group is a number": (
        make(process_group=3),
        TypeError,
        "process_group must be a ProcessGroup or None, got 3",
    ),
    # ---- Parameters
    "params is None": (
        given(lambda world: None),
        TypeError,
        "params must be an iterable of Tensors or dicts, got NoneType",
    ),
    "params is a number": (
        given(lambda world: 3),
        TypeError,
        "params must be an iterable of Tensors or dicts, got int",
    ),
    "params is a module": (
        given(lambda world: LINEAR),
        TypeError,
        "params must be an iterable of Tensors or dicts, got a Module; pass model.parameters()",
    ),
    "params is a path": (
        given(lambda world: "weights.pt"),
        TypeError,
        "expected Tensors, got str as parameter 0 of group 0",
    ),
    "params is a state dict": (
        given(lambda world: LINEAR.state_dict()),
        TypeError,
        "expected Tensors, got str as parameter 0 of group 0",
    ),
    "params of a group is a number": (
        given(lambda world: [{"params": 3}]),
        TypeError,
        "expected Tensors in group 0, got int",
    ),
    "a triple": (
        given(lambda world: [("a", world.params[0], 3)]),
        TypeError,
        "expected (name, Tensor) pairs in group 0, got a tuple of (str, Parameter, int)",
    ),
    "a name that is a number": (
        given(lambda world: [(1, world.params[0])]),
        TypeError,
        "got a tuple of (int, Parameter)",
    ),
    "a name of nothing": (
        given(lambda world: [("a", None)]),
        TypeError,
        "expected Tensors, got NoneType as parameter 0",
    ),
    "parameter of int8": (
        given(lambda world: [world.x.to(torch.int8)]),
        TypeError,
        "got Char for parameter 0 of group 0, shape [3, 4, 5]",
    ),
    "parameter of float8": (
        given(lambda world: [world.x.to(torch.float8_e4m3fn)]),
        TypeError,
        "expected real floating-point parameters, got Float8_e4m3fn for parameter 0 of group 0, shape [3, 4, 5]",
    ),
    "nested parameter": (
        given(lambda world: [torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)]),
        ValueError,
        "expected dense parameters, got a nested tensor as parameter 0 of group 0",
    ),
    "parameter of 25 modes": (
        given(lambda world: [torch.zeros(1).expand([2] * 25).contiguous()]),
        ValueError,
        "at most 24 modes of size other than 1 are supported, got 25",
    ),
    "lr of a group is text": (
        given(lambda world: [{"params": world.params, "lr": "0.1"}]),
        TypeError,
        "lr must be a number, got '0.1'",
    ),
    "a second group is not one": (
        lambda world: world.optimizer.add_param_group([nn.Parameter(torch.ones(2))]),
        TypeError,
        "a param group must be a dict, got list",
    ),
    "a second group shares memory": (
        lambda world: world.optimizer.add_param_group({"params": [world.params[0].data[:1]]}),
        ValueError,
        "shape [1, 4, 5] and the optimizer's parameter 'kernel', shape [3, 4, 5] share memory",
    ),
}


@pytest.mark.filterwarnings("ignore:.*(sparse|Sparse|nested|beta state)")
@pytest.mark.parametrize("case", CASES)
def test_bad_input_raises_and_changes_nothing(case, world):
    check_error(world, *CASES[case])


def test_optimizer_still_works_afterwards(world):
    check_still_works(world)
