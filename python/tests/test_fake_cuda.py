"""Fake CUDA tensors, which torch.compile traces with: Meta kernels return the right shapes, dtypes and devices."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import tensorion
from tensorion import Tensorion

CUDA = torch.device("cuda", 0)


@pytest.fixture
def mode():
    """A FakeTensorMode, which needs no GPU because it allocates nothing."""
    with FakeTensorMode() as mode:
        yield mode


def fake(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device=CUDA)


def assert_like(x, shape, dtype):
    assert isinstance(x, FakeTensor)
    assert (tuple(x.shape), x.dtype, x.device) == (shape, dtype, CUDA)


FUNCTIONS = {
    "unfold": (lambda x: tensorion.unfold(x, (0, 2)), [(24, 18)]),
    "fold": (lambda x: tensorion.fold(tensorion.unfold(x, (1,)), (1,), (8, 6, 3, 3)), [(8, 6, 3, 3)]),
    "polar": (lambda x: tensorion.polar(x.flatten(1)), [(8, 54)]),
    "polar of a batch": (tensorion.polar, [(8, 6, 3, 3)]),
    "lmo": (lambda x: tensorion.lmo(x).x, [(8, 6, 3, 3)]),
}
NUMBERS = {
    "nuclear_norm": (lambda x: tensorion.nuclear_norm(x, (0,)), 1),
    "dual_norm": (tensorion.dual_norm, 1),
    # Their Python functions return plain numbers.
    "relaxed_norm": (lambda x: torch.ops.tensorion.relaxed_norm(x, 1e-3, []), 2),
    "spectral_norm": (lambda x: torch.ops.tensorion.spectral_norm(x, 4, "real"), 2),
    "conv_norm": (lambda x: torch.ops.tensorion.conv_norm(x, [8, 8], "circular", [1, 1], [1, 1]), 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_tensors(mode, name, dtype):
    function, shapes = FUNCTIONS[name]
    found = function(fake(8, 6, 3, 3, dtype=dtype))
    for x, shape in zip([found] if isinstance(found, torch.Tensor) else found, shapes, strict=True):
        assert_like(x, shape, dtype)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(mode, name):
    function, count = NUMBERS[name]
    found = torch.utils._pytree.tree_leaves(function(fake(8, 6, 3, 3)))
    assert len(found) == count
    for number in found:
        assert isinstance(number, FakeTensor)
        assert (number.shape, number.device) == ((), CUDA)
        assert number.is_floating_point()


@pytest.mark.parametrize(("name", "dtype"), [("first_nonfinite", torch.int64), ("any_nonfinite", torch.float32)])
def test_nonfinite_checks(mode, name, dtype):
    operator = getattr(torch.ops.tensorion, name)
    assert_like(operator([fake(4, 3), fake(5, dtype=torch.bfloat16)]), (), dtype)


def test_directions(mode):
    targets = [fake(8, 6, 3, 3), fake(5, 4, 3)]
    results = [torch.empty_like(target) for target in targets]
    torch.ops.tensorion.directions_(
        results,
        targets,
        lr=0.1,
        momentum=0.9,
        nesterov=False,
        weight_decay=0.0,
        unfolding="online",
        batch_modes=[],
        split_sizes=[],
        polar="auto",
        ns_coefficients=None,
        ns_steps=None,
        adjust_lr_fn="original",
        maximize=False,
    )
    for x, target in zip(results, targets, strict=True):
        assert_like(x, tuple(target.shape), target.dtype)


@pytest.mark.parametrize(
    "options",
    [{}, {"unfolding": "online", "nesterov": True}, {"fallback": "sgd", "batch_modes": (0,)}],
    ids=["", "online", "slices"],
)
@pytest.mark.parametrize("lr", ["number", "tensor"])
def test_steps(mode, options, lr):
    params = [nn.Parameter(fake(*shape)) for shape in ((8, 6, 3, 3), (4, 3), (5,))]
    optimizer = Tensorion(params, lr=0.1 if lr == "number" else fake(), nonfinite="skip", **options)
    for _ in range(2):
        for param in params:
            param.grad = torch.empty_like(param)
        optimizer.step()
    for param in params:
        assert_like(param, tuple(param.shape), torch.float32)
        for key, value in optimizer.state[param].items():
            if value.shape == param.shape:
                assert_like(value, tuple(param.shape), torch.float32)
            else:
                assert key in ("step", "unfolding")
    assert_like(optimizer._skipped, (), torch.float32)
