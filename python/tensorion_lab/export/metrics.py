"""What runs left on disk, as it stands in their files."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorion_lab.report.errors import ReportError
from tensorion_lab.report.runs import CONFIG, METRICS, find_runs

STEPS = "steps.jsonl"
IDENTITY = ("run", "optimizer", "label", "seed")  # keys of a line that say which run it is of


@dataclass(frozen=True)
class RunMetrics:
    name: str  # its folder, relative to the folder that was asked for, or that folder's own name
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
    config = (
        _parse(folder / CONFIG, (folder / CONFIG).read_text(encoding="utf-8")) if (folder / CONFIG).exists() else {}
    )
    return RunMetrics(name, config, _lines(folder / METRICS), _lines(folder / STEPS))


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    *lines, _ = path.read_text(encoding="utf-8").split("\n")  # the rest is half written
    return [_parse(f"{path}, line {number}", line) for number, line in enumerate(lines, start=1)]


def _parse(where: Path | str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ReportError(f"{where}: broken JSON: {getattr(error, 'msg', error)}") from None
    if not isinstance(value, dict):
        raise ReportError(f"{where}: expected a JSON object, got {text[:40]}")
    return value


def numbers(row: dict[str, Any], *without: str) -> dict[str, float]:
    """The measured values of a line."""
    left_out = {*IDENTITY, *without}
    return {
        key: float(value)
        for key, value in row.items()
        if key not in left_out and isinstance(value, int | float) and not isinstance(value, bool)
    }
