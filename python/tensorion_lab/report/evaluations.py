"""Reads `evaluation.json`, the results of `tensorion eval`."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tensorion_lab.report.errors import ReportError

FILE = "evaluation.json"


@dataclass(frozen=True)
class Evaluation:
    folder: Path
    weights: str
    samples: int
    accuracy: float  # a fraction
    loss: float
    classes: Sequence[str]
    confusion: Sequence[Sequence[int]]  # number of images by true class (rows) and predicted class (columns)


def read_evaluations(directories: Sequence[Path]) -> tuple[list[Evaluation], list[str]]:
    """Returns the evaluations in or below these folders, each once, and the errors of those that cannot be read."""
    paths = {
        (Path(folder) / FILE).resolve(): Path(folder) / FILE
        for directory in directories
        for folder, _, files in os.walk(directory)
        if FILE in files
    }
    evaluations, problems = [], []
    for path in sorted(paths.values()):
        try:
            evaluations.append(_read(path))
        except ReportError as error:
            problems.append(str(error))
    return evaluations, problems


def _read(path: Path) -> Evaluation:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        evaluation = Evaluation(
            folder=path.parent,
            weights=str(values["weights"]),
            samples=int(values["test_samples"]),
            accuracy=float(values["test_accuracy"]),
            loss=float(values["test_loss"]),
            classes=[str(name) for name in values["class_names"]],
            confusion=[[int(count) for count in row] for row in values["confusion"]],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReportError(f"{path}: not in the format of `tensorion eval`: {error!r}") from None
    count = len(evaluation.classes)
    if [len(row) for row in evaluation.confusion] != [count] * count:
        raise ReportError(f"{path}: expected a confusion matrix of {count} x {count}, one row for each class")
    return evaluation
