"""Slices along `batch_modes` and `split_sizes`: each one is updated like a separate parameter."""

import copy

import pytest
import torch
from support import AlgorithmOne, assert_error, assert_same, copies, gaussian, set_gradients
from torch import nn

import tensorion
from tensorion import Tensorion


def cut(x, batch_modes=(), split_sizes=None):
    """Return the independent tensors, using torch's indexing."""
    found = [x]
    for mode in sorted(batch_modes, reverse=True):
        found = [part for whole in found for part in whole.unbind(mode)]
    if split_sizes is None:
        return found
    if isinstance(split_sizes, int):
        return [block for part in found for block in part.chunk(split_sizes)]
    return [block for part in found for block in part.split(list(split_sizes))]


CASES = {
    "experts": ((4, 6, 10), {"batch_modes": (0,)}),
    "last mode": ((6, 10, 3), {"batch_modes": (2,)}),
    "two batch modes": ((2, 6, 3, 5), {"batch_modes": (2, 0)}),
    "fused matrix": ((18, 8), {"split_sizes": 3}),
    "grouped queries": ((16, 8), {"split_sizes": (8, 4, 4)}),
    "stack of fused": ((3, 12, 5), {"batch_modes": (0,), "split_sizes": (8, 4)}),
    "grouped kernel": ((8, 3, 3, 3), {"split_sizes": 2}),
    "stack of kernels": ((2, 6, 4, 3, 3), {"batch_modes": (0,)}),
}
OPTIONS = [
    {},
    {"unfolding": "online", "nesterov": True},
    {"unfolding": (0,), "weight_decay": 0.3},
    {"unfolding": (1,), "adjust_lr_fn": "spectral_unclamped"},
    {"polar": "svd", "maximize": True},
    {"polar": "newton_schulz", "adjust_lr_fn": "original"},
    {"adjust_lr_fn": "conv_radius", "polar": "halley"},
]


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_slices_match_separate_parameters(case, options, layout):
    shape, slicing = CASES[case]
    w = gaussian(shape, 1)
    if layout == "transposed":
        w = w.transpose(-1, -2).contiguous().transpose(-1, -2)
    stack = nn.Parameter(w.clone())
    parts = [nn.Parameter(part.clone()) for part in cut(w, **slicing)]
    whole = Tensorion([stack], lr=0.02, **slicing, **options)
    apart = Tensorion([{"params": parts, "algorithm": "tensorion"}], lr=0.02, **options)
    for k in range(4):
        set_gradients([stack], k)
        for part, grad in zip(parts, cut(stack.grad, **slicing), strict=True):
            part.grad = grad.clone()
        whole.step()
        apart.step()
    for found, part in zip(cut(stack.detach(), **slicing), parts, strict=True):
        torch.testing.assert_close(found, part.detach(), rtol=1e-6, atol=1e-6)
    momentum = whole.state[stack]["momentum_buffer"]
    assert momentum.shape == stack.shape
    for found, part in zip(cut(momentum, **slicing), parts, strict=True):
        assert torch.equal(found, apart.state[part]["momentum_buffer"])


def test_slices_match_algorithm_one():
    w = nn.Parameter(gaussian((3, 4, 5), 1, torch.float64))
    options = {"lr": 0.1, "momentum": 0.8, "weight_decay": 0.4}
    optimizer = Tensorion([w], batch_modes=(1,), polar="svd", **options)
    references = [AlgorithmOne(part, unfolding="balanced", **options) for part in w.detach().unbind(1)]
    for k in range(5):
        w.grad = gaussian(w.shape, 10 + k, torch.float64)
        for reference, grad in zip(references, w.grad.unbind(1), strict=True):
            reference.step(grad)
        optimizer.step()
    for part, reference in zip(w.detach().unbind(1), references, strict=True):
        torch.testing.assert_close(part, torch.from_numpy(reference.w), atol=1e-10, rtol=0)


def test_slicing_changes_the_update():
    whole, split = (nn.Parameter(gaussian((9, 6), 1)) for _ in range(2))
    for w, options in ((whole, {}), (split, {"split_sizes": 3})):
        set_gradients([w], 1)
        Tensorion([w], min_order=2, **options).step()
    assert not torch.equal(whole, split)


def test_slices_decide_the_algorithm():
    stack, bias, matrix = (nn.Parameter(gaussian(shape, 1)) for shape in [(4, 6, 5), (4, 6), (6, 9)])
    optimizer = Tensorion([{"params": [stack, bias], "batch_modes": (0,)}, {"params": [matrix], "split_sizes": 2}])
    assert [(group["algorithm"], len(group["params"])) for group in optimizer.param_groups] == [
        ("tensorion", 1),
        ("adamw", 1),
        ("tensorion", 1),
    ]
    assert [group["why"] for group in optimizer.param_groups] == ["slices", "one mode > 1", "slices"]


@pytest.mark.parametrize("options", [{"batch_modes": (0,)}, {"split_sizes": (3, 1)}])
def test_state_resumes_and_does_not_depend_on_slices(options):
    w = nn.Parameter(gaussian((4, 6, 5), 1))
    first = Tensorion([w], **options)
    for k in range(2):
        set_gradients([w], k)
        first.step()
    resumed = nn.Parameter(w.detach().clone())
    second = Tensorion([resumed], lr=9.0)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert {key: second.param_groups[0][key] for key in options} == options
    for optimizer, param in ((first, w), (second, resumed)):
        set_gradients([param], 5)
        optimizer.step()
    assert_same([w], [resumed])


def test_state_of_version_without_slices_loads():
    w = nn.Parameter(gaussian((4, 6, 5), 1))
    optimizer = Tensorion([w])
    set_gradients([w], 1)
    optimizer.step()
    saved = optimizer.state_dict()
    for group in saved["param_groups"]:
        del group["batch_modes"], group["split_sizes"]
    optimizer.load_state_dict(saved)
    assert (optimizer.param_groups[0]["batch_modes"], optimizer.param_groups[0]["split_sizes"]) == ((), None)
    assert "4x6x5" in tensorion.describe(optimizer)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"batch_modes": (3,)},
            ValueError,
            "does not fit parameter 'w', shape [4, 6, 5]: [tensorion.step] batch_modes must be",
        ),
        ({"batch_modes": (-1,)}, ValueError, "batch_modes must not be negative, got -1"),
        ({"batch_modes": (0, 0)}, ValueError, "batch_modes must be distinct, got 0 twice"),
        ({"batch_modes": 0}, TypeError, "batch_modes must be a sequence of integers, got 0"),
        ({"batch_modes": (0.5,)}, TypeError, "batch_modes must be a sequence of integers"),
        ({"split_sizes": 3}, ValueError, "'w', shape [4, 6, 5]: [tensorion.step] expected a size that is divisible"),
        ({"split_sizes": (3, 2)}, ValueError, "add up to 4, got [3, 2], which add up to 5"),
        ({"split_sizes": (4,)}, ValueError, "or the sizes of at least two blocks, got (4,)"),
        ({"split_sizes": 0}, ValueError, "split_sizes must be positive, got 0"),
        ({"split_sizes": (5, -1)}, ValueError, "split_sizes must be positive, got -1"),
        ({"split_sizes": "3"}, TypeError, "split_sizes must be None, a number of equal blocks"),
        ({"batch_modes": (0,), "unfolding": (2,)}, ValueError, "unfolding (2,) does not fit parameter 'w'"),
    ],
)
@pytest.mark.parametrize("place", ["argument", "group", "added group"])
def test_bad_slicing_raises_and_changes_nothing(options, error, message, place):
    w, other = nn.Parameter(gaussian((4, 6, 5), 1)), nn.Parameter(gaussian((3, 4, 5), 2))
    optimizer = Tensorion([other])
    before = copies([w])
    calls = {
        "argument": lambda: Tensorion([("w", w)], **options),
        "group": lambda: Tensorion([{"params": [("w", w)], **options}]),
        "added group": lambda: optimizer.add_param_group({"params": [("w", w)], **options}),
    }
    assert_error(lambda: calls[place](), error, message)
    assert len(optimizer.param_groups) == 1
    assert_same([w], before)


def test_slicing_changed_later_is_checked_before_the_step():
    w = nn.Parameter(gaussian((4, 6, 5), 1))
    optimizer = Tensorion([("w", w)])
    optimizer.param_groups[0]["split_sizes"] = 3
    set_gradients([w], 1)
    before = copies([w])
    with pytest.raises(ValueError, match="does not fit parameter 'w'"):
        optimizer.step()
    assert_same([w], before)
    assert not optimizer.state


# ---- param_groups


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Module() for _ in range(2))
        for block in self.blocks:
            block.qkv = nn.Linear(8, 24)
            block.qkv_proj = nn.Linear(8, 16)
            block.experts = nn.Module()
            block.experts.up = nn.Parameter(torch.zeros(4, 16, 8))
            block.experts.bias = nn.Parameter(torch.zeros(4, 16))
        self.grouped = nn.Conv2d(8, 12, 3, groups=4)
        self.transposed = nn.ConvTranspose1d(8, 12, 3, groups=2)
        self.pointwise = nn.Conv2d(8, 4, 1, groups=4)  # blocks of 1 x 2
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)


def test_param_groups_with_patterns_and_grouped_convolutions():
    groups = tensorion.param_groups(
        Transformer(),
        batch={"*.experts.*": (0,)},
        split={"*.qkv.weight": 3, "*.qkv_proj.weight": (8, 4, 4), "grouped": 1},
    )
    lines = tensorion.describe(Tensorion(groups)).splitlines()[1:]
    shapes = {line.split()[1]: line.split("  ") for line in lines}
    found = {name: [cell.strip() for cell in cells if cell.strip()][2:4] for name, cells in shapes.items()}
    assert found["blocks.1.qkv.weight"] == ["3 x (8x8)", "tensorion"]
    assert found["blocks.0.qkv_proj.weight"] == ["1 x (8x8) + 2 x (4x8)", "tensorion"]
    assert found["blocks.0.experts.up"] == ["4 x (16x8)", "tensorion"]
    assert found["blocks.0.experts.bias"] == ["4x16", "adamw"]
    assert found["grouped.weight"] == ["1 x (12x2x3x3)", "tensorion"]
    assert found["transposed.weight"] == ["2 x (4x6x3)", "tensorion"]
    assert found["pointwise.weight"] == ["4x2x1x1", "tensorion"]
    assert found["depthwise.weight"] == ["8x1x3x3", "adamw"]
    assert found["blocks.0.qkv.bias"] == ["24", "adamw"]
    blocks = {
        name: group.get("split_sizes") for group in tensorion.param_groups(Transformer()) for name, _ in group["params"]
    }
    assert (blocks["grouped.weight"], blocks["transposed.weight"], blocks["pointwise.weight"]) == (4, 2, None)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"batch": {"*.exprts.*": (0,)}}, ValueError, "'*.exprts.*' in batch matches no parameter of the model"),
        ({"split": {"head": 3}}, ValueError, "'head' in split matches no parameter"),
        (
            {"split": {"*.qkv.weight": 5}},
            ValueError,
            "expected split_sizes that fit 'blocks.0.qkv.weight', shape [24, 8]: ",
        ),
        ({"split": {"*.qkv.weight": (8, 8)}}, ValueError, "add up to 24, got [8, 8], which add up to 16"),
        (
            {"batch": {"*.qkv.weight": (2,)}},
            ValueError,
            "expected batch_modes that fit 'blocks.0.qkv.weight', shape [24, 8]",
        ),
        ({"batch": {"*.qkv.weight": (0, 0)}}, ValueError, "batch_modes must be distinct"),
        ({"batch": [("*", (0,))]}, TypeError, "batch must be a dict whose keys are patterns of names"),
        ({"split": {"*.qkv.weight": "3"}}, TypeError, "split must be None, a number of equal blocks"),
    ],
)
def test_param_groups_raises_for_bad_slicing(arguments, error, message):
    assert_error(lambda: tensorion.param_groups(Transformer(), **arguments), error, message)
