"""Draws the time of a step against its quality, from the JSON of peers.py, in the style of the reports.

python benchmarks/quality_plot.py results/performance/CPU.json results/performance/quality.png
"""

import argparse
import json
from pathlib import Path
from typing import Any

import machine
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from step_table import base_of

from tensorion_lab.report.canvas import POINTS, spread_out
from tensorion_lab.report.style import COLOURS, HOME_STYLES, QUIET, house_style

WIDTH, HEIGHT = 5.2, 4.0  # of the axes of a panel, in inches
LABEL_SIZE, LINE = 8.5, 12.5  # in points
LABEL_ROOM = 12  # on the logarithmic axis, at the right of the slowest method
TITLES = {"balanced": "Balanced and online unfoldings", "flattened": "Flattened kernels"}
LOOKS = {
    "default": (HOME_STYLES["tensorion"].colour, "D"),
    "other": (COLOURS[5], "o"),
    "plain": (COLOURS[6], "s"),
    "library": (COLOURS[1], "^"),
}


def look(method: str) -> tuple[str, str]:
    """Return the color and the marker of a method."""
    if method.startswith("plain"):
        return LOOKS["plain"]
    if method.startswith("Tensorion"):
        return LOOKS["default" if method.endswith("default") else "other"]
    return LOOKS["library"]


def label(row: dict[str, Any]) -> str:
    name = row["method"].replace("Tensorion, newton_schulz", "newton_schulz").replace("Tensorion, svd", "svd")
    milliseconds = 1e3 * row["seconds"]
    online = ", online" if row["unfolding"] == "online" else ""
    return f"{name}{online}: {milliseconds:,.0f} ms"


def blocks(rows: list[dict[str, Any]], points_per_quality: float) -> list[list[dict[str, Any]]]:
    """Group the rows whose labels would overlap at the heights of their points. The lowest group comes first."""
    found: list[list[dict[str, Any]]] = []
    top = float("-inf")  # of the labels of the last block, if they are stacked around its mean
    for row in sorted(rows, key=lambda row: (row["quality_mean"], -row["seconds"])):
        if (row["quality_mean"] * points_per_quality) - LINE / 2 < top:
            found[-1].append(row)
        else:
            found.append([row])
        mean = sum(member["quality_mean"] for member in found[-1]) / len(found[-1])
        top = mean * points_per_quality + LINE * len(found[-1]) / 2
    return found


def add_labels(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """Add labels at the right of their points. Labels that would overlap are stacked, with lines to their points."""
    height = HEIGHT * POINTS
    low, high = axes.get_ylim()
    for block in blocks(rows, height / (high - low)):
        wanted = [(row["quality_mean"] - low) / (high - low) * height for row in block]
        centres = spread_out(wanted, [LINE] * len(block), height)
        right = max(1e3 * row["seconds"] for row in block)
        for row, centre in zip(block, centres, strict=True):
            axes.annotate(
                label(row),
                (1e3 * row["seconds"], row["quality_mean"]),
                (right * 1.25, low + centre / height * (high - low)),
                textcoords="data",
                fontsize=LABEL_SIZE,
                fontweight="bold" if row["method"].endswith("default") else "normal",
                va="center",
                ha="left",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
                arrowprops={
                    "arrowstyle": "-",
                    "color": QUIET,
                    "linewidth": 0.6,
                    "shrinkA": 0,
                    "shrinkB": 4,
                    "relpos": (0, 0.5),
                },
            )


def draw(result: dict[str, Any], path: Path, network: str = "resnet18", spectrum: str = "trained") -> None:
    """Draw two panels with the same scales, because methods that flatten kernels do less work."""
    rows = [row for row in result["rows"] if (row["network"], row["spectrum"]) == (network, spectrum)]
    if not rows:
        raise SystemExit(f"the results have no rows of {network} on {spectrum} momenta")
    times = [1e3 * row["seconds"] for row in rows]
    with house_style():
        figure = Figure(figsize=(2 * WIDTH + 0.5, HEIGHT), facecolor="white")
        for number, (base, title) in enumerate(TITLES.items()):
            axes = figure.add_axes((number * (WIDTH + 0.5) / (2 * WIDTH + 0.5), 0, WIDTH / (2 * WIDTH + 0.5), 1))
            axes.set_xscale("log")
            axes.set_xlim(min(times) / 1.3, max(times) * LABEL_ROOM)
            axes.set_ylim(0.69, 1.02)
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.axhline(0.97, color=QUIET, linestyle=":", linewidth=1)
            group = [row for row in rows if base_of(row["unfolding"]) == base]
            for row in group:
                colour, marker = look(row["method"])
                axes.plot(1e3 * row["seconds"], row["quality_mean"], marker, color=colour, markersize=7, zorder=3)
            add_labels(axes, group)
            axes.set_xlabel("milliseconds of a step")
            axes.set_ylabel("mean quality q (1 is exact)" if number == 0 else "")
            plain = next(row for row in group if row["method"].startswith("plain"))
            subtitle = f"plain: {plain['product_gflop']:.0f} GFLOP of products; dotted: 0.97, the default's certificate"
            axes.annotate(
                title, (0, 1), (0, 22), xycoords="axes fraction", textcoords="offset points", fontweight="bold"
            )
            axes.annotate(
                subtitle,
                (0, 1),
                (0, 8),
                xycoords="axes fraction",
                textcoords="offset points",
                color=QUIET,
                fontsize=8.5,
            )
        figure.text(
            0,
            1 + 48 / (HEIGHT * POINTS),
            f"A step of ResNet-18's kernels, {spectrum} momenta: up and to the left is better",
            fontsize=12,
            fontweight="bold",
        )
        figure.text(0, -46 / (HEIGHT * POINTS), machine.headline(result["machine"]), fontsize=8, color=QUIET)
        figure.savefig(path, dpi=120, bbox_inches="tight", pad_inches=0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=Path, help="written by peers.py --json")
    parser.add_argument("png", type=Path, help="the file to write")
    arguments = parser.parse_args()
    draw(json.loads(arguments.json.read_text()), arguments.png)


if __name__ == "__main__":
    main()
