import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import (
    all_unfoldings,
    assert_error,
    gaussian,
    nuclear_norm,
    numpy_fold,
    numpy_unfold,
    polar_rounding,
    rounding,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck

import tensorion


def norms(x):
    """Return the nuclear norm of each unfolding."""
    x = x.double().numpy()
    return {modes: nuclear_norm(numpy_unfold(x, modes)) for modes in all_unfoldings(x.shape)}


def inner_product(x, y):
    return (x.double() * y.double()).sum().item()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=5).filter(lambda s: sum(n > 1 for n in s) > 1),
    st.integers(0, 999),
)
def test_online_matches_exhaustive_search(shape, seed):
    x = gaussian(shape, seed)
    known = norms(x)
    result = tensorion.lmo(x)
    optimum = max(known.values())
    rounded = rounding(x.dtype, x.numel())
    assert known[result.modes] >= optimum * (1 - rounded)
    assert 0.97 * optimum <= result.value <= optimum * (1 + rounded)
    assert optimum * (1 - rounded) <= result.upper
    assert inner_product(x, result.x) >= result.value * (1 - rounded)
    # The maximizer is in the unit ball: the chosen unfolding has spectral norm at most 1.
    assert np.linalg.norm(numpy_unfold(result.x.double().numpy(), result.modes), 2) <= 1 + 1e-4
    assert 1 <= result.solved <= len(known)


@pytest.mark.parametrize("unfolding", ["balanced", (0,), (1,), (2, 3), (0, 2), [3, 0]])
def test_fixed_unfolding(unfolding):
    x = gaussian((6, 4, 3, 3), 1, torch.float64)
    result = tensorion.lmo(x, unfolding=unfolding, polar="svd")
    modes = (0, 2) if unfolding == "balanced" else tuple(sorted(unfolding))
    assert result.modes == modes
    matrix = numpy_unfold(x.numpy(), modes)
    u, s, vh = np.linalg.svd(matrix, full_matrices=False)
    expected = numpy_fold(u @ vh, modes, x.shape)
    np.testing.assert_allclose(result.x, expected, atol=polar_rounding(matrix, "svd"), rtol=0)
    rounded = rounding(x.dtype, x.numel())
    assert result.value == pytest.approx(s.sum(), rel=rounded)
    assert max(norms(x).values()) <= result.upper * (1 + rounded)
    assert result.solved == 1


def test_bounds_exclude_some_unfoldings():
    # Of the 7 unfoldings of a 3 x 3 kernel, {2}, {3} and {0,1} cannot win.
    assert tensorion.lmo(gaussian((32, 32, 3, 3), 1)).solved <= 4


def test_rank_one_tensor():
    a, b, c = gaussian((3,), 1), gaussian((4,), 2), gaussian((5,), 3)
    x = torch.einsum("i,j,k->ijk", a, b, c)
    result = tensorion.lmo(x)
    assert result.value == pytest.approx(x.norm().item(), rel=0.03)
    torch.testing.assert_close(result.x, x / x.norm(), atol=0.04, rtol=0)


def test_singleton_modes_do_not_count():
    x = gaussian((1, 6, 8), 1)
    result, matrix = tensorion.lmo(x, polar="svd"), tensorion.polar(x[0], "svd")
    assert result.modes == (1,)
    assert torch.equal(result.x[0], matrix)


def test_vectors_and_zeros():
    v = gaussian((7,), 1)
    result = tensorion.lmo(v, polar="svd")
    torch.testing.assert_close(result.x, v / v.norm())
    assert result.value == pytest.approx(v.norm().item())
    zero = tensorion.lmo(torch.zeros(3, 4, 5))
    assert (zero.value, zero.upper) == (0, 0)
    assert torch.equal(zero.x, torch.zeros(3, 4, 5))
    assert tensorion.lmo(torch.zeros(3, 0, 5)).x.shape == (3, 0, 5)


def test_result_has_plain_values_and_repr():
    x = gaussian((4, 3, 2), 1).requires_grad_()
    result = tensorion.lmo(x)
    assert isinstance(result, tensorion.LmoResult)
    assert [type(v) for v in (result.modes, result.value, result.upper, result.solved)] == [
        tuple,
        float,
        float,
        int,
    ]
    assert not result.x.requires_grad
    assert repr(result).startswith(f"LmoResult(x=<4x3x2>, modes={result.modes}, value=")
    with pytest.raises(AttributeError):
        result.x = x


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_layouts(layout):
    x = gaussian((6, 4, 3, 3), 1)
    result = tensorion.lmo(x.to(memory_format=layout))
    assert result.modes == tensorion.lmo(x).modes
    atol = polar_rounding(numpy_unfold(x.numpy(), result.modes))
    torch.testing.assert_close(result.x, tensorion.lmo(x).x, atol=atol, rtol=0)
    assert result.x.is_contiguous()


@pytest.mark.parametrize("shape", [(20, 16, 3, 3), (30, 40, 5)])
def test_threads(shape, threads):
    x = gaussian(shape, 6)
    result, again = tensorion.lmo(x), tensorion.lmo(x)
    assert torch.equal(result.x, again.x)
    torch.set_num_threads(1)
    alone = tensorion.lmo(x)
    assert alone.modes == result.modes == again.modes
    atol = polar_rounding(numpy_unfold(x.numpy(), alone.modes))
    torch.testing.assert_close(result.x, alone.x, atol=atol, rtol=0)


@pytest.mark.parametrize("unfolding", ["online", "balanced", "(0, 2)"])
def test_operator(unfolding):
    opcheck(
        torch.ops.tensorion.lmo.default,
        (gaussian((3, 4, 5), 1).requires_grad_(), unfolding, "auto", [[0], [0, 1]] if unfolding == "online" else []),
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_graph_breaks(dynamic):
    def f(x):
        return tensorion.lmo(x, unfolding=(0,)).x + tensorion.lmo(x).x

    torch._dynamo.reset()
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for shape in [(4, 3, 2), (5, 3, 3, 2)]:
        x = gaussian(shape, 1)
        assert torch.equal(compiled(x), f(x))


def test_fake_tensors():
    with FakeTensorMode():
        assert tensorion.lmo(torch.empty(8, 4, 3, 3)).x.shape == (8, 4, 3, 3)
        with pytest.raises(ValueError, match="mode must be in"):
            tensorion.lmo(torch.empty(3, 4, 5), unfolding=(7,))


X = torch.ones(2, 3, 4)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tensorion.lmo([1.0]), TypeError, "[tensorion.lmo] x must be a Tensor, got list"),
        (lambda: tensorion.lmo(X.long()), TypeError, "expected a real floating-point tensor, got Long"),
        (lambda: tensorion.lmo(X + 1j), TypeError, "expected a real floating-point tensor, got ComplexFloat"),
        (lambda: tensorion.lmo(torch.tensor(1.0)), ValueError, "at least one mode, got a scalar"),
        (lambda: tensorion.lmo(X, unfolding="offline"), ValueError, "or a set of modes, got 'offline'"),
        (lambda: tensorion.lmo(X, unfolding=(3,)), ValueError, "mode must be in [0, 3), got 3"),
        (
            lambda: tensorion.lmo(X, unfolding=(-1,)),
            ValueError,
            "expected modes such as '(0, 2)', got '(-1,)'",
        ),
        (lambda: tensorion.lmo(X, unfolding=(0, 0)), ValueError, "modes must be distinct, got [0, 0]"),
        (lambda: tensorion.lmo(X, unfolding=()), ValueError, "at least one mode is needed for the rows"),
        (lambda: tensorion.lmo(X, unfolding=(0, 1, 2)), ValueError, "left for the columns, got all 3 modes"),
        (
            lambda: tensorion.lmo(X, unfolding=0),
            TypeError,
            "'balanced', 'online' or a sequence of modes, got 0",
        ),
        (lambda: tensorion.lmo(X, polar="qr"), ValueError, "got 'qr'"),
        (lambda: tensorion.lmo(X * float("inf")), ValueError, "expected a finite"),
        (lambda: tensorion.lmo(X * float("nan"), unfolding="balanced"), ValueError, "expected a finite"),
    ],
)
def test_bad_input_raises(call, error, message):
    assert_error(call, error, message)
