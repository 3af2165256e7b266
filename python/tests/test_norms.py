import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import all_unfoldings, assert_error, gaussian, numpy_unfold, polar_rounding, rounding
from support import nuclear_norm as numpy_nuclear_norm
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck

import tensorion

OPS = torch.ops.tensorion
shapes = st.lists(st.integers(1, 5), min_size=2, max_size=4).filter(lambda s: sum(n > 1 for n in s) > 1)


def unit(shape, seed):
    vector = gaussian(shape, seed, torch.float64)
    return vector / vector.norm()


@settings(max_examples=40, deadline=None)
@given(shapes, st.integers(0, 999))
def test_nuclear_and_dual_norms_match_svd(shape, seed):
    x = gaussian(shape, seed)
    rel = rounding(x.dtype, x.numel())
    values = {modes: numpy_nuclear_norm(numpy_unfold(x.double().numpy(), modes)) for modes in all_unfoldings(shape)}
    for modes, value in values.items():
        assert tensorion.nuclear_norm(x, modes).item() == pytest.approx(value, rel=rel)
    assert tensorion.dual_norm(x).item() == pytest.approx(max(values.values()), rel=rel)


@settings(max_examples=15, deadline=None)
@given(shapes, st.integers(0, 999))
def test_norms_satisfy_inequalities(shape, seed):
    x, m = gaussian(shape, seed), gaussian(shape, seed + 1)
    below, relaxed = tensorion.spectral_norm(x, restarts=4), tensorion.relaxed_norm(x)
    unfolded = min(np.linalg.norm(numpy_unfold(x.double().numpy(), modes), 2) for modes in all_unfoldings(shape))
    assert relaxed[1] - relaxed[0] <= 1e-3 * relaxed[1]
    slack = 1 + rounding(torch.float64, x.numel())
    assert below[0] <= below[1] * slack
    assert below[0] <= relaxed[1] * slack
    assert relaxed[0] <= unfolded * slack
    inner = (m.double() * x.double()).sum().item()
    assert abs(inner) <= tensorion.dual_norm(m.double()).item() * relaxed[1] * slack
    # The maximizer of the LMO attains the dual norm and is in the unit ball.
    answer = tensorion.lmo(m, polar="svd")
    rounded = rounding(m.dtype, m.numel())
    assert answer.value == pytest.approx(tensorion.dual_norm(m).item(), rel=rounded)
    assert tensorion.relaxed_norm(answer.x)[1] <= 1 + rounded


def test_all_norms_of_rank_one_tensors_are_equal():
    x = 3 * torch.einsum("i,j,k->ijk", unit(3, 1), unit(4, 2), unit(5, 3))
    values = [
        tensorion.nuclear_norm(x, (1,)).item(),
        tensorion.dual_norm(x).item(),
        *tensorion.relaxed_norm(x),
        *tensorion.spectral_norm(x),
    ]
    assert values == pytest.approx([3] * 6, rel=1e-3)


def test_orthogonally_decomposable_tensors():
    weights = torch.tensor([4.0, 2.0, 1.0], dtype=torch.float64)
    u, v, w = (torch.linalg.qr(gaussian((n, 3), n, torch.float64))[0] for n in (3, 4, 5))
    x = torch.einsum("r,ir,jr,kr->ijk", weights, u, v, w)
    assert tensorion.dual_norm(x).item() == pytest.approx(7)
    assert tensorion.relaxed_norm(x) == pytest.approx((4, 4), rel=1e-3)
    assert tensorion.spectral_norm(x) == pytest.approx((4, 4), rel=1e-3)


def test_relaxed_norm_lies_between_other_norms():
    # For e0 e0 e1 + e0 e1 e0 + e1 e0 e0, the spectral norm is 2 / sqrt(3), and that of each unfolding is sqrt(2).
    x = torch.zeros(2, 2, 2, dtype=torch.float64)
    x[0, 0, 1] = x[0, 1, 0] = x[1, 0, 0] = 1
    lower, upper = tensorion.relaxed_norm(x, tol=1e-6)
    assert lower <= 3 / (1 + math.sqrt(2)) <= upper <= lower * (1 + 1e-5)
    assert tensorion.spectral_norm(x)[0] == pytest.approx(2 / math.sqrt(3))


def test_matrices_and_singleton_modes():
    a = gaussian((1, 6, 4), 1, torch.float64)
    s = np.linalg.svd(a[0].numpy(), compute_uv=False)
    assert tensorion.dual_norm(a).item() == pytest.approx(s.sum())
    assert tensorion.relaxed_norm(a) == pytest.approx((s[0], s[0]))
    assert tensorion.spectral_norm(a) == pytest.approx((s[0], s[0]))


def dense_convolution(kernel, size, padding):
    """Return the matrix of the convolution, computed column by column with torch's convolution."""
    space = len(size)
    conv = [torch.nn.functional.conv1d, torch.nn.functional.conv2d][space - 1]
    count = kernel.shape[1] * math.prod(size)
    x = torch.eye(count, dtype=torch.float64).reshape(count, kernel.shape[1], *size)
    # torch.nn.functional.pad expects (left, right) pairs, starting with the last mode.
    pads = [p for k in reversed(kernel.shape[2:]) for p in ((k - 1) // 2, k - 1 - (k - 1) // 2)]
    x = torch.nn.functional.pad(x, pads, mode="circular" if padding == "circular" else "constant")
    return conv(x, kernel).reshape(count, -1).numpy()


@pytest.mark.parametrize("padding", ["circular", "zeros"])
@pytest.mark.parametrize(("shape", "size"), [((3, 2, 3), (7,)), ((4, 3, 3, 3), (5, 6)), ((2, 3, 2, 4), (5, 5))])
def test_conv_norm_matches_dense_matrix(shape, size, padding):
    kernel = gaussian(shape, 1, torch.float64)
    value = tensorion.conv_norm(kernel, size, padding=padding)
    assert isinstance(value, float)
    assert value == pytest.approx(np.linalg.norm(dense_convolution(kernel, size, padding), 2), rel=1e-6)
    taps = math.prod(shape[2:])
    # The iterations for "zeros" stop at a relative error of 1e-7, below the exact value. The upper bound holds for the
    # relaxed norm. For the spectral norm over real vectors it may fail (docs/math.md, "Convolutions").
    assert tensorion.spectral_norm(kernel)[0] <= value * (1 + 1e-7)
    assert value <= math.sqrt(taps) * tensorion.relaxed_norm(kernel)[1] * (1 + rounding(kernel.dtype, kernel.numel()))


def test_gradients():
    x = gaussian((3, 4, 2), 1, torch.float64).requires_grad_()
    torch.autograd.gradcheck(lambda t: tensorion.nuclear_norm(t, (0, 2)), (x,))
    torch.autograd.gradcheck(tensorion.dual_norm, (x,))
    tensorion.dual_norm(x).backward()
    oracle = tensorion.lmo(x, polar="svd")
    atol = polar_rounding(numpy_unfold(x.detach().numpy(), oracle.modes), "svd")
    torch.testing.assert_close(x.grad, oracle.x, atol=atol, rtol=0)


@pytest.mark.parametrize(("shape", "modes"), [((5,), (0,)), ((), ())], ids=["vector", "scalar"])
@pytest.mark.parametrize("norm", ["nuclear_norm", "dual_norm"])
def test_gradients_of_euclidean_norms(norm, shape, modes):
    v = gaussian(shape, 2, torch.float64).requires_grad_()
    value = tensorion.nuclear_norm(v, modes) if norm == "nuclear_norm" else tensorion.dual_norm(v)
    (gradient,) = torch.autograd.grad(3 * value, v)
    torch.testing.assert_close(gradient, 3 * v.detach() / v.detach().norm())


CALLS = [
    (OPS.nuclear_norm.default, ((0, 2),)),
    (OPS.dual_norm.default, ([],)),
    (OPS.relaxed_norm.default, (1e-2, [[0], [0, 1]])),
    (OPS.spectral_norm.default, (2, "real")),
    (OPS.conv_norm.default, ((6,), "circular", (1,), (2,))),
]


@pytest.mark.parametrize(("operator", "arguments"), CALLS)
def test_operators(operator, arguments):
    x = gaussian((3, 4, 2), 1).requires_grad_()
    opcheck(operator, (x, *arguments))
    torch._dynamo.reset()
    compiled = torch.compile(lambda t: operator(t, *arguments), fullgraph=True, backend="aot_eager")
    for got, expected in zip(
        torch.utils._pytree.tree_leaves(compiled(x)),
        torch.utils._pytree.tree_leaves(operator(x, *arguments)),
        strict=True,
    ):
        assert torch.equal(got, expected)
    with FakeTensorMode():
        for number in torch.utils._pytree.tree_leaves(operator(torch.empty(3, 4, 2), *arguments)):
            assert number.shape == ()


X = torch.ones(2, 3, 4)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: tensorion.nuclear_norm(3.0, (0,)),
            TypeError,
            "[tensorion.nuclear_norm] x must be a Tensor, got float",
        ),
        (lambda: tensorion.nuclear_norm(X, (3,)), ValueError, "mode must be in [0, 3), got 3"),
        (lambda: tensorion.nuclear_norm(X, ()), ValueError, "at least one mode is needed"),
        (lambda: tensorion.nuclear_norm(X, "a"), TypeError, "modes must be a sequence of integers, got 'a'"),
        (
            lambda: tensorion.nuclear_norm(X.long(), (0,)),
            TypeError,
            "[tensorion.nuclear_norm] expected a tensor of dtype",
        ),
        (lambda: tensorion.dual_norm(X + 1j), TypeError, "[tensorion.dual_norm] expected a tensor of dtype"),
        (
            lambda: tensorion.dual_norm(X * float("nan")),
            ValueError,
            "expected finite values, got nan in a tensor of",
        ),
        (lambda: tensorion.relaxed_norm(X, tol=0), ValueError, "tol must be in (0, 1), got 0"),
        (lambda: tensorion.relaxed_norm(X, tol="fine"), TypeError, "tol must be a number, got 'fine'"),
        (lambda: tensorion.spectral_norm(X, restarts=0), ValueError, "restarts must be at least 1, got 0"),
        (lambda: tensorion.spectral_norm(X, restarts=1.5), TypeError, "restarts must be an integer, got 1.5"),
        (lambda: tensorion.conv_norm(X, (4, 4)), ValueError, "[tensorion.conv_norm] "),
        (lambda: tensorion.conv_norm(X, (0,)), ValueError, "input sizes must be at least 1, got [0]"),
        (lambda: tensorion.conv_norm(X[0], (4,)), ValueError, "[tensorion.conv_norm] "),
        (lambda: tensorion.conv_norm(X, (4,), padding="same"), ValueError, "same"),
    ],
)
def test_bad_input_raises(call, error, message):
    assert_error(call, error, message)
