import processes
import pytest
import torch

# The tests' tensors are small: more threads would only get in each other's way.
torch.set_num_threads(1)


@pytest.fixture
def run(tmp_path):
    """Calls a function in several processes; the results by rank."""

    def run(world_size, function, *arguments):
        return processes.run(world_size, function, *arguments, folder=tmp_path)

    return run
