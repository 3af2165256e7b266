"""Time, work, memory and quality of an optimizer's step."""

import time
from collections.abc import Callable
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile


def alternate(calls: dict[str, Callable[[], None]], rounds: int, warm: bool = False) -> dict[str, float]:
    """Median seconds of each call. They take turns, so that a slow moment of the machine hits all alike.

    `warm`: they have been called before.
    """
    for call in () if warm else calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in times.items()}


def work(call: Callable[[], None]) -> tuple[float, int]:
    """Flops of the matrix products of a call, and the most memory it held beyond what it began with, in bytes."""
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, with_flops=True, profile_memory=True
    ) as profiler:
        call()
    # profiler.events() builds a tree of them, which takes longer than the call.
    events = profiler.profiler.kineto_results.events()
    products = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
    flops = sum(event.flops() for event in events if event.name() in products)
    held = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return flops, peak


def large_product(side: int = 1536) -> tuple[Callable[[], None], float]:
    """A matrix product to be timed beside other calls, and its flops."""
    a, out = torch.randn(side, side), torch.empty(side, side)
    return lambda: torch.mm(a, a, out=out), 2.0 * side**3


def spectral_norm(x: torch.Tensor, steps: int = 60) -> float:
    """By power steps from a fixed start."""
    v = torch.randn(x.shape[1], generator=torch.Generator().manual_seed(0))
    for _ in range(steps):
        v = x.T @ (x @ v)
        v /= v.norm()
    return float((x @ v).norm())


def quality(matrix: torch.Tensor, answer: torch.Tensor, nuclear_norm: float) -> float:
    """q = <A, X> / (||X||_2 ||A||_*)."""
    return float((matrix * answer).sum()) / (spectral_norm(answer) * nuclear_norm)
