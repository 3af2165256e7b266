"""The report on training runs: one section for each data set and model."""

import re
from collections.abc import Sequence
from dataclasses import replace

from tensorion_lab.report.document import Section, Table
from tensorion_lab.report.figures import TrainingFigures
from tensorion_lab.report.groups import Group, Setup, differing, make_setups, option_text
from tensorion_lab.report.results import Results, results
from tensorion_lab.report.runs import Run, Status
from tensorion_lab.report.style import assign_styles, house_style


def training_sections(runs: Sequence[Run], dpi: int) -> list[Section]:
    """Creates one section per setup. If there are several, file names of figures start with the setup."""
    setups = make_setups(runs)
    styles = assign_styles((group.label, group.optimizer) for setup in setups for group in setup.groups)
    sections = []
    with house_style():
        for setup in setups:
            figures = TrainingFigures(setup, styles, dpi).render()
            if len(setups) > 1:
                slug = re.sub(r"[^a-z0-9.]+", "-", setup.title.lower()).strip("-")
                figures = [replace(figure, name=f"{slug}-{figure.name}") for figure in figures]
            common, configuration = _configuration(setup.groups)
            sections.append(Section(setup.title, _results_table(setup), figures, configuration, common))
    return sections


def _results_table(setup: Setup) -> Table:
    found = [results(group.counted) if group.counted else None for group in setup.groups]
    with_rates = any(result and result.images_per_second for result in found)
    header = ["optimizer", "seeds", "test accuracy (%)", "best (%)", "test loss", "s/epoch", "optimizer (%)"]
    ranks = {i: result.test_accuracy.mean for i, result in enumerate(found) if result}
    ranked = [i for i in ranks if ranks[i] == ranks[i]]
    return Table(
        header=[*header, "images/s"] if with_rates else header,
        rows=[
            [group.label, _seeds(group), *_cells(result, with_rates)]
            for group, result in zip(setup.groups, found, strict=True)
        ],
        alignment="ll" + "r" * (6 if with_rates else 5),
        best=max(ranked, key=ranks.__getitem__) if len(ranked) > 1 else None,
        notes=[
            "(values of the last epoch; ±: one standard deviation over the seeds, n - 1; best: the best epoch of each "
            "run; optimizer: percentage of the training time)",
            *(note for group, result in zip(setup.groups, found, strict=True) for note in _notes(group, result)),
        ],
    )


def _cells(result: Results | None, with_rates: bool) -> list[str]:
    if result is None:
        return ["-"] * (6 if with_rates else 5)
    cells = [
        result.test_accuracy.text(2, 100),
        result.best_accuracy.text(2, 100),
        result.test_loss.text(4),
        result.epoch_seconds.text(2),
        result.optimizer_share.text(1, 100),
    ]
    if with_rates:
        cells.append(result.images_per_second.text(0) if result.images_per_second else "-")
    return cells


def _count(group: Group, status: Status) -> int:
    return sum(run.status is status for run in group.runs)


def _seeds(group: Group) -> str:
    parts = [
        f"{_count(group, status)}{suffix}"
        for status, suffix in (
            (Status.FINISHED, ""),
            (Status.DIVERGED, " diverged"),
            (Status.UNFINISHED, " unfinished"),
        )
        if _count(group, status)
    ]
    return " + ".join(parts)


def _notes(group: Group, result: Results | None) -> list[str]:
    notes = []
    total = len(group.runs)
    if diverged := _count(group, Status.DIVERGED):
        notes.append(
            f"{group.label}: {diverged} of {total} runs diverged. The means exclude them; the figures show them "
            "as thin lines that end with a cross."
        )
        notes += [
            f"{group.label}, seed {run.seed}: {run.reason}"
            for run in group.runs
            if run.status is Status.DIVERGED and run.reason
        ]
    if unfinished := _count(group, Status.UNFINISHED):
        if result and not _count(group, Status.FINISHED):
            epochs = option_text(group.options.get("epochs", "?"))
            notes.append(f"{group.label}: unfinished; the values are from epoch {result.last_epoch} of {epochs}.")
        else:
            notes.append(f"{group.label}: {unfinished} of {total} runs are unfinished. The means exclude them.")
    return notes


def _configuration(groups: Sequence[Group]) -> tuple[list[tuple[str, str]], Table]:
    """Returns the options that all groups share, and a table of the options that differ."""
    own = [key for key in differing([group.options for group in groups]) if key not in ("optimizer", "label")]
    common = [
        (key, option_text(value))
        for key, value in groups[0].options.items()
        if key not in (*own, "optimizer", "label") and value not in (None, "", [])
    ]
    rows = []
    for group in groups:
        options = [f"{key} {option_text(group.options[key])}" for key in own if key in group.options]
        rows.append([group.label, ", ".join(str(run.seed) for run in group.runs), ", ".join(options)])
    return common, Table(["optimizer", "seeds", "options that differ"], rows, "lll")
