"""The report on `tensorion laplace`: for each problem, errors by learning rate and by step."""

from collections.abc import Mapping, Sequence
from typing import Any

from tensorion_lab.report.curves import Line, draw_curves
from tensorion_lab.report.document import Picture, Section
from tensorion_lab.report.experiments import Experiment
from tensorion_lab.report.style import Style, assign_styles, house_style

FAMILIES = {"sgd-momentum": "sgd", "adam": "adamw"}  # whose colours they have
QUANTITIES = {
    "error": "relative error of the Rayleigh quotient",
    "residual": "residual ||Ax - \u03bbx|| / (\u03bb ||x||)",
}


def laplace_sections(experiment: Experiment, dpi: int) -> list[Section]:
    sections = []
    problems = experiment.summary["problems"]
    names = [entry["optimizer"] for entry in problems[0]["optimizers"]]
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
    drawn = [
        (
            "error_by_lr",
            "Error by learning rate",
            "At the end of the run; learning rates at which a run diverged are left out.",
            "error",
            [
                (entry["optimizer"], [(rate["lr"], rate["error"]) for rate in entry["rates"] if rate["error"]])
                for entry in problem["optimizers"]
            ],
            "learning rate",
        ),
        *(
            (
                f"{quantity}_by_step",
                f"{quantity.capitalize()} by step",
                "At the learning rate with the smallest error at the end.",
                quantity,
                [
                    (
                        f"{entry['optimizer']}, lr {entry['best']['lr']:g}",
                        [(point["step"], point[quantity]) for point in entry["best"]["points"]],
                    )
                    for entry in problem["optimizers"]
                    if entry["best"]
                ],
                "step",
            )
            for quantity in QUANTITIES
        ),
    ]
    pictures = []
    for name, title, caption, quantity, curves, x_label in drawn:
        lines = _lines(curves, styles)
        if lines:
            canvas, _ = draw_curves(
                lines,
                title=f"Laplacian, {size}",
                subtitle=means,
                x_label=x_label,
                y_label=QUANTITIES[quantity],
                log_x=x_label == "learning rate",
                whole=True,
            )
            pictures.append(Picture(f"{name}-{problem['problem']}", title, caption, canvas.png(dpi)))
    return pictures


def _lines(curves: Sequence[tuple[str, Sequence[tuple[float, float]]]], styles: Mapping[str, Style]) -> list[Line]:
    return [
        Line(
            label, styles[label.partition(",")[0]], [x for x, _ in points], [y for _, y in points], [0.0] * len(points)
        )
        for label, points in curves
        if points
    ]
