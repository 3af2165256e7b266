"""The values that a step computes."""

import math
import warnings

import pytest
import torch
from support import AlgorithmOne, all_unfoldings, conv_net, copies, gaussian, images, parameters, set_gradients
from torch import nn

import tensorion
from tensorion import Tensorion

SHAPES = [(4, 5, 6), (4, 3, 2, 3), (2, 3, 2, 2, 3)]


@pytest.mark.parametrize(
    ("shape", "unfolding"),
    [(shape, unfolding) for shape in SHAPES for unfolding in ["balanced", "online", *all_unfoldings(shape)]],
    ids=str,
)
@pytest.mark.parametrize("nesterov", [False, True])
def test_fifty_steps_match_algorithm_one(shape, unfolding, nesterov):
    options = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.3, "unfolding": unfolding, "nesterov": nesterov}
    w = nn.Parameter(gaussian(shape, 1, torch.float64))
    start = w.detach().clone()
    optimizer = Tensorion([w], **options, polar="svd")
    reference = AlgorithmOne(w, **options)
    for k in range(50):
        w.grad = gaussian(shape, 100 + k, torch.float64)
        optimizer.step()
        reference.step(w.grad)
    torch.testing.assert_close(w.detach(), torch.from_numpy(reference.w), atol=1e-9, rtol=0)
    torch.testing.assert_close(optimizer.state[w]["momentum_buffer"], torch.from_numpy(reference.m), atol=1e-12, rtol=0)
    assert (w - start).abs().max() > 0.5


@pytest.mark.parametrize("unfolding", ["balanced", "online", (0,)])
def test_default_polar_approximates_algorithm_one(unfolding):
    options = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.3, "unfolding": unfolding}
    w = nn.Parameter(gaussian((8, 6, 3, 3), 1))
    optimizer, reference = Tensorion([w], **options), AlgorithmOne(w, **options)
    for k in range(20):
        w.grad = gaussian(w.shape, 100 + k)
        optimizer.step()
        reference.step(w.grad)
    moved = math.sqrt(((gaussian((8, 6, 3, 3), 1).double().numpy() - reference.w) ** 2).sum())
    error = (w.detach().double() - torch.from_numpy(reference.w)).norm().item()
    # The distance of a direction of quality 0.97 from the exact one is at most sqrt(2 (1 - 0.97)).
    assert error < 0.25 * moved


@pytest.mark.parametrize("shape", [(4, 5, 6), (5, 7)], ids=str)
def test_maximize_does_not_change_weight_decay(shape):
    up, down = (nn.Parameter(gaussian(shape, 1)) for _ in range(2))
    ascent = Tensorion([up], lr=0.1, maximize=True, weight_decay=0.2)
    descent = Tensorion([down], lr=0.1, weight_decay=0.2)
    for k in range(3):
        up.grad = gaussian(shape, k)
        down.grad = -up.grad
        ascent.step()
        descent.step()
    torch.testing.assert_close(up, down, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("adjust_lr_fn", "scale"),
    [("match_rms_adamw", 0.2 * math.sqrt(24)), ("original", math.sqrt(2)), ("conv_radius", 1 / 3)],
)
def test_scale_comes_from_the_unfolded_matrix(adjust_lr_fn, scale):
    # The balanced unfolding of 8 x 4 x 3 x 3 is 24 x 12.
    w = nn.Parameter(torch.zeros(8, 4, 3, 3, dtype=torch.float64))
    w.grad = gaussian(w.shape, 1, torch.float64)
    Tensorion([w], lr=1.0, adjust_lr_fn=adjust_lr_fn, polar="svd").step()
    assert torch.linalg.matrix_norm(tensorion.unfold(w, (0, 2)), 2).item() == pytest.approx(scale)


@pytest.mark.parametrize("layout", ["channels_last", "gradient", "slice"])
def test_layouts_give_the_same_update(layout):
    plain = parameters()
    set_gradients(plain, 1)
    Tensorion(plain).step()
    params = parameters()
    set_gradients(params, 1)
    kernel = params[0]
    if layout == "channels_last":
        kernel.data = kernel.data.contiguous(memory_format=torch.channels_last)
    if layout in ("channels_last", "gradient"):
        kernel.grad = kernel.grad.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
        params[1].grad = params[1].grad.t().contiguous().t()
    if layout == "slice":
        grad = kernel.grad
        wide = torch.zeros(6, 4, 3, 6)
        wide[..., ::2] = kernel.detach()
        params[0] = kernel = wide[..., ::2].requires_grad_()
        kernel.grad = grad
    before = kernel.stride()
    optimizer = Tensorion(params)
    optimizer.step()
    for param, expected in zip(params, plain, strict=True):
        torch.testing.assert_close(param.detach(), expected.detach(), atol=1e-6, rtol=0)
    assert kernel.stride() == before
    if layout == "slice":
        assert wide[..., 1::2].abs().max() == 0
    elif layout == "channels_last":
        assert optimizer.state[kernel]["momentum_buffer"].stride() == before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_state_has_dtype_of_parameter(dtype):
    ours, reference = parameters(dtype=dtype), parameters()
    optimizer, single = Tensorion(ours, lr=0.05), Tensorion(reference, lr=0.05)
    for k in range(3):
        set_gradients(ours, k)
        set_gradients(reference, k)
        optimizer.step()
        single.step()
    for param, expected in zip(ours, reference, strict=True):
        assert param.dtype == dtype
        tolerance = 0.05 if dtype == torch.bfloat16 else 0.01
        torch.testing.assert_close(param.detach().float(), expected.detach(), atol=tolerance, rtol=tolerance)
        for key, value in optimizer.state[param].items():
            assert value.dtype == (torch.float32 if key == "step" else dtype)


@pytest.mark.parametrize("factor", [1e-20, 1e20])
def test_scale_of_the_gradient_does_not_matter(factor):
    # With an eps, tiny gradients would have no effect. Squares of large gradients would overflow.
    w, scaled = (nn.Parameter(torch.zeros(6, 4, 3, 3)) for _ in range(2))
    w.grad = gaussian(w.shape, 1)
    scaled.grad = w.grad * factor
    Tensorion([w]).step()
    Tensorion([scaled]).step()
    torch.testing.assert_close(scaled, w, atol=1e-6, rtol=1e-4)


def test_scalars_and_empty_tensors():
    params = [nn.Parameter(gaussian(shape, 1)) for shape in [(), (0,), (3, 0, 4), (1, 1, 1), (1,)]]
    optimizer = Tensorion(params, lr=0.1)
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 4]
    for param in params:
        param.grad = torch.ones_like(param)
    before = copies(params)
    optimizer.step()
    for param, old in zip(params, before, strict=True):
        assert param.shape == old.shape
        # Besides weight decay, AdamW's first step has size lr.
        torch.testing.assert_close(param.detach(), old * (1 - 0.1 * 0.01) - 0.1, atol=1e-5, rtol=0)


def test_converges_on_a_quadratic():
    target = gaussian((4, 3, 3, 3), 7)
    w = nn.Parameter(torch.zeros(4, 3, 3, 3))
    optimizer = Tensorion([w], lr=0.2, momentum=0.5, weight_decay=0)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, 300)
    for _ in range(300):
        optimizer.zero_grad()
        loss = (w - target).square().sum()
        loss.backward()
        optimizer.step()
        scheduler.step()
    assert loss.item() < 1e-2


@pytest.mark.parametrize("unfolding", ["balanced", "online"])
@pytest.mark.parametrize("fallback", ["adamw", "sgd"])
def test_small_network_learns(unfolding, fallback):
    model = conv_net()
    x, y = images(64)
    optimizer = Tensorion(model.parameters(), lr=0.02, unfolding=unfolding, fallback=fallback, fallback_lr=0.01)
    for _ in range(40):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    held_out, labels = images(64, seed=77)
    assert loss.item() < 0.05
    assert (model(held_out).argmax(1) == labels).float().mean() > 0.9


def test_later_steps_reuse_state():
    params = parameters()
    optimizer = Tensorion(params)
    set_gradients(params, 1)
    optimizer.step()
    before = {key: value.data_ptr() for s in optimizer.state.values() for key, value in s.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
    assert {key: value.data_ptr() for s in optimizer.state.values() for key, value in s.items()} == before
    assert sorted(optimizer.state[params[0]]) == ["momentum_buffer"]
    assert sorted(optimizer.state[params[1]]) == ["exp_avg", "exp_avg_sq", "step"]


def test_later_steps_allocate_no_large_tensors():
    param = torch.nn.Parameter(torch.randn(96, 96, 3, 3))
    param.grad = torch.randn_like(param)
    optimizer = Tensorion([param])
    for _ in range(2):  # The first step determines the size of the scratch memory.
        optimizer.step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        optimizer.step()
    allocated = sum(max(0, event.self_cpu_memory_usage) for event in profiler.key_averages())
    assert allocated < param.numel()  # In bytes, this is a quarter of the unfolding. A step needs several unfoldings.
