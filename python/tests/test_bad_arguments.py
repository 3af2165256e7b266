"""Bad arguments of the package's functions."""

import math

import pytest
import torch
from bad_input import BIG, LINEAR, check_error, check_still_works, with_nan
from torch import nn

import tensorion

CASES = {
    "lmo of an array": (
        lambda w: tensorion.lmo(w.x.numpy()),
        TypeError,
        "[tensorion.lmo] x must be a Tensor, got ndarray",
    ),
    "lmo of a sparse tensor": (
        lambda w: tensorion.lmo(w.x.to_sparse()),
        ValueError,
        "[tensorion.lmo] expected a dense tensor, got Sparse",
    ),
    "lmo of bools": (
        lambda w: tensorion.lmo(w.x > 0),
        TypeError,
        "[tensorion.lmo] expected a real floating-point tensor, got Bool",
    ),
    "lmo of float8": (lambda w: tensorion.lmo(w.x.to(torch.float8_e5m2)), TypeError, "got Float8_e5m2"),
    "lmo of 25 modes": (lambda w: tensorion.lmo(torch.zeros(1).expand([2] * 25)), ValueError, "at most 24 modes"),
    "lmo of a NaN": (lambda w: tensorion.lmo(with_nan(w.x)), ValueError, "got one that contains nan"),
    "polar of a vector": (lambda w: tensorion.polar(w.x[0, 0]), ValueError, "expected (..., m, n), got shape [5]"),
    "polar of a sparse matrix": (
        lambda w: tensorion.polar(w.matrix.to_sparse()),
        ValueError,
        "[tensorion.polar] expected a dense tensor, got Sparse",
    ),
    "polar of rows": (
        lambda w: tensorion.polar(w.matrix.to_sparse_csr()),
        ValueError,
        "expected a dense tensor, got SparseCsr",
    ),
    "polar of float8": (lambda w: tensorion.polar(w.matrix.to(torch.float8_e4m3fn)), TypeError, "got Float8_e4m3fn"),
    "polar in a billion steps": (
        lambda w: tensorion.polar(w.matrix, "newton_schulz", ns_steps=10**9),
        ValueError,
        "ns_steps must be at most 1000, got 1000000000",
    ),
    "unfoldings of text": (
        lambda w: tensorion.unfoldings("345"),
        TypeError,
        "shape must be a sequence of integers, got '345'",
    ),
    "unfoldings of a negative size": (
        lambda w: tensorion.unfoldings((-1, 2, 3)),
        ValueError,
        "sizes must not be negative, got shape [-1, 2, 3]",
    ),
    "unfoldings of 2^80 elements": (
        lambda w: tensorion.unfoldings((2**40, 2**40)),
        ValueError,
        "a tensor must have fewer than 2^63 elements, got shape [1099511627776, 1099511627776]",
    ),
    "unfoldings of a size of 70 bits": (
        lambda w: tensorion.unfoldings((BIG, 2)),
        ValueError,
        f"shape must have at most 63 bits, got {BIG}",
    ),
    "balanced unfolding of a vector": (lambda w: tensorion.balanced_unfolding((3, 1)), ValueError, "got shape [3, 1]"),
    "unfold by a number": (
        lambda w: tensorion.unfold(w.x, 0),
        TypeError,
        "modes must be a sequence of integers, got 0",
    ),
    "unfold a sparse tensor": (
        lambda w: tensorion.unfold(w.x.to_sparse(), (0,)),
        ValueError,
        "[tensorion.unfold] expected a dense tensor, got Sparse",
    ),
    "unfold by all modes": (
        lambda w: tensorion.unfold(w.x, (0, 1, 2)),
        ValueError,
        "got all 3 modes of shape [3, 4, 5]",
    ),
    "fold to another shape": (
        lambda w: tensorion.fold(w.matrix, (0,), (4, 2, 4)),
        ValueError,
        "unfold to a matrix of shape [4, 8], got [4, 6]",
    ),
    "fold to 2^64 elements": (
        lambda w: tensorion.fold(w.matrix, (0,), (4, 2**62)),
        ValueError,
        "a tensor must have fewer than 2^63 elements, got shape [4, 4611686018427387904]",
    ),
    "fold a sparse matrix": (
        lambda w: tensorion.fold(w.matrix.to_sparse(), (0,), (4, 6)),
        ValueError,
        "[tensorion.fold] expected a dense matrix, got Sparse",
    ),
    "nuclear norm of a sparse tensor": (
        lambda w: tensorion.nuclear_norm(w.x.to_sparse(), (0,)),
        ValueError,
        "[tensorion.nuclear_norm] expected a dense tensor, got Sparse",
    ),
    "dual norm of text": (
        lambda w: tensorion.dual_norm("x"),
        TypeError,
        "[tensorion.dual_norm] x must be a Tensor, got str",
    ),
    "dual norm of a sparse tensor": (
        lambda w: tensorion.dual_norm(w.x.to_sparse()),
        ValueError,
        "[tensorion.dual_norm] expected a dense tensor",
    ),
    "relaxed norm to NaN": (
        lambda w: tensorion.relaxed_norm(w.x, tol=math.nan),
        ValueError,
        "tol must be in (0, 1), got nan",
    ),
    "relaxed norm of an infinity": (
        lambda w: tensorion.relaxed_norm(w.x * math.inf),
        ValueError,
        "[tensorion.relaxed_norm] expected finite values, got",
    ),
    "spectral norm from 2^62 starts": (
        lambda w: tensorion.spectral_norm(w.x, restarts=2**62),
        ValueError,
        "restarts must be at most 1000000, got 4611686018427387904",
    ),
    "spectral norm from a bool": (
        lambda w: tensorion.spectral_norm(w.x, restarts=True),
        TypeError,
        "restarts must be an integer, got True",
    ),
    "convolution on half a pixel": (
        lambda w: tensorion.conv_norm(w.kernel, 4.5),
        TypeError,
        "input_size must be a sequence of integers, got 4.5",
    ),
    "convolution on no pixels": (
        lambda w: tensorion.conv_norm(w.kernel, (0, 4)),
        ValueError,
        "input sizes must be at least 1, got [0, 4]",
    ),
    "convolution padded otherwise": (
        lambda w: tensorion.conv_norm(w.kernel, (4, 4), padding="same"),
        ValueError,
        'got "same"',
    ),
    "convolution by a sparse kernel": (
        lambda w: tensorion.conv_norm(w.kernel.to_sparse(), (4, 4)),
        ValueError,
        "[tensorion.conv_norm] expected a dense tensor",
    ),
    "plan of nothing": (lambda w: tensorion.plan(None, 2), TypeError, "shapes must be a sequence of shapes, got None"),
    "plan of a size": (lambda w: tensorion.plan([3], 2), TypeError, "shapes must be a sequence of integers, got 3"),
    "plan for no ranks": (lambda w: tensorion.plan([(3, 4, 5)], 0), ValueError, "world_size must be at least 1, got 0"),
    "plan for 10^10 ranks": (
        lambda w: tensorion.plan([(3, 4, 5)], 10**10),
        ValueError,
        "world_size must be at most 1048576, got 10000000000",
    ),
    "plan of 2^120 elements": (lambda w: tensorion.plan([(2**40,) * 3], 2), ValueError, "fewer than 2^63 elements"),
    "param_groups of a list": (lambda w: tensorion.param_groups([1]), TypeError, "model must be a Module, got list"),
    "param_groups by a number": (
        lambda w: tensorion.param_groups(LINEAR, to_fallback=3),
        TypeError,
        "a sequence of rules, got 3",
    ),
    "param_groups by a rule that is a number": (
        lambda w: tensorion.param_groups(LINEAR, to_fallback=[3]),
        TypeError,
        "to_fallback must be patterns, module types or functions, got 3",
    ),
    "param_groups of order '3'": (
        lambda w: tensorion.param_groups(LINEAR, min_order="3"),
        TypeError,
        "min_order must be an integer, got '3'",
    ),
    "param_groups of order 0": (
        lambda w: tensorion.param_groups(LINEAR, min_order=0),
        ValueError,
        "min_order must be at least 1, got 0",
    ),
    "param_groups of a lazy module": (
        lambda w: tensorion.param_groups(nn.LazyConv2d(3, 3)),
        ValueError,
        "'weight' has no shape yet: run its lazy module once before you call param_groups",
    ),
    "describe another optimizer": (
        lambda w: tensorion.describe(torch.optim.SGD(w.params, 0.1)),
        TypeError,
        "[tensorion.describe] expected a Tensorion, got SGD",
    ),
}


@pytest.mark.filterwarnings("ignore:.*(sparse|Sparse|nested|beta state)")
@pytest.mark.parametrize("case", CASES)
def test_bad_input_raises_and_changes_nothing(case, world):
    check_error(world, *CASES[case])


def test_optimizer_still_works_afterwards(world):
    check_still_works(world)
