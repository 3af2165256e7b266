"""Steps on an accelerator with autocast, nonfinite gradients, a GradScaler, and restored states."""

from contextlib import nullcontext

import pytest
import torch
from simulated_device import Device, autocast, to_cpu, to_device
from support import gaussian
from test_device_step import on_device, set_gradients, twins, values

import tensorion
from tensorion import Tensorion

METHODS = ["auto", "newton_schulz", "halley", "svd"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("unfolding", ["balanced", "online", (0,)], ids=str)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("place", ["cpu", "device"])
def test_ignored_nonfinite_gradients_give_nan_only_in_their_parameters(place, bad, unfolding, method):
    # Regression: the step raised an error after it had changed some momenta.
    with Device():
        params = on_device() if place == "device" else twins(on_device())
        optimizer = Tensorion(params, nonfinite="ignore", polar=method, unfolding=unfolding)
        set_gradients(params, 1)
        params[1].grad.view(-1)[3] = bad
        optimizer.step()
        found = [to_cpu(param.detach()) if place == "device" else param.detach() for param in params]
    assert found[1].isnan().all()
    assert all(value.isfinite().all() for i, value in enumerate(found) if i != 1)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_skipped_steps_change_nothing_and_are_counted_in_place(bad, nesterov):
    with Device() as device:
        params = on_device()
        optimizer = Tensorion(params, nonfinite="skip", nesterov=nesterov)
        set_gradients(params, 1)
        optimizer.step()
        counter = optimizer._skipped
        before = values(params), values([optimizer.state[param]["momentum_buffer"] for param in params[:5]])
        params[2].grad.view(-1)[0] = bad
        with device.recorded():
            optimizer.step()
        assert not device.reads
        after = values(params), values([optimizer.state[param]["momentum_buffer"] for param in params[:5]])
        for old, new in zip(before, after, strict=True):
            assert all(torch.equal(x, y) for x, y in zip(old, new, strict=True))
        assert optimizer.skipped_steps == 1
        assert optimizer._skipped is counter  # A captured graph needs the same tensor.


def test_error_names_first_nonfinite_gradient():
    with Device():
        params = on_device()
        optimizer = Tensorion([(f"p{i}", param) for i, param in enumerate(params)])
        set_gradients(params, 1)
        params[2].grad.view(-1)[0] = torch.nan
        params[4].grad.view(-1)[0] = torch.inf
        before = values(params)
        with pytest.raises(ValueError, match="the gradient of parameter 'p2'"):
            optimizer.step()
        assert all(torch.equal(x, y) for x, y in zip(before, values(params), strict=True))


def test_large_gradients_of_float64_are_finite():
    with Device():
        params = on_device(dtype=torch.float64)
        optimizer = Tensorion(params, fallback="sgd", fallback_lr=0.0)
        set_gradients(params, 1, scale=1e100)
        optimizer.step()
        assert all(value.isfinite().all() for value in values(params))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_momenta_that_overflow_are_clamped(dtype):
    with Device():
        params = on_device([(4, 3, 2)], dtype)
        optimizer = Tensorion(params, lr=0.1)
        for _ in range(3):
            params[0].grad = to_device(torch.full((4, 3, 2), torch.finfo(dtype).max, dtype=dtype))
            optimizer.step()
        assert to_cpu(optimizer.state[params[0]]["momentum_buffer"]).isfinite().all()
        assert values(params)[0].isfinite().all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("unfolding", ["balanced", "online"])
def test_autocast_changes_nothing_on_the_cpu(method, unfolding):
    found = []
    for enabled in (False, True):
        params = [torch.nn.Parameter(gaussian(shape, i)) for i, shape in enumerate([(8, 6, 3, 3), (4, 5)])]
        optimizer = Tensorion(params, polar=method, unfolding=unfolding)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            for seed in range(2):
                for i, param in enumerate(params):
                    param.grad = gaussian(param.shape, 10 * seed + i)
                optimizer.step()
            batch = tensorion.polar(gaussian((3, 20, 30), 5), method)
        found.append([*(param.detach() for param in params), batch])
    assert all(torch.equal(x, y) for x, y in zip(*found, strict=True))


@pytest.mark.parametrize("unfolding", ["balanced", "online"])
def test_autocast_does_not_cast_our_products(unfolding):
    found = []
    for enabled in (False, True):
        with Device(), autocast() if enabled else nullcontext([]) as cast:
            params = on_device()
            optimizer = Tensorion(params, unfolding=unfolding)
            set_gradients(params, 1)
            optimizer.step()
            batch = tensorion.polar(to_device(gaussian((3, 20, 30), 5)))
            assert not cast
            found.append([*values(params), to_cpu(batch)])
    assert all(torch.equal(x, y) for x, y in zip(*found, strict=True))
    with Device(), autocast() as cast:
        torch.bmm(batch, batch.mT)
        assert cast == ["aten.bmm.default"]


@pytest.mark.parametrize("interval", [2, 3])
def test_online_choices_are_kept_and_restored(interval):
    with Device():
        params = on_device([(6, 6, 3, 3)])
        optimizer = Tensorion(params, unfolding="online", online_interval=interval)
        chosen = []
        for seed in range(1, 2 * interval + 1):
            set_gradients(params, 7 * seed)
            optimizer.step()
            chosen.append(to_cpu(optimizer.state[params[0]]["unfolding"]).item())
        assert all(chosen[i] == chosen[i - i % interval] for i in range(len(chosen)))
        assert set(chosen) <= {5, 6}  # {0, 2} and {0, 3}: the unfoldings of the balanced shape, 18 x 18
        copy = on_device([(6, 6, 3, 3)])
        other = Tensorion(copy, unfolding="online", online_interval=interval)
        other.load_state_dict(optimizer.state_dict())
        state = other.state[copy[0]]
        assert to_cpu(state["unfolding"]).item() == chosen[-1]
        assert state["step"].item() == 2 * interval
        assert state["step"].device.type == "cpu"


@pytest.mark.parametrize("seed", range(5))
def test_online_is_as_good_as_exhaustive_search(seed):
    shape = [(8, 8, 3, 3), (16, 8, 3, 3), (6, 6, 6), (12, 5, 7), (4, 4, 4, 4)][seed]
    with Device():
        params = on_device([shape])
        optimizer = Tensorion(params, unfolding="online", online_interval=2)
        set_gradients(params, seed + 1)
        optimizer.step()
        momentum = to_cpu(optimizer.state[params[0]]["momentum_buffer"])
        number = int(to_cpu(optimizer.state[params[0]]["unfolding"]).item())
    norms = [torch.linalg.svdvals(tensorion.unfold(momentum, modes)).sum() for modes in tensorion.unfoldings(shape)]
    assert norms[number] >= 0.995 * max(norms)


class Scaler:
    """Does what GradScaler does to an optimizer with `_step_supports_amp_scaling`, on the simulated device."""

    def __init__(self, scale):
        self.scale = to_device(torch.tensor(scale))

    def step(self, optimizer):
        optimizer.grad_scale, optimizer.found_inf = self.scale, to_device(torch.zeros(()))
        try:
            optimizer.step()
        finally:
            del optimizer.grad_scale, optimizer.found_inf


@pytest.mark.parametrize("nonfinite", ["error", "skip", "ignore"])
def test_step_unscales_gradients(nonfinite):
    assert Tensorion._step_supports_amp_scaling
    with Device() as device:
        scaled, plain = on_device(), on_device()
        optimizers = [Tensorion(params, nonfinite=nonfinite) for params in (scaled, plain)]
        set_gradients(scaled, 1, scale=1024.0)
        set_gradients(plain, 1)
        scaler = Scaler(1024.0)
        with device.recorded():
            scaler.step(optimizers[0])
        assert len(device.reads) == (1 if nonfinite == "error" else 0)
        optimizers[1].step()
        for param, other in zip(values(scaled), values(plain), strict=True):
            torch.testing.assert_close(param, other, atol=2**-11, rtol=0)
        before = values(scaled)
        scaled[3].grad.view(-1)[0] = torch.inf  # an overflow is no error: the scaler skips the step
        scaler.step(optimizers[0])
        assert all(torch.equal(x, y) for x, y in zip(before, values(scaled), strict=True))
        assert optimizers[0].skipped_steps == 0


def test_torch_grad_scaler():
    param = torch.nn.Parameter(gaussian((4, 3, 2), 1))
    twin = torch.nn.Parameter(param.detach().clone())
    optimizer, plain = Tensorion([param]), Tensorion([twin])
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for k in range(3):
        factor = gaussian((4, 3, 2), k)
        scaler.scale((param * factor).sum()).backward()
        if k == 1:
            param.grad[0, 0, 0] = torch.inf
        scaler.step(optimizer)
        scaler.update()
        if k != 1:
            twin.grad = factor
            plain.step()
        optimizer.zero_grad()
    torch.testing.assert_close(param.detach(), twin.detach())
    assert scaler.get_scale() == 128.0
