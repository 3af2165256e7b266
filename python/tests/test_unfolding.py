import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import all_unfoldings, assert_error, numpy_unfold
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck

import tensorion

OPS = torch.ops.tensorion
LAYOUTS = ["contiguous", "transposed", "sliced", "channels_last"]


def in_layout(x, layout):
    """Return the same values with another memory layout."""
    if layout == "transposed":
        return x.permute(*reversed(range(x.dim()))).contiguous().permute(*reversed(range(x.dim())))
    if layout == "sliced":
        larger = x.new_zeros((*x.shape[:-1], 2 * x.shape[-1]))
        larger[..., ::2] = x
        return larger[..., ::2]
    if layout == "channels_last" and x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x


def numbered(shape):
    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)


shapes = st.lists(st.integers(0, 5), min_size=2, max_size=7).map(tuple)


@st.composite
def shapes_with_modes(draw):
    shape = draw(shapes)
    some = st.lists(st.sampled_from(range(len(shape))), min_size=1, max_size=len(shape) - 1, unique=True)
    return shape, draw(some)


@settings(max_examples=300, deadline=None)
@given(shapes_with_modes(), st.sampled_from(LAYOUTS))
def test_unfold_matches_transpose_and_reshape(shape_and_modes, layout):
    shape, modes = shape_and_modes
    x = in_layout(numbered(shape), layout)
    matrix = tensorion.unfold(x, modes)
    np.testing.assert_array_equal(matrix.numpy(), numpy_unfold(x.numpy(), modes))
    assert torch.equal(tensorion.fold(matrix, modes, shape), x)


@settings(max_examples=100, deadline=None)
@given(shapes)
def test_unfoldings_are_all_sets_up_to_complement(shape):
    order = sum(size != 1 for size in shape)
    assert tensorion.unfoldings(shape) == all_unfoldings(shape)
    assert len(tensorion.unfoldings(shape)) == (2 ** (order - 1) - 1 if order else 0)


@settings(max_examples=100, deadline=None)
@given(shapes)
def test_balanced_maximizes_the_smaller_side(shape):
    choices = tensorion.unfoldings(shape)
    if not choices:
        with pytest.raises(ValueError, match="at least two modes of size other than 1"):
            tensorion.balanced_unfolding(shape)
        return
    smaller_sides = [min(numpy_unfold(np.empty(shape), modes).shape) for modes in choices]
    assert tensorion.balanced_unfolding(shape) == choices[smaller_sides.index(max(smaller_sides))]


def test_known_shapes():
    assert tensorion.unfoldings((8, 4, 3, 3)) == [(0,), (1,), (2,), (3,), (0, 1), (0, 2), (0, 3)]
    assert tensorion.unfoldings(torch.empty(1, 197, 384).shape) == [(1,)]
    assert tensorion.unfoldings([np.int64(2), 3]) == [(0,)]
    assert tensorion.balanced_unfolding((512, 512, 3, 3)) == (0, 2)
    assert tensorion.balanced_unfolding((768, 3, 16, 16)) == (0,)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("modes", [(0,), (1,), (0, 1), (0, 2), (2, 3)])
def test_results_are_contiguous_and_not_views(layout, modes):
    x = in_layout(numbered((4, 3, 2, 5)), layout)
    before = x.clone()
    matrix = tensorion.unfold(x, modes)
    folded = tensorion.fold(matrix, modes, x.shape)
    for result, source in [(matrix, x), (folded, matrix)]:
        assert result.is_contiguous()
        assert result.untyped_storage().data_ptr() != source.untyped_storage().data_ptr()
    matrix.zero_()
    folded.zero_()
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int64, torch.complex64, torch.bool])
def test_all_dtypes(dtype):
    x = numbered((2, 3, 4)).to(dtype)
    matrix = tensorion.unfold(x, (0, 2))
    assert matrix.dtype == dtype
    assert torch.equal(tensorion.fold(matrix, (0, 2), (2, 3, 4)), x)


@pytest.mark.parametrize("modes", [(0,), (1,), (0, 2)])
def test_operators_pass_opcheck(modes):
    x = torch.randn(2, 3, 4, requires_grad=True)
    opcheck(OPS.unfold.default, (x, modes))
    opcheck(OPS.fold.default, (tensorion.unfold(x, modes).detach().requires_grad_(), modes, (2, 3, 4)))
    opcheck(OPS.unfoldings.default, ((2, 3, 4),))
    opcheck(OPS.balanced_unfolding.default, ((2, 3, 4),))


def test_gradients():
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    matrix = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: tensorion.unfold(t, (0, 2)), (x,))
    assert torch.autograd.gradgradcheck(lambda t: tensorion.unfold(t, (0, 2)) ** 2, (x,))
    assert torch.autograd.gradcheck(lambda t: tensorion.fold(t, (0, 2), (2, 3, 4)), (matrix,))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_graph_breaks(dynamic):
    def scaled(x):
        modes = tensorion.balanced_unfolding(x.shape)
        return tensorion.fold(tensorion.unfold(x, modes) * len(tensorion.unfoldings(x.shape)), modes, x.shape)

    torch._dynamo.reset()
    compiled = torch.compile(scaled, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for shape, count in [((2, 3, 4), 3), ((5, 4, 3, 2), 7)]:
        x = torch.randn(shape, requires_grad=True)
        result = compiled(x)
        assert torch.equal(result, count * x)
        (gradient,) = torch.autograd.grad(result.sum(), x)
        assert torch.equal(gradient, torch.full(shape, float(count)))


def test_fake_tensors():
    with FakeTensorMode():
        matrix = tensorion.unfold(torch.empty(8, 4, 3, 3), (0, 2))
        assert matrix.shape == (24, 12)
        assert tensorion.fold(matrix, (0, 2), (8, 4, 3, 3)).shape == (8, 4, 3, 3)
    assert tensorion.unfold(torch.empty(8, 4, 3, 3, device="meta"), (0,)).shape == (8, 36)


def test_vmap():
    x = torch.randn(5, 2, 3, 4)
    expected = torch.stack([tensorion.unfold(slice_, (0, 2)) for slice_ in x])
    assert torch.equal(torch.vmap(lambda t: tensorion.unfold(t, (0, 2)))(x), expected)


X = torch.zeros(2, 3, 4, 5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tensorion.unfold(X, (5,)), ValueError, "[tensorion.unfold] mode must be in [0, 4), got 5"),
        (lambda: tensorion.unfold(X, (-1,)), ValueError, "mode must be in [0, 4), got -1"),
        (lambda: tensorion.unfold(X, (1, 1)), ValueError, "modes must be distinct, got [1, 1]"),
        (lambda: tensorion.unfold(X, ()), ValueError, "at least one mode is needed for the rows"),
        (lambda: tensorion.unfold(X, range(4)), ValueError, "left for the columns, got all 4 modes"),
        (lambda: tensorion.unfold(X.numpy(), (0,)), TypeError, "x must be a Tensor, got ndarray"),
        (lambda: tensorion.unfold(X, 1), TypeError, "modes must be a sequence of integers, got 1"),
        (lambda: tensorion.unfold(X, (0.5,)), TypeError, "modes must be a sequence of integers, got (0.5,)"),
        (lambda: tensorion.unfold(X, "ab"), TypeError, "modes must be a sequence of integers, got 'ab'"),
        (lambda: tensorion.fold(torch.zeros(6, 19), (0, 1), X.shape), ValueError, "[6, 20], got [6, 19]"),
        (lambda: tensorion.fold(torch.zeros(6), (0, 1), X.shape), ValueError, "[6, 20], got [6]"),
        (lambda: tensorion.fold([[1.0]], (0,), (1, 1)), TypeError, "matrix must be a Tensor, got list"),
        (lambda: tensorion.fold(X, (0,), None), TypeError, "shape must be a sequence of integers, got None"),
        (lambda: tensorion.unfoldings([2] * 25), ValueError, "at most 24 modes of size other than 1"),
        (lambda: tensorion.unfoldings(7), TypeError, "[tensorion.unfoldings] shape must be a sequence"),
        (lambda: tensorion.balanced_unfolding((1, 7)), ValueError, "got shape [1, 7]"),
    ],
)
def test_bad_input_raises(call, error, message):
    assert_error(call, error, message)
