#!/usr/bin/env python3
"""Tensorion's step side by side with everything one could use instead: `make bench`.

One process; baselines take turns; the median of several rounds after a warm-up. Times compare within one run
only. `plain` is what Muon does, five Newton-Schulz steps by full matrix products, in fp32 on the same unfoldings:
bf16, which Muon ships with, is a hundred times slower on most CPUs. `floor` is the time of m^2 n + 2 m^2 n flops
(the Gram matrix and the last product) at the rate of a large matrix product that takes its turn with the others.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from baselines import LR, PEERS, Step, baselines, modes_of, ours, plain_newton_schulz, published
from measure import alternate, large_product, quality, work
from workloads import NETWORKS, SPECTRA, momenta, pictures, resnet18

import tensorion


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


def nuclear_norm(matrix: torch.Tensor) -> float:
    """From the eigenvalues of the Gram matrix, in double precision."""
    wide = (matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T).double()
    return float(torch.linalg.eigvalsh(wide @ wide.T).clamp_min(0).sqrt().sum())


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
                norm = self._norms[(*key, index, modes)] = nuclear_norm(matrix)
            result.append(quality(matrix, -tensorion.unfold(param.detach(), modes), norm))
        return result


def run(network: str, spectrum: str, quick: bool, rounds: int, judge: Judge) -> list[Row]:
    steps, unfolding_of, qualities, flops, memory, once = {}, {}, {}, {}, {}, {}
    for name, (unfolding, make) in baselines(quick).items():
        params = make_params(network, spectrum)
        try:
            step = make(params)
            start = time.perf_counter()
            if name in PEERS or name.startswith("svd"):  # minutes on a CPU, in 16 bits: one step does for all
                flops[name], memory[name] = work(step)
                once[name] = time.perf_counter() - start
            else:
                step()
                steps[name] = step
        except Exception as error:  # a peer that cannot take this work is left out, and said so
            print(f"  {name}: left out ({type(error).__name__}: {str(error).splitlines()[0][:100]})")
            continue
        unfolding_of[name] = unfolding
        qualities[name] = judge((network, spectrum), params, unfolding)
    for name, step in steps.items():
        tensorion.release_scratch()  # so that what is kept between steps counts
        flops[name], memory[name] = work(step)
    product, product_flops = large_product()
    times = alternate(steps | {"product": product}, rounds, warm=True) | once
    rate = product_flops / times.pop("product")
    rows = []
    for name in unfolding_of:
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


def square_and_wide(rounds: int, quick: bool) -> list[dict]:
    """Newton-Schulz against the plain form with the same coefficients."""
    results = []
    large, medium = [(1536, 1), (1024, 4), (768, 9)], [(1024, 1), (512, 4), (512, 9)]
    for side, aspect in large if quick else large + medium:
        matrix = torch.randn(side, aspect * side, generator=torch.Generator().manual_seed(1))
        for name in ("muon",) if quick else ("muon", "polar_express", "cans"):
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


def overhead(spectrum: str, rounds: int) -> float:
    """The part of a balanced step of ResNet-18 that is not its polar factors: momentum, the way into the unfoldings,
    and from there to the weights, by the same functions; that into the unfoldings with an addition, which a step
    spares."""
    params = make_params("resnet18", spectrum)
    grads, buffers = [param.grad for param in params], [torch.zeros_like(param) for param in params]
    modes = [tensorion.balanced_unfolding(param.shape) for param in params]
    matrices = [tensorion.unfold(grad, m).contiguous() for grad, m in zip(grads, modes, strict=True)]
    folded = [tensorion.fold(a, m, p.shape) for a, m, p in zip(matrices, modes, params, strict=True)]
    ops = torch.ops.tensorion

    @torch.no_grad()
    def all_but_polar() -> None:
        ops.add_gradients_(buffers, grads, momentum=0.95, maximize=False)
        ops.apply_directions_(folded, buffers, lr=LR, weight_decay=0.0)
        ops.apply_directions_(params, folded, lr=LR, weight_decay=0.0)

    times = alternate({"rest": all_but_polar, "step": ours(make_params("resnet18", spectrum), "balanced")}, rounds)
    return times["rest"] / times["step"]


def targets(rows: list[Row], matrices: list[dict], rounds: int) -> dict[str, dict]:
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
            "all but the polar factors, of a step": [overhead(spectrum, rounds), 0.10],
        }
    for aspect, most in ((1, 0.80), (4, 0.55), (9, 0.45)):
        for side in sorted({m["shape"][0] for m in matrices if m["shape"][1] == aspect * m["shape"][0]}):
            ratios = [m["ratio"] for m in matrices if m["shape"] == [side, aspect * side]]
            name = f"{side} x {aspect * side}"
            found.setdefault("newton_schulz / plain form", {})[name] = [max(ratios), most]
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


def plot(rows: list[Row], threads: int, path: Path) -> None:
    """A panel for each network and kind of momenta: up and to the left is better."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    panels = list(dict.fromkeys((row.network, row.spectrum) for row in rows))
    size = (11 * len(panels), 5)
    figure, axes = pyplot.subplots(1, len(panels), figsize=size, squeeze=False, constrained_layout=True)
    figure.suptitle(
        f"A step: time against quality, {threads} threads\n"
        "stars: Tensorion's default; squares: balanced unfoldings; circles: flattened kernels",
        fontsize="medium",
    )
    for axis, (network, spectrum) in zip(axes[0], panels, strict=True):
        shown = [row for row in rows if (row.network, row.spectrum) == (network, spectrum)]
        for number, row in enumerate(shown):
            marker = "s" if row.contestant.endswith("balanced") else "o"
            if row.contestant.startswith("tensorion"):
                marker = "*"
            color = pyplot.get_cmap("tab20")(number % 20)
            label = f"{row.contestant}: {1e3 * row.seconds:.0f} ms"
            axis.semilogx(1e3 * row.seconds, row.quality_mean, marker, color=color, markersize=11, label=label)
        axis.axhline(0.97, color="gray", linestyle=":")
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(ticker.NullFormatter())
        title = f"{network}, {spectrum} momenta".replace("_", " ")
        axis.set(xlabel="milliseconds of a step", ylabel=r"mean quality $q$", title=title)
        axis.grid(True, which="both", alpha=0.3)
        axis.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write all rows and ratios to this file")
    parser.add_argument("--plot", type=Path, help="write a picture, time against quality, to this file")
    parser.add_argument("--quick", action="store_true", help="ResNet-18 and a patch embedding, without slow peers")
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), help="these only")
    parser.add_argument("--spectra", nargs="+", choices=SPECTRA, help="these only")
    parser.add_argument("--rounds", type=int, help="of which the median is taken (default: 5, or 3 if quick)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"{arguments.threads} threads")
    networks = ["resnet18", "vit_base_patch_embedding"] if arguments.quick else list(NETWORKS)
    networks = arguments.networks or networks
    rounds = arguments.rounds or (3 if arguments.quick else 5)
    rows, judge = [], Judge()
    for network in networks:
        for spectrum in arguments.spectra or spectra(network, arguments.quick):
            found = run(network, spectrum, arguments.quick, rounds, judge)
            print_rows(found)
            rows += found
    matrices = square_and_wide(rounds, arguments.quick)
    ratios = targets(rows, matrices, rounds)
    if not arguments.quick:
        ratios["training, batch 128"] = {"Tensorion / SGD": [training_ratio(rounds), 1.6]}
    print("\nratios: measured (to reach)")
    for group, entries in ratios.items():
        for name, (value, most) in entries.items():
            print(f"  {group:<28}{name:<40}{value:>7.3f}  ({most})")
    if arguments.plot:
        plot(rows, arguments.threads, arguments.plot)
    if arguments.json:
        result = {
            "threads": arguments.threads,
            "rows": [asdict(row) for row in rows],
        }
        arguments.json.write_text(json.dumps(result | {"newton_schulz": matrices, "ratios": ratios}, indent=1) + "\n")


if __name__ == "__main__":
    main()
