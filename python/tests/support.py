"""Helpers for several test files: independent references in double precision, tolerances, and inputs."""

import importlib.util
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch


def load_script(path):
    """Import a script that is not part of a package."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gaussian(shape, seed, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def numpy_unfold(x, modes):
    modes = sorted(modes)
    rest = [mode for mode in range(x.ndim) if mode not in modes]
    rows = math.prod(x.shape[mode] for mode in modes)
    cols = math.prod(x.shape[mode] for mode in rest)
    return x.transpose(modes + rest).reshape(rows, cols)


def numpy_fold(matrix, modes, shape):
    modes = sorted(modes)
    permutation = modes + [mode for mode in range(len(shape)) if mode not in modes]
    return matrix.reshape([shape[mode] for mode in permutation]).transpose(np.argsort(permutation))


def all_unfoldings(shape):
    """Return every unfolding of a shape in the documented order, ignoring modes of size 1."""
    effective = [mode for mode, size in enumerate(shape) if size != 1]
    return [
        modes
        for count in range(1, len(effective) // 2 + 1)
        for modes in combinations(effective, count)
        if 2 * count < len(effective) or effective[0] in modes
    ]


def nuclear_norm(matrix):
    return np.linalg.svd(matrix, compute_uv=False).sum()


def rounding(dtype, terms, steps=1, growth=1.0):
    """Return a tolerance for rounding errors, relative to the largest entry, for any CPU and number of threads.

    The result is computed in `steps` consecutive sums of `terms` products. Rounding errors with random signs add up to
    about sqrt(terms) * eps in each sum (Higham and Mary, 2019). The factor 4 allows for two rounded results. Each step
    multiplies earlier errors by at most `growth`.
    """
    total = 0.0
    for _ in range(steps):
        total = growth * total + 1
    return 4 * math.sqrt(max(terms, 1)) * torch.finfo(dtype).eps * total


def polar_rounding(a, method="halley"):
    """Return a tolerance for rounding errors in the polar factor of `a`, or of each matrix of a batch.

    The condition number amplifies errors in the direction of the smallest singular value. "halley" uses the Gram
    matrix, whose condition number is the square of that of `a`, in about three passes.
    """
    a = torch.as_tensor(a)
    condition = np.linalg.cond(a.double().numpy()).max().item()
    terms = max(a.shape[-2:])
    dtype = torch.promote_types(a.dtype, torch.float32)
    if method == "svd":
        return rounding(dtype, terms) * condition
    if method == "newton_schulz":
        return rounding(dtype, terms, steps=5) * condition
    return rounding(dtype, terms, steps=3) * condition**2


def quality(a, x):
    """Compute the quality `<a, x> / (||x||_2 ||a||_*)` and the norm `||x||_2` in double precision."""
    a, x = np.asarray(a, dtype=np.float64), np.asarray(x, dtype=np.float64)
    norm = np.linalg.norm(x, 2)
    return (a * x).sum() / (norm * nuclear_norm(a)), norm


class AlgorithmOne:
    """Algorithm 1 of the paper for one tensor, written in NumPy from its description."""

    def __init__(self, w, *, lr, momentum, weight_decay, unfolding, nesterov=False, maximize=False):
        self.w = w.detach().double().numpy().copy()
        self.m = np.zeros_like(self.w)
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.unfolding, self.nesterov, self.maximize = unfolding, nesterov, maximize

    def modes(self, target):
        if self.unfolding == "balanced":
            return max(all_unfoldings(target.shape), key=lambda modes: min(numpy_unfold(target, modes).shape))
        if self.unfolding == "online":
            return max(all_unfoldings(target.shape), key=lambda modes: nuclear_norm(numpy_unfold(target, modes)))
        return self.unfolding

    def step(self, grad):
        grad = grad.double().numpy() * (-1 if self.maximize else 1)
        self.m = grad + self.momentum * self.m
        target = grad + self.momentum * self.m if self.nesterov else self.m
        modes = self.modes(target)
        matrix = numpy_unfold(target, modes)
        u, _, vh = np.linalg.svd(matrix, full_matrices=False)
        scale = 0.2 * math.sqrt(max(matrix.shape))
        x = numpy_fold(u @ vh, modes, target.shape)
        self.w = self.w - self.lr * self.weight_decay * self.w - self.lr * scale * x


def parameters(seed=1, dtype=torch.float32):
    """Create a kernel, a matrix and a vector."""
    return [
        torch.nn.Parameter(gaussian(shape, seed + i, dtype)) for i, shape in enumerate([(6, 4, 3, 3), (5, 7), (8,)])
    ]


def set_gradients(params, seed):
    """Set random gradients with the memory layout of the parameters, as backward does."""
    for i, param in enumerate(params):
        param.grad = torch.empty_like(param).copy_(gaussian(param.shape, 1000 + 10 * seed + i))


def copies(params):
    return [param.detach().clone() for param in params]


def assert_same(params, expected):
    """Check that the tensors are bitwise equal."""
    for param, other in zip(params, expected, strict=True):
        assert torch.equal(param, other), f"differ by up to {(param - other).abs().max()}"


def assert_error(call, error, message, prefix="[tensorion."):
    """Check that the call raises this error, that its text has the prefix, and that there is no C++ backtrace."""
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert message in text
    assert text.startswith(prefix)
    assert "\n" not in text


def conv_net(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 3),
        torch.nn.ReLU(),
        torch.nn.Conv2d(6, 8, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 4, 4),
    )


def images(count=32, seed=5):
    """Create noisy images whose label is the position of a bright spot."""
    x = 0.3 * gaussian((count, 3, 8, 8), seed)
    y = torch.arange(count) % 4
    for i in range(count):
        row, col = 4 * (y[i] // 2), 4 * (y[i] % 2)
        x[i, :, row : row + 4, col : col + 4] += 1
    return x, y
