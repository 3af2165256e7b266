"""Steps and states under `torch.inference_mode`."""

import pytest
import torch
from support import assert_same, copies, parameters, set_gradients
from torch.optim import lr_scheduler

from tensorion import Tensorion


def run(optimizer, params, first, last):
    for k in range(first, last):
        set_gradients(params, k)
        optimizer.step()


@pytest.mark.parametrize("fallback", ["adamw", "sgd"])
@pytest.mark.parametrize("nonfinite", ["error", "skip"])
def test_first_step_in_inference_mode_creates_normal_state(fallback, nonfinite):
    # Regression: the state consisted of inference tensors, and the next normal step failed after it had updated groups.
    options = {"fallback": fallback, "nonfinite": nonfinite, "nesterov": True}
    params, twins = parameters(), parameters()
    optimizer, reference = Tensorion(params, **options), Tensorion(twins, **options)
    with torch.inference_mode():
        run(optimizer, params, 0, 1)
    assert not any(value.is_inference() for state in optimizer.state.values() for value in state.values())
    run(optimizer, params, 1, 3)
    run(reference, twins, 0, 3)
    assert_same(params, twins)


def test_state_loaded_in_inference_mode_works_outside():
    params, twins = parameters(), parameters()
    reference = Tensorion(twins)
    run(reference, twins, 0, 1)
    with torch.inference_mode():
        state = reference.state_dict()
        state["state"] = {
            i: {key: value.clone() for key, value in entry.items()} for i, entry in state["state"].items()
        }
        assert state["state"][0]["momentum_buffer"].is_inference()
        optimizer = Tensorion(params)
        optimizer.load_state_dict(state)
        for param, twin in zip(params, twins, strict=True):
            param.copy_(twin)
    run(optimizer, params, 1, 3)
    run(reference, twins, 1, 3)
    assert_same(params, twins)


def test_tensor_learning_rate_created_in_inference_mode():
    params = parameters()
    with torch.inference_mode():
        optimizer = Tensorion(params, lr=torch.tensor(0.1))
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    run(optimizer, params, 0, 1)
    scheduler.step()
    assert optimizer.param_groups[0]["lr"].item() == pytest.approx(0.05)


def test_inference_parameters_raise_outside_of_inference_mode():
    # Regression: the kernel had already been updated.
    params = parameters()
    with torch.inference_mode():
        bias = torch.ones(8)
        bias.grad = torch.ones(8)
    optimizer = Tensorion([*params[:2], bias])
    set_gradients(params[:2], 1)
    before = copies([*params[:2], bias])
    with pytest.raises(ValueError, match=r"parameter 1 of group 1, shape \[8\] was created in inference mode"):
        optimizer.step()
    assert_same([*params[:2], bias], before)
    assert not optimizer.state
    with torch.inference_mode():
        optimizer.step()
    assert not torch.equal(bias, before[2])
