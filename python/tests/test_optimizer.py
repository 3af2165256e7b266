"""What a step computes."""

import math
import warnings

import pytest
import torch
from support import (
    AlgorithmOne,
    all_unfoldings,
    assert_same,
    conv_net,
    copies,
    gaussian,
    images,
    parameters,
    set_gradients,
)
from torch import nn

import tensorion
from tensorion import Tensorion

SHAPES = [(4, 5, 6), (4, 3, 2, 3), (2, 3, 2, 2, 3)]


@pytest.mark.parametrize(
    ("shape", "unfolding"),
    [(shape, unfolding) for shape in SHAPES for unfolding in ["balanced", "online", *all_unfoldings(shape)]],
    ids=str,
)
def test_fifty_steps_of_algorithm_one(shape, unfolding):
    options = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.3, "unfolding": unfolding}
    for nesterov in (False, True):
        w = nn.Parameter(gaussian(shape, 1, torch.float64))
        start = w.detach().clone()
        optimizer = Tensorion([w], **options, nesterov=nesterov, polar="svd")
        reference = AlgorithmOne(w, **options, nesterov=nesterov)
        for k in range(50):
            w.grad = gaussian(shape, 100 + k, torch.float64)
            optimizer.step()
            reference.step(w.grad)
        torch.testing.assert_close(w.detach(), torch.from_numpy(reference.w), atol=1e-9, rtol=0)
        torch.testing.assert_close(
            optimizer.state[w]["momentum_buffer"], torch.from_numpy(reference.m), atol=1e-12, rtol=0
        )
        assert (w - start).abs().max() > 0.5


@pytest.mark.parametrize("unfolding", ["balanced", "online", (0,)])
def test_default_polar_follows_algorithm_one(unfolding):
    options = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.3, "unfolding": unfolding}
    w = nn.Parameter(gaussian((8, 6, 3, 3), 1))
    optimizer, reference = Tensorion([w], **options), AlgorithmOne(w, **options)
    for k in range(20):
        w.grad = gaussian(w.shape, 100 + k)
        optimizer.step()
        reference.step(w.grad)
    moved = math.sqrt(((gaussian((8, 6, 3, 3), 1).double().numpy() - reference.w) ** 2).sum())
    error = (w.detach().double() - torch.from_numpy(reference.w)).norm().item()
    # A direction of quality 0.97 is at most sqrt(2 (1 - 0.97)) from the exact one.
    assert error < 0.25 * moved


def test_maximize_and_decay_use_their_signs():
    for shape in [(4, 5, 6), (5, 7)]:
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
    # 8 x 4 x 3 x 3 is 24 x 12 when balanced.
    w = nn.Parameter(torch.zeros(8, 4, 3, 3, dtype=torch.float64))
    w.grad = gaussian(w.shape, 1, torch.float64)
    Tensorion([w], lr=1.0, adjust_lr_fn=adjust_lr_fn, polar="svd").step()
    assert torch.linalg.matrix_norm(tensorion.unfold(w, (0, 2)), 2).item() == pytest.approx(scale)


def test_class_is_the_operators():
    # The C++ class is held to the same functions in tests/optimizer_test.cpp.
    params = parameters()
    w, adamw, sgd = copies(params)
    m, (a, b, count), buffer = (
        torch.zeros_like(w),
        (torch.zeros(5, 7), torch.zeros(5, 7), torch.zeros(())),
        torch.zeros(8),
    )
    optimizer = Tensorion(
        [
            {"params": params[:2], "unfolding": (0, 3), "nesterov": True},
            {"params": params[2:], "algorithm": "sgd", "momentum": 0.7, "lr": 0.3},
        ],
        lr=0.02,
        momentum=0.8,
        weight_decay=0.2,
        fallback_betas=(0.8, 0.99),
        fallback_eps=1e-6,
    )
    for k in range(5):
        set_gradients(params, k)
        optimizer.step()
        torch.ops.tensorion.step_(
            [w],
            [params[0].grad],
            [m],
            lr=0.02,
            momentum=0.8,
            nesterov=True,
            weight_decay=0.2,
            unfolding="(0, 3)",
            polar="auto",
            ns_coefficients=[3.4445, -4.7750, 2.0315],
            ns_steps=5,
            adjust_lr_fn="match_rms_adamw",
            maximize=False,
        )
        torch.ops.tensorion.adamw_step_(
            [adamw],
            [params[1].grad],
            [a],
            [b],
            [count],
            lr=0.02,
            beta1=0.8,
            beta2=0.99,
            eps=1e-6,
            weight_decay=0.2,
            maximize=False,
        )
        torch.ops.tensorion.sgd_step_(
            [sgd], [params[2].grad], [buffer], lr=0.3, momentum=0.7, weight_decay=0.2, maximize=False
        )
        assert_same(params, [w, adamw, sgd])


@pytest.mark.parametrize("maximize", [False, True])
def test_adamw_groups_are_torchs(maximize):
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
def test_sgd_groups_are_torchs(momentum):
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
    """Muon's, as its author wrote it, in the dtype of m."""
    x = m.T if m.shape[0] > m.shape[1] else m
    x = x / x.norm()
    for _ in range(5):
        r = x @ x.T
        x = 3.4445 * x + (-4.7750 * r + 2.0315 * r @ r) @ x
    return x.T if m.shape[0] > m.shape[1] else x


MATRICES = [(8, 12), (12, 5), (6, 6)]


@pytest.mark.parametrize("nesterov", [False, True])
def test_matrices_get_plain_muon(nesterov):
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


@pytest.mark.parametrize("nesterov", [False, True])
def test_matrices_get_torchs_muon(nesterov):
    # torch keeps (1 - momentum) times our momentum, by lerp, which the polar factor does not see. In bf16 its
    # five steps are good to about 2^-8 of the singular values of the update, each at most about 1.2.
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


def test_flattened_kernels_are_muons_matrices():
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
def test_singleton_modes_follow_their_matrix(unfolding):
    matrix = nn.Parameter(gaussian((6, 9), 1))
    tensor = nn.Parameter(matrix.detach().reshape(1, 6, 9).clone())
    a, b = (Tensorion([w], min_order=2, unfolding=unfolding) for w in (matrix, tensor))
    for k in range(20):
        matrix.grad = gaussian((6, 9), k)
        tensor.grad = matrix.grad.reshape(1, 6, 9)
        a.step()
        b.step()
        assert_same([matrix.reshape(1, 6, 9)], [tensor])


def test_layouts_give_the_same_update():
    plain = parameters()
    set_gradients(plain, 1)
    Tensorion(plain).step()
    for layout in ("channels_last", "gradient", "slice"):
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
def test_dtypes_keep_their_state(dtype):
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


def test_scale_of_the_gradient_does_not_matter():
    # An eps floor would make tiny gradients move nothing, and squares would overflow for large ones.
    moved = []
    for factor in (1.0, 1e-20, 1e20):
        w = nn.Parameter(torch.zeros(6, 4, 3, 3))
        w.grad = gaussian(w.shape, 1) * factor
        Tensorion([w]).step()
        moved.append(w.detach())
    torch.testing.assert_close(moved[1], moved[0], atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(moved[2], moved[0], atol=1e-6, rtol=1e-4)


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
        # AdamW's first step is of length lr, beside the decay.
        torch.testing.assert_close(param.detach(), old * (1 - 0.1 * 0.01) - 0.1, atol=1e-5, rtol=0)


def test_missing_gradients_leave_parameters_alone():
    params = parameters()
    before = copies(params)
    optimizer = Tensorion(params, weight_decay=0.5)
    set_gradients(params, 1)
    params[0].grad = params[2].grad = None
    optimizer.step()
    assert_same([params[0], params[2]], [before[0], before[2]])
    assert not torch.equal(params[1], before[1])
    assert set(optimizer.state) == {params[1]}
    # A gradient of zeros is another thing: it decays.
    params[0].grad = torch.zeros_like(params[0])
    optimizer.step()
    torch.testing.assert_close(params[0].detach(), before[0] * (1 - 1e-3 * 0.5))


def test_nonfinite_error_changes_nothing():
    params = parameters()
    optimizer = Tensorion([("kernel", params[0]), ("matrix", params[1]), ("bias", params[2])])
    set_gradients(params, 1)
    optimizer.step()
    before, state = copies(params), copies([v for s in optimizer.state.values() for v in s.values()])
    for bad in (float("nan"), float("inf"), -float("inf")):
        set_gradients(params, 2)
        params[1].grad[2, 3] = bad
        with pytest.raises(ValueError, match=r"gradient of parameter 'matrix', shape \[5, 7\] is not finite"):
            optimizer.step()
        assert_same(params, before)
        assert_same([v for s in optimizer.state.values() for v in s.values()], state)
    set_gradients(params, 2)
    optimizer.step()
    # A state that does not exist yet is not made either.
    fresh = Tensorion(params)
    params[2].grad[0] = float("nan")
    with pytest.raises(ValueError, match=r"parameter 1 of group 1, shape \[8\]"):
        fresh.step()
    assert not fresh.state


def test_nonfinite_skip_leaves_the_step_out():
    params, twins = parameters(), parameters()
    optimizer, reference = Tensorion(params, nonfinite="skip"), Tensorion(twins)
    for k in range(6):
        set_gradients(params, k)
        set_gradients(twins, k)
        if k % 2:
            params[k // 2].grad.view(-1)[0] = float("inf")
        else:
            reference.step()
        optimizer.step()
        assert_same(params, twins)
    assert optimizer.skipped_steps == 3
    assert reference.skipped_steps == 0


def test_nonfinite_ignore():
    params = parameters()
    optimizer = Tensorion(params, nonfinite="ignore")
    set_gradients(params, 1)
    params[0].grad[0, 0, 0, 0] = float("nan")
    params[2].grad[0] = float("nan")
    optimizer.step()
    assert params[0].isnan().all()
    assert params[1].isfinite().all()
    assert params[2].isnan().sum() == 1


def test_lr_on_the_device_and_a_verdict():
    # What another device gets: the operators decide by tensors, without reading them.
    arguments = {"lr": 0.0, "weight_decay": 0.1, "maximize": False, "lr_tensor": torch.tensor(0.05)}
    tensorion_ = {
        "momentum": 0.9,
        "nesterov": False,
        "unfolding": "balanced",
        "polar": "auto",
        "ns_coefficients": [3.4445, -4.7750, 2.0315],
        "ns_steps": 5,
        "adjust_lr_fn": "original",
    }
    params, twins = parameters(), parameters()
    set_gradients(params, 1)
    reference = Tensorion(twins[:2], lr=0.05, momentum=0.9, weight_decay=0.1, adjust_lr_fn="original", fallback="adamw")
    sgd = Tensorion(twins[2:], lr=0.05, weight_decay=0.1, fallback="sgd")
    for twin, param in zip(twins, params, strict=True):
        twin.grad = param.grad
    reference.step()
    sgd.step()
    grads, states = [param.grad for param in params], [torch.zeros_like(param) for param in params]
    second, count = torch.zeros(5, 7), torch.zeros(())
    for found_inf in (1.0, 0.0):
        verdict = {"found_inf": torch.tensor(found_inf)}
        with torch.no_grad():
            torch.ops.tensorion.step_(params[:1], grads[:1], states[:1], **arguments, **tensorion_, **verdict)
            torch.ops.tensorion.adamw_step_(
                params[1:2],
                grads[1:2],
                states[1:2],
                [second],
                [count],
                beta1=0.9,
                beta2=0.999,
                eps=1e-8,
                **arguments,
                **verdict,
            )
            torch.ops.tensorion.sgd_step_(params[2:], grads[2:], states[2:], momentum=0.9, **arguments, **verdict)
        if found_inf:
            assert_same(params, parameters())
            assert not any(state.any() for state in [*states, second, count])
    for param, twin in zip(params, twins, strict=True):
        torch.testing.assert_close(param, twin, atol=1e-6, rtol=0)


def test_operators():
    from torch.library import opcheck

    def lists(shape, count):
        return [[gaussian(shape, 10 * i + j) for j in range(2)] for i in range(count)]

    common = {"lr": 0.1, "weight_decay": 0.1, "maximize": False}
    optional = [{}, {"lr_tensor": torch.tensor(0.1), "found_inf": torch.zeros(())}]
    for extra in optional:
        params, grads, momenta = lists((4, 3, 2), 3)
        for param in params:
            param.requires_grad_()
        opcheck(
            torch.ops.tensorion.step_.default,
            (params, grads, momenta),
            {
                **common,
                **extra,
                "momentum": 0.9,
                "nesterov": True,
                "unfolding": "online",
                "polar": "svd",
                "ns_coefficients": [1.0, 2.0, 3.0],
                "ns_steps": 3,
                "adjust_lr_fn": "original",
            },
        )
        params, grads, a, b = lists((4, 3), 4)
        opcheck(
            torch.ops.tensorion.adamw_step_.default,
            (params, grads, a, [x.abs() for x in b], [torch.zeros(()), torch.ones(())]),
            {**common, **extra, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8},
        )
        opcheck(torch.ops.tensorion.sgd_step_.default, (params, grads, a), {**common, **extra, "momentum": 0.9})
    params, grads = lists((4, 3, 2), 2)
    opcheck(torch.ops.tensorion.add_gradients_.default, (params, grads), {"momentum": 0.9, "maximize": True})
    solving = {"unfolding": "(1,)", "polar": "svd", "ns_coefficients": [1.0, 2.0, 3.0], "ns_steps": 3}
    opcheck(torch.ops.tensorion.directions.default, (params,), {**solving, "adjust_lr_fn": "original"})
    for extra in ({}, {"lr_tensor": torch.tensor(0.1)}):
        opcheck(
            torch.ops.tensorion.apply_directions_.default, (params, grads), {"lr": 0.1, "weight_decay": 0.1, **extra}
        )
    for operator in (torch.ops.tensorion.first_nonfinite, torch.ops.tensorion.any_nonfinite):
        opcheck(operator.default, (lists((3, 2), 1)[0],))
    good, bad = torch.ones(3), torch.tensor([1.0, float("nan")])
    assert torch.ops.tensorion.first_nonfinite([good, bad]).item() == 1
    assert torch.ops.tensorion.first_nonfinite([good, torch.ones(0)]).item() == -1
    assert torch.ops.tensorion.any_nonfinite([good, bad]).item() == 1
    assert torch.ops.tensorion.any_nonfinite([good]).item() == 0


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
def test_a_small_network_learns(unfolding, fallback):
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


def test_steady_state_makes_no_new_state():
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


def test_a_step_allocates_nothing_large_once_it_has_run():
    param = torch.nn.Parameter(torch.randn(96, 96, 3, 3))
    param.grad = torch.randn_like(param)
    optimizer = Tensorion([param])
    for _ in range(2):  # the first learns how much is needed
        optimizer.step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        optimizer.step()
    allocated = sum(max(0, event.self_cpu_memory_usage) for event in profiler.key_averages())
    assert allocated < param.numel()  # bytes: a quarter of the unfolding, of which it needs several
