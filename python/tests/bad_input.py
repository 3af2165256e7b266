"""Tables of bad input: what is called, the type of the error, words that name the culprit, and nothing changed.

The tables are in test_bad_options.py, test_bad_steps.py, test_bad_states.py and test_bad_arguments.py. The constructor
has more cases in test_optimizer_errors.py, the program in test_bad_input_program.py, C++ in tests/bad_input_test.cpp.
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
LINEAR = nn.Linear(2, 2)  # made once: that draws random numbers


class World:
    """An optimizer after a step, and a tensor: what bad input must leave alone."""

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


def check_refused(world, call, error, words):
    before = world.snapshot()
    with pytest.raises(error) as caught:
        call(world)
    # Exactly this type: NotImplementedError is a RuntimeError, but says nothing of use.
    assert caught.type is error
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert world.snapshot() == before


def check_goes_on(world):
    """After all that was refused, the optimizer goes on as one that has seen none of it."""
    other = World()
    for each in (world, other):
        each.optimizer.load_state_dict(each.state)
        each.optimizer.step()
    assert world.snapshot()[0] == other.snapshot()[0]
