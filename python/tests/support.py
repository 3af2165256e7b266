"""What several tests need: independent references in double precision, and inputs."""

import math
from itertools import combinations

import numpy as np
import torch


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
    """Every set of effective modes up to complement, in the documented order."""
    effective = [mode for mode, size in enumerate(shape) if size != 1]
    return [
        modes
        for count in range(1, len(effective) // 2 + 1)
        for modes in combinations(effective, count)
        if 2 * count < len(effective) or effective[0] in modes
    ]


def nuclear_norm(matrix):
    return np.linalg.svd(matrix, compute_uv=False).sum()


def quality(a, x):
    """`<a, x> / (||x||_2 ||a||_*)` and `||x||_2`, in double precision."""
    a, x = np.asarray(a, dtype=np.float64), np.asarray(x, dtype=np.float64)
    norm = np.linalg.norm(x, 2)
    return (a * x).sum() / (norm * nuclear_norm(a)), norm


class AlgorithmOne:
    """Algorithm 1 of the paper for one tensor, from its text, in NumPy."""

    def __init__(self, w, *, lr, momentum, weight_decay, unfolding, nesterov=False, maximize=False):
        self.w = w.detach().double().numpy().copy()
        self.m = np.zeros_like(self.w)
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.unfolding, self.nesterov, self.maximize = unfolding, nesterov, maximize

    def modes(self, target):
        if self.unfolding == "balanced":
            return max(all_unfoldings(target.shape), key=lambda modes: min(numpy_unfold(target, modes).shape))
        if self.unfolding == "online":
            return max(
                all_unfoldings(target.shape), key=lambda modes: nuclear_norm(numpy_unfold(target, modes))
            )
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
