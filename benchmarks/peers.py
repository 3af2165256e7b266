#!/usr/bin/env python3
"""Tensorion's step side by side with everything one could use instead: `make bench`.

One process; contestants take turns; the median of several rounds after a warm-up. Times compare within one run
only. `plain` is what Muon does, five Newton-Schulz steps by full matrix products, in fp32 on the same unfoldings:
bf16, which Muon ships with, is a hundred times slower on most CPUs. `floor` is the time of m^2 n + 2 m^2 n flops
(the Gram matrix and the last product) at the rate of a large matrix product measured in the same run.
"""

import argparse
import importlib.util
import json
import math
import sys
import types
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from measure import alternate, gemm_rate, quality, work
from workloads import NETWORKS, SPECTRA, momenta, pictures, resnet18

import tensorion

MUON = (3.4445, -4.7750, 2.0315)
LR = 1e-3
Step = Callable[[], None]


def plain_newton_schulz(matrix: torch.Tensor, rows: list[tuple[float, float, float]]) -> torch.Tensor:
    """Newton-Schulz as published, by full products."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm()
    for a, b, c in rows:
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def published(name: str, steps: int) -> list[tuple[float, ...]]:
    values = torch.ops.tensorion.named_coefficients(name)
    rows = [tuple(values[i : i + 3]) for i in range(0, len(values), 3)]
    return [rows[min(i, len(rows) - 1)] for i in range(steps)]


def modes_of(shape: tuple[int, ...], unfolding: str) -> tuple[int, ...]:
    return (0,) if unfolding == "flattened" else tensorion.balanced_unfolding(shape)


def ours(params: list[torch.Tensor], unfolding: str, **options) -> Step:
    choice = (0,) if unfolding == "flattened" else unfolding
    return tensorion.Tensorion(params, lr=LR, weight_decay=0.0, unfolding=choice, **options).step


def plain(params: list[torch.Tensor], unfolding: str) -> Step:
    """A Muon in fp32 with a choice of unfolding, as short as it can be."""
    buffers = [torch.zeros_like(param) for param in params]

    @torch.no_grad()
    def step() -> None:
        for param, buffer in zip(params, buffers, strict=True):
            buffer.mul_(0.95).add_(param.grad)
            modes = modes_of(tuple(param.shape), unfolding)
            matrix = tensorion.unfold(buffer, modes)
            update = tensorion.fold(plain_newton_schulz(matrix, [MUON] * 5), modes, param.shape)
            param.add_(update, alpha=-LR * 0.2 * math.sqrt(max(matrix.shape)))

    return step


def gram_newton_schulz(params: list[torch.Tensor]) -> Step:
    """gram-newton-schulz by its torch path, on flattened kernels."""
    from gram_newton_schulz import GramNewtonSchulz

    solve = GramNewtonSchulz(ns_use_kernels=False, compile_kwargs=None)
    buffers = [torch.zeros_like(param) for param in params]

    @torch.no_grad()
    def step() -> None:
        for param, buffer in zip(params, buffers, strict=True):
            buffer.mul_(0.95).add_(param.grad)
            param.add_(solve(buffer.flatten(1)).view_as(param), alpha=-LR)

    return step


def torch_muon(params: list[torch.Tensor]) -> Step:
    """torch.optim.Muon takes matrices only: on flattened kernels, as shipped (bf16)."""
    flat = [param.detach().flatten(1).requires_grad_() for param in params]
    for view, param in zip(flat, params, strict=True):
        view.grad = param.grad.flatten(1)
    return torch.optim.Muon(flat, lr=LR, weight_decay=0.0).step


def timm_muon(params: list[torch.Tensor]) -> Step:
    # timm itself imports torchvision, which this module does not need: it is imported without the packages around it.
    if "timm" not in sys.modules:
        spec = importlib.util.find_spec("timm")
        if spec is None:
            raise ModuleNotFoundError("No module named 'timm'")
        folder = Path(spec.submodule_search_locations[0])
        for name, path in (("timm", folder), ("timm.optim", folder / "optim")):
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = [str(path)]
    from timm.optim.muon import Muon

    return Muon(params, lr=LR, weight_decay=0.0).step


def heavyball_muon(params: list[torch.Tensor]) -> Step:
    import heavyball

    heavyball.utils.compile_mode = None
    optimizer = heavyball.Muon(params, lr=LR, weight_decay=0.0)
    grads = [param.grad for param in params]

    def step() -> None:
        # It takes the gradients away.
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad
        optimizer.step()
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad

    return step


def pytorch_optimizer_muon(params: list[torch.Tensor]) -> Step:
    import pytorch_optimizer

    groups = [{"params": [param.detach().flatten(1).requires_grad_() for param in params], "use_muon": True}]
    for view, param in zip(groups[0]["params"], params, strict=True):
        view.grad = param.grad.flatten(1)
    return pytorch_optimizer.Muon(groups, lr=LR, weight_decay=0.0).step


def contestants(quick: bool) -> dict[str, tuple[str, Callable[[list[torch.Tensor]], Step]]]:
    """Name to the unfolding it works on and what makes its step."""
    entries: dict[str, tuple[str, Callable]] = {}
    for unfolding in ("balanced", "flattened"):
        entries[f"plain {unfolding}"] = (unfolding, lambda p, u=unfolding: plain(p, u))
        entries[f"tensorion {unfolding}"] = (unfolding, lambda p, u=unfolding: ours(p, u))
        for name in ("muon", "polar_express") if quick else ("muon", "polar_express", "cans"):
            entries[f"newton_schulz {name} {unfolding}"] = (
                unfolding,
                lambda p, u=unfolding, n=name: ours(p, u, polar="newton_schulz", ns_coefficients=n),
            )
        if not quick:
            entries[f"svd {unfolding}"] = (unfolding, lambda p, u=unfolding: ours(p, u, polar="svd"))
    entries["tensorion online"] = ("online", lambda p: ours(p, "online"))
    if not quick:
        entries["gram-newton-schulz"] = ("flattened", gram_newton_schulz)
        entries["torch.optim.Muon"] = ("flattened", torch_muon)
        entries["timm Muon"] = ("flattened", timm_muon)
        entries["heavyball Muon"] = ("flattened", heavyball_muon)
        entries["pytorch-optimizer Muon"] = ("flattened", pytorch_optimizer_muon)
    return entries


@dataclass
class Row:
    network: str
    spectrum: str
    contestant: str
    seconds: float
    quality_mean: float
    quality_least: float
    relative_to_plain: float
    relative_to_floor: float
    product_gflop: float
    extra_memory: float  # in sizes of the largest unfolding


def make_params(network: str, spectrum: str) -> list[torch.Tensor]:
    params = []
    for grad in momenta(network, spectrum):
        param = torch.zeros_like(grad, requires_grad=True)
        param.grad = grad.clone()
        params.append(param)
    return params


class Judge:
    """The quality of an update, each nuclear norm computed once."""

    def __init__(self) -> None:
        self._norms: dict[tuple, float] = {}

    def __call__(self, key: tuple, params: list[torch.Tensor], unfolding: str) -> list[float]:
        result = []
        for index, param in enumerate(params):
            modes = (
                tensorion.lmo(param.grad).modes if unfolding == "online" else modes_of(tuple(param.shape), unfolding)
            )
            matrix = tensorion.unfold(param.grad, modes)
            norm = self._norms.setdefault((*key, index, modes), 0.0)
            if not norm:
                norm = self._norms[(*key, index, modes)] = float(torch.linalg.svdvals(matrix).sum())
            result.append(quality(matrix, -tensorion.unfold(param.detach(), modes), norm))
        return result


def run(network: str, spectrum: str, quick: bool, rounds: int, rate: float, judge: Judge) -> list[Row]:
    steps, params_of, unfolding_of = {}, {}, {}
    for name, (unfolding, make) in contestants(quick).items():
        params = make_params(network, spectrum)
        try:
            step = make(params)
            step()
        except Exception as error:  # a peer that cannot take this work is left out, and said so
            print(f"  {name}: left out ({type(error).__name__}: {str(error).splitlines()[0][:100]})")
            continue
        steps[name], params_of[name], unfolding_of[name] = step, params, unfolding
    flops, memory = {}, {}
    qualities = {name: judge((network, spectrum), params_of[name], unfolding_of[name]) for name in steps}
    for name, step in steps.items():
        tensorion.release_scratch()  # so that what is kept between steps counts
        flops[name], memory[name] = work(step)
    slow = {"torch.optim.Muon", "timm Muon", "heavyball Muon", "pytorch-optimizer Muon", "gram-newton-schulz"} | {
        n for n in steps if n.startswith("svd")
    }
    times = alternate({n: s for n, s in steps.items() if n not in slow}, rounds)
    times |= alternate({n: s for n, s in steps.items() if n in slow}, 1) if slow & steps.keys() else {}
    rows = []
    for name in steps:
        base = unfolding_of[name] if unfolding_of[name] != "online" else "balanced"
        sides = []
        for shape in NETWORKS[network]:
            matrix = tensorion.unfold(torch.empty(shape), modes_of(shape, base)).shape
            sides.append((min(matrix), max(matrix)))
        floor = sum(3 * m * m * n for m, n in sides) / rate
        largest = 4 * max(m * n for m, n in sides)
        rows.append(
            Row(
                network=network,
                spectrum=spectrum,
                contestant=name,
                seconds=times[name],
                quality_mean=sum(qualities[name]) / len(qualities[name]),
                quality_least=min(qualities[name]),
                relative_to_plain=times[name] / times[f"plain {base}"],
                relative_to_floor=times[name] / floor,
                product_gflop=flops[name] / 1e9,
                extra_memory=memory[name] / largest,
            )
        )
    return rows


def square_and_wide(rounds: int) -> list[dict]:
    """Newton-Schulz against the plain form with the same coefficients."""
    results = []
    for aspect in (1, 4, 9):
        side = 1024 if aspect == 1 else 512
        matrix = torch.randn(side, aspect * side, generator=torch.Generator().manual_seed(1))
        for name in ("muon", "polar_express", "cans"):
            rows = published(name, 5)
            calls = {
                "ours": lambda n=name, a=matrix: tensorion.polar(a, "newton_schulz", ns_coefficients=n),
                "plain": lambda r=rows, a=matrix: plain_newton_schulz(a, r),
            }
            times = alternate(calls, rounds)
            difference = float((calls["ours"]() - calls["plain"]()).abs().max())
            results.append(
                {
                    "shape": [side, aspect * side],
                    "coefficients": name,
                    "ratio": times["ours"] / times["plain"],
                    "difference": difference,
                }
            )
    return results


def targets(rows: list[Row], matrices: list[dict]) -> dict[str, dict]:
    """The ratios that the project holds itself to, on ResNet-18."""
    found = {}
    for spectrum in SPECTRA:
        by_name = {row.contestant: row for row in rows if (row.network, row.spectrum) == ("resnet18", spectrum)}
        if not by_name:
            continue
        default, flat, online = (by_name[f"tensorion {name}"] for name in ("balanced", "flattened", "online"))
        express = by_name["newton_schulz polar_express balanced"]
        plain_row = by_name["plain balanced"]
        found[spectrum] = {
            "default balanced / plain": [default.relative_to_plain, 0.30],
            "default balanced, least q (at least)": [default.quality_least, 0.97],
            "default flattened / plain": [flat.relative_to_plain, 0.22],
            "default balanced / floor": [default.relative_to_floor, 3.5],
            "online / balanced": [online.seconds / default.seconds, 2.0],
            "GEMM-only product flops / plain": [express.product_gflop / plain_row.product_gflop, 0.70],
            "GEMM-only q above plain by": [express.quality_mean - plain_row.quality_mean, 0.0],
            "extra memory / largest unfolding": [default.extra_memory, 5.0],
        }
    for aspect, most in ((1, 0.80), (4, 0.55), (9, 0.45)):
        ratios = [m["ratio"] for m in matrices if m["shape"][1] == aspect * m["shape"][0]]
        found.setdefault("newton_schulz / plain form", {})[f"n = {aspect} m"] = [max(ratios), most]
    return found


def spectra(network: str, quick: bool) -> tuple[str, ...]:
    available = [spectrum for spectrum in SPECTRA if spectrum != "trained" or network == "resnet18"]
    return tuple(available[:1] if quick else available)


def training_ratio(rounds: int, batch: int = 128) -> float:
    """A training step of ResNet-18 with Tensorion against one with SGD."""
    images, labels = pictures(batch, torch.Generator().manual_seed(2))

    def training(make: Callable[[list[torch.Tensor]], torch.optim.Optimizer]) -> Step:
        torch.manual_seed(0)
        network = resnet18().to(memory_format=torch.channels_last)
        optimizer = make(list(network.parameters()))

        def step() -> None:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(images), labels).backward()
            optimizer.step()

        return step

    times = alternate(
        {
            "sgd": training(lambda params: torch.optim.SGD(params, lr=1e-3, momentum=0.9)),
            "tensorion": training(lambda params: tensorion.Tensorion(params, lr=1e-4, fallback="sgd")),
        },
        rounds,
    )
    return times["tensorion"] / times["sgd"]


def print_rows(rows: list[Row]) -> None:
    print(f"\n{rows[0].network}, {rows[0].spectrum} momenta")
    print(f"{'contestant':<36}{'ms':>9}{'q mean':>8}{'q least':>9}{'/plain':>8}{'/floor':>8}{'GFLOP':>9}{'memory':>8}")
    for r in rows:
        print(
            f"{r.contestant:<36}{1e3 * r.seconds:>9.1f}{r.quality_mean:>8.3f}{r.quality_least:>9.3f}"
            f"{r.relative_to_plain:>8.2f}{r.relative_to_floor:>8.2f}{r.product_gflop:>9.1f}{r.extra_memory:>8.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write all rows and ratios to this file")
    parser.add_argument("--quick", action="store_true", help="ResNet-18 and a patch embedding, without slow peers")
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), help="these only")
    parser.add_argument("--spectra", nargs="+", choices=SPECTRA, help="these only")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rate = gemm_rate()
    print(f"{arguments.threads} threads, large matrix products at {rate / 1e9:.0f} GFLOP/s")
    networks = ["resnet18", "vit_base_patch_embedding"] if arguments.quick else list(NETWORKS)
    networks = arguments.networks or networks
    rows, judge = [], Judge()
    for network in networks:
        for spectrum in arguments.spectra or spectra(network, arguments.quick):
            found = run(network, spectrum, arguments.quick, 3 if arguments.quick else arguments.rounds, rate, judge)
            print_rows(found)
            rows += found
    matrices = square_and_wide(3 if arguments.quick else arguments.rounds)
    ratios = targets(rows, matrices)
    if not arguments.quick:
        ratios["training, batch 128"] = {"Tensorion / SGD": [training_ratio(arguments.rounds), 1.6]}
    print("\nratios: measured (to reach)")
    for group, entries in ratios.items():
        for name, (value, most) in entries.items():
            print(f"  {group:<28}{name:<40}{value:>7.3f}  ({most})")
    if arguments.json:
        result = {
            "threads": arguments.threads,
            "gemm_gflops": rate / 1e9,
            "rows": [asdict(row) for row in rows],
        }
        arguments.json.write_text(json.dumps(result | {"newton_schulz": matrices, "ratios": ratios}, indent=1) + "\n")


if __name__ == "__main__":
    main()
