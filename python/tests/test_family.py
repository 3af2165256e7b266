"""Norms over a family of unfoldings instead of all of them."""

import itertools

import pytest
import torch
from support import gaussian

import tensorion

SHAPE = (4, 3, 1, 5, 2)
FAMILIES = [[(0,)], [(0,), (0, 1)], [(1,), (3,), (0, 4)], [(0, 2), (1, 3, 4), (0,)], tensorion.unfoldings(SHAPE)]


def nuclear(x, modes):
    rest = [mode for mode in range(x.dim()) if mode not in modes]
    rows = int(torch.tensor([x.shape[mode] for mode in modes]).prod())
    return torch.linalg.svdvals(x.permute(*modes, *rest).reshape(rows, -1)).sum()


@pytest.mark.parametrize("family", FAMILIES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_dual_norm_matches_exhaustive_search(seed, family):
    x = gaussian(SHAPE, seed)
    torch.testing.assert_close(tensorion.dual_norm(x, family=family), max(nuclear(x, modes) for modes in family))


@pytest.mark.parametrize("family", FAMILIES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_lmo_matches_exhaustive_search(seed, family):
    x = gaussian(SHAPE, seed)
    found = tensorion.lmo(x, family=family, polar="svd")
    norms = {tensorion.unfoldings(SHAPE).index(canonical(modes)): nuclear(x, modes).item() for modes in family}
    optimum = max(norms.values())
    assert canonical(found.modes) in {canonical(modes) for modes in family}
    assert nuclear(x, found.modes).item() == pytest.approx(optimum, rel=1e-5)
    assert found.value <= optimum * (1 + 1e-5)
    assert found.value == pytest.approx(optimum, rel=1e-4)
    assert found.upper >= optimum * (1 - 1e-5)
    assert (x * found.x).sum().item() == pytest.approx(optimum, rel=1e-4)


def canonical(modes):
    rows = tuple(mode for mode in modes if SHAPE[mode] > 1)
    rest = tuple(mode for mode in range(len(SHAPE)) if SHAPE[mode] > 1 and mode not in modes)
    return min(rows, rest, key=lambda side: (len(side), side))


def test_relaxed_norm_of_one_unfolding_is_its_spectral_norm():
    x = gaussian((4, 3, 5), 1)
    lower, upper = tensorion.relaxed_norm(x, family=[(1,)], tol=1e-6)
    norm = torch.linalg.matrix_norm(x.transpose(0, 1).reshape(3, 20).double(), 2).item()
    assert lower <= norm <= upper
    assert upper - lower <= 1e-6 * upper


@pytest.mark.parametrize("seed", range(2))
def test_relaxed_norm_of_two_unfoldings_matches_gradient_descent(seed):
    # The reference is the best decomposition into two parts, found by gradient descent on smoothed norms.
    x = gaussian((3, 4, 5), seed).double()
    part = (x / 2).requires_grad_()
    optimizer = torch.optim.LBFGS([part], max_iter=300, line_search_fn="strong_wolfe")

    def smooth(matrix, power):
        return torch.linalg.svdvals(matrix).pow(power).sum() ** (1 / power)

    def total(power):
        return smooth(part.reshape(3, 20), power) + smooth((x - part).reshape(12, 5), power)

    for power in (8, 32, 128, 512):

        def closure(power=power):
            optimizer.zero_grad()
            value = total(power)
            value.backward()
            return value

        optimizer.step(closure)
    with torch.no_grad():
        best = sum(torch.linalg.matrix_norm(m, 2) for m in (part.reshape(3, 20), (x - part).reshape(12, 5))).item()
    lower, upper = tensorion.relaxed_norm(x, family=[(0,), (2,)], tol=1e-4)
    assert lower <= best
    assert upper <= best * 1.001
    assert best <= upper * 1.02  # Smoothing has a small error.


def test_larger_families_have_smaller_relaxed_and_larger_dual_norms():
    x = gaussian(SHAPE, 5)
    chain = [[(0,)], [(0,), (1,)], [(0,), (1,), (0, 1)], None]
    relaxed = [tensorion.relaxed_norm(x, family=family, tol=1e-4) for family in chain]
    dual = [tensorion.dual_norm(x, family=family).item() for family in chain]
    assert all(later[0] <= earlier[1] for earlier, later in itertools.pairwise(relaxed))
    assert dual == sorted(dual)


def test_gradient_of_the_dual_norm():
    x = gaussian((3, 4, 2), 2).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda y: tensorion.dual_norm(y, family=[(0,), (1,)]), x)


@pytest.mark.parametrize("name", ["dual_norm", "relaxed_norm", "lmo"])
@pytest.mark.parametrize(
    ("family", "error", "message"),
    [
        (
            [(2,)],
            ValueError,
            r"family must have a mode larger than 1, got \[2\] for shape",
        ),
        ([(0, 7)], ValueError, "mode must be in"),
        ([()], ValueError, "at least one mode is needed"),
        ([], TypeError, "family must be None or a sequence of sets of modes, got"),
        (3, TypeError, "family must be None or a sequence of sets of modes, got 3"),
        ([0], TypeError, "family must be None or a sequence of sets of modes"),
    ],
)
def test_bad_families_raise(name, family, error, message):
    with pytest.raises(error, match=message):
        getattr(tensorion, name)(gaussian(SHAPE, 0), family=family)


def test_family_requires_online():
    with pytest.raises(ValueError, match="family requires unfolding 'online', got 'balanced'"):
        tensorion.lmo(gaussian(SHAPE, 0), unfolding="balanced", family=[(0,)])
