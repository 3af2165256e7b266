"""Features of torch.optim that training code uses: closures, hooks, AMP, compilation, copies."""

import copy
import gc
import weakref

import pytest
import torch
from support import (
    AlgorithmOne,
    assert_same,
    conv_net,
    copies,
    gaussian,
    images,
    parameters,
    set_gradients,
)
from torch import nn
from torch.optim.swa_utils import AveragedModel

from tensorion import Tensorion

X, Y = images()


def loss_of(model, x=X, y=Y):
    return nn.functional.cross_entropy(model(x), y)


def train(model, optimizer, steps=3):
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
    return model


def trained(steps=3, **options):
    model = conv_net()
    return train(model, Tensorion(model.parameters(), **options), steps)


def test_closure():
    w = nn.Parameter(gaussian((3, 4, 5), 1))
    twin = nn.Parameter(w.detach().clone())
    optimizer = Tensorion([w], lr=0.1)

    def closure():
        assert torch.is_grad_enabled()
        optimizer.zero_grad()
        loss = w.square().sum()
        loss.backward()
        return loss

    expected = w.detach().square().sum()
    assert torch.equal(optimizer.step(closure).detach(), expected)
    assert optimizer.step() is None
    twin.square().sum().backward()
    other = Tensorion([twin], lr=0.1)
    other.step()
    other.step()
    assert_same([w], [twin])


def test_step_hooks():
    params = parameters()
    optimizer = Tensorion(params)
    set_gradients(params, 1)
    seen = []
    before = copies(params)
    handles = [
        optimizer.register_step_pre_hook(lambda *_: seen.append(("pre", torch.equal(params[0], before[0])))),
        optimizer.register_step_post_hook(lambda *_: seen.append(("post", torch.equal(params[0], before[0])))),
    ]
    optimizer.step()
    assert seen == [("pre", True), ("post", False)]
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert len(seen) == 2


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad(set_to_none):
    params = parameters()
    optimizer = Tensorion(params)
    set_gradients(params, 1)
    optimizer.zero_grad(set_to_none)
    assert all(p.grad is None if set_to_none else not p.grad.any() for p in params)


def test_gradient_accumulation():
    model = conv_net()
    optimizer = Tensorion(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        for half in (slice(0, 16), slice(16, 32)):
            (loss_of(model, X[half], Y[half]) / 2).backward()
        optimizer.step()
    for param, expected in zip(model.parameters(), trained().parameters(), strict=True):
        torch.testing.assert_close(param, expected, atol=1e-4, rtol=0)


def test_clipped_gradients():
    w = nn.Parameter(gaussian((3, 4, 5), 1, torch.float64))
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "unfolding": "balanced"}
    optimizer = Tensorion([w], **options, polar="svd")
    reference = AlgorithmOne(w, **options)
    for k in range(4):
        grad = gaussian(w.shape, k, torch.float64) * 10.0**k
        w.grad = grad.clone()
        nn.utils.clip_grad_norm_([w], 1.0)
        optimizer.step()
        reference.step(grad * min(1.0, 1.0 / (grad.norm().item() + 1e-6)))
    torch.testing.assert_close(w.detach(), torch.from_numpy(reference.w), atol=1e-9, rtol=0)


def test_frozen_and_unused_parameters():
    model = conv_net()
    model[0].weight.requires_grad_(False)
    unused = nn.Parameter(gaussian((3, 4, 5), 1))
    before = copies([model[0].weight, unused])
    optimizer = Tensorion([*model.parameters(), unused], weight_decay=0.5)
    train(model, optimizer)
    assert_same([model[0].weight, unused], before)
    assert model[0].weight not in optimizer.state
    assert unused not in optimizer.state


def test_tied_parameters():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 3, 3, padding=1, bias=False)
            self.second = nn.Conv2d(3, 3, 3, padding=1, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x).tanh())

    torch.manual_seed(0)
    model = Tied().double()
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "unfolding": "balanced"}
    optimizer = Tensorion(model.parameters(), **options, polar="svd")
    w = model.first.weight
    reference = AlgorithmOne(w, **options)
    for _ in range(3):
        optimizer.zero_grad()
        model(X[:4].double()).square().mean().backward()
        optimizer.step()
        reference.step(w.grad)
    assert model.second.weight is w
    torch.testing.assert_close(w.detach(), torch.from_numpy(reference.w), atol=1e-10, rtol=0)


def test_channels_last_model():
    model = conv_net().to(memory_format=torch.channels_last)
    train(model, Tensorion(model.parameters()))
    for param, expected in zip(model.parameters(), trained().parameters(), strict=True):
        torch.testing.assert_close(param, expected, atol=1e-4, rtol=0)
    assert model[2].weight.is_contiguous(memory_format=torch.channels_last)


def test_compiled_model_and_compiled_step():
    torch._dynamo.reset()
    model = conv_net()
    compiled = torch.compile(model, backend="aot_eager")
    train(compiled, Tensorion(compiled.parameters()))
    for param, expected in zip(model.parameters(), trained().parameters(), strict=True):
        torch.testing.assert_close(param, expected, atol=1e-4, rtol=0)
    params, twins = parameters(), parameters()
    set_gradients(params, 1)
    set_gradients(twins, 1)
    optimizer, reference = Tensorion(params, nonfinite="ignore"), Tensorion(twins)
    step = torch.compile(optimizer.step, backend="aot_eager")
    for _ in range(2):
        step()
        reference.step()
    assert_same(params, twins)


def test_averaged_model():
    model = conv_net()
    optimizer = Tensorion(model.parameters(), lr=0.05)
    averaged = AveragedModel(model)
    snapshots = []
    for _ in range(3):
        train(model, optimizer, 1)
        averaged.update_parameters(model)
        snapshots.append(copies(model.parameters()))
    for i, param in enumerate(averaged.parameters()):
        torch.testing.assert_close(param, torch.stack([snapshot[i] for snapshot in snapshots]).mean(0))


@pytest.mark.parametrize("unscales", [True, False])
def test_grad_scaler_matches_training_without_scaler(unscales):
    model = conv_net()
    optimizer = Tensorion(model.parameters())
    optimizer._step_supports_amp_scaling = unscales  # False, as docs/recipes.md says, for Lightning to clip
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1)
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(loss_of(model)).backward()
        scaler.step(optimizer)
        scaler.update()
    # The scales are powers of two, so scaling does not round.
    assert_same(model.parameters(), trained().parameters())
    before = copies(model.parameters())
    optimizer.zero_grad()
    scaler.scale(loss_of(model)).backward()
    model[0].weight.grad[0, 0, 0, 0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    assert_same(model.parameters(), before)
    assert scaler.get_scale() == 2.0**12


def test_autocast_with_clipping():
    model, plain = conv_net(), conv_net()
    optimizer, reference = Tensorion(model.parameters(), lr=0.02), Tensorion(plain.parameters(), lr=0.02)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(10):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        reference.zero_grad()
        expected = loss_of(plain)
        expected.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        reference.step()
    assert all(param.dtype == torch.float32 for param in model.parameters())
    # The first loss is about log 4, and both losses then decrease alike.
    assert expected.item() < 1
    assert loss.item() == pytest.approx(expected.item(), abs=0.05)


def test_bfloat16_model_learns():
    model = conv_net().bfloat16()
    optimizer = Tensorion(model.parameters(), lr=0.02)
    for _ in range(40):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X.bfloat16()).float(), Y)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    assert {v.dtype for s in optimizer.state.values() for k, v in s.items() if k != "step"} == {torch.bfloat16}


def test_step_count_is_exact_with_bfloat16_parameters():
    # A step counter in the parameter's dtype would stop at 256.
    w = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    optimizer = Tensorion([w], lr=0.0)
    w.grad = torch.ones_like(w)
    for _ in range(300):
        optimizer.step()
    assert optimizer.state[w]["step"].item() == 300


def test_deepcopy_continues_like_the_original():
    model = conv_net()
    optimizer = Tensorion(model.named_parameters(), lr=0.02, nonfinite="skip")
    train(model, optimizer, 2)
    other_model, other = copy.deepcopy((model, optimizer))
    assert other.param_groups[0]["params"][0] is other_model[0].weight
    train(model, optimizer, 2)
    train(other_model, other, 2)
    assert_same(other_model.parameters(), model.parameters())
    assert other.skipped_steps == 0
    other.add_param_group({"params": [("new", nn.Parameter(torch.ones(3)))]})
    assert len(optimizer.param_groups) == 2


def test_optimizer_is_freed():
    model = conv_net()
    optimizer = Tensorion(model.parameters())
    train(model, optimizer, 1)
    reference = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert reference() is None


def test_repr_shows_the_groups():
    text = repr(Tensorion(parameters(), unfolding=(0, 2)))
    assert "Parameter Group 1" in text
    assert "algorithm: adamw" in text
    assert "unfolding: (0, 2)" in text


def test_profiler_sees_the_step():
    params = parameters()
    set_gradients(params, 1)
    optimizer = Tensorion(params)
    with torch.profiler.profile() as profile:
        optimizer.step()
    assert any(event.key == "Optimizer.step#Tensorion.step" for event in profile.key_averages())
