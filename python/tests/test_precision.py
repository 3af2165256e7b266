"""Inputs for which plain single precision, or the range of double precision, is not sufficient."""

import pytest
import torch
from support import gaussian, quality

import tensorion


def with_columns(rows, values, seed):
    """Create a tall matrix with these singular values."""
    u, _ = torch.linalg.qr(gaussian((rows, len(values)), seed, torch.float64))
    v, _ = torch.linalg.qr(gaussian((len(values), len(values)), seed + 1, torch.float64))
    return ((u * torch.tensor(values, dtype=torch.float64)) @ v).float()


def tall_quality(a, x):
    """Compute the quality of x from the small Gram matrices."""
    a, x = a.double(), x.double()
    norm = torch.linalg.eigvalsh(x.T @ x)[-1].sqrt()
    nuclear = torch.linalg.svdvals(torch.linalg.qr(a).R).sum()
    return ((a * x).sum() / (norm * nuclear)).item()


# Regression: the Gram matrix of such long rows had an error of one percent, and the fallback then dropped all
# directions except one.
@pytest.mark.parametrize("method", ["auto", "newton_schulz", "svd"])
@pytest.mark.parametrize("rows", [30_000, 1_000_000])
@pytest.mark.parametrize("transposed", [False, True])
def test_long_matrices_keep_all_directions(rows, method, transposed):
    a = with_columns(rows, [1.0, 0.3, 0.3, 0.3], 1)
    x = tensorion.polar(a.T if transposed else a, method)
    x = x.T if transposed else x
    assert tall_quality(a, x) >= (0.7 if method == "newton_schulz" else 0.97)
    assert torch.linalg.svdvals(x.double().T @ x.double()).min().item() > 0.3


def test_step_updates_a_long_parameter():
    w = torch.nn.Parameter(torch.zeros(2_000_000, 4))
    w.grad = gaussian(w.shape, 2)
    tensorion.Tensorion([w], lr=1.0, weight_decay=0.0, adjust_lr_fn="original", min_order=2).step()
    assert tall_quality(w.grad, -w.detach()) >= 0.97


# Regression: the threshold for singular values was relative to the longer side, which made it 12 % of the largest
# singular value for 10^6 columns.
def test_svd_of_a_long_matrix_is_exact():
    a = with_columns(1_000_000, [1.0, 0.1, 0.1], 3).T
    x = tensorion.polar(a, "svd").double()
    torch.testing.assert_close(x @ x.T, torch.eye(3, dtype=torch.float64), atol=1e-5, rtol=0)
    torch.testing.assert_close((a.double() * x).sum().item(), 1.2, atol=1e-5, rtol=0)


def test_gradient_of_a_long_vector_is_its_direction():
    x = gaussian((3_000_000,), 4).requires_grad_()
    tensorion.dual_norm(x).backward()
    torch.testing.assert_close(x.grad.double(), (x / x.double().norm()).detach().double(), atol=1e-9, rtol=1e-5)


@pytest.mark.parametrize("shape", [(32, 30_000), (100, 100), (7, 5)])
def test_value_of_exact_solution_does_not_exceed_the_optimum(shape):
    x = gaussian(shape, 5)
    optimum = torch.linalg.svdvals(x.double()).sum().item()
    answer = tensorion.lmo(x, polar="svd")
    assert optimum * (1 - 1e-6) <= answer.value <= optimum <= answer.upper <= optimum * (1 + 1e-6)


def near_constant(shape, noise, seed):
    return 1 + noise * torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def brute_force(x):
    """Return the nuclear norm of each unfolding."""
    modes = tensorion.unfoldings(x.shape)
    return {tau: torch.linalg.svdvals(tensorion.unfold(x.double(), tau)).sum().item() for tau in modes}


# Regression: the search stopped as soon as the bounds of one unfolding could not be refined further, although others
# could.
@pytest.mark.parametrize("noise", [1e-2, 3e-3, 3e-4, 1e-5])
@pytest.mark.parametrize("shape", [(30, 60, 8), (40, 7), (9, 9, 3, 3), (12, 20, 5), (6, 5, 4, 3, 2)])
def test_online_matches_exhaustive_search_on_nearly_constant_tensors(shape, noise):
    for seed in range(8):
        x = near_constant(shape, noise, seed)
        norms = brute_force(x)
        answer = tensorion.lmo(x)
        best = max(norms.values())
        assert norms[answer.modes] >= best * (1 - 2e-7), seed
        assert answer.value <= best <= answer.upper, seed


# Regression: with a shift below the resolution of single precision, the upper bound fell to the lower bound.
@pytest.mark.parametrize("noise", [1e-3, 3e-4, 1e-4])
@pytest.mark.parametrize("method", ["auto", "newton_schulz", "svd"])
@pytest.mark.parametrize("shape", [(2, 100), (5, 40), (3, 2000)])
def test_certificates_hold_near_rank_one(shape, method, noise):
    for seed in range(1300, 1340):
        x = near_constant(shape, noise, seed)
        optimum = torch.linalg.svdvals(x.double()).sum().item()
        answer = tensorion.lmo(x, polar=method)
        assert answer.value <= optimum <= answer.upper, seed


@pytest.mark.parametrize("value", [0.37, 1.0, -3e-7])
@pytest.mark.parametrize("side", [100, 768])
def test_constant_matrices(value, side):
    a = torch.full((side, side), value)
    x = tensorion.polar(a)
    q, norm = quality(a, x)
    assert q >= 0.97
    assert norm <= 1.0001


@pytest.mark.parametrize("unfolding", ["balanced", "online", (1,)])
@pytest.mark.parametrize("method", ["auto", "newton_schulz", "svd"])
@pytest.mark.parametrize("scale", [1e307, 1.7e308, 1e-300])
def test_float64_at_the_ends_of_its_range(scale, method, unfolding):
    x = gaussian((4, 5, 6), 6, torch.float64)
    x = x / x.abs().max()
    expected = tensorion.lmo(x, unfolding=unfolding, polar=method)
    answer = tensorion.lmo(x * scale, unfolding=unfolding, polar=method)
    assert answer.modes == expected.modes
    torch.testing.assert_close(answer.x, expected.x, atol=1e-9, rtol=0)
    largest = torch.finfo(torch.float64).max
    assert answer.value == pytest.approx(min(expected.value * scale, largest), rel=1e-9)
    assert answer.upper == pytest.approx(expected.upper * scale, rel=1e-9)


@pytest.mark.parametrize("shape", [(2000, 3, 3), (50, 2, 16), (4, 5, 7, 3), (3, 17, 20)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_batches_of_small_matrices(shape, dtype):
    a = gaussian(shape, 7, dtype)
    flat, x = a.reshape(-1, *shape[-2:]).double(), tensorion.polar(a).reshape(-1, *shape[-2:]).double()
    assert x.isfinite().all()
    value = (flat * x).sum((-2, -1)) / torch.linalg.svdvals(x)[..., 0].clamp_min(1)
    assert (value >= 0.97 * torch.linalg.svdvals(flat).sum(-1) * (1 - torch.finfo(dtype).eps)).all()


def functions():
    batch, kernel = gaussian((3, 40, 70), 8), gaussian((16, 8, 3, 3), 9)
    for method in ("halley", "newton_schulz", "svd"):
        yield f"polar {method}", lambda method=method: tensorion.polar(batch, method)
        for unfolding in ("balanced", "online", (0,)):
            yield (
                f"lmo {method} {unfolding}",
                lambda method=method, unfolding=unfolding: tensorion.lmo(kernel, unfolding=unfolding, polar=method).x,
            )
            yield (
                f"step {method} {unfolding}",
                lambda method=method, unfolding=unfolding: two_steps(kernel, polar=method, unfolding=unfolding),
            )
    yield "step sgd", lambda: two_steps(kernel, fallback="sgd")
    yield "nuclear_norm", lambda: tensorion.nuclear_norm(kernel, (0,))
    yield "dual_norm", lambda: tensorion.dual_norm(kernel)
    yield "relaxed_norm", lambda: torch.tensor(tensorion.relaxed_norm(kernel))
    yield "spectral_norm", lambda: torch.tensor(tensorion.spectral_norm(kernel))
    yield "conv_norm", lambda: torch.tensor(tensorion.conv_norm(kernel, (9, 9), padding="zeros"))


def two_steps(gradient, **options):
    params = [torch.nn.Parameter(torch.ones_like(gradient)), torch.nn.Parameter(torch.ones(5, 7))]
    optimizer = tensorion.Tensorion(params, **options)
    for _ in range(2):
        params[0].grad, params[1].grad = gradient.clone(), gradient.flatten()[:35].view(5, 7).clone()
        optimizer.step()
    return torch.cat([param.detach().flatten() for param in params])


FUNCTIONS = dict(functions())


# Regression: autocast replaced products in single precision by products in bfloat16.
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_changes_nothing(name, dtype):
    expected = FUNCTIONS[name]()
    with torch.autocast("cpu", dtype=dtype):
        found = FUNCTIONS[name]()
    assert torch.equal(found, expected)
