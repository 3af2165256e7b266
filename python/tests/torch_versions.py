"""Differences between the supported versions of torch that affect the tests.

The package itself depends on the version in one place, the tags of operators in src/ops.cpp.
"""

import pytest
import torch

#: torch.optim.Muon, since torch 2.9.
HAS_MUON = hasattr(torch.optim, "Muon")

#: Since torch 2.10, a tensor can have a gradient of another dtype (`grad_dtype`). Before, torch itself raised an error.
HAS_GRAD_DTYPE = hasattr(torch.Tensor, "grad_dtype")

#: The tag of operators that cannot be part of a CUDA graph, since torch 2.9 (`TORCH_VERSION_MINOR` in src/ops.cpp).
CUDAGRAPH_UNSAFE = getattr(torch.Tag, "cudagraph_unsafe", None) if HAS_MUON else None

needs_muon = pytest.mark.skipif(not HAS_MUON, reason="torch.optim.Muon does not exist in this version of torch")


def loss_scale(world_size):
    """Return the loss factor under `fully_shard`: with gloo, torch 2.7 sums gradients instead of averaging them."""
    return 1 / world_size if torch.__version__.startswith("2.7.") else 1.0
