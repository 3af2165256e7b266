"""The memory that a step needs in addition to parameters, gradients and momenta.

All sizes are in multiples of the unfolding, which has m n elements, of a square unfolding with m = n:

    "balanced"  the unfolding, its Gram matrix and one inverse for each pole: 2 + poles
    "online"    before that, the Gram matrices of two unfoldings, and two copies of one of them for determinants or the
                second unfolding (`estimate_cost` in tensorion/optim/parallel_update.h): 4

An elimination in blocks of 96 rows needs two buffers of 96 m elements. Two of them may run at the same time.

Vectors of m or n elements are small in comparison.
"""

import json
import math
import os
import subprocess
import sys

import pytest
import torch
from support import gaussian
from torch.profiler import ProfilerActivity, profile

import tensorion

VECTORS = 1.01  # allows for vectors: m n elements are several hundred times as many as m + n in these tests
MOST_POLES = 5


def optimizer_of(shape, unfolding, grads):
    """Create an optimizer whose state and libraries are loaded, with no scratch memory."""
    params = [torch.nn.Parameter(torch.zeros(shape)) for _ in grads]
    optimizer = tensorion.Tensorion(params, unfolding=unfolding, min_order=2)
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad
    optimizer.step()
    tensorion.release_scratch()
    return optimizer


def peak(shape, unfolding, grads=None, steps=3):
    """Return the largest total size of all tensors that several steps allocate, in multiples of the unfolding.

    The first step determines the size of the scratch memory. Gaps between blocks may enlarge it in the next steps.
    """
    optimizer = optimizer_of(shape, unfolding, [gaussian(shape, 0)] if grads is None else grads)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        for _ in range(steps):
            optimizer.step()
    tensorion.release_scratch()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = largest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        largest = max(largest, held)
    return largest / (4 * math.prod(shape))


# Regression: every candidate unfolding kept its copies, Gram matrices and factors until the end, which took 64 times
# the memory of the tensor for (8,) * 6.
@pytest.mark.parametrize("shape", [(8,) * 6, (4,) * 8, (256, 256, 3, 3), (96, 96, 96)], ids=str)
def test_online_takes_at_most_five_unfoldings(shape):
    # Partial traces over a mode of size s, which bound the norms of other unfoldings, have m^2 / s^2 elements.
    partial_traces = 4 / min(shape) ** 2
    buffers = 4 * 96 / math.isqrt(math.prod(shape))
    assert peak(shape, "online") <= (5 + partial_traces + buffers) * VECTORS


# Two threads invert two matrices at a time, and blocks of several sizes leave gaps.
def test_online_on_several_kernels_takes_at_most_six_unfoldings():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert peak((256, 256, 3, 3), "online", [gaussian((256, 256, 3, 3), seed) for seed in range(4)]) <= 6
    finally:
        torch.set_num_threads(threads)


def test_online_on_zero_takes_at_most_two_copies():
    assert peak((4,) * 9, "online", [torch.zeros((4,) * 9)]) <= 2


# Two poles suffice for these matrices. Rounding may require a third one on other CPUs.
@pytest.mark.parametrize("shape", [(256, 256, 3, 3), (384, 384, 3, 3)], ids=str)
def test_balanced_takes_at_most_five_unfoldings(shape):
    assert peak(shape, "balanced") <= (2 + 3) * VECTORS


def test_steep_spectra_take_at_most_seven_unfoldings():
    shape = (256, 256, 3, 3)
    modes = tensorion.balanced_unfolding(shape)
    u, s, v = torch.linalg.svd(tensorion.unfold(gaussian(shape, 0), modes), full_matrices=False)
    steep = tensorion.fold(u * torch.logspace(0, -6, len(s)) @ v, modes, shape)
    assert peak(shape, "balanced", [steep]) <= (2 + MOST_POLES) * VECTORS


# Regression: eight rows were copied in double precision even if there were only three. The result is one copy, and the
# rows are summed in pieces of 16384 elements.
def test_few_long_rows_take_one_copy():
    assert peak((3, 1_000_000), "balanced") <= 1.1


RESIDENT = """
import json, sys
import torch
from test_memory import optimizer_of, peak
from support import gaussian

def status(key):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))

torch.set_num_threads(1)
shape, unfolding = json.loads(sys.argv[1])
tensors = peak(shape, unfolding) * 4 * torch.Size(shape).numel() / 2**20
optimizer = optimizer_of(shape, unfolding, [gaussian(shape, 0)])
open("/proc/self/clear_refs", "w").write("5")  # resets the peak
before = status("VmRSS")
optimizer.step()
print(status("VmHWM") - before - tensors)
"""


@pytest.mark.parametrize("unfolding", ["balanced", "online"])
def test_resident_memory_is_the_memory_of_the_tensors(unfolding):
    # With this setting, freed memory is returned to the system at once, so resident memory is memory in use. Smaller
    # blocks are on the heap, which may grow by a few of them.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "PYTHONPATH": os.path.dirname(__file__)}
    arguments = [sys.executable, "-c", RESIDENT, json.dumps([(256, 256, 3, 3), unfolding])]
    run = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=True)
    assert float(run.stdout.splitlines()[-1]) <= 1
