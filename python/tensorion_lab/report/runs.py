"""Reads the runs of `tensorion train` and `tensorion compare`.

A run is a folder with `metrics.jsonl` (one line per epoch), `config.json` (the options) and, after the run has ended,
`summary.json`. A folder that contains runs at any depth is not a run itself; its own `metrics.jsonl`, if there is
one, repeats their lines.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tensorion_lab.report.errors import ReportError
from tensorion_lab.report.json_files import read_lines, read_object, shown

METRICS, CONFIG, SUMMARY, STEPS = "metrics.jsonl", "config.json", "summary.json", "steps.jsonl"
STEP_VALUES = ("loss", "gradient_norm", "lr")
OPTIONS = {"dataset": str, "model": str, "optimizer": str, "seed": int}  # required in every configuration


class Status(Enum):
    FINISHED = "finished"
    UNFINISHED = "unfinished"
    DIVERGED = "diverged"


@dataclass(frozen=True)
class Epoch:
    """The metrics of an epoch. Losses and accuracy are NaN if they were not finite."""

    epoch: int
    train_loss: float
    test_loss: float
    test_accuracy: float  # a fraction
    seconds: float
    optimizer_seconds: float


@dataclass(frozen=True)
class Run:
    folder: Path
    config: Mapping[str, Any]
    epochs: Sequence[Epoch]
    status: Status
    reason: str  # why the run diverged; empty if it did not
    steps: Mapping[int, Mapping[str, float]]  # the finite values logged for individual steps

    @property
    def seed(self) -> int:
        return int(self.config["seed"])


def read_runs(directories: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Returns the runs in these folders, each once, and the errors of those that cannot be read.

    Raises ReportError if a folder has no runs, or if all runs can be read and none has finished an epoch.
    """
    folders: dict[Path, Path] = {}
    for directory in directories:
        for folder in find_runs(directory):
            folders.setdefault(folder.resolve(), folder)
    runs, problems = [], []
    for folder in folders.values():
        try:
            runs.append(read_run(folder))
        except ReportError as error:
            problems.append(str(error))
    if not problems and not any(run.epochs for run in runs):
        raise ReportError(f"{', '.join(map(str, directories))}: no run has finished an epoch")
    return runs, problems


def find_runs(directory: Path) -> list[Path]:
    """Returns the folders of runs in or below `directory`. Raises ReportError if there are none."""
    if not directory.exists():
        raise ReportError(f"{directory}: no such directory")
    if not directory.is_dir():
        raise ReportError(f"{directory}: expected a directory, got a file")

    def fail(error: OSError) -> None:
        raise ReportError(f"{error.filename}: {error.strerror}")

    found: list[Path] = []
    for path, _, files in os.walk(directory, topdown=False, onerror=fail):
        folder = Path(path)
        if METRICS in files and not any(folder in run.parents for run in found):
            found.append(folder)
    if not found:
        empty = not any(directory.iterdir())
        raise ReportError(
            f"{directory}: {'the directory is empty' if empty else 'no runs found'}; expected {METRICS} and "
            f"{CONFIG} of `tensorion train` or `tensorion compare` in this folder or below it"
        )
    return sorted(found)


def has_runs(directory: Path) -> bool:
    return not directory.is_dir() or any(METRICS in files for _, _, files in os.walk(directory))


def read_run(folder: Path) -> Run:
    config = read_object(folder / CONFIG)
    for key, kind in OPTIONS.items():
        if key not in config:
            raise ReportError(f"{folder / CONFIG}: expected the key '{key}'")
        if not isinstance(config[key], kind):
            expected = "a string" if kind is str else "an integer"
            raise ReportError(f"{folder / CONFIG}: expected '{key}' to be {expected}, got {shown(config[key])}")
    if "train_samples" in config:
        _number(config["train_samples"], "train_samples", str(folder / CONFIG))
    summary = read_object(folder / SUMMARY) if (folder / SUMMARY).exists() else None
    if summary is None:
        status = Status.UNFINISHED
    else:
        status = Status.DIVERGED if summary.get("status") == "diverged" else Status.FINISHED
    return Run(
        folder=folder,
        config=config,
        epochs=_read_epochs(folder / METRICS, config, complete=summary is not None),
        status=status,
        reason=str((summary or {}).get("reason", "")),
        steps=_read_steps(folder / STEPS) if (folder / STEPS).exists() else {},
    )


def _read_steps(path: Path) -> dict[int, dict[str, float]]:
    rows = {}
    for where, row in read_lines(path, complete=False):
        try:
            rows[int(row["step"])] = {key: float(row[key]) for key in STEP_VALUES if row[key] is not None}
        except (ValueError, KeyError, TypeError) as error:
            raise ReportError(f"{where}: not in the format of steps.jsonl: {error!r}") from None
    return rows


def _read_epochs(path: Path, config: Mapping[str, Any], complete: bool) -> list[Epoch]:
    epochs: list[Epoch] = []
    for where, value in read_lines(path, complete=complete):
        epoch = _epoch(value, where)
        for key in ("optimizer", "seed"):
            if value.get(key, config[key]) != config[key]:
                raise ReportError(f"{where}: '{key}' is {shown(value[key])}, but {shown(config[key])} in {CONFIG}")
        if epochs and epoch.epoch <= epochs[-1].epoch:
            raise ReportError(f"{where}: epoch {epoch.epoch} follows epoch {epochs[-1].epoch}")
        epochs.append(epoch)
    return epochs


def _epoch(values: Mapping[str, Any], where: str) -> Epoch:
    numbers: dict[str, float] = {}
    for key in Epoch.__dataclass_fields__:
        if key not in values:
            raise ReportError(f"{where}: expected the key '{key}'")
        # JSON has no NaN; the program writes null instead.
        measured = key in ("train_loss", "test_loss", "test_accuracy")
        numbers[key] = math.nan if measured and values[key] is None else _number(values[key], key, where)

    def check(key: str, right: bool, expected: str) -> None:
        if not right:
            raise ReportError(f"{where}: expected '{key}' {expected}, got {shown(values[key])}")

    check("epoch", numbers["epoch"] >= 0 and numbers["epoch"] % 1 == 0, "to be a non-negative integer")
    accuracy = numbers["test_accuracy"]
    check("test_accuracy", math.isnan(accuracy) or 0 <= accuracy <= 1, "to be a fraction in [0, 1]")
    check("seconds", 0 < numbers["seconds"] < math.inf, "to be positive")
    check("optimizer_seconds", 0 <= numbers["optimizer_seconds"] < math.inf, "to be non-negative")
    return Epoch(int(numbers.pop("epoch")), **numbers)


def _number(value: Any, key: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ReportError(f"{where}: expected '{key}' to be a number, got {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)
