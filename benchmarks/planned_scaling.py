"""Computes the planned speed-up of sharing a step among ranks, for ResNet-50 and ViT-B on 1 to 1024 ranks.

    python benchmarks/planned_scaling.py --out results/planned_scaling

The script writes scaling.png and scaling.csv. Costs are numbers of multiplications, without communication. One rank
solves for a whole tensor, so the costliest tensor limits the speed-up.
"""

import argparse
import csv
from pathlib import Path

import workloads
from matplotlib.figure import Figure
from workloads import shapes

import tensorion
from tensorion_lab.report.style import COLOURS, MARKERS, QUIET, house_style

RANKS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
Shapes = list[tuple[int, ...]]


def resnet50() -> Shapes:
    return shapes(workloads.resnet50, stem=7, classes=1000)


def vit_base() -> Shapes:
    block = [(3 * 768, 768), (768, 768), (4 * 768, 768), (768, 4 * 768)]
    return [(768, 3, 16, 16), (1, 197, 768), *12 * block, (1000, 768)]


def ours(every: Shapes, min_order: int) -> Shapes:
    return [shape for shape in every if workloads.is_ours(shape, min_order)]


CASES = {
    "ResNet-50, kernels": ours(resnet50(), 3),
    "ResNet-50, and matrices": ours(resnet50(), 2),
    "ViT-B, patch embedding": ours(vit_base(), 3),
    "ViT-B, and matrices": ours(vit_base(), 2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    folder = parser.parse_args().out

    plans = {name: [tensorion.plan(case, ranks) for ranks in RANKS] for name, case in CASES.items()}
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "scaling.csv", "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["case", "tensors", "ranks", "speedup", "imbalance"])
        for name, sequence in plans.items():
            for plan in sequence:
                numbers = f"{plan.speedup:.3f}", f"{plan.imbalance:.3f}"
                table.writerow([name, len(plan.shapes), plan.world_size, *numbers])
    draw(plans, folder / "scaling.png")
    for name, sequence in plans.items():
        chosen = [plan for plan in sequence if plan.world_size in (8, 64, 1024)]
        print(name, *(f"{plan.world_size}: {plan.speedup:.2f} ({plan.imbalance:.2f})" for plan in chosen), sep="  ")


def draw(plans: dict[str, list[tensorion.Plan]], file: Path) -> None:
    with house_style():
        figure = Figure(figsize=(11, 4.4), facecolor="white", layout="constrained")
        left, right = figure.subplots(1, 2)
        left.plot(RANKS, RANKS, color=QUIET, linestyle=":", linewidth=1)
        left.annotate("ideal", (64, 64), (-6, 4), textcoords="offset points", ha="right")
        for (name, sequence), colour, marker in zip(plans.items(), COLOURS, MARKERS, strict=False):
            count = len(sequence[0].shapes)
            label = f"{name} ({count} tensor{'s' * (count > 1)})"
            look = {"color": colour, "marker": marker, "label": label}
            left.plot(RANKS, [plan.speedup for plan in sequence], **look)
            right.plot(RANKS, [plan.imbalance for plan in sequence], **look)
        left.set(ylabel="speed-up over one rank", ylim=(0.8, 128))
        left.set_title("Planned speed-up of a step, without messages", fontweight="bold")
        right.set(ylabel="busiest rank / mean")
        right.set_title("Planned imbalance", fontweight="bold")
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
            axes.set_xticks(RANKS, RANKS)
            axes.yaxis.set_major_formatter("{x:g}")
            axes.set_xlabel("number of ranks")
        right.legend(frameon=False, loc="upper left")
        figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
