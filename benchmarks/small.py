"""Times a step on many small tensors: 200 kernels of 16 x 16 x 3 x 3, for which calls cost more than arithmetic.

    python benchmarks/small.py [--json FILE] [--count 200] [--rounds 15]

Each optimizer updates the same tensors. AdamW and SGD with foreach=True process all tensors in each call. With
foreach=False there are several calls for each tensor, as in torch.optim.Muon, so its time shows the cost of such calls.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import machine
import torch
from baselines import flattened
from measure import paired_ratio, take_turns
from workloads import momentum

import tensorion

SHAPE = (16, 16, 3, 3)
BASE = "AdamW, foreach"


def parameters(count: int) -> list[torch.Tensor]:
    params = []
    for seed in range(count):
        param = torch.zeros(SHAPE, requires_grad=True)
        param.grad = momentum(SHAPE, "power_law", seed)
        params.append(param)
    return params


def steps(count: int) -> dict[str, Callable[[], Any]]:
    made: dict[str, Callable[[], Any]] = {
        "Tensorion, balanced": tensorion.Tensorion(parameters(count)).step,
        "Tensorion, flattened": tensorion.Tensorion(parameters(count), unfolding=(0,)).step,
        BASE: torch.optim.AdamW(parameters(count), foreach=True).step,
        "AdamW, one tensor at a time": torch.optim.AdamW(parameters(count), foreach=False).step,
        "SGD, foreach": torch.optim.SGD(parameters(count), lr=1e-3, momentum=0.9, foreach=True).step,
    }
    if hasattr(torch.optim, "Muon"):  # torch 2.9 and later
        made["torch.optim.Muon, flattened"] = torch.optim.Muon(flattened(parameters(count)), lr=1e-3).step
    return made


def measure(count: int, rounds: int) -> dict[str, dict[str, float]]:
    times = take_turns(steps(count), rounds)
    return {
        name: {
            "seconds": median(values),
            "microseconds_per_tensor": 1e6 * median(values) / count,
            "relative_to_foreach_adamw": paired_ratio(values, times[BASE]).median,
        }
        for name, values in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the times to this file")
    parser.add_argument("--count", type=int, default=200, help="number of tensors")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    found = machine.describe()
    print(machine.headline(found))
    rows = measure(arguments.count, arguments.rounds)
    shape = " x ".join(map(str, SHAPE))
    print(f"\n{arguments.count} kernels of {shape}\n{'optimizer':32}{'ms/step':>12}{'us/tensor':>12}{'/ AdamW':>9}")
    for name, row in rows.items():
        print(
            f"{name:32}{1e3 * row['seconds']:12.2f}{row['microseconds_per_tensor']:12.1f}"
            f"{row['relative_to_foreach_adamw']:9.2f}"
        )
    if arguments.json:
        result = {"machine": found, "count": arguments.count, "shape": SHAPE, "optimizers": rows}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
