"""A figure of lines with bands and a label at the end of each line."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from tensorion_lab.report.canvas import POINTS, THIN, Canvas, EndLabel, text_height, wrap
from tensorion_lab.report.style import Style

SKIPPED = 0.1  # the fraction at the start of a line that may be outside the axes
FEW = 5  # lines with fewer points are never cut
LOG_RANGE = 10  # the axis is logarithmic if the ratio of the largest to the smallest value exceeds this
STEPS = (1, 2, 5, 10)  # allowed steps between ticks, times powers of ten
MARKED = 12  # approximate number of markers on a line
MANY = 60  # lines with more points are drawn thinner


@dataclass(frozen=True)
class Line:
    label: str
    style: Style
    x: Sequence[float]
    y: Sequence[float]
    band: Sequence[float]  # half the width of the band; 0 for none
    broken: bool = False  # drawn thin, with a cross where the line ends or leaves the axes


@dataclass(frozen=True)
class Limits:
    low: float
    high: float
    log: bool
    cut: bool  # the start of a line is outside the limits


def draw_curves(
    lines: Sequence[Line],
    *,
    title: str,
    subtitle: str,
    x_label: str,
    y_label: str,
    ceiling: float = math.inf,
    log_x: bool = False,
    whole: bool = False,
    linear: bool = False,
) -> tuple[Canvas, bool]:
    """Draws the lines. Returns the figure and whether the starts of lines were cut off to show the rest better.

    Values must be in [0, ceiling]. Lines with the same label share one end label. If all lines end at the same x,
    leaders connect the lines with their labels. If `whole` is true, nothing is cut off. If `linear` is true, the y
    axis is never logarithmic.
    """
    labels = list(dict.fromkeys(line.label for line in lines))
    room = sum(text_height(wrap(label)) for label in labels) / POINTS
    canvas = Canvas(title, subtitle, height=max(2.9, room))
    axes = canvas.axes
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    first, last = min(min(line.x) for line in lines), max(max(line.x) for line in lines)
    if log_x:
        margin = (last / first) ** 0.025 if first < last else 2
        axes.set_xscale("log")
        _set_log_ticks(axes.xaxis, last / first)
        axes.set_xlim(first / margin, last * margin)
    else:
        margin = 0.025 * (last - first) or 0.05 * last or 0.5
        axes.set_xlim(first - margin, last + margin)
    limits = _limits([line for line in lines if not line.broken] or lines, ceiling, whole, linear)
    _set_scale(axes, limits)
    for position, line in enumerate(lines):
        _draw(axes, line, position)
    for line in lines:
        if line.broken:
            y = min(max(line.y[-1], limits.low), limits.high)
            axes.plot(line.x[-1], y, color=line.style.colour, marker="x", markersize=7, zorder=4, clip_on=False)
    ends = {line.label: line for line in sorted(lines, key=lambda line: not line.broken)}
    joined = first < last and len({line.x[-1] for line in lines if not line.broken}) == 1
    canvas.add_end_labels(
        [
            EndLabel(label, line.style, (line.x[-1], line.y[-1]), joined and not line.broken, line.broken)
            for label, line in ((label, ends[label]) for label in labels)
        ]
    )
    return canvas, limits.cut


def _draw(axes: Axes, line: Line, position: int) -> None:
    colour = line.style.colour
    step = math.ceil(len(line.x) / MARKED)
    axes.plot(
        line.x,
        line.y,
        color=colour,
        linestyle=line.style.dashes,
        linewidth=THIN if line.broken else 1.3 if len(line.x) > MANY else None,
        marker="" if line.broken else line.style.marker,
        markevery=(position % step, step),
        zorder=3,
    )
    if len(line.x) == 1:
        axes.errorbar(line.x, line.y, line.band, color=colour, capsize=3, elinewidth=1, zorder=3)
    elif any(line.band):
        low = [y - half for y, half in zip(line.y, line.band, strict=True)]
        high = [y + half for y, half in zip(line.y, line.band, strict=True)]
        axes.fill_between(line.x, low, high, color=colour, alpha=0.16, linewidth=0, zorder=2)


def _limits(lines: Sequence[Line], ceiling: float, whole: bool, linear: bool) -> Limits:
    every: list[float] = []
    later: list[float] = []
    for line in lines:
        skipped = math.ceil(SKIPPED * len(line.y)) if len(line.y) >= FEW and not whole else 0
        for i, (y, half) in enumerate(zip(line.y, line.band, strict=True)):
            ends = (max(y - half, 0.0), min(y + half, ceiling))
            every.extend(ends)
            if i >= skipped:
                later.extend(ends)
    log = not linear and min(later) > 0 and max(later) / min(later) > LOG_RANGE

    def span(values: Sequence[float]) -> float:
        return math.log(max(values) / min(values)) if log else max(values) - min(values)

    cut = (log and min(every) <= 0) or span(every) > 1.5 * span(later)
    values = later if cut else every
    if log:
        factor = (max(values) / min(values)) ** 0.06
        return Limits(min(values) / factor, max(values) * factor, log, cut)
    padding = 0.06 * span(values) or 0.05 * max(values) or 0.5
    low, high = max(min(values) - padding, 0.0), max(values) + padding
    if high > ceiling:  # leave a little room for markers at the ceiling
        high = ceiling + min(high - ceiling, 0.02 * (ceiling - low))
    return Limits(low, high, log, cut)


def _set_log_ticks(axis: Axis, ratio: float) -> None:
    """Label the powers of ten and, if the axis spans at most three of them, also twice and five times these."""
    axis.set_major_locator(LogLocator(subs=(1,) if ratio > 1e3 else (1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _set_scale(axes: Axes, limits: Limits) -> None:
    if limits.log:
        axes.set_yscale("log")
        _set_log_ticks(axes.yaxis, limits.high / limits.low)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=STEPS))
    axes.set_ylim(limits.low, limits.high)
