"""The report on `tensorion laplace`: for each problem, errors by budget, time, learning rate and step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.ticker import FixedLocator

from tensorion_lab.report.curves import Line, draw_curves
from tensorion_lab.report.document import RenderedFigure, Section
from tensorion_lab.report.experiments import Experiment
from tensorion_lab.report.style import Style, assign_styles, house_style

FAMILIES = {"sgd-momentum": "sgd", "adam": "adamw"}  # optimizers that share a colour with a known one
QUANTITIES = {
    "error": "relative error of the Rayleigh quotient",
    "residual": "residual ||Ax - \u03bbx|| / (\u03bb ||x||)",
}
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Plot:
    """What a figure shows."""

    name: str
    title: str
    caption: str
    x_label: str
    curves: Sequence[tuple[str, str, Points]]  # optimizer, label, points
    quantity: str = "error"
    log_x: bool = True
    steps: int | None = None  # None if the figure shows all budgets
    ticks: Sequence[float] = ()  # numbers at the x-axis, if they are not chosen automatically


def laplace_sections(experiment: Experiment, dpi: int) -> list[Section]:
    sections = []
    problems = experiment.summary["problems"]
    names = [entry["optimizer"] for entry in problems[0]["budgets"][0]["optimizers"]]
    styles = assign_styles((name, FAMILIES.get(name, name)) for name in names)
    with house_style():
        for index, problem in enumerate(problems):
            figures = _render_figures(problem, styles, len(experiment.summary["config"]["seeds"]), dpi)
            title, table = experiment.title(index), experiment.table(index)
            sections.append(Section(title, table, figures, None, experiment.options()))
    return sections


def _render_figures(
    problem: Mapping[str, Any], styles: Mapping[str, Style], seeds: int, dpi: int
) -> list[RenderedFigure]:
    size = f"d = {problem['dimensions']}, n = {problem['points']}, rank {problem['rank']}"
    means = "one seed" if seeds == 1 else f"geometric mean over {seeds} seeds"
    budgets = problem["budgets"]
    plots = [plot for budget in budgets for plot in _plots_of_budget(budget)]
    if len(budgets) > 1:
        plots = [*_plots_over_budgets(budgets), *plots]
    figures = []
    for plot in plots:
        lines = [
            Line(label, styles[optimizer], [x for x, _ in points], [y for _, y in points], [0.0] * len(points))
            for optimizer, label, points in plot.curves
            if points
        ]
        if not lines:
            continue
        budget = ", best learning rate of each budget" if plot.steps is None else f", runs of {plot.steps} steps"
        canvas, _ = draw_curves(
            lines,
            title=f"Laplacian, {size}",
            subtitle=means + budget,
            x_label=plot.x_label,
            y_label=QUANTITIES[plot.quantity],
            log_x=plot.log_x,
            whole=True,
        )
        if plot.ticks:
            canvas.axes.xaxis.set_major_locator(FixedLocator(plot.ticks))
        name = f"{plot.name}-{problem['problem']}"
        title = plot.title
        if plot.steps is not None:
            name += f"-{plot.steps}"
            title += budget
        figures.append(RenderedFigure(name, title, plot.caption, canvas.png(dpi)))
    return figures


def _plots_over_budgets(budgets: Sequence[Mapping[str, Any]]) -> list[Plot]:
    """The last points of the best runs, one point for each budget."""
    caption = "One point for each budget, with its own schedule and its own best learning rate."
    ends: dict[str, list[Mapping[str, Any]]] = {}
    for budget in budgets:
        for entry in budget["optimizers"]:
            ends.setdefault(entry["optimizer"], []).extend(entry["best"]["points"][-1:] if entry["best"] else [])

    def curves(x: str) -> list[tuple[str, str, Points]]:
        return [(name, name, [(point[x], point["error"]) for point in points]) for name, points in ends.items()]

    return [
        Plot(
            "error_by_budget",
            "Error by budget",
            caption,
            "steps of a run",
            curves("step"),
            ticks=[budget["steps"] for budget in budgets],
        ),
        Plot(
            "error_by_seconds",
            "Error by time",
            f"{caption} The time is the time of the fastest seed.",
            "seconds of a run",
            curves("seconds"),
        ),
    ]


def _plots_of_budget(budget: Mapping[str, Any]) -> list[Plot]:
    entries = budget["optimizers"]
    best = [(entry["optimizer"], entry["best"]) for entry in entries if entry["best"]]
    return [
        Plot(
            "error_by_lr",
            "Error by learning rate",
            "At the end of the run; learning rates at which a run diverged are left out.",
            "learning rate",
            [
                (entry["optimizer"], entry["optimizer"], [(r["lr"], r["error"]) for r in entry["rates"] if r["error"]])
                for entry in entries
            ],
            steps=budget["steps"],
        ),
        *(
            Plot(
                f"{quantity}_by_step",
                f"{quantity.capitalize()} by step",
                "At the learning rate with the smallest error at the end.",
                "step",
                [
                    (name, f"{name}, lr {run['lr']:.3g}", [(point["step"], point[quantity]) for point in run["points"]])
                    for name, run in best
                ],
                quantity,
                log_x=False,
                steps=budget["steps"],
            )
            for quantity in QUANTITIES
        ),
    ]
