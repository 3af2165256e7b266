"""Shares of the algorithms: the summary of `describe`, the constructor's warning, and flattened parameters."""

import warnings

import pytest
import torch
from torch import nn

import tensorion
from tensorion import Tensorion


def parameters(*shapes):
    return [nn.Parameter(torch.ones(shape)) for shape in shapes]


def test_describe_ends_with_shares():
    optimizer = Tensorion(parameters((5, 4, 3, 3), (4, 4), (4,)))
    assert tensorion.describe(optimizer).splitlines()[-1] == "90.0 % of 200 elements: tensorion; 10.0 %: adamw"


def test_small_share_of_tensorion_warns():
    message = r"98\.2 % of 1,018 elements: adamw; 1\.8 %: tensorion\. With min_order=2 .* 98\.2 % of the elements"
    with pytest.warns(UserWarning, match=message) as caught:
        Tensorion(parameters((2, 3, 3), (100, 10)))
    assert len(caught) == 1
    assert caught[0].filename == __file__  # The warning points to the caller of the constructor.


@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        ([(2, 3, 3), (100, 10)], {"min_order": 2}),
        ([(5, 3, 3, 3), (100, 10)], {}),  # more than a tenth
        ([(9,), (1, 1, 9)], {}),  # no option would change it
    ],
)
def test_no_warning(shapes, options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Tensorion(parameters(*shapes), **options)


def test_deepspeed_partitions_raise():
    params = parameters((0,))
    params[0].ds_id = 7
    with pytest.raises(ValueError, match=r"parameter 0 of group 0 is partitioned by DeepSpeed's ZeRO stage 3.*FSDP2"):
        Tensorion(params)


def test_group_may_assign_vectors_to_tensorion():
    (vector,) = parameters((5,))
    vector.grad = torch.ones(5)
    Tensorion([vector], min_order=1).step()
    assert not torch.equal(vector.detach(), torch.ones(5))


def test_parameters_flattened_later_raise():
    """DeepSpeed's ZeRO stages 1 and 2 flatten parameters after the optimizer is created."""
    optimizer = Tensorion(parameters((4, 3, 3)))
    flat = nn.Parameter(torch.ones(36))
    flat.grad = torch.ones(36)
    optimizer.param_groups[0]["params"] = [flat]
    with pytest.raises(ValueError, match=r"was flattened after the optimizer was created.*DeepSpeed.*FSDP2"):
        optimizer.step()
    assert torch.equal(flat.detach(), torch.ones(36))
