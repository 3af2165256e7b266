"""A figure with labelled horizontal bars."""

from collections.abc import Sequence
from dataclasses import dataclass

from tensorion_lab.report.canvas import LABEL_SIZE, POINTS, Canvas, text_height, wrap
from tensorion_lab.report.style import QUIET, Style


@dataclass(frozen=True)
class Bar:
    label: str
    style: Style
    value: float
    error: float  # half the length of the error bar; 0 for none
    text: str


def draw_bars(bars: Sequence[Bar], *, title: str, subtitle: str, x_label: str) -> Canvas:
    """Draws the bars from top to bottom, each with its text at the end."""
    labels = [wrap(bar.label) for bar in bars]
    row = max(max(map(text_height, labels)) + 8, 26) / POINTS
    canvas = Canvas(title, subtitle, height=row * len(bars) + 0.1)
    axes = canvas.axes
    places = range(len(bars))
    axes.barh(places, [bar.value for bar in bars], height=0.62, color=[bar.style.colour for bar in bars])
    for place, bar in zip(places, bars, strict=True):
        if bar.error:
            axes.errorbar(bar.value, place, xerr=bar.error, color=QUIET, capsize=3, elinewidth=1)
        axes.annotate(
            bar.text,
            (bar.value + bar.error, place),
            (6, 0),
            textcoords="offset points",
            va="center",
            fontsize=LABEL_SIZE,
        )
    axes.set_yticks(places, labels)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_ylim(len(bars) - 0.45, -0.55)
    axes.set_xlim(0, max(bar.value + bar.error for bar in bars) or 1)
    axes.set_xlabel(x_label)
    return canvas
