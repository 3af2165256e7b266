"""Reads the metrics of runs from their files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorion_lab.report.json_files import read_lines, read_object
from tensorion_lab.report.runs import CONFIG, METRICS, STEPS, find_runs

IDENTITY = ("run", "optimizer", "label", "seed")  # the keys of a line that identify its run


@dataclass(frozen=True)
class RunMetrics:
    name: str  # the path of the run relative to the given folder, or the name of that folder
    config: dict[str, Any]
    epochs: Sequence[dict[str, Any]]
    steps: Sequence[dict[str, Any]]  # empty without --log-steps


def read_metrics(directories: Sequence[Path]) -> list[RunMetrics]:
    runs: dict[Path, RunMetrics] = {}
    for directory in directories:
        for folder in find_runs(directory):
            relative = folder.relative_to(directory)
            name = str(relative) if relative.parts else folder.resolve().name
            if len(directories) > 1 and relative.parts:
                name = f"{directory.resolve().name}/{name}"
            runs.setdefault(folder.resolve(), _read(folder, name))
    return list(runs.values())


def _read(folder: Path, name: str) -> RunMetrics:
    config = read_object(folder / CONFIG) if (folder / CONFIG).exists() else {}
    return RunMetrics(name, config, _rows(folder / METRICS), _rows(folder / STEPS))


def _rows(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in read_lines(path, complete=False)] if path.exists() else []


def numbers(row: dict[str, Any], *without: str) -> dict[str, float]:
    """Returns the numerical metrics of a line."""
    left_out = {*IDENTITY, *without}
    return {
        key: float(value)
        for key, value in row.items()
        if key not in left_out and isinstance(value, int | float) and not isinstance(value, bool)
    }
