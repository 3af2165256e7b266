"""Learning rates: all torch schedulers, and tensors as learning rates."""

import pytest
import torch
from support import AlgorithmOne, assert_same, parameters, set_gradients
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR

from tensorion import Tensorion

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


def test_all_torch_schedulers_are_tested():
    made = {type(make(Tensorion(parameters()))).__name__ for make in SCHEDULERS.values()}
    assert made >= set(lr_scheduler.__all__) - {"LRScheduler"}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("tensor_lr", [False, True])
def test_schedulers_drive_learning_rate_and_momentum(name, tensor_lr):
    # Learning rates and momenta must be those of torch's SGD, and updates must use them.
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


#: Schedules that end, mostly at zero, as (constructor, number of steps).
ENDING = {
    "LambdaLR": (lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 - step / 7), 7),
    "MultiplicativeLR": (lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: float(step < 5)), 5),
    "MultiStepLR": (lambda o: lr_scheduler.MultiStepLR(o, [2, 4], 0.0), 5),
    "StepLR": (lambda o: lr_scheduler.StepLR(o, 3, 0.0), 4),
    "ExponentialLR": (lambda o: lr_scheduler.ExponentialLR(o, 1e-200), 3),
    "ConstantLR": (lambda o: lr_scheduler.ConstantLR(o, 1e-9, 3), 3),
    "LinearLR, up": (lambda o: lr_scheduler.LinearLR(o, 1e-8, 1.0, 6), 6),
    "PolynomialLR": (lambda o: lr_scheduler.PolynomialLR(o, 7, 0.9), 7),
    "CosineAnnealingLR": (lambda o: lr_scheduler.CosineAnnealingLR(o, 7), 14),
    "CosineAnnealingWarmRestarts": (lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3, 2), 9),
    "CyclicLR": (lambda o: lr_scheduler.CyclicLR(o, 0.0, 0.2, 3, mode="triangular2"), 18),
    "CyclicLR, exponential": (lambda o: lr_scheduler.CyclicLR(o, 0.0, 0.2, 3, mode="exp_range", gamma=0.5), 18),
    "SWALR": (lambda o: SWALR(o, 0.0, anneal_epochs=4), 5),
    "SWALR, linear": (lambda o: SWALR(o, 0.0, anneal_epochs=4, anneal_strategy="linear"), 5),
    "SequentialLR": (
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o, 0.1, 1.0, 3), lr_scheduler.LinearLR(o, 1.0, 0.0, 7)], [3]
        ),
        10,
    ),
    "ChainedScheduler": (
        lambda o: lr_scheduler.ChainedScheduler(
            [lr_scheduler.LinearLR(o, 1.0, 0.0, 7), lr_scheduler.ExponentialLR(o, 0.9)]
        ),
        7,
    ),
    "ReduceLROnPlateau": (lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=1e-9, patience=0, eps=0.0), 6),
}


def assert_follows(make, steps, lr=0.1):
    """Check that a schedule has the same values as with torch's SGD, and that the final checkpoint can be loaded."""
    params, twins = parameters(), parameters()
    optimizer, other = Tensorion(params, lr=lr, fallback="sgd"), torch.optim.SGD(twins, lr=lr, momentum=0.9)
    scheduler, expected = make(optimizer), make(other)
    for k in range(steps):
        set_gradients(params, k)
        set_gradients(twins, k)
        optimizer.step()
        other.step()
        loss = [1.0] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []
        scheduler.step(*loss)
        expected.step(*loss)
        assert [float(group["lr"]) for group in optimizer.param_groups] == [float(other.param_groups[0]["lr"])] * 2
    optimizer.step()
    assert all(param.isfinite().all() for param in params)
    Tensorion(parameters(), fallback="sgd").load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize("name", ENDING)
def test_schedulers_beyond_their_end(name):
    make, steps = ENDING[name]
    assert_follows(make, steps + 5)


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("three_phase", [False, True])
def test_one_cycle_until_its_end(strategy, three_phase):
    # Beyond its end, OneCycleLR itself raises an error.
    options = {"total_steps": 12, "anneal_strategy": strategy, "three_phase": three_phase, "final_div_factor": 1e30}
    assert_follows(lambda o: lr_scheduler.OneCycleLR(o, 0.3, **options), 11)


@pytest.mark.parametrize("tensor_lr", [False, True])
@pytest.mark.parametrize("length", range(1, 31))
def test_linear_decay_to_zero(length, tensor_lr):
    # Regression: for half of all lengths, the last learning rate is about -4e-18, and the last step raised an error.
    lr = torch.tensor(0.1, dtype=torch.float64) if tensor_lr else 0.1
    assert_follows(lambda o: lr_scheduler.LinearLR(o, 1.0, 0.0, length), length + 3, lr)


def test_one_cycle_does_not_change_betas_of_adamw():
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


@pytest.mark.parametrize("shape", [(), (1,)], ids=str)
def test_tensor_learning_rate(shape):
    def halve(group):
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].mul_(0.5)
        else:
            group["lr"] *= 0.5

    lr = torch.full(shape, 0.05, dtype=torch.float64)
    params, twins = parameters(), parameters()
    optimizer, reference = Tensorion(params, lr=lr), Tensorion(twins, lr=0.05)
    for k in range(3):
        set_gradients(params, k)
        set_gradients(twins, k)
        optimizer.step()
        reference.step()
        for group in optimizer.param_groups + reference.param_groups:
            halve(group)
    assert_same(params, twins)
    assert lr.item() == 0.05
