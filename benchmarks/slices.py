"""Times a step on stacks and fused matrices: split into slices, as separate parameters, and as one tensor.

python benchmarks/slices.py [--rounds 9]
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from measure import alternate
from torch import nn
from workloads import momentum

from tensorion import Tensorion

#: The shape, the options that split it, and the shape and the number of its slices.
CASES: dict[str, tuple[tuple[int, ...], dict[str, Any], tuple[int, int], int]] = {
    "64 experts of 256 x 512": ((64, 256, 512), {"batch_modes": (0,)}, (256, 512), 64),
    "fused QKV, 3 x 768 x 768": ((2304, 768), {"split_sizes": 3}, (768, 768), 3),
}


def stepper(params: list[torch.Tensor], **options: Any) -> Callable[[], None]:
    parameters = [nn.Parameter(torch.zeros_like(param)) for param in params]
    for parameter, param in zip(parameters, params, strict=True):
        parameter.grad = param
    return Tensorion(parameters, min_order=2, **options).step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    print(f"{'tensor':26}  {'split':>9}  {'separate':>9}  {'ratio':>5}  {'one tensor':>10}")
    for name, (shape, options, slice_shape, count) in CASES.items():
        parts = [momentum(slice_shape, "power_law", seed) for seed in range(count)]
        whole = torch.stack(parts).reshape(shape)
        times = alternate(
            {"split": stepper([whole], **options), "separate": stepper(parts), "one": stepper([whole])}, rounds
        )
        ratio = times["split"] / times["separate"]
        print(
            f"{name:26}  {times['split']:8.4f}s  {times['separate']:8.4f}s  {ratio:5.2f}  {times['one']:9.4f}s",
            flush=True,
        )


if __name__ == "__main__":
    main()
