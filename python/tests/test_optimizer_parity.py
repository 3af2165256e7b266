"""Updates compared with torch's optimizers and Muon."""

import math

import pytest
import torch
from support import assert_same, copies, gaussian, parameters, set_gradients
from torch import nn
from torch_versions import needs_muon

from tensorion import Tensorion


@pytest.mark.parametrize("maximize", [False, True])
def test_adamw_groups_match_torch(maximize):
    ours, theirs = ([*parameters(), nn.Parameter(gaussian((), 9))] for _ in range(2))
    ours[0] = nn.Parameter(ours[0].detach().contiguous(memory_format=torch.channels_last))
    theirs[0] = nn.Parameter(theirs[0].detach().contiguous(memory_format=torch.channels_last))
    options = {"lr": 0.03, "weight_decay": 0.2}
    optimizer = Tensorion(
        [{"params": ours, "algorithm": "adamw"}],
        **options,
        fallback_betas=(0.8, 0.99),
        fallback_eps=1e-6,
        maximize=maximize,
    )
    reference = torch.optim.AdamW(theirs, **options, betas=(0.8, 0.99), eps=1e-6, fused=True, maximize=maximize)
    for k in range(20):
        set_gradients(ours, k)
        set_gradients(theirs, k)
        optimizer.step()
        reference.step()
        assert_same(ours, theirs)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_groups_match_torch(momentum):
    ours, theirs = parameters()[1:], parameters()[1:]
    options = {"lr": 0.03, "weight_decay": 0.2}
    optimizer = Tensorion(ours, **options, fallback="sgd", fallback_momentum=momentum)
    reference = torch.optim.SGD(theirs, **options, momentum=momentum, fused=True)
    for k in range(20):
        set_gradients(ours, k)
        set_gradients(theirs, k)
        optimizer.step()
        reference.step()
        assert_same(ours, theirs)


def newton_schulz(m):
    """The Newton-Schulz iteration of the original Muon, in the dtype of m."""
    x = m.T if m.shape[0] > m.shape[1] else m
    x = x / x.norm()
    for _ in range(5):
        r = x @ x.T
        x = 3.4445 * x + (-4.7750 * r + 2.0315 * r @ r) @ x
    return x.T if m.shape[0] > m.shape[1] else x


MATRICES = [(8, 12), (12, 5), (6, 6)]


@pytest.mark.parametrize("nesterov", [False, True])
def test_matrices_match_original_muon(nesterov):
    params = [nn.Parameter(gaussian(shape, i)) for i, shape in enumerate(MATRICES)]
    options = {"lr": 0.02, "momentum": 0.95, "weight_decay": 0.1, "nesterov": nesterov}
    optimizer = Tensorion(params, **options, min_order=2, polar="newton_schulz")
    plain = copies(params)
    buffers = [torch.zeros_like(w) for w in plain]
    for k in range(10):
        set_gradients(params, k)
        optimizer.step()
        for i, param in enumerate(params):
            buffers[i] = param.grad + 0.95 * buffers[i]
            update = newton_schulz(param.grad + 0.95 * buffers[i] if nesterov else buffers[i])
            plain[i] = plain[i] * (1 - 0.02 * 0.1) - 0.02 * 0.2 * math.sqrt(max(param.shape)) * update
    for param, expected in zip(params, plain, strict=True):
        torch.testing.assert_close(param.detach(), expected, atol=1e-5, rtol=0)


@needs_muon
@pytest.mark.parametrize("nesterov", [False, True])
def test_matrices_match_torch_muon(nesterov):
    # torch's momentum is (1 - momentum) times ours, which does not change the polar factor. torch computes its five
    # steps in bf16, with errors of about 2^-8 relative to the singular values of the update, which are at most about
    # 1.2.
    ours = [nn.Parameter(gaussian(shape, i)) for i, shape in enumerate(MATRICES)]
    theirs = [nn.Parameter(param.detach().clone()) for param in ours]
    options = {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.1, "nesterov": nesterov}
    optimizer = Tensorion(ours, **options, min_order=2, polar="newton_schulz")
    reference = torch.optim.Muon(theirs, **options, adjust_lr_fn="match_rms_adamw")
    steps = 5
    for k in range(steps):
        set_gradients(ours, k)
        set_gradients(theirs, k)
        optimizer.step()
        reference.step()
    for param, expected in zip(ours, theirs, strict=True):
        update = 0.02 * 0.2 * math.sqrt(max(param.shape))
        assert torch.linalg.matrix_norm(param - expected, 2) < 0.06 * steps * update


def test_flattened_kernels_match_matrices():
    kernel = nn.Parameter(gaussian((8, 4, 3, 3), 1))
    matrix = nn.Parameter(kernel.detach().reshape(8, 36).clone())
    a, b = Tensorion([kernel], unfolding=(0,)), Tensorion([matrix], min_order=2)
    for k in range(10):
        kernel.grad = gaussian(kernel.shape, k)
        matrix.grad = kernel.grad.reshape(8, 36)
        a.step()
        b.step()
        assert_same([kernel.reshape(8, 36)], [matrix])


@pytest.mark.parametrize("unfolding", ["balanced", "online"])
def test_singleton_modes_do_not_change_the_update(unfolding):
    matrix = nn.Parameter(gaussian((6, 9), 1))
    tensor = nn.Parameter(matrix.detach().reshape(1, 6, 9).clone())
    a, b = (Tensorion([w], min_order=2, unfolding=unfolding) for w in (matrix, tensor))
    for k in range(20):
        matrix.grad = gaussian((6, 9), k)
        tensor.grad = matrix.grad.reshape(1, 6, 9)
        a.step()
        b.step()
        assert_same([matrix.reshape(1, 6, 9)], [tensor])
