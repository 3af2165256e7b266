"""The report on `tensorion tightness`: norms of the momenta and of the oracle's solutions by step."""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tensorion_lab.report.curves import Line, draw_curves
from tensorion_lab.report.document import RenderedFigure, Section
from tensorion_lab.report.errors import ReportError
from tensorion_lab.report.experiments import Experiment
from tensorion_lab.report.style import COLOURS, DASHES, MARKERS, Style, house_style

METRICS = "metrics.jsonl"
ONLINE, BALANCED = Style(COLOURS[0], MARKERS[0]), Style(COLOURS[1], MARKERS[1], DASHES[1])
POINTS = 200  # number of points of a density curve


def tightness_sections(experiment: Experiment, dpi: int) -> list[Section]:
    rows = _read(experiment)
    with house_style():
        figures = [_spectral(rows, dpi), _gap(rows, dpi), _densities(rows, dpi)]
    first, *others = range(len(experiment.summary["tables"]))
    return [
        Section(experiment.title(first), experiment.table(first), figures, None, experiment.options()),
        *(Section(experiment.title(index), experiment.table(index), [], None, []) for index in others),
    ]


def _read(experiment: Experiment) -> list[Mapping[str, Any]]:
    path = experiment.folder / METRICS
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise ReportError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _by_step(rows: Sequence[Mapping[str, Any]], key: str) -> dict[int, list[float]]:
    values: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        values[row["step"]].append(row[key])
    return values


def _line(label: str, style: Style, values: Mapping[int, Sequence[float]], spread: bool) -> Line:
    deviations = [statistics.pstdev(some) if spread else 0.0 for some in values.values()]
    return Line(label, style, list(values), [statistics.fmean(some) for some in values.values()], deviations)


def _spectral(rows: Sequence[Mapping[str, Any]], dpi: int) -> RenderedFigure:
    canvas, _ = draw_curves(
        [_line("mean over the layers", ONLINE, _by_step(rows, "spectral"), spread=True)],
        title="Spectral norm of the online oracle's solution",
        subtitle="band: \u00b1 one standard deviation over the layers; the relaxed norm is 1",
        x_label="step",
        y_label="||X||\u03c3, lower bound",
        whole=True,
    )
    caption = "Lower bound of the tensor spectral norm of the oracle's solutions for the momenta, mean over the layers."
    return RenderedFigure("spectral_norm", "Spectral norm by step", caption, canvas.png(dpi))


def _gap(rows: Sequence[Mapping[str, Any]], dpi: int) -> RenderedFigure:
    gaps = _by_step(rows, "gap")
    canvas, _ = draw_curves(
        [
            _line("mean", ONLINE, gaps, spread=False),
            _line("largest", BALANCED, {step: [max(some)] for step, some in gaps.items()}, spread=False),
        ],
        title="Gap of the balanced unfolding",
        subtitle="over the layers",
        x_label="step",
        y_label="relative gap of the nuclear norm",
        whole=True,
    )
    caption = "Relative gap between the largest nuclear norm over the unfoldings and the one of the balanced unfolding."
    return RenderedFigure("gap", "Gap by step", caption, canvas.png(dpi))


def _densities(rows: Sequence[Mapping[str, Any]], dpi: int) -> RenderedFigure:
    canvas, _ = draw_curves(
        [
            _density("online", ONLINE, [row["online_norm"] for row in rows]),
            _density("balanced", BALANCED, [row["balanced_norm"] for row in rows]),
        ],
        title="Nuclear norms of the momenta",
        subtitle=f"kernel density estimates of the logarithm over {len(rows)} tensors",
        x_label="nuclear norm of the unfolding",
        y_label="density",
        log_x=True,
        whole=True,
        linear=True,
    )
    caption = "Distribution of the nuclear norms of the online and the balanced unfolding over all momenta."
    return RenderedFigure("nuclear_norms", "Nuclear norms", caption, canvas.png(dpi))


def _density(label: str, style: Style, values: Sequence[float]) -> Line:
    """A Gaussian kernel density estimate for log10 of the values. Scott's rule gives the bandwidth."""
    logs = [math.log10(value) for value in values if value > 0]
    width = (statistics.stdev(logs) if len(logs) > 1 else 0.0) * len(logs) ** -0.2 or 0.1
    low, high = min(logs) - 3 * width, max(logs) + 3 * width
    places = [low + (high - low) * i / (POINTS - 1) for i in range(POINTS)]
    scale = 1 / (len(logs) * width * math.sqrt(2 * math.pi))
    heights = [scale * math.fsum(math.exp(-(((place - log) / width) ** 2) / 2) for log in logs) for place in places]
    return Line(label, style, [10**place for place in places], heights, [0.0] * POINTS)
