"""The spectral norm over complex unit vectors, for which the cited bound of convolution norms holds."""

import math

import pytest
import torch
from support import gaussian

import tensorion

#: The identity and a rotation as the taps of a 1-D kernel: docs/math.md, "Convolutions".
ROTATION = torch.tensor([[[1.0, 0.0], [0.0, -1.0]], [[0.0, 1.0], [1.0, 0.0]]], dtype=torch.float64)


def test_convolution_bound_holds_for_complex_but_not_real_norm():
    assert torch.equal(ROTATION[:, :, 0], torch.eye(2, dtype=torch.float64))
    convolution = tensorion.conv_norm(ROTATION, 4)
    real, _ = tensorion.spectral_norm(ROTATION)
    lower, upper = tensorion.spectral_norm(ROTATION, field="complex")
    assert convolution == pytest.approx(2, rel=1e-12)
    assert real == pytest.approx(1, rel=1e-9)
    assert convolution > math.sqrt(2) * real * 1.4
    assert lower == pytest.approx(math.sqrt(2), rel=1e-9)
    assert lower <= upper == pytest.approx(math.sqrt(2), rel=1e-3)


@pytest.mark.parametrize("shape", [(3, 2, 3), (2, 3, 2, 2), (4, 4, 3, 3)])
def test_convolution_bound_of_random_kernels(shape):
    kernel = gaussian(shape, 5, torch.float64)
    lower, upper = tensorion.spectral_norm(kernel, field="complex")
    real, bound = tensorion.spectral_norm(kernel)
    assert real * (1 - 1e-9) <= lower <= upper == bound
    taps = torch.Size(shape[2:]).numel()
    assert tensorion.conv_norm(kernel, 16) <= math.sqrt(taps) * lower * (1 + 1e-6)


def test_value_matches_alternating_maximization():
    # The reference is alternating maximization in torch from many starting points.
    x = gaussian((3, 3, 3), 7, torch.float64).to(torch.complex128)
    generator = torch.Generator().manual_seed(0)
    best = 0.0
    for _ in range(40):
        u, v = (torch.randn(3, dtype=torch.complex128, generator=generator) for _ in range(2))
        for _ in range(300):
            w = torch.einsum("ijk,i,j->k", x, u, v).conj()
            w = w / w.norm()
            u = torch.einsum("ijk,j,k->i", x, v, w).conj()
            u = u / u.norm()
            v = torch.einsum("ijk,i,k->j", x, u, w).conj()
            value = v.norm().item()
            v = v / v.norm()
        best = max(best, value)
    lower, _ = tensorion.spectral_norm(x.real.clone(), field="complex")
    assert lower == pytest.approx(best, rel=1e-6)


def test_real_and_complex_norms_of_matrices_are_equal():
    a = gaussian((4, 6), 1, torch.float64)
    assert tensorion.spectral_norm(a, field="complex") == tensorion.spectral_norm(a)


def test_unknown_field_raises():
    with pytest.raises(ValueError, match="field must be 'real' or 'complex', got 'p-adic'"):
        tensorion.spectral_norm(ROTATION, field="p-adic")
    with pytest.raises(TypeError, match="field must be a string, got 2"):
        tensorion.spectral_norm(ROTATION, field=2)
