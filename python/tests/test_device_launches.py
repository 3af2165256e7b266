"""Numbers of launches for large models, counted with meta tensors. Code that reads a value would raise an error."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tensorion import Tensorion
from tensorion._options import arguments, checked

LAYERS = 16
#: A mixture of experts with 7 billion parameters.
SHAPES = LAYERS * [*3 * [(64, 1024, 2048)], *4 * [(2048, 2048)], (64, 2048)]


class Launches(TorchDispatchMode):
    """Counts operators. The operators of the library run as on a device."""

    def __init__(self):
        super().__init__()
        self.count = 0
        self.largest = 0  # number of elements of the largest new tensor

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator.namespace == "tensorion":
            with self:
                return operator._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **(kwargs or {}))
        result = operator(*args, **(kwargs or {}))
        if not operator.is_view:
            self.count += 1
            if isinstance(result, torch.Tensor):
                self.largest = max(self.largest, result.numel())
        return result


def step(shapes, **options):
    defaults = Tensorion([torch.zeros(2, 2, 2)], min_order=2, **options).defaults
    tensors = [[torch.empty(shape, device="meta", dtype=torch.bfloat16) for shape in shapes] for _ in range(3)]
    values = checked({}, defaults, ranges=True) | {"algorithm": "tensorion"}
    with Launches() as launches:
        torch.ops.tensorion.step_(*tensors, [], **arguments(values))
    return launches


@pytest.fixture(scope="module")
def mixture():
    return step(SHAPES)


def test_batch_takes_at_most_sixty_launches(mixture):
    # A stack of experts fills the scratch memory and forms its own batch. Matrices of one shape form 1 or 2 batches.
    assert step([(64, 1024, 2048)]).count <= 60
    assert step(3 * [(2048, 2048)]).count <= 60
    assert mixture.count <= 40 * (3 * LAYERS) + 2 * 60


def test_equal_shapes_are_batched():
    alone = step([(128, 512)]).count
    assert step(100 * [(128, 512)]).count == alone


def test_scratch_memory_is_bounded(mixture):
    # The largest new tensors are two copies of a batch, one in fp32 and one in half precision.
    largest = max(math.prod(shape) for shape in SHAPES)
    assert mixture.largest <= max(2**26, 5 * largest)


def test_slices_of_stacks_are_batched():
    count = step([(64, 128, 256)], batch_modes=(0,)).count
    assert count == step(64 * [(128, 256)]).count
