"""What `tensorion eval` found: accuracy, and which classes are taken for which."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensorion_lab.report.canvas import Canvas
from tensorion_lab.report.document import Picture, Section, Table
from tensorion_lab.report.errors import ReportError
from tensorion_lab.report.style import TEXT, house_style

LABELLED = 30  # classes whose names stand at the axes
NUMBERED = 15  # classes of which every count is written


def evaluation_sections(paths: Sequence[Path], dpi: int) -> list[Section]:
    sections = []
    for number, path in enumerate(paths, start=1):
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            sections.append(_section(path, values, f"confusion_matrix{'' if len(paths) == 1 else f'_{number}'}", dpi))
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise ReportError(f"{path}: not as `tensorion eval` writes it: {error!r}") from None
    return sections


def _section(path: Path, values: dict[str, Any], name: str, dpi: int) -> Section:
    names, counts = values["class_names"], values["confusion"]
    totals = [sum(row) for row in counts]
    said = [sum(row[j] for row in counts) for j in range(len(names))]
    rows = []
    for i, label in enumerate(names):
        others = [(count, names[j]) for j, count in enumerate(counts[i]) if j != i and count]
        most = "{1} ({0})".format(*max(others, key=lambda pair: pair[0])) if others else "-"
        rows.append([label, str(totals[i]), _percent(counts[i][i], totals[i]), _percent(counts[i][i], said[i]), most])
    title = f"Evaluation of {path.parent.resolve().name}: accuracy {100 * values['test_accuracy']:.2f} %"
    table = Table(
        ["class", "pictures", "recall (%)", "precision (%)", "most often taken for"],
        rows,
        "lrrrl",
        notes=[f"(test loss {values['test_loss']:.4f}, {values['test_samples']} pictures, {values['weights']})"],
    )
    caption = "Share of the pictures of each class (rows) that were given each class (columns)."
    picture = Picture(name, "Confusion matrix", caption, _matrix(names, counts, totals, dpi))
    return Section(title, table, [picture], None, [])


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
        axes.set_xlabel("what was said")
        axes.set_ylabel("class")
        if len(names) <= NUMBERED:
            for i, row in enumerate(shares):
                for j, share in enumerate(row):
                    if round(100 * share):
                        colour = "white" if share > 0.5 else TEXT
                        axes.text(j, i, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color=colour)
        return canvas.png(dpi)
