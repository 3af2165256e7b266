"""Steps with bad options, gradients or closures."""

import math

import pytest
import torch
from bad_input import check_error, check_still_works, with_nan
from torch import nn
from torch_versions import HAS_GRAD_DTYPE

from tensorion import Tensorion


def option(key, value, group=0):
    """Make a step with a changed option, and restore the option."""

    def call(world):
        values = world.optimizer.param_groups[group]
        before = values[key]
        values.pop(key) if value is None else values.update({key: value})
        try:
            world.optimizer.step()
        finally:
            values[key] = before

    return call


def gradient(index, make_gradient):
    """Make a step with another gradient, and restore the gradient."""

    def call(world):
        param = world.params[index]
        before = param.grad
        param.grad_dtype = None
        param.grad = make_gradient(param)
        try:
            world.optimizer.step()
        finally:
            param.grad = before

    return call


def raising():
    raise KeyError("the closure's own")


def second_group_does_not_fit(world):
    """Make a step in which the unfolding of the second group does not fit its tensor."""
    params = [nn.Parameter(world.x.clone()), nn.Parameter(world.x.clone())]
    optimizer = Tensorion([{"params": params[:1]}, {"params": params[1:]}])
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer.param_groups[1]["unfolding"] = (0, 7)
    try:
        optimizer.step()
    finally:
        assert all(torch.equal(param, world.x) for param in params)
        assert not optimizer.state


CASES = {
    "closure is a number": (lambda world: world.optimizer.step(3), TypeError, "closure must be callable, got 3"),
    "closure raises": (lambda world: world.optimizer.step(raising), KeyError, "the closure's own"),
    "lr was changed to text": (option("lr", "0.1"), TypeError, "lr must be a number, got '0.1'"),
    "momentum was changed to NaN": (option("momentum", math.nan), ValueError, "momentum must be finite, got nan"),
    "algorithm was changed": (option("algorithm", "muon"), ValueError, "'adamw' or 'sgd', got 'muon'"),
    "algorithm was taken away": (option("algorithm", None), ValueError, "expected 'algorithm' in group 0, got none"),
    "betas were changed": (
        option("betas", (0.9, math.nan), group=1),
        ValueError,
        "fallback_betas must be finite, got nan",
    ),
    "unfolding was changed": (
        option("unfolding", (3,)),
        ValueError,
        "unfolding (3,) does not fit parameter 'kernel', shape [3, 4, 5]: "
        "[tensorion.unfold] mode must be in [0, 3), got 3",
    ),
    # Regression: the first group had already been updated.
    "unfolding of the second group was changed": (
        second_group_does_not_fit,
        ValueError,
        "unfolding (0, 7) does not fit parameter 0 of group 1, shape [3, 4, 5]",
    ),
    "gradient is sparse": (
        gradient(1, lambda param: torch.eye(4, 6).to_sparse()),
        ValueError,
        "expected a dense gradient, got torch.sparse_coo for parameter 'matrix', shape [4, 6]",
    ),
    "gradient is complex": (
        gradient(0, lambda param: param.detach() * 1j),
        ValueError,
        "expected a gradient that matches parameter 'kernel', shape [3, 4, 5] (torch.float32 on cpu), "
        "got shape [3, 4, 5], torch.complex64",
    ),
    "gradient is double": (
        gradient(2, lambda param: param.detach().double()),
        ValueError,
        "parameter 'bias', shape [5] (torch.float32",
    ),
    "gradient is half": (
        gradient(2, lambda param: param.detach().half()),
        ValueError,
        "got shape [5], torch.float16 on cpu",
    ),
    "gradient has a NaN": (
        gradient(1, lambda param: with_nan(param.detach())),
        ValueError,
        "the gradient of parameter 'matrix', shape [4, 6] is not finite; nothing was changed",
    ),
    "gradient is infinite": (
        gradient(0, lambda param: param.detach() * math.inf),
        ValueError,
        "the gradient of parameter 'kernel', shape [3, 4, 5] is not finite; nothing was changed",
    ),
}


if not HAS_GRAD_DTYPE:
    for name in ("gradient is complex", "gradient is double", "gradient is half"):
        del CASES[name]


@pytest.mark.filterwarnings("ignore:.*(sparse|Sparse|nested|beta state)")
@pytest.mark.parametrize("case", CASES)
def test_bad_input_raises_and_changes_nothing(case, world):
    check_error(world, *CASES[case])


def test_optimizer_still_works_afterwards(world):
    check_still_works(world)


def test_step_raises_for_parameters_on_meta_device():
    param = nn.Parameter(torch.empty(3, 4, 5, device="meta"))
    optimizer = Tensorion([("kernel", param)])
    param.grad = torch.empty_like(param)
    with pytest.raises(ValueError, match=r"parameter 'kernel', shape \[3, 4, 5\] is on the meta device"):
        optimizer.step()
    assert not optimizer.state
