"""Everything that ordinary training code does with an optimizer."""

import copy
import gc
import weakref

import pytest
import torch
from support import AlgorithmOne, assert_same, conv_net, copies, gaussian, images, parameters, set_gradients
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR, AveragedModel

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


# Param groups


def test_constructor_splits_by_effective_order():
    params = [*parameters(), nn.Parameter(gaussian((1, 6, 4), 9))]
    optimizer = Tensorion(params, lr=0.1, fallback_lr=0.01, fallback_weight_decay=0.5)
    high, low = optimizer.param_groups
    assert (high["algorithm"], low["algorithm"]) == ("tensorion", "adamw")
    assert high["params"] == params[:1]
    assert low["params"] == params[1:]
    assert (high["lr"], high["weight_decay"], high["momentum"]) == (0.1, 0.01, 0.95)
    assert (low["lr"], low["weight_decay"], low["betas"], low["eps"]) == (0.01, 0.5, (0.9, 0.999), 1e-8)
    assert [len(g["params"]) for g in Tensorion(params, min_order=2).param_groups] == [3, 1]
    sgd = Tensorion(params, fallback="sgd", fallback_momentum=0.7).param_groups[1]
    assert (sgd["algorithm"], sgd["momentum"], sgd["lr"]) == ("sgd", 0.7, 1e-3)
    # What an algorithm does not read is not there to be changed in vain.
    assert "momentum" not in low
    assert "unfolding" not in low
    assert "betas" not in high
    assert "fallback_lr" not in high


@pytest.mark.parametrize("form", ["tensors", "generator", "names", "dicts", "dicts of names", "one tensor"])
def test_forms_of_parameters(form):
    params = parameters()
    names = ["kernel", "matrix", "bias"]
    given = {
        "tensors": params,
        "generator": (param for param in params),
        "names": zip(names, params, strict=True),
        "dicts": [{"params": params}],
        "dicts of names": [{"params": zip(names, params, strict=True)}],
        "one tensor": [{"params": param} for param in params],
    }[form]
    optimizer = Tensorion(given)
    held = [param for group in optimizer.param_groups for param in group["params"]]
    assert {id(param) for param in held} == {id(param) for param in params}
    if "names" in form:
        assert [group["param_names"] for group in optimizer.param_groups] == [["kernel"], ["matrix", "bias"]]
    set_gradients(params, 1)
    optimizer.step()
    expected = parameters()
    set_gradients(expected, 1)
    Tensorion(expected).step()
    assert_same(params, expected)


def test_groups_have_options_of_their_own_and_inherit_the_rest():
    params = parameters()
    given = {"params": params[:1], "lr": 0.5, "unfolding": (0,), "name": "kernels"}
    optimizer = Tensorion([given, {"params": params[1:], "weight_decay": 0.3}], lr=0.1, momentum=0.7, weight_decay=0.2)
    first, second = optimizer.param_groups
    assert (first["lr"], first["momentum"], first["weight_decay"]) == (0.5, 0.7, 0.2)
    assert (first["unfolding"], first["name"]) == ((0,), "kernels")
    assert (second["algorithm"], second["lr"], second["weight_decay"]) == ("adamw", 0.1, 0.3)
    assert given == {"params": params[:1], "lr": 0.5, "unfolding": (0,), "name": "kernels"}


def test_a_group_may_name_its_algorithm():
    kernel, matrix, bias = parameters()
    optimizer = Tensorion(
        [
            {"params": [kernel], "algorithm": "adamw", "betas": (0.5, 0.6), "eps": 1e-3},
            {"params": [matrix], "algorithm": "tensorion"},
            {"params": [bias], "algorithm": "sgd", "momentum": 0.3, "lr": 7.0},
        ],
        lr=0.1,
        fallback_lr=0.02,
    )
    adamw, tensorion, sgd = optimizer.param_groups
    assert [g["algorithm"] for g in optimizer.param_groups] == ["adamw", "tensorion", "sgd"]
    # In groups of the fallback the plain names are the fallback's.
    assert (adamw["lr"], adamw["betas"], adamw["eps"]) == (0.02, (0.5, 0.6), 1e-3)
    assert (tensorion["lr"], tensorion["momentum"]) == (0.1, 0.95)
    assert (sgd["lr"], sgd["momentum"]) == (7.0, 0.3)


def test_groups_drive_what_they_say():
    options = {"momentum": 0.8, "weight_decay": 0.4}
    params = [nn.Parameter(gaussian((3, 4, 5), i, torch.float64)) for i in range(2)]
    optimizer = Tensorion(
        [{"params": params[:1], "lr": 0.3, "unfolding": (1,)}, {"params": params[1:], "nesterov": True}],
        lr=0.1,
        polar="svd",
        **options,
    )
    references = [
        AlgorithmOne(params[0], lr=0.3, unfolding=(1,), **options),
        AlgorithmOne(params[1], lr=0.1, unfolding="balanced", nesterov=True, **options),
    ]
    for k in range(5):
        for i in range(2):
            params[i].grad = gaussian((3, 4, 5), 10 * k + i, torch.float64)
            references[i].step(params[i].grad)
        optimizer.step()
    for param, reference in zip(params, references, strict=True):
        torch.testing.assert_close(param.detach(), torch.from_numpy(reference.w), atol=1e-10, rtol=0)


def test_add_param_group():
    kernel, matrix, bias = parameters()
    optimizer = Tensorion([kernel], lr=0.1, fallback_lr=0.3)
    set_gradients([kernel], 1)
    optimizer.step()
    optimizer.add_param_group({"params": [matrix, nn.Parameter(gaussian((2, 3, 4), 8)), bias], "momentum": 0.5})
    assert [g["algorithm"] for g in optimizer.param_groups] == ["tensorion", "tensorion", "adamw"]
    assert [g["lr"] for g in optimizer.param_groups] == [0.1, 0.1, 0.3]
    assert optimizer.param_groups[1]["momentum"] == 0.5
    alone = parameters()[1]
    set_gradients([matrix], 2)
    set_gradients([alone], 2)
    kernel.grad = None
    optimizer.step()
    Tensorion([alone], lr=0.3).step()
    assert_same([matrix], [alone])


# Steps


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


def test_unscaled_gradients_are_as_without_a_scaler():
    model = conv_net()
    optimizer = Tensorion(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1)
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(loss_of(model)).backward()
        scaler.step(optimizer)
        scaler.update()
    # Scales are powers of two: they round nothing.
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
    # The first loss is log 4; both follow the same way down.
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


def test_counts_beyond_what_bfloat16_can():
    # A step counter in the parameter's dtype would stop at 256.
    w = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    optimizer = Tensorion([w], lr=0.0)
    w.grad = torch.ones_like(w)
    for _ in range(300):
        optimizer.step()
    assert optimizer.state[w]["step"].item() == 300


# Learning rates

SCHEDULERS = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda _: 0.8),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2, 0.3),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 4], 0.5),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.1, 3),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.1, 1.0, 5),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.7),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 10, 2.0),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 8, 1e-3),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, 1.0, 3), lr_scheduler.CosineAnnealingLR(o, 5)], [3]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.1, 2), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.2, step_size_up=3),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.3, total_steps=10),
    "OneCycleLR, per group": lambda o: lr_scheduler.OneCycleLR(o, [0.3, 0.02], total_steps=10),
    "SWALR": lambda o: SWALR(o, 0.005, anneal_epochs=4),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1, factor=0.5),
}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("tensor_lr", [False, True])
def test_schedulers(name, tensor_lr):
    # Lines of learning rates and momenta as torch's SGD has them, and updates that follow them.
    kernel, matrix = parameters()[:2]
    kernel = nn.Parameter(kernel.detach().double())
    matrix = nn.Parameter(matrix.detach().double())
    twins = [nn.Parameter(param.detach().clone()) for param in (kernel, matrix)]

    def rate(value):
        return torch.tensor(value, dtype=torch.float64) if tensor_lr else value

    optimizer = Tensorion(
        [kernel, matrix],
        lr=rate(0.1),
        momentum=0.9,
        weight_decay=0.3,
        polar="svd",
        fallback="sgd",
        fallback_lr=rate(0.02),
    )
    model = torch.optim.SGD(
        [{"params": twins[:1], "lr": rate(0.1)}, {"params": twins[1:], "lr": rate(0.02)}],
        momentum=0.9,
        weight_decay=0.3,
    )
    schedulers = [SCHEDULERS[name](optimizer), SCHEDULERS[name](model)]
    reference = AlgorithmOne(kernel, lr=0.1, momentum=0.9, weight_decay=0.3, unfolding="balanced")
    rates = []
    for k in range(8):
        for ours, theirs in zip(optimizer.param_groups, model.param_groups, strict=True):
            assert float(ours["lr"]) == float(theirs["lr"])
            assert ours["momentum"] == theirs["momentum"]
        rates.append(float(optimizer.param_groups[0]["lr"]))
        set_gradients([kernel, matrix], k)
        for twin, param in zip(twins, (kernel, matrix), strict=True):
            twin.grad = param.grad
        reference.lr = rates[-1]
        reference.momentum = optimizer.param_groups[0]["momentum"]
        reference.step(kernel.grad)
        optimizer.step()
        model.step()
        for scheduler in schedulers:
            scheduler.step(*[1.0] * (name == "ReduceLROnPlateau"))
    assert len(set(rates)) > 1
    torch.testing.assert_close(kernel.detach(), torch.from_numpy(reference.w), atol=1e-9, rtol=0)
    torch.testing.assert_close(matrix.detach(), twins[1].detach(), atol=1e-12, rtol=0)


def test_one_cycle_leaves_the_betas_of_adamw():
    params = parameters()
    optimizer = Tensorion(params)
    scheduler = lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10, base_momentum=0.8, max_momentum=0.9)
    momenta = []
    for k in range(5):
        set_gradients(params, k)
        optimizer.step()
        scheduler.step()
        momenta.append(optimizer.param_groups[0]["momentum"])
    assert 0.8 <= min(momenta) < 0.81 < max(momenta) < 0.9
    assert optimizer.param_groups[1]["betas"] == (0.9, 0.999)


def test_tensor_learning_rate():
    runs = []
    for lr in (0.05, torch.tensor(0.05, dtype=torch.float64), torch.tensor([0.05], dtype=torch.float64)):
        params = parameters()
        optimizer = Tensorion(params, lr=lr)
        for k in range(3):
            set_gradients(params, k)
            optimizer.step()
            for group in optimizer.param_groups:
                if isinstance(lr, torch.Tensor):
                    group["lr"].mul_(0.5)
                else:
                    group["lr"] *= 0.5
        runs.append(copies(params))
        assert float(lr) == 0.05
    assert_same(runs[1], runs[0])
    assert_same(runs[2], runs[0])


# Copies


def test_deepcopy_goes_on_alike():
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


def test_is_freed():
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
