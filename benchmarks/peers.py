#!/usr/bin/env python3
"""Compares Tensorion's step with the alternatives, and measures the ratios of ratios.py: `make bench`.

All methods alternate in one process. A time is the median of several rounds after a warm-up. Times are comparable only
within one run. Methods that flatten kernels do less work than methods on balanced unfoldings, so each unfolding has its
own table.

`plain` is Muon's algorithm, five Newton-Schulz steps with full matrix products, in fp32 on the same unfoldings. (bf16,
Muon's default, is up to a hundred times slower on CPUs.) `floor` is the time of m^2 n + 2 m^2 n flops (the Gram matrix
and the last product) at the rate of a large matrix product that is timed in the same rounds.

The environment variables ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 make a newer CPU behave like one with AVX2; the results
say so.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import machine
import quality_plot
import ratios
import torch
from baselines import methods, plain_newton_schulz, published
from measure import alternate
from step_table import Judge, Row, print_rows, run
from workloads import NETWORKS, SPECTRA

import tensorion


def square_and_wide(rounds: int) -> list[dict]:
    """Compare Tensorion's Newton-Schulz with the plain form and the same coefficients."""
    results = []
    for side, aspect in [(1536, 1), (1024, 4), (768, 9), (1024, 1), (512, 4), (512, 9)]:
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


def print_matrices(matrices: list[dict]) -> None:
    print(f"\n{'newton_schulz / plain form':<28}" + "".join(f"{m['coefficients']:>15}" for m in matrices[:3]))
    for first in range(0, len(matrices), 3):
        row = matrices[first : first + 3]
        shape = " x ".join(map(str, row[0]["shape"]))
        print(f"{shape:<28}" + "".join(f"{m['ratio']:>15.2f}" for m in row))


def file_in(path: Path, found: dict) -> Path:
    """Return the path itself, or a file named after the CPU if the path is a folder."""
    return path / f"{machine.slug(found)}.json" if path.is_dir() else path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write all results to this file, or to a file in this folder")
    parser.add_argument("--plot", type=Path, help="write a figure, time against quality on ResNet-18, to this file")
    parser.add_argument(
        "--quick", action="store_true", help="measure all ratios, but neither other libraries nor the SVD"
    )
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), help="measure only these networks")
    parser.add_argument(
        "--spectra", nargs="+", choices=SPECTRA, help="kinds of momenta (default: trained or power_law)"
    )
    parser.add_argument(
        "--extra",
        nargs="*",
        choices=ratios.EXTRA,
        default=ratios.EXTRA,
        help="further ratios to measure, in addition to the tables",
    )
    parser.add_argument("--rounds", type=int, help="number of rounds (default: 5, or 3 with --quick)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    found = machine.describe()
    print(machine.headline(found), flush=True)

    quick = [name for name in NETWORKS if name == "resnet18" or name.endswith("patch_embedding")]
    networks = arguments.networks or (quick if arguments.quick else list(NETWORKS))
    rounds = arguments.rounds or (3 if arguments.quick else 5)
    result = {"machine": found, "rounds": rounds}

    def save() -> None:
        if arguments.json:
            file_in(arguments.json, found).write_text(json.dumps(result, indent=1) + "\n")

    rows: list[Row] = []
    judge = Judge()
    for network in networks:
        for spectrum in arguments.spectra or ["trained" if network == "resnet18" else "power_law"]:
            rows += (table := run(network, spectrum, methods(arguments.quick), rounds, judge))
            print_rows(table)
    result["rows"] = [asdict(row) for row in rows]
    save()
    results, details = ratios.measured(rows, rounds, arguments.extra)
    ratios.print_results(results)
    result |= {"ratios": [asdict(one) for one in results], **details}
    save()
    if "online" in arguments.extra:
        result["all_but_polar"] = ratios.all_but_polar("trained", rounds)
        print(f"\nAll but the polar factors takes {result['all_but_polar']:.3f} of a balanced step.")
    if not arguments.quick:
        result["newton_schulz"] = square_and_wide(rounds)
        print_matrices(result["newton_schulz"])
    save()
    if arguments.plot:
        quality_plot.draw(result, arguments.plot)


if __name__ == "__main__":
    main()
