"""What differs between the versions of torch that are supported, as far as tests see it.

The package itself needs no such cases: it builds and runs unchanged with all of them.
"""

import pytest
import torch

#: torch.optim.Muon, since torch 2.9.
HAS_MUON = hasattr(torch.optim, "Muon")

#: In versions after 2.9 a tensor can have a gradient of another dtype (`grad_dtype`); before, torch itself refuses it.
HAS_GRAD_DTYPE = hasattr(torch.Tensor, "grad_dtype")

needs_muon = pytest.mark.skipif(not HAS_MUON, reason="torch.optim.Muon does not exist in this version of torch")


def loss_scale(world_size):
    """What the loss is multiplied by under `fully_shard`: with gloo, torch 2.7 adds gradients up without averaging."""
    return 1 / world_size if torch.__version__.startswith("2.7.") else 1.0
