"""The report on `tensorion compare --reference`: differences from a reference method, paired by seed."""

from collections.abc import Mapping
from typing import Any

from tensorion_lab.report.canvas import Canvas
from tensorion_lab.report.document import RenderedFigure, Section, Table
from tensorion_lab.report.style import QUIET, assign_styles, house_style

ROW = 0.32  # inches for each method


def difference_section(summary: Mapping[str, Any], dpi: int) -> Section:
    """Creates the section of a comparison whose summary has differences."""
    differences = summary["differences"]
    reference = str(differences["reference"])
    rows, points = [], []
    for entry in differences["methods"]:
        method, mean, low, high = (entry[key] for key in ("method", "mean", "low", "high"))
        has_interval = low is not None and high is not None
        interval = f"[{100 * low:+.2f}, {100 * high:+.2f}]" if has_interval else "-"
        is_significant = has_interval and (low > 0 or high < 0)
        remark = "" if is_significant else "not significant" if has_interval else "needs two seeds"
        rows.append([method, str(entry["pairs"]), "-" if mean is None else f"{100 * mean:+.2f}", interval, remark])
        if mean is not None:
            ends = (100 * (mean - low), 100 * (high - mean)) if has_interval else (0.0, 0.0)
            points.append((method, 100 * mean, ends))
    title = f"Difference of the test accuracy from {reference}, in percentage points"
    notes = ["(paired by seed; 95 % confidence intervals of the t distribution)"]
    table = Table(["method", "pairs", "difference", "95 % interval", ""], rows, "lrrrl", notes=notes)
    caption = (
        "Differences with 95 % confidence intervals. If an interval contains 0, the difference is not significant."
    )
    optimizers = {entry["optimizer"] for entry in summary["optimizers"]}
    figures = (
        [RenderedFigure("differences", title, caption, _draw(points, optimizers, reference, dpi))] if points else []
    )
    return Section(title, table, figures, None, [])


def _draw(points: list[tuple[str, float, tuple[float, float]]], known: set[str], reference: str, dpi: int) -> bytes:
    styles = assign_styles((name, name) for name in (*sorted(known), *(name for name, _, _ in points)))
    with house_style():
        canvas = Canvas(
            f"Difference of the test accuracy from {reference}",
            "whiskers: 95 % confidence",
            height=ROW * len(points) + 0.3,
        )
        axes = canvas.axes
        axes.axvline(0, color=QUIET, linewidth=1.2)
        for row, (name, mean, (below, above)) in enumerate(points):
            style = styles[name]
            axes.errorbar(
                [mean],
                [row],
                xerr=[[below], [above]],
                color=style.colour,
                marker=style.marker,
                capsize=3,
                linewidth=1.5,
            )
        axes.set_yticks(range(len(points)), [name for name, _, _ in points])
        axes.set_ylim(len(points) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(f"percentage points; 0: equal to {reference}")
        return canvas.png(dpi)
