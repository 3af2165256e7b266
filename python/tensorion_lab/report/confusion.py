"""The report on `tensorion eval`: recall and precision of each class, and the confusion matrix."""

from collections.abc import Sequence

from tensorion_lab.report.canvas import Canvas
from tensorion_lab.report.document import RenderedFigure, Section, Table
from tensorion_lab.report.evaluations import Evaluation
from tensorion_lab.report.style import TEXT, house_style

LABELLED = 30  # up to this number of classes, the axes show the class names
NUMBERED = 15  # up to this number of classes, the cells show percentages


def evaluation_sections(evaluations: Sequence[Evaluation], dpi: int) -> list[Section]:
    several = len(evaluations) > 1
    return [
        _section(evaluation, f"confusion_matrix_{number}" if several else "confusion_matrix", dpi)
        for number, evaluation in enumerate(evaluations, start=1)
    ]


def _section(evaluation: Evaluation, name: str, dpi: int) -> Section:
    names, counts = evaluation.classes, evaluation.confusion
    totals = [sum(row) for row in counts]
    said = [sum(row[j] for row in counts) for j in range(len(names))]
    rows = []
    for i, label in enumerate(names):
        others = [(count, names[j]) for j, count in enumerate(counts[i]) if j != i and count]
        most = "{1} ({0})".format(*max(others, key=lambda pair: pair[0])) if others else "-"
        rows.append([label, str(totals[i]), _percent(counts[i][i], totals[i]), _percent(counts[i][i], said[i]), most])
    title = f"Evaluation of {evaluation.folder.resolve().name}: accuracy {100 * evaluation.accuracy:.2f} %"
    table = Table(
        ["class", "images", "recall (%)", "precision (%)", "most often confused with"],
        rows,
        "lrrrl",
        notes=[f"(test loss {evaluation.loss:.4f}, {evaluation.samples} images, {evaluation.weights})"],
    )
    caption = "Percentage of the images of each true class (rows) that were assigned to each class (columns)."
    figure = RenderedFigure(name, "Confusion matrix", caption, _matrix(names, counts, totals, dpi))
    return Section(title, table, [figure], None, [])


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def _matrix(names: Sequence[str], counts: Sequence[Sequence[int]], totals: Sequence[int], dpi: int) -> bytes:
    shares = [[count / total if total else 0.0 for count in row] for row, total in zip(counts, totals, strict=True)]
    with house_style():
        canvas = Canvas("Confusion matrix", "% of each row", width=4.2, height=4.2)
        axes = canvas.axes
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        axes.grid(visible=False)
        if len(names) <= LABELLED:
            axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
            axes.set_yticks(range(len(names)), names, fontsize=7)
        axes.set_xlabel("predicted class")
        axes.set_ylabel("true class")
        if len(names) <= NUMBERED:
            for i, row in enumerate(shares):
                for j, share in enumerate(row):
                    if round(100 * share):
                        colour = "white" if share > 0.5 else TEXT
                        axes.text(j, i, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color=colour)
        return canvas.png(dpi)
