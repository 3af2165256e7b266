"""Which device messages travel on."""

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
        # CPU offload of FSDP2: votes were reduced on the CPU, which NCCL does not offer.
        (["cuda"], "cpu", "cuda"),
        # A group whose backends are not set up yet makes them for what it is given.
        ([], "cpu", "cpu"),
    ],
)
def test_messages_travel_where_the_backend_can_send_from(supported, preferred, expected):
    group = SimpleNamespace(_device_types=[torch.device(name) for name in supported])
    assert _sharding.communication_device(group, torch.device(preferred)) == torch.device(expected)
