#!/usr/bin/env python3
"""Measures how the time of a step grows with the size of a tensor, its order, and the number of tensors.

    python benchmarks/scaling.py [--json FILE] [--plot FILE] [--parts size order count large]

Prints the times and the fitted exponents. The part "large" performs one step on each of the largest layers of real
networks and reports the memory.
"""

import argparse
import json
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import machine
import scaling_plot
import torch
from measure import alternate, work
from workloads import momentum

import tensorion

#: C x C x 3 x 3 kernels: the balanced unfolding is 3C x 3C, so m^3 is C^3 and N^1.5 in the number of entries.
CHANNELS = (32, 64, 96, 128, 192, 256, 384, 512)
#: Cubes of about this many entries, of every order.
ENTRIES, ORDERS = 2**18, (3, 4, 5, 6, 7)
COUNTS = (1, 2, 4, 8, 16, 32)
#: Layers of wide ResNets, and the MLP of a 7B transformer as a matrix.
LARGE = ((1024, 1024, 3, 3), (2048, 2048, 3, 3), (4096, 11008))
PARTS = ("size", "order", "count", "large")


def make_step(shapes: list[tuple[int, ...]], unfolding: str) -> Callable[[], None]:
    params = []
    for seed, shape in enumerate(shapes):
        param = torch.zeros(shape, requires_grad=True)
        param.grad = momentum(shape, "power_law", seed)
        params.append(param)
    return tensorion.Tensorion(params, unfolding=unfolding, min_order=2).step


def step_seconds(cases: list[list[tuple[int, ...]]], unfolding: str, rounds: int) -> list[float]:
    calls = {str(number): make_step(shapes, unfolding) for number, shapes in enumerate(cases)}
    return list(alternate(calls, rounds).values())


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """Fit a line to the logarithms and return its slope."""
    x, y = torch.tensor(sizes).double().log(), torch.tensor(seconds).double().log()
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / (x * x).sum())


def cube(order: int) -> tuple[int, ...]:
    return (max(2, round(ENTRIES ** (1 / order))),) * order


def by_size(unfolding: str, rounds: int) -> dict[str, Any]:
    times = step_seconds([[(c, c, 3, 3)] for c in CHANNELS], unfolding, rounds)
    large = [c for c in CHANNELS if c >= 128]
    return {
        "channels": list(CHANNELS),
        "seconds": times,
        "exponent in the number of entries, from 128 channels": exponent(
            [9.0 * c * c for c in large], times[-len(large) :]
        ),
    }


def by_count(rounds: int) -> dict[str, Any]:
    times = step_seconds([[(64, 64, 3, 3)] * n for n in COUNTS], "balanced", rounds)
    return {
        "tensors": list(COUNTS),
        "seconds": times,
        "exponent in the number of tensors": exponent([float(n) for n in COUNTS], times),
    }


def large_layer(shape: tuple[int, ...]) -> dict[str, Any]:
    """Measure the memory of a first balanced step and the time of a second one."""
    step = make_step([shape], "balanced")
    tensorion.release_scratch()
    _, memory = work(step)
    seconds = alternate({"step": step}, 1, warm=True)["step"]
    tensorion.release_scratch()
    modes = tensorion.balanced_unfolding(shape)
    rows = prod(shape[mode] for mode in modes)
    entries = prod(shape)
    # The first step also allocates the momentum, which is state and not counted here.
    return {
        "shape": list(shape),
        "matrix": [rows, entries // rows],
        "seconds": seconds,
        "extra_memory": memory / (4 * entries) - 1,
        "gibibytes": (memory - 4 * entries) / 2**30,
    }


def measure(part: str, rounds: int) -> dict[str, Any]:
    if part == "size":
        return {unfolding: by_size(unfolding, rounds) for unfolding in ("balanced", "online")}
    if part == "order":
        shapes = [cube(order) for order in ORDERS]
        return {
            unfolding: {"shapes": shapes, "seconds": step_seconds([[shape] for shape in shapes], unfolding, rounds)}
            for unfolding in ("balanced", "online")
        }
    if part == "count":
        return {"balanced": by_count(rounds)}
    layers = [large_layer(shape) for shape in LARGE]
    kernels = {prod(one["shape"]): one["seconds"] for one in layers if len(one["shape"]) == 4}
    fitted = exponent([float(entries) for entries in kernels], list(kernels.values()))
    return {"layers": layers, "exponent in the number of entries, of the kernels": fitted}


def earlier(file: Path | None, found: dict[str, Any]) -> dict[str, Any]:
    """Return the results in the file if they are from the same machine."""
    if file and file.exists():
        result = json.loads(file.read_text())
        if result["machine"] == found:
            return result
    return {"machine": found}


def report(result: dict[str, Any]) -> None:
    print(f"{machine.headline(result['machine'])}\npower-law momenta, milliseconds of a step")
    for unfolding, found in result.get("size", {}).items():
        print(f"\nC x C x 3 x 3, {unfolding}")
        for channels, seconds in zip(found["channels"], found["seconds"], strict=True):
            print(f"  C = {channels:<5}{1e3 * seconds:>10.2f}")
        print(f"  time ~ entries^{found['exponent in the number of entries, from 128 channels']:.2f} from C = 128")
    for unfolding, found in result.get("order", {}).items():
        print(f"\n{ENTRIES} entries, {unfolding}")
        for shape, seconds in zip(found["shapes"], found["seconds"], strict=True):
            sides = 2 ** (len(shape) - 1) - 1
            print(f"  order {len(shape)}, {sides:>2} unfoldings{1e3 * seconds:>10.2f}")
    for found in result.get("count", {}).values():
        print("\n64 x 64 x 3 x 3, balanced")
        for count, seconds in zip(found["tensors"], found["seconds"], strict=True):
            print(f"  {count:>2} tensors{1e3 * seconds:>10.2f}")
        print(f"  time ~ tensors^{found['exponent in the number of tensors']:.2f}")
    if "large" in result:
        print("\nlarge layers, balanced; memory in unfoldings, beyond parameter, gradient and momentum")
        for one in result["large"]["layers"]:
            shape = " x ".join(map(str, one["shape"]))
            memory = f"{one['extra_memory']:8.1f} ({one['gibibytes']:.1f} GiB)"
            print(f"  {shape:<22}{1e3 * one['seconds']:>10.0f}{memory}")
        fitted = result["large"]["exponent in the number of entries, of the kernels"]
        print(f"  time ~ entries^{fitted:.2f} for the two kernels")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the results to this file, and keep its other parts")
    parser.add_argument("--plot", type=Path, help="write a figure to this file")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="measure only these parts")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    result = earlier(arguments.json, machine.describe())
    for part in arguments.parts:
        result[part] = measure(part, arguments.rounds)
        if arguments.json:
            arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    report(result)
    if arguments.plot:
        if not set(PARTS) <= result.keys():
            parser.error("--plot needs all parts, in this run or in the file of --json")
        scaling_plot.draw(result, arguments.plot)


if __name__ == "__main__":
    main()
