"""The device that messages are sent from."""

from types import SimpleNamespace

import pytest
import torch

from tensorion import _sharding


@pytest.mark.parametrize(
    ("supported", "preferred", "expected"),
    [
        (["cpu"], "cpu", "cpu"),
        (["cuda", "cpu"], "cpu", "cpu"),
        (["cuda", "cpu"], "cuda:1", "cuda:1"),
        (["cuda"], "cuda:1", "cuda:1"),
        # Regression: with CPU offload of FSDP2, votes were reduced on the CPU, which NCCL does not support.
        (["cuda"], "cpu", "cuda"),
        # A group without backends creates them for the device of the first message.
        ([], "cpu", "cpu"),
    ],
)
def test_communication_device_is_supported_by_the_backend(supported, preferred, expected):
    group = SimpleNamespace(_device_types=[torch.device(name) for name in supported])
    assert _sharding.communication_device(group, torch.device(preferred)) == torch.device(expected)
