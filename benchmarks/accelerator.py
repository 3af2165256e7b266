"""Checks Tensorion on your accelerator: correctness, time of a step next to other Muons, reads, and graph capture.

    python benchmarks/accelerator.py --device cuda [--json FILE]

Other libraries are timed if they are installed (benchmarks/requirements.txt). The script also runs on the CPU, which
has neither reads nor graphs.
"""

import argparse
import json
import math
import sys
import time
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

import tensorion

sys.path.append(str(Path(__file__).parent))
import workloads
from baselines import PEERS, Step


def synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize() if hasattr(torch, "accelerator") else torch.cuda.synchronize()


def momenta(shapes: list[tuple[int, ...]], device: torch.device) -> list[Tensor]:
    return [workloads.momentum(shape, "power_law", seed).to(device) for seed, shape in enumerate(shapes)]


def quality(a: Tensor, x: Tensor) -> float:
    """Return <A, X> / (||X||_2 ||A||_*), computed on the CPU."""
    a, x = a.double().cpu(), x.double().cpu()
    return float((a * x).sum() / (torch.linalg.matrix_norm(x, 2) * torch.linalg.svdvals(a).sum()))


def check(device: torch.device) -> dict[str, float]:
    """Return the worst quality of polar factors, and the relative difference between a step and a step on the CPU."""
    matrices = [torch.randn(96, 96), torch.randn(64, 400), workloads.momentum((64, 256), "power_law", 1)]
    worst = min(quality(a, tensorion.polar(a.to(device), "newton_schulz", ns_steps=6)) for a in matrices)
    start = workloads.momentum((32, 16, 3, 3), "gaussian", 0)
    grad = workloads.momentum((32, 16, 3, 3), "power_law", 1)
    ends = []
    for place in (device, torch.device("cpu")):
        param = nn.Parameter(start.to(place, copy=True))
        param.grad = grad.to(place)
        tensorion.Tensorion([param], lr=0.1, weight_decay=0.0).step()
        ends.append(param.detach().cpu())
    return {
        "worst quality": worst,
        "difference to the CPU": float((ends[0] - ends[1]).norm() / (ends[1] - start).norm()),
    }


def steps(params: list[nn.Parameter]) -> dict[str, Step]:
    """Return the steps to time, each with its own parameters: ours, AdamW, and the Muons of installed libraries."""

    def copies() -> list[nn.Parameter]:
        found = [nn.Parameter(param.detach().clone()) for param in params]
        for twin, param in zip(found, params, strict=True):
            twin.grad = param.grad.clone()
        return found

    def ours(**options) -> Step:
        return tensorion.Tensorion(copies(), min_order=2, nonfinite="skip", **options).step

    found = {
        "Tensorion, balanced": ours(),
        "Tensorion, balanced, 4 steps": ours(ns_steps=4),
        "Tensorion, online every 10": ours(unfolding="online", online_interval=10),
        "Tensorion, flattened": ours(unfolding=(0,)),
        "AdamW": torch.optim.AdamW(copies(), foreach=True).step,
    }
    for label, make in PEERS.items():
        try:
            found[f"{label}, flattened"] = make(copies())
        except (ImportError, AttributeError) as error:  # not installed; torch.optim has no Muon before 2.9
            print(f"{label} is left out: {error}")
    return found


def time_steps(step: Step, device: torch.device, rounds: int) -> float:
    """Return the median time of `rounds` steps in milliseconds."""
    times = []
    for number in range(rounds + 2):
        synchronize(device)
        begin = time.perf_counter()
        step()
        synchronize(device)
        if number >= 2:
            times.append(1e3 * (time.perf_counter() - begin))
    return sorted(times)[len(times) // 2]


def count_reads(step: Step, device: torch.device) -> int | None:
    """Count the reads from the device in a step, as CUDA reports them."""
    if device.type != "cuda":
        return None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in caught)


def capture(device: torch.device) -> str:
    """Capture a step in a CUDA graph, and compare its replay with a step."""
    if device.type != "cuda":
        return "not on this device"
    ends = []
    for captured in (False, True):
        torch.manual_seed(0)
        param = nn.Parameter(torch.randn(16, 8, 3, 3, device=device))
        param.grad = torch.randn_like(param)
        optimizer = tensorion.Tensorion([param], lr=torch.tensor(0.1, device=device), nonfinite="skip")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            optimizer.step()
        torch.cuda.current_stream().wait_stream(stream)
        if captured:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                optimizer.step()
            graph.replay()
        else:
            optimizer.step()
        ends.append(param.detach().cpu())
    return "works" if torch.allclose(*ends, atol=1e-3) else f"differs by {(ends[0] - ends[1]).abs().max():.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cuda, cuda:1, xpu, mps or cpu")
    parser.add_argument("--width", type=int, default=64, help="width of the ResNet-18 whose kernels are updated")
    parser.add_argument("--rounds", type=int, default=10, help="number of timed steps")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    shapes = [shape for shape in workloads.shapes(workloads.resnet18, width=arguments.width) if len(shape) > 2]
    params = [nn.Parameter(torch.randn(shape, device=device) / math.sqrt(shape[0])) for shape in shapes]
    for param, grad in zip(params, momenta(shapes, device), strict=True):
        param.grad = grad

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    results: dict[str, object] = {"device": name, "torch": torch.__version__, **check(device)}
    results["graph capture"] = capture(device)
    for key, value in results.items():
        print(f"{key:24}{value:.4f}" if isinstance(value, float) else f"{key:24}{value}")
    print(f"\n{'kernels of ResNet-18':34}{'ms per step':>12}{'reads':>8}")
    rows = {}
    for label, step in steps(params).items():
        milliseconds = time_steps(step, device, arguments.rounds)
        reads = count_reads(step, device)
        rows[label] = {"milliseconds": milliseconds, "reads": reads}
        print(f"{label:34}{milliseconds:12.2f}{'-' if reads is None else reads:>8}")
    if arguments.json:
        arguments.json.write_text(json.dumps({**results, "steps": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
