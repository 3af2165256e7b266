"""`conv_norm` with strides and dilations, compared with the dense matrix of torch's convolution."""

import pytest
import torch
from support import assert_error, gaussian

import tensorion


def dense(kernel, size, padding, stride, dilation):
    """Return the matrix of the convolution, with one row per element of the input."""
    modes = kernel.dim() - 2
    count = kernel.shape[1] * torch.Size(size).numel()
    x = torch.eye(count, dtype=torch.float64).reshape(count, kernel.shape[1], *size)
    for mode in range(modes):
        reach = dilation[mode] * (kernel.shape[2 + mode] - 1)
        place = torch.arange(size[mode] + reach) - reach // 2
        inside = (place >= 0) & (place < size[mode])
        x = x.index_select(2 + mode, place % size[mode])
        if padding == "zeros":
            x = x * inside.reshape([-1] + [1] * (modes - 1 - mode))
    convolve = [torch.nn.functional.conv1d, torch.nn.functional.conv2d][modes - 1]
    return convolve(x, kernel, stride=stride, dilation=dilation).flatten(1)


@pytest.mark.parametrize("padding", ["circular", "zeros"])
@pytest.mark.parametrize(
    ("shape", "size", "stride", "dilation"),
    [
        ((3, 2, 3), (7,), (2,), (1,)),
        ((2, 3, 4), (6,), (1,), (2,)),
        ((3, 2, 3, 3), (5, 6), (2, 2), (1, 1)),
        ((2, 2, 3, 2), (6, 4), (1, 1), (2, 3)),
        ((3, 2, 3, 3), (6, 5), (3, 1), (1, 2)),
        ((2, 4, 1, 1), (4, 4), (2, 2), (1, 1)),
        ((2, 1, 5, 5), (3, 4), (2, 1), (1, 1)),  # a kernel larger than its input
    ],
)
def test_matches_norm_of_dense_matrix(shape, size, stride, dilation, padding):
    kernel = gaussian(shape, 1, torch.float64)
    expected = torch.linalg.matrix_norm(dense(kernel, size, padding, stride, dilation), 2).item()
    found = tensorion.conv_norm(kernel, size, padding=padding, stride=stride, dilation=dilation)
    assert found == pytest.approx(expected, rel=2e-6)


def test_one_number_applies_to_all_modes():
    kernel = gaussian((3, 2, 3, 3), 1)
    assert tensorion.conv_norm(kernel, 8) == tensorion.conv_norm(kernel, (8, 8))
    every = tensorion.conv_norm(kernel, 8, stride=2, dilation=2)
    assert every == tensorion.conv_norm(kernel, (8, 8), stride=(2, 2), dilation=(2, 2))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"stride": 0}, ValueError, "strides must be at least 1, got [0]"),
        ({"dilation": (1, 2, 3)}, ValueError, "expected dilations of 2 entries, or one"),
        ({"stride": 1.5}, TypeError, "stride must be a sequence of integers"),
    ],
)
def test_bad_input_raises(options, error, message):
    assert_error(lambda: tensorion.conv_norm(gaussian((3, 2, 3, 3), 1), 8, **options), error, message)
