"""Means over seeds, with the sample standard deviation (n - 1 in the denominator)."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tensorion_lab.report.runs import Epoch, Run


@dataclass(frozen=True)
class Spread:
    mean: float
    std: float | None  # None for a single value

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        numbers = list(values)
        if not all(map(math.isfinite, numbers)):
            return cls(math.nan, None)
        return cls(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None)

    def text(self, digits: int, scale: float = 1) -> str:
        if not math.isfinite(self.mean):
            return "-"
        spread = "" if self.std is None else f" ± {self.std * scale:.{digits}f}"
        return f"{self.mean * scale:.{digits}f}{spread}"


@dataclass(frozen=True)
class Curve:
    """A quantity over the epochs that all runs have, and the training time after each epoch."""

    epochs: Sequence[int]
    seconds: Sequence[float]  # training time since the start, mean over the runs
    values: Sequence[Spread]


def curve(runs: Sequence[Run], quantity: Callable[[Epoch], float]) -> Curve:
    rows = list(zip(*(run.epochs for run in runs), strict=False))  # ends with the shortest run
    times = zip(*(accumulate(epoch.seconds for epoch in run.epochs) for run in runs), strict=False)
    return Curve(
        [row[0].epoch for row in rows],
        [statistics.fmean(time) for time in times],
        [Spread.of(map(quantity, row)) for row in rows],
    )


@dataclass(frozen=True)
class Results:
    """Means and deviations over the runs. If their lengths differ, only the epochs that all runs have count."""

    last_epoch: int
    test_accuracy: Spread  # at the last epoch
    best_accuracy: Spread  # of each run's best epoch
    test_loss: Spread
    epoch_seconds: Spread  # mean over the epochs of a run
    optimizer_share: Spread  # time in the optimizer / training time, both summed over the epochs of a run
    images_per_second: Spread | None  # None if a configuration does not contain the number of images


def results(runs: Sequence[Run]) -> Results:
    """Summarizes the epochs that all runs have. There must be at least one run and one such epoch."""
    count = min(len(run.epochs) for run in runs)
    epochs = [run.epochs[:count] for run in runs]
    seconds = [math.fsum(epoch.seconds for epoch in some) for some in epochs]
    optimizer_seconds = [math.fsum(epoch.optimizer_seconds for epoch in some) for some in epochs]
    images = [run.config["train_samples"] for run in runs if "train_samples" in run.config]
    return Results(
        last_epoch=epochs[0][-1].epoch,
        test_accuracy=Spread.of(some[-1].test_accuracy for some in epochs),
        best_accuracy=Spread.of(map(_best_accuracy, epochs)),
        test_loss=Spread.of(some[-1].test_loss for some in epochs),
        epoch_seconds=Spread.of(time / count for time in seconds),
        optimizer_share=Spread.of(part / time for part, time in zip(optimizer_seconds, seconds, strict=True)),
        images_per_second=Spread.of(number * count / time for number, time in zip(images, seconds, strict=True))
        if len(images) == len(runs)
        else None,
    )


def _best_accuracy(epochs: Sequence[Epoch]) -> float:
    accuracies = [epoch.test_accuracy for epoch in epochs]
    return max(filter(math.isfinite, accuracies), default=math.nan)
