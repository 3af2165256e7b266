"""Figures of the metrics in steps.jsonl against the step."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.ticker import MaxNLocator

from tensorion_lab.report.curves import STEPS as TICKS
from tensorion_lab.report.curves import Line, draw_curves
from tensorion_lab.report.document import RenderedFigure
from tensorion_lab.report.groups import Group, Setup
from tensorion_lab.report.results import Spread
from tensorion_lab.report.style import Style

POINTS = 200  # maximum number of points of a line; neighbouring steps are averaged
CURVES = {
    "loss": ("step_loss", "train loss", "Train loss by step: the mean since the previously logged step."),
    "gradient_norm": (
        "gradient_norm",
        "gradient norm",
        "Norm of the gradient over all parameters, before clipping.",
    ),
    "lr": ("learning_rate", "learning rate", "Learning rate of the first param group."),
}


def step_figures(setup: Setup, styles: Mapping[str, Style], subtitle: str, dpi: int) -> list[RenderedFigure]:
    """Returns an empty list if no run of the setup logged its steps."""
    logged = {group.label: [run.steps for run in group.counted] for group in setup.groups}
    figures = []
    for key, (name, title, caption) in CURVES.items():
        lines = [_line(group, logged[group.label], key, styles[group.label]) for group in setup.groups]
        lines = [line for line in lines if line.x]
        if not lines:
            continue
        canvas, _ = draw_curves(
            lines, title=f"{setup.title}: {title} by step", subtitle=subtitle, x_label="step", y_label=title
        )
        canvas.axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, steps=TICKS))
        figures.append(RenderedFigure(name, f"{title.capitalize()} by step", caption, canvas.png(dpi)))
    return figures


def _line(group: Group, runs: Sequence[Mapping[int, Mapping[str, float]]], key: str, style: Style) -> Line:
    """Returns the mean over the runs at the steps that all of them logged."""
    runs = [run for run in runs if run]
    shared = [step for step in (runs[0] if runs else {}) if all(key in run.get(step, {}) for run in runs)]
    size = math.ceil(len(shared) / POINTS) or 1
    x, y, band = [], [], []
    for start in range(0, len(shared), size):
        steps = shared[start : start + size]
        spread = Spread.of(math.fsum(run[step][key] for step in steps) / len(steps) for run in runs)
        if math.isfinite(spread.mean):
            x.append(float(steps[-1]))
            y.append(spread.mean)
            band.append(spread.std or 0.0)
    return Line(group.label, style, x, y, band)
