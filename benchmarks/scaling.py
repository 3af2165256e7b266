#!/usr/bin/env python3
"""How the cost of a step grows: with the size of a tensor, its order, and the number of tensors.

Prints the times and the exponents fitted to them, writes `--json FILE` and with `--plot FILE` a picture.
"""

import argparse
import json
from pathlib import Path

import torch
from measure import alternate
from workloads import momentum

import tensorion

#: C x C x 3 x 3 kernels: the balanced unfolding is 3C x 3C, so m^3 is C^3 and N^1.5 in the number of entries.
CHANNELS = (32, 64, 96, 128, 192, 256, 384, 512)
#: Cubes of about this many entries, of every order.
ENTRIES, ORDERS = 2**18, (3, 4, 5, 6, 7)
COUNTS = (1, 2, 4, 8, 16, 32)


def step_seconds(cases: dict[str, list[tuple[int, ...]]], unfolding: str, rounds: int) -> dict[str, float]:
    calls = {}
    for name, shapes in cases.items():
        params = []
        for seed, shape in enumerate(shapes):
            param = torch.zeros(shape, requires_grad=True)
            param.grad = momentum(shape, "power_law", seed)
            params.append(param)
        calls[name] = tensorion.Tensorion(params, unfolding=unfolding).step
    return alternate(calls, rounds)


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """The slope of a line through the logarithms."""
    x, y = torch.tensor(sizes).double().log(), torch.tensor(seconds).double().log()
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / (x * x).sum())


def cube(order: int) -> tuple[int, ...]:
    return (max(2, round(ENTRIES ** (1 / order))),) * order


def measure(rounds: int) -> dict:
    result: dict = {"threads": torch.get_num_threads(), "size": {}, "order": {}, "count": {}}
    for unfolding in ("balanced", "online"):
        kernels = {str(c): [(c, c, 3, 3)] for c in CHANNELS}
        times = list(step_seconds(kernels, unfolding, rounds).values())
        large = [c for c in CHANNELS if c >= 128]
        result["size"][unfolding] = {
            "channels": list(CHANNELS),
            "seconds": times,
            "exponent in the number of entries, from 128 channels": exponent(
                [9.0 * c * c for c in large], times[-len(large) :]
            ),
        }
        shapes = {str(order): [cube(order)] for order in ORDERS}
        times = list(step_seconds(shapes, unfolding, rounds).values())
        result["order"][unfolding] = {"shapes": [cube(order) for order in ORDERS], "seconds": times}
    batches = {str(n): [(64, 64, 3, 3)] * n for n in COUNTS}
    times = list(step_seconds(batches, "balanced", rounds).values())
    result["count"]["balanced"] = {
        "tensors": list(COUNTS),
        "seconds": times,
        "exponent in the number of tensors": exponent([float(n) for n in COUNTS], times),
    }
    return result


def report(result: dict) -> None:
    print(f"{result['threads']} threads, power-law momenta, milliseconds of a step")
    for unfolding, found in result["size"].items():
        print(f"\nC x C x 3 x 3, {unfolding}")
        for channels, seconds in zip(found["channels"], found["seconds"], strict=True):
            print(f"  C = {channels:<5}{1e3 * seconds:>10.2f}")
        print(f"  time ~ entries^{found['exponent in the number of entries, from 128 channels']:.2f} from C = 128")
    for unfolding, found in result["order"].items():
        print(f"\n{ENTRIES} entries, {unfolding}")
        for shape, seconds in zip(found["shapes"], found["seconds"], strict=True):
            sides = 2 ** (len(shape) - 1) - 1
            print(f"  order {len(shape)}, {sides:>2} unfoldings{1e3 * seconds:>10.2f}")
    found = result["count"]["balanced"]
    print("\n64 x 64 x 3 x 3, balanced")
    for count, seconds in zip(found["tensors"], found["seconds"], strict=True):
        print(f"  {count:>2} tensors{1e3 * seconds:>10.2f}")
    print(f"  time ~ tensors^{found['exponent in the number of tensors']:.2f}")


def plot(result: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4), constrained_layout=True)
    figure.suptitle(f"The cost of a step, {result['threads']} threads, power-law momenta")
    for unfolding, found in result["size"].items():
        entries = [9 * c * c for c in found["channels"]]
        axes[0].loglog(entries, [1e3 * s for s in found["seconds"]], "o-", label=unfolding)
    reference = result["size"]["balanced"]
    last, ends = reference["seconds"][-1], [9 * reference["channels"][0] ** 2, 9 * reference["channels"][-1] ** 2]
    axes[0].loglog(ends, [1e3 * last * (n / ends[1]) ** 1.5 for n in ends], "k:", label="entries$^{1.5}$")
    axes[0].set(xlabel="entries of a C x C x 3 x 3 kernel", ylabel="milliseconds", title="Size")
    for unfolding, found in result["order"].items():
        orders = [len(shape) for shape in found["shapes"]]
        axes[1].semilogy(orders, [1e3 * s for s in found["seconds"]], "o-", label=unfolding)
    axes[1].set(xlabel=f"order of a cube of {ENTRIES} entries", title="Order", xticks=list(ORDERS))
    found = result["count"]["balanced"]
    axes[2].loglog(found["tensors"], [1e3 * s for s in found["seconds"]], "o-", label="balanced")
    axes[2].set(xlabel="kernels of 64 x 64 x 3 x 3", title="Number of tensors")
    for axis in axes:
        axis.grid(True, which="both", alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the times and exponents to this file")
    parser.add_argument("--plot", type=Path, help="write a picture to this file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    result = measure(arguments.rounds)
    report(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    if arguments.plot:
        plot(result, arguments.plot)


if __name__ == "__main__":
    main()
