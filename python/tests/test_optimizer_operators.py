"""The operators of the optimizer."""

import pytest
import torch
from support import assert_same, copies, gaussian, parameters, set_gradients
from torch.library import opcheck
from torch_versions import CUDAGRAPH_UNSAFE

from tensorion import Tensorion


def test_class_matches_operators():
    # tests/optimizer_test.cpp compares the C++ class with the same functions.
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
            [],
            lr=0.02,
            momentum=0.8,
            nesterov=True,
            weight_decay=0.2,
            unfolding="(0, 3)",
            batch_modes=[],
            split_sizes=[],
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


def test_tensor_lr_and_found_inf():
    # On accelerators, the operators take these values as tensors and do not read them.
    arguments = {"lr": 0.0, "weight_decay": 0.1, "maximize": False, "lr_tensor": torch.tensor(0.05)}
    tensorion_ = {
        "momentum": 0.9,
        "nesterov": False,
        "unfolding": "balanced",
        "batch_modes": [],
        "split_sizes": [],
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
            torch.ops.tensorion.step_(params[:1], grads[:1], states[:1], [], **arguments, **tensorion_, **verdict)
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


def lists(shape, count):
    return [[gaussian(shape, 10 * i + j) for j in range(2)] for i in range(count)]


COMMON = {"lr": 0.1, "weight_decay": 0.1, "maximize": False}
SOLVING = {
    "batch_modes": [0],
    "split_sizes": [],
    "polar": "svd",
    "ns_coefficients": [1.0, 2.0, 3.0],
    "ns_steps": 3,
    "adjust_lr_fn": "original",
}


@pytest.mark.parametrize(
    "extra", [{}, {"lr_tensor": torch.tensor(0.1), "found_inf": torch.zeros(())}], ids=["", "device"]
)
def test_step_operators(extra):
    params, grads, momenta = lists((4, 3, 2), 3)
    for param in params:
        param.requires_grad_()
    opcheck(
        torch.ops.tensorion.step_.default,
        (params, grads, momenta, [torch.zeros(4), torch.zeros(4)]),
        {**COMMON, **extra, **SOLVING, "momentum": 0.9, "nesterov": True, "unfolding": "online"},
    )
    params, grads, a, b = lists((4, 3), 4)
    opcheck(
        torch.ops.tensorion.adamw_step_.default,
        (params, grads, a, [x.abs() for x in b], [torch.zeros(()), torch.ones(())]),
        {**COMMON, **extra, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8},
    )
    opcheck(torch.ops.tensorion.sgd_step_.default, (params, grads, a), {**COMMON, **extra, "momentum": 0.9})


def test_operators_of_distributed_steps():
    params, grads = lists((4, 3, 2), 2)
    opcheck(torch.ops.tensorion.add_gradients_.default, (params, grads), {"momentum": 0.9, "maximize": True})
    opcheck(
        torch.ops.tensorion.directions_.default,
        (params, grads),
        {**COMMON, **SOLVING, "momentum": 0.9, "nesterov": True, "unfolding": "(1,)"},
    )


@pytest.mark.parametrize("extra", [{}, {"lr_tensor": torch.tensor(0.1)}], ids=["", "device"])
def test_apply_directions(extra):
    params, directions = lists((4, 3, 2), 2)
    arguments = {"lr": 0.1, "weight_decay": 0.1, **extra}
    opcheck(torch.ops.tensorion.apply_directions_.default, (params, directions), arguments)


@pytest.mark.parametrize("name", ["first_nonfinite", "any_nonfinite"])
def test_nonfinite_operators(name):
    opcheck(getattr(torch.ops.tensorion, name).default, (lists((3, 2), 1)[0],))


def test_nonfinite_operators_find_nonfinite_values():
    good, bad = torch.ones(3), torch.tensor([1.0, float("nan")])
    assert torch.ops.tensorion.first_nonfinite([good, bad]).item() == 1
    assert torch.ops.tensorion.first_nonfinite([good, torch.ones(0)]).item() == -1
    assert torch.ops.tensorion.any_nonfinite([good, bad]).item() == 1
    assert torch.ops.tensorion.any_nonfinite([good]).item() == 0


def test_tags():
    opaque = {name: operator for name, operator in operators().items() if has_meta_kernel(name)}
    assert {"step_", "polar", "first_nonfinite"} <= opaque.keys()
    for operator in opaque.values():
        assert torch.Tag.pt2_compliant_tag in operator.tags
    reading = {name for name, operator in opaque.items() if CUDAGRAPH_UNSAFE in operator.tags}
    norms = {"nuclear_norm", "dual_norm", "relaxed_norm", "spectral_norm", "conv_norm"}
    assert reading == (norms | {"lmo"} if CUDAGRAPH_UNSAFE else set())


def operators():
    names = [name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if name.startswith("tensorion::")]
    return {name: getattr(torch.ops.tensorion, name).default for name in names}


def has_meta_kernel(name):
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"tensorion::{name}", "Meta")
