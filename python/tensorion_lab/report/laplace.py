"""The report on `tensorion laplace`: for each problem, errors by budget, time, learning rate and step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.ticker import FixedLocator

from tensorion_lab.report.curves import Line, draw_curves
from tensorion_lab.report.document import Picture, Section
from tensorion_lab.report.experiments import Experiment
from tensorion_lab.report.style import Style, assign_styles, house_style

FAMILIES = {"sgd-momentum": "sgd", "adam": "adamw"}  # optimizers that share a colour with a known one
QUANTITIES = {
    "error": "relative error of the Rayleigh quotient",
    "residual": "residual ||Ax - \u03bbx|| / (\u03bb ||x||)",
}
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Figure:
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
            pictures = _pictures(problem, styles, len(experiment.summary["config"]["seeds"]), dpi)
            title, table = experiment.title(index), experiment.table(index)
            sections.append(Section(title, table, pictures, None, experiment.options()))
    return sections


def _pictures(problem: Mapping[str, Any], styles: Mapping[str, Style], seeds: int, dpi: int) -> list[Picture]:
    size = f"d = {problem['dimensions']}, n = {problem['points']}, rank {problem['rank']}"
    means = "one seed" if seeds == 1 else f"geometric mean over {seeds} seeds"
    budgets = problem["budgets"]
    figures = [figure for budget in budgets for figure in _figures_of_budget(budget)]
    if len(budgets) > 1:
        figures = [*_figures_over_budgets(budgets), *figures]
    pictures = []
    for figure in figures:
        lines = [
            Line(label, styles[optimizer], [x for x, _ in points], [y for _, y in points], [0.0] * len(points))
            for optimizer, label, points in figure.curves
            if points
        ]
        if not lines:
            continue
        budget = ", best learning rate of each budget" if figure.steps is None else f", runs of {figure.steps} steps"
        canvas, _ = draw_curves(
            lines,
            title=f"Laplacian, {size}",
            subtitle=means + budget,
            x_label=figure.x_label,
            y_label=QUANTITIES[figure.quantity],
            log_x=figure.log_x,
            whole=True,
        )
        if figure.ticks:
            canvas.axes.xaxis.set_major_locator(FixedLocator(figure.ticks))
        name = f"{figure.name}-{problem['problem']}"
        title = figure.title
        if figure.steps is not None:
            name += f"-{figure.steps}"
            title += budget
        pictures.append(Picture(name, title, figure.caption, canvas.png(dpi)))
    return pictures


def _figures_over_budgets(budgets: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """The last points of the best runs, one point for each budget."""
    caption = "One point for each budget, with its own schedule and its own best learning rate."
    ends: dict[str, list[Mapping[str, Any]]] = {}
    for budget in budgets:
        for entry in budget["optimizers"]:
            ends.setdefault(entry["optimizer"], []).extend(entry["best"]["points"][-1:] if entry["best"] else [])

    def curves(x: str) -> list[tuple[str, str, Points]]:
        return [(name, name, [(point[x], point["error"]) for point in points]) for name, points in ends.items()]

    return [
        Figure(
            "error_by_budget",
            "Error by budget",
            caption,
            "steps of a run",
            curves("step"),
            ticks=[budget["steps"] for budget in budgets],
        ),
        Figure(
            "error_by_seconds",
            "Error by time",
            f"{caption} The time is that of the fastest seed.",
            "seconds of a run",
            curves("seconds"),
        ),
    ]


def _figures_of_budget(budget: Mapping[str, Any]) -> list[Figure]:
    entries = budget["optimizers"]
    best = [(entry["optimizer"], entry["best"]) for entry in entries if entry["best"]]
    return [
        Figure(
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
            Figure(
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
