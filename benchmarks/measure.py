"""Measures the time, flops, memory and quality of an optimizer's step."""

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from statistics import median, quantiles

import torch
from torch.profiler import ProfilerActivity, profile

#: A short call is repeated in each round, for about this many seconds and at most this many times.
BURST_SECONDS, BURST_CALLS = 0.02, 50


def timed(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def take_turns(calls: dict[str, Callable[[], None]], rounds: int, warm: bool = False) -> dict[str, list[float]]:
    """Return the seconds of each call in each round. Calls alternate, so that a slow phase of the machine affects all.

    Short calls are repeated in bursts. The first call of a burst is not timed, because the caches hold other data. Set
    `warm` if the calls have been made before.
    """
    seconds = {name: 0.0 if warm else timed(call) for name, call in calls.items()}
    for name, call in calls.items():
        if seconds[name] < 1:  # the first call may include preparations
            seconds[name] = timed(call)
    bursts = {name: min(BURST_CALLS, ceil(BURST_SECONDS / seconds[name])) for name in calls}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            if bursts[name] > 1:
                call()
            times[name].append(median(timed(call) for _ in range(bursts[name])))
    return times


def alternate(calls: dict[str, Callable[[], None]], rounds: int, warm: bool = False) -> dict[str, float]:
    """Return the median seconds of each call; see `take_turns`."""
    return {name: median(values) for name, values in take_turns(calls, rounds, warm).items()}


@dataclass
class Ratio:
    """The median of the ratios of each round, and their quartiles."""

    median: float
    low: float
    high: float


def paired_ratio(times: list[float], base: list[float]) -> Ratio:
    """Compare times within the same rounds, so that slow rounds cancel."""
    ratios = [a / b for a, b in zip(times, base, strict=True)]
    if len(ratios) == 1:
        return Ratio(ratios[0], ratios[0], ratios[0])
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    return Ratio(middle, low, high)


@contextmanager
def without_profiler_noise() -> Iterator[None]:
    """Discard warnings, and output lines that begin with "USDT", which torch's profiler prints from C++."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {stream: os.dup(stream) for stream in (1, 2)}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        files = {1: out, 2: err}
        for stream, file in files.items():
            os.dup2(file.fileno(), stream)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for stream, file in files.items():
                os.dup2(kept[stream], stream)
                os.close(kept[stream])
                file.seek(0)
                for line in file:
                    if not line.startswith(b"USDT"):
                        os.write(stream, line)


def work(call: Callable[[], None]) -> tuple[float, int]:
    """Return the flops of the matrix products of a call, and its peak of additional memory in bytes."""
    with (
        without_profiler_noise(),
        torch.backends.mkldnn.flags(enabled=False),  # The profiler does not see products by oneDNN.
        profile(
            activities=[ProfilerActivity.CPU], record_shapes=True, with_flops=True, profile_memory=True
        ) as profiler,
    ):
        call()
    # profiler.events() builds a tree of all events, which takes longer than the call.
    events = profiler.profiler.kineto_results.events()
    products = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
    flops = sum(event.flops() for event in events if event.name() in products)
    held = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return flops, peak


def large_product(side: int = 1536) -> tuple[Callable[[], None], float]:
    """Return a matrix product, to be timed together with other calls, and its flops."""
    a, out = torch.randn(side, side), torch.empty(side, side)
    return lambda: torch.mm(a, a, out=out), 2.0 * side**3


def spectral_norm(x: torch.Tensor, steps: int = 60) -> float:
    """Compute the spectral norm with the power method from a fixed start."""
    v = torch.randn(x.shape[1], generator=torch.Generator().manual_seed(0))
    for _ in range(steps):
        v = x.T @ (x @ v)
        v /= v.norm()
    return float((x @ v).norm())


def quality(matrix: torch.Tensor, answer: torch.Tensor, nuclear_norm: float) -> float:
    """Return q = <A, X> / (||X||_2 ||A||_*)."""
    return float((matrix * answer).sum()) / (spectral_norm(answer) * nuclear_norm)
