#!/usr/bin/env python3
"""Draws the figures of docs/math.md: run it as `python scripts/make_math_figures.py`.

The script needs the installed package and matplotlib. The momentum belongs to the last kernel of a narrow ResNet-18
after twelve training steps on synthetic images. Filters and bounds are evaluated in double precision from the tables
that the library uses (tensorion/polar/rational_filter_tables.h).
"""

import argparse
import functools
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

import tensorion
from tensorion_lab.report.style import COLOURS, QUIET, house_style

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "tensorion" / "polar" / "rational_filter_tables.h"
BLUE, ORANGE, GREEN, _, PURPLE, SKY, BLACK = COLOURS
SIGMA = "\N{GREEK SMALL LETTER SIGMA}"


@functools.cache
def table(name: str) -> Any:
    """Return an array of the header as nested lists."""
    found = re.search(rf"{name}\[\] = (\{{.*?\}});", TABLES.read_text(), re.DOTALL)
    assert found, f"{TABLES} has no table {name}"
    return json.loads(re.sub(r",(\s*\])", r"\1", found[1].replace("{", "[").replace("}", "]")))


def trained_momentum(width: int) -> Tensor:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from workloads import trained_momenta

    return trained_momenta(width=width)[-1].double()


def name_of(momentum: Tensor) -> str:
    return f"momentum of a {' x '.join(map(str, momentum.shape))} kernel of ResNet-18 in training"


def add_heading(axes: Axes, title: str, subtitle: str) -> None:
    for text, above, font in (
        (title, 20, {"fontsize": 11, "fontweight": "bold"}),
        (subtitle, 7, {"fontsize": 8.5, "color": QUIET}),
    ):
        axes.annotate(text, (0, 1), (0, above), xycoords="axes fraction", textcoords="offset points", **font)


# Figure 1: where the entries of a small kernel go.


def cell_colours(shape: Sequence[int]) -> list[tuple[float, ...]]:
    """Return a color for each entry: a hue for its pair of channels, darker from one row of the kernel to the next."""
    hues = [[int(hue[i : i + 2], 16) / 255 for i in (1, 3, 5)] for hue in (BLUE, ORANGE, GREEN, PURPLE)]
    found = []
    for number in range(torch.Size(shape).numel()):
        pair, row = number // (shape[2] * shape[3]), number // shape[3] % shape[2]
        found.append(tuple(1 - (0.25 + 0.2 * row) * (1 - part) for part in hues[pair]))
    return found


def draw_unfoldings() -> Figure:
    shape = (2, 2, 3, 3)
    entries = torch.arange(36).reshape(shape)
    colours = cell_colours(shape)
    figure = Figure(figsize=(8.4, 3.2), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-2.4, 32.2), ylim=(-10.7, 2.45), aspect="equal")
    axes.axis("off")

    def draw_matrix(numbers: Tensor, x: float, y: float, labels: Sequence[str] = ()) -> None:
        for i, row in enumerate(numbers.tolist()):
            for j, number in enumerate(row):
                place = (x + j, y - i - 1)
                axes.add_patch(Rectangle(place, 1, 1, facecolor=colours[number], edgecolor="white", linewidth=1.2))
                axes.text(place[0] + 0.5, place[1] + 0.46, str(number), ha="center", va="center", fontsize=7.5)
        for i, label in enumerate(labels):
            axes.text(x - 0.3, y - i - 0.5, label, ha="right", va="center", fontsize=8)

    def add_caption(x: float, y: float, title: str, note: str) -> None:
        axes.text(x, y + 1.2, title, fontsize=10, fontweight="bold")
        axes.text(x, y + 0.35, note, fontsize=8.5, color=QUIET)

    add_caption(-1.9, 0.5, "The kernel: 2 x 2 x 3 x 3", "entries numbered in memory order")
    for channel in range(2):
        axes.text(1.5 + 3.5 * channel, -0.35, f"in {channel}", ha="center", fontsize=8)
        axes.text(-0.3, -2.2 - 3.5 * channel, f"out {channel}", ha="right", va="center", fontsize=8)
        for output in range(2):
            draw_matrix(entries[output, channel], 3.5 * channel, -0.7 - 3.5 * output)
    add_caption(11.4, 0.5, "Modes (0,): 2 x 18", "Muon's flattening: a row for each output channel")
    draw_matrix(tensorion.unfold(entries, (0,)), 14, 0.5, ["out 0", "out 1"])
    add_caption(
        11.4, -4.3, "Modes (0, 2): 6 x 6, the balanced unfolding", "a row for each output channel and kernel row"
    )
    rows = [f"out {output}, row {row}" for output in range(2) for row in range(3)]
    draw_matrix(tensorion.unfold(entries, (0, 2)), 15.5, -4.3, rows)
    axes.text(
        22.2,
        -7.3,
        "Six directions to orthogonalize\ninstead of two; the entries\nare the same.",
        fontsize=8.5,
        va="center",
        linespacing=1.35,
    )
    return figure


# Figures 2 and 3: the tables at work.

Filter = Callable[[Tensor], Tensor]  # maps singular values to those of the result


class Spectrum:
    """The singular values of a matrix, and the scale by which the rational filter divides them."""

    def __init__(self, matrix: Tensor) -> None:
        self.sigma = torch.linalg.svdvals(matrix).flip(0)
        count, squares = len(self.sigma), self.sigma**2
        trace, fourth = squares.sum(), (squares**2).sum()
        largest = trace / count + ((count - 1) * (fourth / count - (trace / count) ** 2)).clamp_min(0).sqrt()
        self.scale = float(largest.sqrt())  # sqrt(lambda) in docs/math.md
        self.nuclear_norm = float(self.sigma.sum())
        self.trivial_bounds = (float(trace) / self.scale, float((count * trace).sqrt()))

    def quality(self, function: Filter) -> float:
        filtered = function(self.sigma)
        return float((self.sigma * filtered).sum() / filtered.max() / self.nuclear_norm)

    def rational_filter(self, poles: int) -> Filter:
        """Return the filter with this number of poles whose weights attain the largest <A, X>."""

        def make(weights: Any) -> Filter:
            alpha, gamma, beta, *_ = weights

            def apply(sigma: Tensor) -> Tensor:
                s = (sigma / self.scale) ** 2
                terms = [b / (s + c) for b, c in zip(beta, table("kPoles"), strict=False)]
                return sigma / self.scale * (alpha + gamma * s + sum(terms))

            return apply

        filters = [make(weights) for weights in table("kFilterLevels")[poles - 2][1][0]]
        return max(filters, key=lambda function: float((self.sigma * function(self.sigma)).sum()))

    def newton_schulz(self, coefficients: str) -> Filter:
        """Return five steps of the library, on a 2 x 2 matrix with the Frobenius norm of A for each singular value."""

        def apply(sigma: Tensor) -> Tensor:
            rest = ((self.sigma**2).sum() - sigma**2).sqrt()
            matrices = torch.diag_embed(torch.stack([sigma, rest], -1))
            solved = tensorion.polar(matrices, "newton_schulz", ns_coefficients=coefficients, ns_steps=5)
            return solved[:, 0, 0]

        return apply

    def log_det_bounds(self, level: int) -> tuple[float, float]:
        """Return the bounds of the nuclear norm at this level of the table, without rounding."""
        count, upper, lower, _ = table("kLogDetLevels")[level]
        s = (self.sigma / self.scale) ** 2
        sums = [len(s), float(s.sum()), float((s**2).sum())]
        sums += [float(torch.log1p(s / c).sum()) for c in table("kShifts")[:count]]

        def evaluate(certificate: Any) -> float:
            constant, linear, quadratic, shifts = certificate[0]
            weights = [constant, linear, quadratic, *(log_det for _, _, log_det in shifts[0][:count])]
            return self.scale * sum(w * x for w, x in zip(weights, sums, strict=True))

        return max(map(evaluate, lower[0])), min(map(evaluate, upper[0]))


def draw_filters(momentum: Tensor) -> Figure:
    spectrum = Spectrum(tensorion.unfold(momentum, tensorion.balanced_unfolding(momentum.shape)))
    largest = spectrum.sigma.max()
    x = torch.logspace(-3.5, 0, 2000, dtype=momentum.dtype)
    figure = Figure(figsize=(6.6, 4.8), facecolor="white")
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    axes.axhline(1, color=QUIET, linewidth=0.8)
    for label, function, colour, dashes, width in (
        ("Muon, 5 steps", spectrum.newton_schulz("muon"), ORANGE, "-", 1),
        ("Polar Express, 5 steps", spectrum.newton_schulz("polar_express"), PURPLE, "-", 1),
        ("Tensorion, 2 poles", spectrum.rational_filter(2), SKY, "-", 2.2),
        ("Tensorion, 3 poles", spectrum.rational_filter(3), BLUE, "-", 2.2),
        ("Tensorion, 4 poles", spectrum.rational_filter(4), BLACK, ":", 2.2),
    ):
        text = f"{label}: q = {spectrum.quality(function):.3f}"
        axes.semilogx(x, function(x * largest), dashes, color=colour, linewidth=width, label=text)
    axes.set(ylabel=f"f({SIGMA}), exactly 1 for the polar factor", ylim=(0, 1.32), xlim=(x[0], 1.03))
    axes.legend(loc="lower right", frameon=True, framealpha=1, edgecolor="white")
    add_heading(axes, "What each method makes of a singular value", name_of(momentum))
    edges = torch.logspace(-3.5, 0.01, 41, dtype=x.dtype)
    weights = 100 * spectrum.sigma / spectrum.nuclear_norm
    shares = torch.histogram(spectrum.sigma / largest, edges, weight=weights)[0]
    below.bar(edges[:-1], shares, width=edges.diff(), align="edge", color="#b0b0b0", edgecolor="white", linewidth=0.5)
    below.xaxis.set_major_formatter("{x:g}")
    below.set(xlabel=f"singular value {SIGMA}, relative to the largest", ylabel="share of\nthe nuclear\nnorm (%)")
    return figure


def draw_interval(axes: Axes, x: float, bounds: Sequence[float], colour: str, width: float) -> None:
    low, high = bounds
    axes.add_patch(Rectangle((x - width / 2, low), width, high - low, facecolor=colour))


def draw_bounds(momentum: Tensor) -> Figure:
    spectra = {modes: Spectrum(tensorion.unfold(momentum, modes)) for modes in tensorion.unfoldings(momentum.shape)}
    best = max(spectrum.nuclear_norm for spectrum in spectra.values())
    figure = Figure(figsize=(9.2, 3.4), facecolor="white")
    left, right = figure.subplots(1, 2, width_ratios=(1.3, 1), gridspec_kw={"wspace": 0.28})

    def relative(bounds: Sequence[float]) -> list[float]:
        return [100 * bound / best for bound in bounds]

    for i, spectrum in enumerate(spectra.values()):
        draw_interval(left, i, relative(spectrum.trivial_bounds), "#d5d5d5", 0.6)
        low, high = relative(spectrum.log_det_bounds(0))
        middle, least = (low + high) / 2, 2.5  # wide enough to be seen
        half = max(high - low, least) / 2
        draw_interval(left, i, (middle - half, middle + half), BLUE, 0.6)
    top = max(relative(spectrum.trivial_bounds)[1] for spectrum in spectra.values())
    left.set(xlim=(-0.6, len(spectra) - 0.4), ylim=(0, 1.05 * top), ylabel="nuclear norm, % of the largest")
    left.set_xticks(range(len(spectra)), [str(modes).replace(" ", "") for modes in spectra])
    left.set_xlabel("row modes of the unfolding")
    left.legend(
        [Rectangle((0, 0), 1, 1, facecolor=colour) for colour in ("#d5d5d5", BLUE)],
        ["trace and norm only", "with 2 determinants"],
        loc=(0.27, 0.55),
        frameon=False,
        fontsize=8.5,
    )
    left.grid(axis="x", visible=False)
    add_heading(left, "Two determinants rule out most unfoldings ...", name_of(momentum))

    closest = sorted(spectra, key=lambda modes: -spectra[modes].nuclear_norm)[:2]
    levels = [level[0] for level in table("kLogDetLevels")][1:]
    for modes, colour, shift in zip(closest, (BLUE, ORANGE), (-0.16, 0.16), strict=True):
        for i in range(len(levels)):
            draw_interval(right, i + shift, relative(spectra[modes].log_det_bounds(i + 1)), colour, 0.26)
        exact = 100 * spectra[modes].nuclear_norm / best
        right.axhline(exact, color=colour, linewidth=1, linestyle="--")
        right.annotate(
            f"exact, {modes}", (1, exact), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
            color=colour, va="center",
        )  # fmt: skip
    bounds = [bound for modes in closest for bound in relative(spectra[modes].log_det_bounds(1))]
    margin = 0.1 * (max(bounds) - min(bounds))
    right.set(xlim=(-0.6, len(levels) - 0.4), ylim=(min(bounds) - margin, max(bounds) + margin))
    right.set_xticks(range(len(levels)), [str(level) for level in levels])
    right.set(xlabel="number of determinants", ylabel="nuclear norm, % of the largest")
    right.ticklabel_format(axis="y", useOffset=False)
    right.grid(axis="x", visible=False)
    add_heading(right, "... and more tell the last two apart", "bars: from the lower to the upper bound")
    return figure


def save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=160, bbox_inches="tight", pad_inches=0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the figures of docs/math.md.")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images", help="folder (default: docs/images)")
    parser.add_argument("--width", type=int, default=16, help="width of the ResNet-18 (default: 16)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the tensors are small
    arguments.out.mkdir(parents=True, exist_ok=True)
    with house_style():
        save(draw_unfoldings(), arguments.out / "unfolding.png")
        momentum = trained_momentum(arguments.width)
        save(draw_filters(momentum), arguments.out / "filters.png")
        save(draw_bounds(momentum), arguments.out / "bounds.png")


if __name__ == "__main__":
    main()
