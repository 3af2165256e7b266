import os

import processes
import pytest
import torch

# The tensors of the tests are small, so one thread is fastest. TENSORION_TEST_THREADS=4 runs the tests with four.
torch.set_num_threads(int(os.environ.get("TENSORION_TEST_THREADS", "1")))


@pytest.fixture(params=[1, 2, 4, 8])
def threads(request):
    """Run the test with 1, 2, 4 and 8 threads, and restore the previous number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def world():
    """The objects that bad input must not change. All cases of a file share them."""
    from bad_input import World

    return World()


@pytest.fixture
def run(tmp_path):
    """Call a function in several processes, and return the results by rank."""

    def run(world_size, function, *arguments):
        return processes.run(world_size, function, *arguments, folder=tmp_path)

    return run
