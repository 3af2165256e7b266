"""Helpers for the tables of bad input, which list a call, the type of its error, and a part of its message.

The tables are in test_bad_options.py, test_bad_steps.py, test_bad_states.py and test_bad_arguments.py. More cases of
the constructor are in test_optimizer_errors.py, those of the program in tests/program/test_bad_input_program.py, and
those of C++ in tests/bad_input_test.cpp.
"""

import copy
import math

import pytest
import torch
from support import gaussian
from torch import nn

from tensorion import Tensorion

NAMES = ["kernel", "matrix", "bias"]
SHAPES = [(3, 4, 5), (4, 6), (5,)]
BIG = 2**70
LINEAR = nn.Linear(2, 2)  # A constant, because its initialization draws random numbers.


class World:
    """An optimizer after one step, and some tensors. Bad input must not change any of them."""

    def __init__(self):
        self.params = [nn.Parameter(gaussian(shape, i)) for i, shape in enumerate(SHAPES)]
        self.optimizer = Tensorion(zip(NAMES, self.params, strict=True), lr=0.01)
        for i, param in enumerate(self.params):
            param.grad = gaussian(param.shape, 10 + i)
        self.optimizer.step()
        self.x = gaussian((3, 4, 5), 20)
        self.matrix = gaussian((4, 6), 21)
        self.kernel = gaussian((2, 3, 3, 3), 22)
        self.state = copy.deepcopy(self.optimizer.state_dict())

    def snapshot(self):
        tensors = [*self.params, *(param.grad for param in self.params), self.x, self.matrix, self.kernel]
        state = self.optimizer.state_dict()
        tensors += [value for entry in state["state"].values() for value in entry.values()]
        groups = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
        members = [[id(param) for param in group["params"]] for group in self.optimizer.param_groups]
        generator = torch.get_rng_state()
        return [as_bytes(tensor) for tensor in [*tensors, generator]], copy.deepcopy(groups), members


def as_bytes(tensor):
    return tensor.detach().clone().reshape(-1).view(torch.uint8).numpy().tobytes()


def with_nan(x):
    x = x.clone()
    x.view(-1)[1] = math.nan
    return x


def check_error(world, call, error, message):
    """Check that the call raises this error and changes nothing."""
    before = world.snapshot()
    with pytest.raises(error) as caught:
        call(world)
    # Subclasses do not count: NotImplementedError, for example, is a RuntimeError without a useful message.
    assert caught.type is error
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert world.snapshot() == before


def check_still_works(world):
    """Check that after all errors the optimizer behaves like a new one."""
    other = World()
    for each in (world, other):
        each.optimizer.load_state_dict(each.state)
        each.optimizer.step()
    assert world.snapshot()[0] == other.snapshot()[0]
