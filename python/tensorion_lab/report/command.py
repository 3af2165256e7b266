"""The command `tensorion report`."""

import argparse
import difflib
import io
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from tensorion_lab.report.document import Document, Section
from tensorion_lab.report.errors import ReportError
from tensorion_lab.report.evaluations import Evaluation, read_evaluations
from tensorion_lab.report.experiments import (
    Experiment,
    difference_sections,
    experiment_sections,
    paper_section,
    read_experiment,
)
from tensorion_lab.report.page import html_page
from tensorion_lab.report.runs import Run, has_runs, read_runs
from tensorion_lab.report.table import text_table

PAGE = "index.html"


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the terminal's encoding may lack characters such as ±
    out: Path = options.out or options.directories[0] / "report"
    try:
        page, sections, left_out = _report(options, out)
    except ReportError as error:
        print(f"[tensorion report] {error}", file=sys.stderr)
        return 1
    for problem in left_out:
        print(f"[tensorion report] {problem}", file=sys.stderr)
    try:
        for section in sections:
            print(f"{section.title}\n\n{text_table(section.table)}\n")
        print(f"report: {page}", flush=True)
    except OSError as error:
        sys.stdout = None  # otherwise Python tries to write the rest again at exit
        print(f"[tensorion report] cannot write to standard output: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tensorion report",
        description="Compare training runs: figures as PNG files, one HTML page, and a table.",
        epilog="Runs that differ only in their seed are shown as their mean, with a band of plus or minus one standard "
        "deviation.",
        allow_abbrev=False,
    )
    parser.error = partial(_fail, parser)  # type: ignore[method-assign]
    parser.add_argument(
        "directories",
        metavar="DIR",
        nargs="+",
        type=Path,
        help="the results of `tensorion train`, `compare`, `eval`, `laplace` or `tightness`, or a folder of runs",
    )
    parser.add_argument("--out", metavar="DIR", type=Path, help="output folder (default: report in the first DIR)")
    parser.add_argument("--title", metavar="TEXT", help="title of the page (default: Training runs, or Experiments)")
    parser.add_argument(
        "--dpi",
        metavar="N",
        type=_dpi,
        default=200,
        help="dots per inch of the figures (default: %(default)s)",
    )
    return parser


def _fail(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Exits with status 2. For a misspelled option, the message suggests the closest name."""
    unknown = message.removeprefix("unrecognized arguments: ").split()[0] if "unrecognized" in message else ""
    near = difflib.get_close_matches(unknown, parser._option_string_actions, n=1) if unknown else []
    print(f"[tensorion report] {message}" + (f"; did you mean {near[0]}?" if near else ""), file=sys.stderr)
    sys.exit(2)


def _dpi(text: str) -> int:
    if not text.isdecimal() or not 20 <= int(text) <= 1200:
        raise argparse.ArgumentTypeError(f"expected an integer in [20, 1200], got '{text}'")
    return int(text)


def _report(options: argparse.Namespace, out: Path) -> tuple[Path, list[Section], list[str]]:
    """Writes the page. Returns its path, its sections and the errors of inputs that were left out.

    Inputs that cannot be read are left out. If none can be read, raises ReportError.
    """
    experiments: list[Experiment] = []
    others: list[Path] = []
    problems: list[str] = []
    for directory in options.directories:
        try:
            experiment = read_experiment(directory)
        except ReportError as error:
            problems.append(str(error))
            continue
        if experiment:
            experiments.append(experiment)
        else:
            others.append(directory)
    evaluations, broken = read_evaluations(others)
    # A folder may contain an evaluation but no runs.
    with_runs = [directory for directory in others if not (evaluations or broken) or has_runs(directory)]
    runs, broken_runs = read_runs(with_runs) if with_runs else ([], [])
    problems += [*broken_runs, *broken]
    sections = []
    for directory in others:
        try:
            sections += [section] if (section := paper_section(directory)) else []
        except ReportError as error:
            problems.append(str(error))
    sections += _sections(runs, experiments, evaluations, others, options.dpi, problems)
    if not sections:
        raise ReportError("; ".join(problems))
    left_out = [f"Left out: {problem}" for problem in problems]
    title = options.title or ("Training runs" if runs else "Experiments")
    source = _source(runs, experiments, evaluations, options.directories)
    return _write(Document(title, source, sections, left_out), out), sections, left_out


def _sections(
    runs: Sequence[Run],
    experiments: Sequence[Experiment],
    evaluations: Sequence[Evaluation],
    comparisons: Sequence[Path],
    dpi: int,
    problems: list[str],
) -> list[Section]:
    """Creates all sections. Appends the errors of experiments and comparisons that cannot be drawn to `problems`."""
    try:
        from tensorion_lab.report.confusion import evaluation_sections
        from tensorion_lab.report.training import training_sections

        sections: list[Section] = []
        for experiment in experiments:
            try:
                sections += experiment_sections(experiment, dpi)
            except ReportError as error:
                problems.append(str(error))
        for folder in comparisons:
            try:
                sections += difference_sections(folder, dpi)
            except ReportError as error:
                problems.append(str(error))
        if any(run.epochs for run in runs):
            sections += training_sections(runs, dpi)
        return [*sections, *evaluation_sections(evaluations, dpi)]
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "matplotlib":
            raise
        raise ReportError("figures need matplotlib, which is not installed: pip install 'tensorion[report]'") from None


def _source(
    runs: Sequence[Run],
    experiments: Sequence[Experiment],
    evaluations: Sequence[Evaluation],
    directories: Sequence[Path],
) -> str:
    kinds = [_count(len(experiments), "experiment")] if experiments else []
    if runs:
        kinds.append(_count(len(runs), "run"))
    if evaluations:
        kinds.append(_count(len(evaluations), "evaluation"))
    return f"{' and '.join(kinds)} from {', '.join(map(str, directories))}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _write(document: Document, out: Path) -> Path:
    page = out / PAGE
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(f"{error.filename or out}: {error.strerror}") from None
    for section in document.sections:
        for figure in section.figures:
            _write_file(out / f"{figure.name}.png", figure.png)
    _write_file(page, html_page(document).encode("utf-8", errors="xmlcharrefreplace"))
    return page


def _write_file(path: Path, content: bytes) -> None:
    """Creates or replaces the file atomically."""
    unfinished = path.with_name(f"{path.name}.tmp")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise ReportError(f"cannot write {path}: {error.strerror}") from None
