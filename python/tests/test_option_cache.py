"""Steps convert equal options only once. Values of other types that compare equal are still checked."""

import pytest
import torch
from support import gaussian

from tensorion import Tensorion, _options


def optimizer():
    param = torch.nn.Parameter(torch.zeros(6, 5, 3))
    param.grad = gaussian((6, 5, 3), 0)
    return Tensorion([param], lr=0.1, unfolding=(0, 1))


def test_only_new_values_are_converted():
    one = optimizer()
    one.step()
    converted = _options._converted_once.cache_info().misses
    for lr in (0.1, 0.05, 0.025):  # as a scheduler does
        one.param_groups[0]["lr"] = lr
        one.step()
    assert _options._converted_once.cache_info().misses == converted
    one.param_groups[0]["momentum"] = 0.5
    one.step()
    assert _options._converted_once.cache_info().misses == converted + 1


def test_the_learning_rate_of_each_step_is_used():
    one = optimizer()
    param = one.param_groups[0]["params"][0]
    one.param_groups[0]["weight_decay"] = 0.0
    one.param_groups[0]["momentum"] = 0.0
    updates = []
    for lr in (0.1, 0.05):
        one.param_groups[0]["lr"] = lr
        before = param.detach().clone()
        one.step()
        updates.append(before - param.detach())
    torch.testing.assert_close(updates[0], 2 * updates[1])


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("nesterov", 0, TypeError),
        ("momentum", True, TypeError),
        ("unfolding", (False, True), TypeError),
        ("lr", True, TypeError),
        ("lr", float("nan"), ValueError),
        ("momentum", float("inf"), ValueError),
    ],
)
def test_wrong_values_raise_after_a_valid_step(key, value, error):
    one = optimizer()
    one.param_groups[0]["momentum"] = 1.0
    one.step()
    one.param_groups[0][key] = value
    with pytest.raises(error):
        one.step()
