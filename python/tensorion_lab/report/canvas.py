"""A figure with axes of a fixed size. The figure grows to fit the text around the axes."""

import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tensorion_lab.report.style import QUIET, Style

POINTS = 72  # per inch
LEADER, SWATCH, GAP = 14, 22, 5  # widths in the column of labels, in points
LABEL_SIZE, TITLE_SIZE, SUBTITLE_SIZE = 9, 11, 8.5
LINE = 1.25  # line height, relative to the font size
THIN = 0.9  # width of the line of a diverged run
WRAP = 34  # maximum number of characters in a line of a label


@dataclass(frozen=True)
class EndLabel:
    """The label of a line that ends at the point `end`. If `joined`, a leader connects the point and the label."""

    text: str
    style: Style
    end: tuple[float, float]
    joined: bool
    broken: bool  # the swatch is thin and has a cross, because the run diverged


def wrap(label: str) -> str:
    """Wraps the label at WRAP characters into as few lines as possible, of about equal length."""
    few = len(_lines(label, WRAP))
    width = next(width for width in range(len(label) // few or 1, WRAP + 1) if len(_lines(label, width)) == few)
    return "\n".join(_lines(label, width))


def _lines(label: str, width: int) -> list[str]:
    """Breaks the label after commas and before parentheses, and elsewhere only if necessary."""
    solid = re.sub(r"(?<!,) (?!\()", "\N{NO-BREAK SPACE}", label)
    lines = textwrap.wrap(solid, width, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines] or [""]


def text_height(text: str) -> float:
    """Returns the height of a label in points."""
    return LABEL_SIZE * LINE * (text.count("\n") + 1) + 2


class Canvas:
    """A figure with one pair of axes of `width` x `height` inches."""

    def __init__(self, title: str, subtitle: str, *, width: float = 4.2, height: float = 2.9) -> None:
        self.figure = Figure(figsize=(width, height), facecolor="white")
        self.axes: Axes = self.figure.add_axes((0, 0, 1, 1))
        self._heading(title, 22, fontsize=TITLE_SIZE, fontweight="bold")
        self._heading(subtitle, 8, fontsize=SUBTITLE_SIZE, color=QUIET)

    def _heading(self, text: str, points_above: float, **font: Any) -> None:
        self.axes.annotate(
            text, (0, 1), (0, points_above), xycoords="axes fraction", textcoords="offset points", **font
        )

    def add_end_labels(self, labels: Sequence[EndLabel]) -> None:
        """Adds labels in a column at the right, close to the ends of their lines. Call this last."""
        width, height = self.figure.get_size_inches() * POINTS
        ends = []
        for label in labels:
            x, y = self.axes.transAxes.inverted().transform(self.axes.transData.transform(label.end))
            ends.append(((x - 1) * width, min(max(y, 0.0), 1.0) * height))
        heights = [text_height(wrap(label.text)) for label in labels]
        places = spread_out([y for _, y in ends], heights, height)
        for label, end, y in zip(labels, ends, places, strict=True):
            style = label.style
            if label.joined:
                self._line((end[0], LEADER - 2), (end[1], y), color=style.colour, linewidth=0.7, alpha=0.7)
            self._line(
                (LEADER, LEADER + SWATCH / 2, LEADER + SWATCH),
                (y, y, y),
                color=style.colour,
                linestyle=style.dashes,
                linewidth=THIN if label.broken else None,
                marker="x" if label.broken else style.marker,
                markevery=[1],
            )
            self.axes.annotate(
                wrap(label.text),
                (1, 0),
                (LEADER + SWATCH + GAP, y),
                xycoords="axes fraction",
                textcoords="offset points",
                fontsize=LABEL_SIZE,
                va="center_baseline",
                linespacing=LINE,
            )

    def _line(self, x: Sequence[float], y: Sequence[float], **properties: Any) -> None:
        """Draws a line. Coordinates are in points from the lower right corner of the axes."""
        width, height = self.figure.get_size_inches() * POINTS
        self.figure.add_artist(
            Line2D(
                [1 + value / width for value in x],
                [value / height for value in y],
                transform=self.figure.transFigure,
                **properties,
            )
        )

    def png(self, dpi: int) -> bytes:
        """Returns the figure as PNG, cropped to the axes and the text around them."""
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=dpi, bbox_inches="tight", pad_inches=0.1)
        return buffer.getvalue()


def spread_out(wanted: Sequence[float], heights: Sequence[float], room: float) -> list[float]:
    """Returns centres close to `wanted` such that boxes of these heights do not overlap and stay within [0, room].

    Boxes that would overlap are moved as one block, at the mean of the positions that its boxes want.
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    blocks: list[tuple[list[int], float]] = []  # members from bottom to top, and the lower edge

    def place(members: list[int]) -> float:
        below, wishes, total = 0.0, 0.0, sum(heights[i] for i in members)
        for i in members:
            wishes += wanted[i] - (below + heights[i] / 2)
            below += heights[i]
        return min(max(wishes / len(members), 0.0), max(room - total, 0.0))

    for i in order:
        members = [i]
        edge = place(members)
        while blocks and blocks[-1][1] + sum(heights[j] for j in blocks[-1][0]) > edge:
            members = blocks.pop()[0] + members
            edge = place(members)
        blocks.append((members, edge))
    centres = [0.0] * len(wanted)
    for members, edge in blocks:
        for i in members:
            centres[i] = edge + heights[i] / 2
            edge += heights[i]
    return centres
