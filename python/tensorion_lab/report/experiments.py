"""Reads experiments other than training runs: folders whose `summary.json` has the key `experiment`.

The file has the tables that the program printed, the options (`config`) and the data for the figures.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorion_lab.report.document import Section, Table
from tensorion_lab.report.errors import ReportError
from tensorion_lab.report.groups import option_text

SUMMARY = "summary.json"


@dataclass(frozen=True)
class Experiment:
    folder: Path
    name: str
    summary: Mapping[str, Any]

    def table(self, index: int) -> Table:
        return _table(self.summary["tables"][index])

    def title(self, index: int) -> str:
        return str(self.summary["tables"][index]["title"])

    def options(self) -> list[tuple[str, str]]:
        return [(key, option_text(value)) for key, value in self.summary["config"].items()]


def _table(table: Mapping[str, Any]) -> Table:
    return Table(table["header"], table["rows"], table["alignment"], notes=table["notes"])


def _read_summary(folder: Path) -> dict[str, Any]:
    """Returns an empty dict if there is no summary yet."""
    path = folder / SUMMARY
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise ReportError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    return summary if isinstance(summary, dict) else {}


def read_experiment(folder: Path) -> Experiment | None:
    """Returns the experiment in the folder, or None if there is none."""
    summary = _read_summary(folder)
    return Experiment(folder, str(summary["experiment"]), summary) if "experiment" in summary else None


def paper_section(folder: Path) -> Section | None:
    """Returns the table with the paper's numbers if the runs in the folder are one of the paper's comparisons."""
    table = _read_summary(folder).get("table")
    if table is None:
        return None
    try:
        return Section(str(table["title"]), _table(table), [], None, [])
    except (KeyError, TypeError) as error:
        raise ReportError(f"{folder / SUMMARY}: not in the format of the program: {error!r}") from None


def difference_sections(folder: Path, dpi: int) -> list[Section]:
    """Returns the differences from a reference method if the comparison in the folder has one."""
    from tensorion_lab.report.differences import difference_section

    summary = _read_summary(folder)
    try:
        return [difference_section(summary, dpi)] if "differences" in summary else []
    except (KeyError, TypeError) as error:
        raise ReportError(f"{folder / SUMMARY}: not in the format of the program: {error!r}") from None


def experiment_sections(experiment: Experiment, dpi: int) -> list[Section]:
    from tensorion_lab.report.laplace import laplace_sections
    from tensorion_lab.report.tightness import tightness_sections

    kinds = {"laplace": laplace_sections, "tightness": tightness_sections}
    path = experiment.folder / SUMMARY
    if experiment.name not in kinds:
        raise ReportError(f"{path}: expected one of the experiments {', '.join(kinds)}, got '{experiment.name}'")
    try:
        return list(kinds[experiment.name](experiment, dpi))
    except (KeyError, TypeError, IndexError) as error:
        raise ReportError(f"{path}: not in the format of the program: {error!r}") from None
