"""The figure of scaling.py: time against size, order and number of tensors, in the style of the reports."""

from math import prod
from pathlib import Path
from typing import Any

import machine
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from tensorion_lab.report.style import COLOURS, QUIET, Style, house_style

STYLES = {"balanced": Style(COLOURS[0], "D"), "online": Style(COLOURS[1], "^")}


def draw_line(axes: Axes, unfolding: str, x: list[float], seconds: list[float], label: str = "") -> None:
    style = STYLES[unfolding]
    axes.plot(x, [1e3 * value for value in seconds], color=style.colour, marker=style.marker, label=label or unfolding)


def draw_size(axes: Axes, result: dict[str, Any]) -> None:
    for unfolding, found in result["size"].items():
        fitted = found["exponent in the number of entries, from 128 channels"]
        entries = [9.0 * c * c for c in found["channels"]]
        label = f"{unfolding}: entries^{fitted:.2f} from 128 channels"
        draw_line(axes, unfolding, entries, found["seconds"], label)
    layers = result["large"]["layers"]
    sizes, times = [prod(one["shape"]) for one in layers], [1e3 * one["seconds"] for one in layers]
    axes.plot(sizes, times, "s", color=COLOURS[2], label="large layers, balanced, one step")
    for one, x, y in zip(layers, sizes, times, strict=True):
        text = " x ".join(map(str, one["shape"]))
        shift = 4 if len(one["shape"]) > 2 else -10  # a matrix and a kernel may lie close to each other
        axes.annotate(text, (x, y), (-7, shift), textcoords="offset points", ha="right", fontsize=8)
    smallest = 9 * result["size"]["balanced"]["channels"][0] ** 2
    kernel = max((one for one in layers if len(one["shape"]) == 4), key=lambda one: prod(one["shape"]))
    ends = [smallest, prod(kernel["shape"])]
    line = [1e3 * kernel["seconds"] * (entries / ends[1]) ** 1.5 for entries in ends]
    axes.plot(ends, line, color=QUIET, linestyle=":", linewidth=1, label="flops: entries^1.5")
    axes.set(xscale="log", yscale="log", xlabel="entries of a tensor", ylabel="milliseconds of a step")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_title("Size: C x C x 3 x 3 kernels, 32 to 512 channels, and large layers")


def draw_order(axes: Axes, result: dict[str, Any]) -> None:
    for unfolding, found in result["order"].items():
        draw_line(axes, unfolding, [len(shape) for shape in found["shapes"]], found["seconds"])
    orders = [len(shape) for shape in result["order"]["balanced"]["shapes"]]
    ticks = [f"{order}\n{2 ** (order - 1) - 1}" for order in orders]
    axes.set(yscale="log", xlabel="order of a cube of about 2^18 entries\nand number of its unfoldings")
    axes.set_xticks(orders, ticks)
    axes.set_title("Order")


def draw_count(axes: Axes, result: dict[str, Any]) -> None:
    found = result["count"]["balanced"]
    label = f"balanced: tensors^{found['exponent in the number of tensors']:.2f}"
    draw_line(axes, "balanced", found["tensors"], found["seconds"], label)
    axes.set(xscale="log", yscale="log", xlabel="number of 64 x 64 x 3 x 3 kernels")
    axes.set_xticks(found["tensors"], found["tensors"])
    axes.minorticks_off()
    axes.set_title("Number of tensors")


def draw(result: dict[str, Any], path: Path) -> None:
    with house_style():
        figure = Figure(figsize=(14, 4.6), facecolor="white", layout="constrained")
        axes = figure.subplots(1, 3, width_ratios=(1.6, 1, 1))
        for one, part in zip(axes, (draw_size, draw_order, draw_count), strict=True):
            part(one, result)
            one.title.set(fontsize=9.5, fontweight="bold")
            one.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
            one.yaxis.set_major_formatter("{x:,g}")
            one.yaxis.set_minor_formatter(NullFormatter())
            one.legend(frameon=False, loc="upper left")
        figure.suptitle("The time of one optimizer step, power-law momenta", fontsize=12, fontweight="bold")
        figure.supxlabel(machine.headline(result["machine"]), fontsize=8, color=QUIET)
        figure.savefig(path, dpi=120)
