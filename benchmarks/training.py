"""Times training steps of ResNet-18 (width 64) with Tensorion and with SGD, and the optimizer's part of them.

    python benchmarks/training.py [--batch 128] [--rounds 5]

A step consists of the forward pass, the backward pass and the update of all parameters, on images of 32 x 32 pixels.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import machine
import torch
from measure import Ratio, paired_ratio, take_turns
from torch import nn
from workloads import make_images, resnet18

import tensorion

OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "SGD": lambda params: torch.optim.SGD(params, lr=1e-3, momentum=0.9),
    "Tensorion": lambda params: tensorion.Tensorion(params, lr=1e-4, fallback="sgd"),
    "Tensorion, flattened": lambda params: tensorion.Tensorion(params, lr=1e-4, fallback="sgd", unfolding=(0,)),
}


class Training:
    """One network with its optimizer. A call makes one training step."""

    def __init__(self, make: Callable[[list[nn.Parameter]], torch.optim.Optimizer], batch: int) -> None:
        torch.manual_seed(0)
        self.network = resnet18().to(memory_format=torch.channels_last)
        self.optimizer = make(list(self.network.parameters()))
        self.images, self.labels = make_images(batch, torch.Generator().manual_seed(2))
        self.update_seconds: list[float] = []

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.network(self.images), self.labels).backward()
        start = time.perf_counter()
        self.optimizer.step()
        self.update_seconds.append(time.perf_counter() - start)


def measure(rounds: int, batch: int = 128) -> tuple[dict[str, Ratio], dict[str, dict[str, Any]]]:
    """Return the ratio of each optimizer's training step to a step with SGD, and the median times."""
    trainings = {name: Training(make, batch) for name, make in OPTIMIZERS.items()}
    times = take_turns(dict(trainings), rounds)
    ratios = {name: paired_ratio(values, times["SGD"]) for name, values in times.items() if name != "SGD"}
    seconds = {
        name: {
            "training_step": median(values),
            "optimizer_step": median(trainings[name].update_seconds[1:]),
        }
        for name, values in times.items()
    }
    return ratios, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(machine.headline(machine.describe()))
    ratios, seconds = measure(arguments.rounds, arguments.batch)
    print(f"{'optimizer':24}{'ms per step':>12}{'optimizer':>12}{'/ SGD':>8}")
    for name, found in seconds.items():
        ratio = ratios[name].median if name in ratios else 1.0
        print(f"{name:24}{1e3 * found['training_step']:12.1f}{1e3 * found['optimizer_step']:12.1f}{ratio:8.3f}")


if __name__ == "__main__":
    main()
