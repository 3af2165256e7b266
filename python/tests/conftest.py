import os

import processes
import pytest
import torch

# The tests' tensors are small, so that more threads only get in each other's way. TENSORION_TEST_THREADS=4 runs the
# tests with four.
torch.set_num_threads(int(os.environ.get("TENSORION_TEST_THREADS", "1")))


@pytest.fixture(params=[1, 2, 4, 8])
def threads(request):
    """The test runs with 1, 2, 4 and 8 threads; what was set before holds again after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def world():
    """What bad input must leave alone; one for all cases of a file."""
    from bad_input import World

    return World()


@pytest.fixture
def run(tmp_path):
    """Calls a function in several processes; the results by rank."""

    def run(world_size, function, *arguments):
        return processes.run(world_size, function, *arguments, folder=tmp_path)

    return run
