"""Splits the error of `tensorion laplace` by frequency, and compares the updates with the gradients.

The Rayleigh quotient is a weighted mean of eigenvalues, so its error is a sum over the modes and their discrete sine
frequencies k. With w_jk the share of ||x||^2 at frequency k of mode j,

    error = sum_jk w_jk (lambda_k - lambda_1) / (d lambda_1).

Each optimizer starts from the same train as seed 0 of the program. The JSON has, for each recorded step,

- the error in three bands of frequencies: low (k <= 4), middle (4 < k <= n / 4), high (k > n / 4);
- alignment: the cosine between the gradient and the change of the inner cores, with a positive sign for descent;
- roughness of the gradient and of the change: the mean of lambda_k over the inner cores, divided by the largest one;
- relative_step: the norm of the change over the norm of the inner cores.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import torch

import tensorion

Train = list[torch.Tensor]
LOW = 4  # frequencies of the low band


def random_train(d: int, n: int, rank: int, seed: int) -> Train:
    """Return the tensor train from which the program starts."""
    ranks = [min(rank, n ** min(k, d - k)) for k in range(d + 1)]
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(ranks[k], n, ranks[k + 1], generator=generator, dtype=torch.float64) / math.sqrt(ranks[k] * n)
        for k in range(d)
    ]


def eigenvalues(n: int) -> torch.Tensor:
    """Return the eigenvalues of one mode in ascending order."""
    return (2 * (n + 1) * torch.sin(torch.arange(1, n + 1, dtype=torch.float64) * math.pi / (2 * (n + 1)))) ** 2


def sines(n: int) -> torch.Tensor:
    """Return the orthonormal eigenvectors of one mode as rows."""
    k = torch.arange(1, n + 1, dtype=torch.float64)
    return math.sqrt(2 / (n + 1)) * torch.sin(math.pi / (n + 1) * torch.outer(k, k))


def quotient(train: Train) -> torch.Tensor:
    mass, energy = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    for core in train:
        step = core.shape[1] + 1
        slope = torch.diff(torch.nn.functional.pad(core, (0, 0, 1, 1)), dim=1) * step
        energy = sandwich(energy, core) + sandwich(mass, slope)
        mass = sandwich(mass, core)
        scale = mass.detach().abs().max()
        energy, mass = energy / scale, mass / scale
    return (energy / mass).squeeze()


def sandwich(state: torch.Tensor, core: torch.Tensor) -> torch.Tensor:
    return core.flatten(0, 1).T @ (state @ core.flatten(1)).reshape(-1, core.shape[2])


def errors_by_frequency(train: Train) -> torch.Tensor:
    """Return the n terms of the relative error, each summed over the modes."""
    n, transform = train[0].shape[1], sines(train[0].shape[1])
    cores = [torch.einsum("ki,aib->akb", transform, core) for core in train]
    rights = [torch.ones(1, 1, dtype=torch.float64)]
    for core in reversed(cores[1:]):
        state = torch.einsum("akb,bc,dkc->ad", core, rights[-1], core)
        rights.append(state / state.abs().max())
    left, total = torch.ones(1, 1, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    for core, right in zip(cores, reversed(rights), strict=True):
        weights = torch.einsum("ad,akb,bc,dkc->k", left, core, right, core)
        total += weights / weights.sum()
        left = torch.einsum("akb,ad,dkc->bc", core, left, core)
        left = left / left.abs().max()
    values = eigenvalues(n)
    return total * (values - values[0]) / (len(train) * values[0])


def roughness(tensors: Train) -> float:
    values = eigenvalues(tensors[0].shape[1])
    squares = sum(torch.einsum("ki,aib->akb", sines(len(values)), x).square().sum((0, 2)) for x in tensors)
    return float((squares @ values) / (squares.sum() * values[-1]))


def inner(a: Train, b: Train) -> float:
    return float(sum((x * y).sum() for x, y in zip(a, b, strict=True)))


def optimizer(name: str, train: Train, lr: float) -> tensorion.Tensorion:
    """Create the optimizer as the program does. The first and the last core are matrices with a single unfolding."""
    unfoldings: dict[str, Any] = {"tensorion": "balanced", "online": "online", "muon": (0,)}
    groups = [
        {"params": [train[0], train[-1]], "unfolding": "online" if name == "online" else "balanced"},
        {"params": train[1:-1], "unfolding": unfoldings[name]},
    ]
    return tensorion.Tensorion(groups, lr=lr, weight_decay=0, min_order=2, fallback=None)


def trace(problem: str, name: str, lr: float, steps: int, records: int) -> list[dict[str, float]]:
    d, n, rank = map(int, problem.split("x"))
    train = [core.requires_grad_() for core in random_train(d, n, rank, 0)]
    method = optimizer(name, train, lr)
    interval = max(1, steps // records)
    points = []
    for step in range(steps):
        for group in method.param_groups:
            group["lr"] = lr * (1 + math.cos(math.pi * step / steps)) / 2
        method.zero_grad()
        quotient(train).backward()
        is_recorded = step % interval == 0 or step == steps - 1
        before = [core.detach().clone() for core in train[1:-1]] if is_recorded else []
        method.step()
        if is_recorded:
            points.append({"step": step + 1} | measure(train, before))
    return points


@torch.no_grad()
def measure(train: Train, before: Train) -> dict[str, float]:
    high = max(LOW, train[0].shape[1] // 4)  # first term of the high band
    terms = errors_by_frequency([core.detach() for core in train])
    gradients = [core.grad for core in train[1:-1] if core.grad is not None]
    changes = [old - core for old, core in zip(before, train[1:-1], strict=True)]
    change = math.sqrt(inner(changes, changes))
    return {
        "error": float(terms.sum()),
        "low": float(terms[:LOW].sum()),
        "middle": float(terms[LOW:high].sum()),
        "high": float(terms[high:].sum()),
        "alignment": inner(gradients, changes) / (math.sqrt(inner(gradients, gradients)) * change),
        "roughness_gradient": roughness(gradients),
        "roughness_change": roughness(changes),
        "relative_step": change / math.sqrt(inner(before, before)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", default="10x32x8", help="dimensions x points x rank")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=0.03, help="learning rate of all methods")
    parser.add_argument("--records", type=int, default=20, help="number of recorded points of a run")
    parser.add_argument("--methods", default="tensorion,muon")
    parser.add_argument("--json", type=Path, help="file to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = {}
    for name in options.methods.split(","):
        runs[name] = trace(options.problem, name, options.lr, options.steps, options.records)
        print(f"{name}, lr {options.lr:g}, {options.steps} steps")
        print("  step    error      low   middle     high  align  rough(grad)  rough(step)  rel. step")
        for p in runs[name]:
            print(
                f"{p['step']:6d} {p['error']:8.1e} {p['low']:8.1e} {p['middle']:8.1e} {p['high']:8.1e}"
                f" {p['alignment']:6.3f} {p['roughness_gradient']:12.4f} {p['roughness_change']:12.4f}"
                f" {p['relative_step']:10.1e}"
            )
    if options.json:
        config = {"problem": options.problem, "steps": options.steps, "lr": options.lr, "schedule": "cosine"}
        options.json.write_text(json.dumps({"config": config, "runs": runs}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
