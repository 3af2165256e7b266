"""Numerical checks of inequalities in the paper: propositions 4.1 and 4.3, and the radius of section 4.5."""

import math

import numpy as np
import pytest
import torch
from support import all_unfoldings, gaussian, nuclear_norm, numpy_unfold
from torch import nn

import tensorion


def outer(weights, factors):
    """`sum_r weights[r] factors[0][r] (x) factors[1][r] (x) ...`."""
    letters = "abcdef"[: len(factors)]
    terms = ",".join(f"r{letter}" for letter in letters)
    return torch.einsum(f"r,{terms}->{letters}", weights, *factors)


@pytest.mark.parametrize("shape", [(3, 4, 5), (4, 4, 4, 4), (6, 2, 3, 3)])
@pytest.mark.parametrize("terms", [1, 3, 8])
def test_dual_norm_is_at_most_the_nuclear_norm_of_the_tensor(shape, terms):
    # Proposition 4.1. The nuclear norm of a tensor is the smallest sum of weights in a decomposition into rank-one
    # terms of unit norm, so every decomposition gives an upper bound of the dual norm.
    factors = [
        nn.functional.normalize(gaussian((terms, size), i, torch.float64), dim=1) for i, size in enumerate(shape)
    ]
    weights = gaussian((terms,), 9, torch.float64)
    x = outer(weights, factors)
    assert tensorion.dual_norm(x).item() <= weights.abs().sum().item() * (1 + 1e-12)


@pytest.mark.parametrize("shape", [(3, 4, 5), (4, 3, 3, 3)])
def test_dual_norm_equals_nuclear_norm_if_terms_are_orthogonal(shape):
    factors = [torch.linalg.qr(gaussian((size, size), i, torch.float64))[0][:3] for i, size in enumerate(shape)]
    weights = torch.tensor([3.0, -2.0, 0.5], dtype=torch.float64)
    x = outer(weights, factors)
    assert tensorion.dual_norm(x).item() == pytest.approx(5.5, rel=1e-12)
    lower, upper = tensorion.spectral_norm(x)
    assert lower <= 3.0 * (1 + 1e-9)
    assert upper >= 3.0 * (1 - 1e-9)


ENTRIES = {  # of variance 1
    "gaussian": lambda generator, shape: generator.standard_normal(shape),
    "uniform": lambda generator, shape: generator.uniform(-math.sqrt(3), math.sqrt(3), shape),
    "laplace": lambda generator, shape: generator.laplace(0, math.sqrt(0.5), shape),
}


def randomized_bound(m, n, delta):
    return m * math.sqrt(n) + math.sqrt(m) * (math.sqrt(math.log(2 / delta)) + math.log(2 / delta))


@pytest.mark.parametrize("entries", ENTRIES)
@pytest.mark.parametrize("shape", [(8, 6, 3, 3), (5, 7, 9), (16, 4, 2)])
def test_nuclear_norms_of_random_tensors_are_bounded(entries, shape):
    # Proposition 4.3 with C = 1 for entries of variance 1, for all unfoldings of a tensor.
    delta, draws, misses = 0.05, 60, 0
    generator = np.random.default_rng(1)
    for _ in range(draws):
        x = ENTRIES[entries](generator, shape)
        matrices = [numpy_unfold(x, modes) for modes in all_unfoldings(shape)]
        misses += any(nuclear_norm(a) > randomized_bound(*sorted(a.shape), delta) for a in matrices)
    assert misses <= delta * draws
    sides = {modes: sorted(numpy_unfold(x, modes).shape) for modes in all_unfoldings(shape)}
    largest = max(sides, key=lambda modes: randomized_bound(*sides[modes], delta))
    assert largest == tensorion.balanced_unfolding(shape)


@pytest.mark.parametrize("padding", ["circular", "zeros"])
@pytest.mark.parametrize("polar", ["svd", "halley"])
@pytest.mark.parametrize("unfolding", ["balanced", "online", (0,), (0, 1)])
@pytest.mark.parametrize("shape", [(6, 4, 3, 3), (3, 5, 4, 2), (4, 4, 5)])
def test_conv_radius_keeps_the_convolution_of_an_update_within_lr(shape, unfolding, polar, padding):
    lr = 0.25
    w = nn.Parameter(torch.zeros(shape))
    w.grad = gaussian(shape, 3)
    options = {"adjust_lr_fn": "conv_radius", "unfolding": unfolding, "polar": polar, "weight_decay": 0.0}
    tensorion.Tensorion([w], lr=lr, **options).step()
    norm = tensorion.conv_norm(w, 7, padding=padding)
    assert 0 < norm <= lr * (1 + 1e-4)


@pytest.mark.parametrize(("shape", "scale"), [((6, 24), 0.5), ((24, 6), 2.0)])
def test_spectral_unclamped_is_not_clamped(shape, scale):
    w = nn.Parameter(torch.zeros(shape))
    w.grad = gaussian(shape, 3)
    options = {"adjust_lr_fn": "spectral_unclamped", "polar": "svd", "min_order": 2, "unfolding": (0,)}
    tensorion.Tensorion([w], lr=1.0, weight_decay=0.0, **options).step()
    assert torch.linalg.matrix_norm(w, 2).item() == pytest.approx(scale, rel=1e-5)
