"""A step on an accelerator: it matches the CPU, takes few launches, and does not read from the device."""

import sys
from pathlib import Path

import pytest
import torch
from simulated_device import Device, to_cpu, to_device
from support import gaussian

import tensorion
from tensorion import Tensorion

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import workloads

SHAPES = [(16, 8, 3, 3), (16, 8, 3, 3), (8, 16, 3, 3), (12, 8, 1, 1), (6, 5, 4), (5, 7), (8,)]
#: A tolerance for half precision and a different iteration, in units of the update's scale.
CLOSE = 0.05


def on_device(shapes=SHAPES, dtype=torch.float32, device="simulated:0"):
    return [torch.nn.Parameter(to_device(gaussian(shape, i).to(dtype), device)) for i, shape in enumerate(shapes)]


def set_gradients(params, seed, scale=1.0):
    for i, param in enumerate(params):
        grad = scale * gaussian(param.shape, 100 * seed + i).to(param.dtype)
        param.grad = to_device(grad, param.device) if param.device.type != "cpu" else grad


def values(params):
    return [to_cpu(param.detach()) for param in params]


def twins(params):
    return [torch.nn.Parameter(to_cpu(param.detach())) for param in params]


#: Options other than "online", which may choose another unfolding if two are equally good.
OPTIONS = [
    {},
    {"unfolding": (0,)},
    {"nesterov": True, "adjust_lr_fn": "original"},
    {"nonfinite": "skip"},
    {"nonfinite": "skip", "nesterov": True},
    {"nonfinite": "ignore", "maximize": True},
    {"min_order": 2},
]
ONLINE = [{"unfolding": "online"}, {"unfolding": "online", "online_interval": 2, "nonfinite": "skip"}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_values_match_the_cpu(options):
    # With many Newton-Schulz steps, the polar factor is exact up to the rounding errors of half precision.
    options = {"lr": 0.1, "ns_coefficients": "polar_express", "ns_steps": 8, "polar": "newton_schulz", **options}
    with Device():
        params = on_device()
        others = twins(params)
        device, cpu = Tensorion(params, **options), Tensorion(others, **options)
        for seed in range(1, 4):
            for list_, optimizer in ((params, device), (others, cpu)):
                set_gradients(list_, seed)
                optimizer.step()
        for param, other in zip(params, others, strict=True):
            # An entry of an orthogonal factor is at most 1. There are three steps of 0.1 times the scale.
            scale = 0.2 * max(param.shape[0], param[0].numel()) ** 0.5 if param.dim() > 1 else 1
            torch.testing.assert_close(to_cpu(param.detach()), other.detach(), atol=0.3 * scale * CLOSE, rtol=0)


@pytest.mark.parametrize("method", ["halley", "svd"])
@pytest.mark.parametrize("unfolding", ["balanced", "online"])
def test_cpu_methods_match_the_cpu(method, unfolding):
    with Device():
        params = on_device()
        others = twins(params)
        for list_ in (params, others):
            optimizer = Tensorion(list_, polar=method, unfolding=unfolding)
            for seed in range(1, 3):
                set_gradients(list_, seed)
                optimizer.step()
        for value, other in zip(values(params), others, strict=True):
            torch.testing.assert_close(value, other.detach())


def test_batched_step_matches_separate_steps():
    with Device():
        together, alone = on_device(), on_device()
        optimizers = [Tensorion(together)] + [Tensorion([param]) for param in alone]
        for seed in range(1, 3):
            set_gradients(together, seed)
            set_gradients(alone, seed)
            for optimizer in optimizers:
                optimizer.step()
        for param, other in zip(values(together), values(alone), strict=True):
            torch.testing.assert_close(param, other, atol=2**-11, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("options", [{}, {"nonfinite": "skip"}], ids=str)
def test_dtypes_match_fp32_reference(dtype, options):
    with Device():
        params = on_device(dtype=dtype)
        optimizer = Tensorion(params, lr=0.1, **options)
        single = twins(params)
        for param in single:
            param.data = param.data.float()
        reference = Tensorion(single, lr=0.1, polar="svd")
        set_gradients(params, 1)
        for param, other in zip(params, single, strict=True):
            other.grad = to_cpu(param.grad).float()
        optimizer.step()
        reference.step()
        for param, other in zip(values(params), single, strict=True):
            assert param.dtype == dtype
            torch.testing.assert_close(param.float(), other.detach(), atol=0.1, rtol=0.02)


def network(name):
    """Return the parameters of a network on the device, with small sizes but the same groups of equal shapes."""
    shapes = workloads.shapes(getattr(workloads, name), width=8, stem=7, classes=1000)
    return on_device(shapes)


@pytest.mark.parametrize("nonfinite", ["error", "skip", "ignore"])
@pytest.mark.parametrize(("name", "limit"), [("resnet18", 350), ("resnet50", 450)])
def test_number_of_launches(name, limit, nonfinite):
    with Device() as device:
        params = network(name)
        optimizer = Tensorion(params, nonfinite=nonfinite)
        set_gradients(params, 1)
        optimizer.step()  # The first step creates the state.
        with device.recorded():
            optimizer.step()
    assert len(device.launches) <= limit
    assert len(device.reads) == (1 if nonfinite == "error" else 0)


@pytest.mark.parametrize("as_tensor", [False, True], ids=["float", "tensor"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"unfolding": (0,)},
        {"unfolding": "online"},
        {"unfolding": "online", "online_interval": 3},
        {"nesterov": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("nonfinite", ["error", "skip", "ignore"])
def test_number_of_reads(nonfinite, options, as_tensor):
    with Device() as device:
        params = on_device()
        lr = to_device(torch.tensor(0.1)) if as_tensor else 0.1
        optimizer = Tensorion(params, lr=lr, nonfinite=nonfinite, **options)
        for seed in range(1, 4):
            set_gradients(params, seed)
            with device.recorded():
                optimizer.step()
            assert len(device.reads) == (1 if nonfinite == "error" else 0)


def test_tensor_learning_rate_is_not_rounded_to_half_precision():
    # Regression: the momentum factor 0.95 and the learning rate were rounded to bfloat16.
    with Device():
        by_number, by_tensor = on_device(dtype=torch.bfloat16), on_device(dtype=torch.bfloat16)
        optimizers = [
            Tensorion(by_number, lr=0.0123, nonfinite="ignore"),
            Tensorion(by_tensor, lr=to_device(torch.tensor(0.0123)), nonfinite="skip"),
        ]
        for seed in range(1, 4):
            for params, optimizer in zip((by_number, by_tensor), optimizers, strict=True):
                set_gradients(params, seed)
                optimizer.step()
        for param, other in zip(values(by_number), values(by_tensor), strict=True):
            torch.testing.assert_close(param, other, atol=2**-10, rtol=2 * 2**-8)
        for i, param in enumerate(by_tensor[:5]):
            expected = torch.zeros(param.shape, dtype=torch.bfloat16)
            for seed in range(1, 4):
                expected = (expected.float() * 0.95).bfloat16() + gaussian(param.shape, 100 * seed + i).bfloat16()
            assert torch.equal(to_cpu(optimizers[1].state[param]["momentum_buffer"]), expected)


@pytest.mark.parametrize("options", [{}, {"nonfinite": "skip"}], ids=str)
@pytest.mark.parametrize("as_tensor", [False, True], ids=["float", "tensor"])
def test_several_devices(options, as_tensor):
    with Device():
        params = on_device(SHAPES[:3]) + on_device(SHAPES[3:], device="simulated:1")
        alone = on_device(SHAPES[:3]) + on_device(SHAPES[3:])
        for list_ in (params, alone):
            lr = to_device(torch.tensor(0.1)) if as_tensor else 0.1
            optimizer = Tensorion(list_, lr=lr, fallback_lr=lr, **options)
            for seed in range(1, 3):
                set_gradients(list_, seed)
                optimizer.step()
        for param, other in zip(values(params), values(alone), strict=True):
            torch.testing.assert_close(param, other, atol=2**-11, rtol=0)


@pytest.mark.parametrize("options", OPTIONS + ONLINE, ids=str)
def test_device_without_float64(options):
    with Device(has_float64=False):
        params = on_device()
        optimizer = Tensorion(params, **options)
        for seed in range(1, 3):
            set_gradients(params, seed)
            optimizer.step()
        x = to_device(gaussian((4, 3, 2), 0))
        for method in ("halley", "svd", "newton_schulz"):
            tensorion.lmo(x, polar=method)
            tensorion.polar(x, method)
        tensorion.relaxed_norm(x), tensorion.spectral_norm(x), tensorion.conv_norm(x, (4,))
        tensorion.dual_norm(x), tensorion.nuclear_norm(x, (0,))
        with pytest.raises(TypeError, match="no float64"):  # The simulated device does raise an error.
            torch.zeros(2, dtype=torch.float64, device="simulated:0")
