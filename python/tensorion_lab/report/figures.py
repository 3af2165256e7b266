"""The figures of training runs: metrics against epochs and time, and the optimizer's share of the time."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.ticker import MaxNLocator

from tensorion_lab.report.bars import Bar, draw_bars
from tensorion_lab.report.curves import STEPS, Line, draw_curves
from tensorion_lab.report.document import RenderedFigure
from tensorion_lab.report.groups import Group, Setup
from tensorion_lab.report.results import Curve, curve, results
from tensorion_lab.report.runs import Epoch, Run, Status
from tensorion_lab.report.steps import step_figures
from tensorion_lab.report.style import Style


@dataclass(frozen=True)
class Quantity:
    """A metric of an epoch. Values are multiplied by `scale` and are then in [0, ceiling]."""

    name: str
    of: Callable[[Epoch], float]
    unit: str = ""
    scale: float = 1
    ceiling: float = math.inf


ACCURACY = Quantity("test accuracy", lambda epoch: epoch.test_accuracy, " (%)", 100, 100)
TEST_LOSS = Quantity("test loss", lambda epoch: epoch.test_loss)
TRAIN_LOSS = Quantity("train loss", lambda epoch: epoch.train_loss)

HUGE = 1e30  # values of diverged runs are clipped to this limit
TIME_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))


class TrainingFigures:
    """Draws the figures of one setup. `styles` maps labels to styles."""

    def __init__(self, setup: Setup, styles: Mapping[str, Style], dpi: int) -> None:
        self._setup, self._styles, self._dpi = setup, styles, dpi

    def render(self) -> list[RenderedFigure]:
        drawn = [
            self._against_epochs(ACCURACY),
            self._against_time(ACCURACY),
            self._against_epochs(TEST_LOSS),
            self._against_epochs(TRAIN_LOSS),
            self._optimizer_share(),
        ]
        steps = step_figures(self._setup, self._styles, self._means("band"), self._dpi)
        return [*(figure for figure in drawn if figure is not None), *steps]

    def _against_epochs(self, quantity: Quantity) -> RenderedFigure | None:
        lines = self._lines(quantity, lambda curve: [float(epoch) for epoch in curve.epochs])
        if not lines:
            return None
        longest = max(lines, key=lambda line: len(line.x))
        single = longest.x[0] if len(longest.x) == 1 else None
        if single is not None:  # placed side by side, because they would cover each other
            places = [single + (i + 0.5) / len(lines) - 0.5 for i in range(len(lines))]
            lines = [replace(line, x=[place]) for line, place in zip(lines, places, strict=True)]
        canvas, cut = draw_curves(
            lines,
            title=f"{self._setup.title}: {quantity.name}",
            subtitle=self._means("whiskers" if single is not None else "band"),
            x_label="epoch",
            y_label=quantity.name + quantity.unit,
            ceiling=quantity.ceiling,
        )
        canvas.axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, steps=STEPS))
        if single is not None:
            canvas.axes.set_xlim(single - 0.6, single + 0.6)
            canvas.axes.set_xticks([single], [f"{single:.0f}"])
            canvas.axes.grid(visible=False, axis="x")
        name = quantity.name
        caption = f"{name.capitalize()} after each epoch." + (_CUT if cut else "")
        return RenderedFigure(name.replace(" ", "_"), f"{name.capitalize()} by epoch", caption, canvas.png(self._dpi))

    def _against_time(self, quantity: Quantity) -> RenderedFigure | None:
        lines = self._lines(quantity, lambda curve: curve.seconds)
        if not lines:
            return None
        longest = max(max(line.x) for line in lines)
        unit, seconds = next((unit for unit in TIME_UNITS if longest >= 2 * unit[1]), TIME_UNITS[-1])
        canvas, cut = draw_curves(
            [replace(line, x=[x / seconds for x in line.x]) for line in lines],
            title=f"{self._setup.title}: {quantity.name} over time",
            subtitle=self._means("whiskers" if all(len(line.x) == 1 for line in lines) else "band"),
            x_label=f"training time ({unit})",
            y_label=quantity.name + quantity.unit,
            ceiling=quantity.ceiling,
        )
        canvas.axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=STEPS))
        name = quantity.name
        caption = f"{name.capitalize()} against training time without evaluation, mean over the seeds." + (
            _CUT if cut else ""
        )
        return RenderedFigure(
            name.replace(" ", "_") + "_over_time",
            f"{name.capitalize()} by time",
            caption,
            canvas.png(self._dpi),
        )

    def _optimizer_share(self) -> RenderedFigure | None:
        bars = []
        for group in self._setup.groups:
            if group.counted:
                share = results(group.counted).optimizer_share
                bars.append(
                    Bar(
                        _label(group),
                        self._styles[group.label],
                        100 * share.mean,
                        100 * (share.std or 0.0),
                        share.text(1, 100) + " %",
                    )
                )
        if not bars:
            return None
        canvas = draw_bars(
            bars,
            title=f"{self._setup.title}: the optimizer's share of the time",
            subtitle=self._means("whiskers"),
            x_label="time in the optimizer's step (% of training time)",
        )
        caption = "Percentage of the training time spent in the optimizer's step. The model and the data take the rest."
        return RenderedFigure("optimizer_share", "The optimizer's share of the time", caption, canvas.png(self._dpi))

    def _lines(self, quantity: Quantity, x_of: Callable[[Curve], Sequence[float]]) -> list[Line]:
        """Returns one line for the mean of each group and one for each run that diverged."""

        def line(group: Group, runs: Sequence[Run], broken: bool) -> Line:
            means = curve(runs, quantity.of)
            points = [
                (x, min(value.mean * quantity.scale, HUGE), min((value.std or 0.0) * quantity.scale, HUGE))
                for x, value in zip(x_of(means), means.values, strict=True)
                if math.isfinite(value.mean)
            ]
            x, y, band = ([point[i] for point in points] for i in range(3))
            return Line(_label(group), self._styles[group.label], x, y, band, broken)

        lines = []
        for group in self._setup.groups:
            lines += [line(group, [run], broken=True) for run in group.with_status(Status.DIVERGED)]
            if group.counted:
                lines.append(line(group, group.counted, broken=False))
        return [line for line in lines if line.x]

    def _means(self, drawn: str) -> str:
        """Returns the subtitle, which explains lines and bands."""
        counts = {len(group.counted) for group in self._setup.groups if group.counted}
        if not counts:
            return "single runs"
        low, high = min(counts), max(counts)
        if high == 1:
            return "one seed"
        seeds = f"{low} seeds" if low == high else f"{low} to {high} seeds"
        return f"mean over {seeds}, {drawn}: ± one standard deviation"


_CUT = " The start of some lines is outside the range of the axis."


def _label(group: Group) -> str:
    if group.with_status(Status.FINISHED):
        return group.label
    return f"{group.label}, {'unfinished' if group.counted else 'diverged'}"
