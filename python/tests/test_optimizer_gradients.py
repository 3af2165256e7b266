"""Gradients that are missing or not finite."""

import pytest
import torch
from support import assert_same, copies, parameters, set_gradients

from tensorion import Tensorion


def test_parameters_without_gradients_do_not_change():
    params = parameters()
    before = copies(params)
    optimizer = Tensorion(params, weight_decay=0.5)
    set_gradients(params, 1)
    params[0].grad = params[2].grad = None
    optimizer.step()
    assert_same([params[0], params[2]], [before[0], before[2]])
    assert not torch.equal(params[1], before[1])
    assert set(optimizer.state) == {params[1]}
    # With a gradient of zeros, weight decay does apply.
    params[0].grad = torch.zeros_like(params[0])
    optimizer.step()
    torch.testing.assert_close(params[0].detach(), before[0] * (1 - 1e-3 * 0.5))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_nonfinite_error_changes_nothing(bad):
    params = parameters()
    optimizer = Tensorion([("kernel", params[0]), ("matrix", params[1]), ("bias", params[2])])
    set_gradients(params, 1)
    optimizer.step()
    before, state = copies(params), copies([v for s in optimizer.state.values() for v in s.values()])
    set_gradients(params, 2)
    params[1].grad[2, 3] = bad
    with pytest.raises(ValueError, match=r"gradient of parameter 'matrix', shape \[5, 7\] is not finite"):
        optimizer.step()
    assert_same(params, before)
    assert_same([v for s in optimizer.state.values() for v in s.values()], state)
    set_gradients(params, 2)
    optimizer.step()


def test_nonfinite_error_creates_no_state():
    params = parameters()
    optimizer = Tensorion(params)
    set_gradients(params, 1)
    params[2].grad[0] = float("nan")
    with pytest.raises(ValueError, match=r"parameter 1 of group 1, shape \[8\]"):
        optimizer.step()
    assert not optimizer.state


def test_nonfinite_skip_skips_the_step():
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
