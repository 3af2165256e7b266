"""The Python class and the C++ class have bitwise equal trajectories."""

import os
import subprocess
from pathlib import Path

import pytest
import torch
from support import assert_same

from tensorion import Tensorion

BUILD = Path(os.environ.get("TENSORION_BUILD_DIR", Path(__file__).parents[2] / "build"))
PROGRAM = BUILD / "tests" / "trajectory"

#: The cases of tests/trajectory.cpp.
CASES = [
    {"lr": 0.02, "fallback_lr": 0.003},
    {
        "lr": 0.02,
        "momentum": 0.8,
        "nesterov": True,
        "unfolding": "online",
        "weight_decay": 0.2,
        "fallback": "sgd",
    },
    {"lr": 0.02, "unfolding": (0,), "polar": "newton_schulz", "min_order": 2},
    {"lr": 0.02, "batch_modes": (0,), "unfolding": "online", "nesterov": True},
]


@pytest.fixture(scope="module")
def trajectories(tmp_path_factory):
    """Return the trajectory of the C++ class for each of CASES."""
    file = tmp_path_factory.mktemp("trajectory") / "trajectory.pt"
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    subprocess.run([PROGRAM, file], check=True, env=environment)
    return torch.load(file, weights_only=False)


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"no C++ tests in {BUILD} (set TENSORION_BUILD_DIR)")
@pytest.mark.parametrize("case", range(len(CASES)))
def test_same_trajectory(case, trajectories):
    assert len(trajectories) == len(CASES)
    seen = trajectories[case]
    params = [param.requires_grad_() for param in seen["start"]]
    optimizer = Tensorion(params, **CASES[case])
    count = len(params)
    for k in range(len(seen["gradients"]) // count):
        for param, grad in zip(params, seen["gradients"][k * count : (k + 1) * count], strict=True):
            param.grad = grad
        optimizer.step()
        assert_same(params, seen["weights"][k * count : (k + 1) * count])
