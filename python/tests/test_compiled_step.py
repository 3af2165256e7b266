"""`torch.compile` of the step: it is a single graph with the same results as the eager step."""

import pytest
import torch
from support import assert_same, conv_net, images, parameters, set_gradients
from torch import nn

from tensorion import Tensorion

OPTIONS = [
    {"nonfinite": "skip"},
    {"nonfinite": "skip", "fallback": "sgd", "nesterov": True},
    {"nonfinite": "skip", "unfolding": "online"},
    {"nonfinite": "ignore"},
]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_step_is_one_graph(options):
    params, twins = parameters(), parameters()
    optimizer, reference = (Tensorion(tensors, lr=0.02, **options) for tensors in (params, twins))
    step = torch.compile(optimizer.step, backend="aot_eager", fullgraph=True)
    for k in range(4):
        set_gradients(params, k)
        set_gradients(twins, k)
        step()
        reference.step()
    assert_same(params, twins)


@pytest.mark.parametrize("bad", [0, 1, 2])
@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
def test_compiled_step_skips_nonfinite_gradients(options, bad):
    # Regression: the step read the result of the check, which broke the graph.
    params, twins = parameters(), parameters()
    optimizer = Tensorion(params, lr=0.02, **options)
    reference = Tensorion(twins, lr=0.02, **{**options, "nonfinite": "error"})
    step = torch.compile(optimizer.step, backend="aot_eager", fullgraph=True)
    for k in range(5):
        set_gradients(params, k)
        set_gradients(twins, k)
        if k in (0, 3):
            params[bad].grad.view(-1)[-1] = torch.inf if k else torch.nan
        else:
            reference.step()
        step()
        assert optimizer.skipped_steps == (1 if k < 3 else 2)
        assert_same(params, twins)
    for param, twin in zip(params, twins, strict=True):
        for key, value in reference.state[twin].items():
            assert torch.equal(optimizer.state[param][key], value)


def test_compiled_model_and_step():
    model, twin = conv_net(), conv_net()
    optimizer, reference = (Tensorion(net.parameters(), lr=0.02, nonfinite="skip") for net in (model, twin))
    forward = torch.compile(model, backend="aot_eager", fullgraph=True)
    step = torch.compile(optimizer.step, backend="aot_eager", fullgraph=True)
    x, y = images()
    for _ in range(3):
        for net, update, others in ((forward, step, optimizer), (twin, reference.step, reference)):
            others.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            update()
    for param, expected in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(param, expected, atol=1e-4, rtol=0)


def test_skipped_step_does_not_count_towards_online_interval():
    params, twins = parameters(), parameters()
    options = {"unfolding": "online", "online_interval": 2}
    optimizer, reference = Tensorion(params, nonfinite="skip", **options), Tensorion(twins, **options)
    for k in range(5):
        set_gradients(params, k)
        set_gradients(twins, k)
        if k in (0, 2):
            params[0].grad.view(-1)[0] = torch.nan
        else:
            reference.step()
        optimizer.step()
    assert_same(params, twins)
    assert optimizer.state[params[0]]["step"] == reference.state[twins[0]]["step"] == 3


def test_any_nonzero_found_inf_is_an_overflow():
    # GradScaler sums the flags of several devices, but torch's fused CPU kernels skip only if the sum is 1.
    params, before = parameters(), parameters()
    optimizer = Tensorion(params)
    set_gradients(params, 1)
    optimizer.found_inf = torch.tensor(2.0)
    optimizer.step()
    assert_same(params, before)
    assert all(not value.any() for state in optimizer.state.values() for value in state.values())
