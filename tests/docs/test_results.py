"""Every number in a table of docs/results.md is in a file of results/ that the section links to."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def sections() -> dict[str, str]:
    """Return the text of each section with a table, by its title."""
    parts = re.split(r"^## (.+)$", (ROOT / "docs" / "results.md").read_text(), flags=re.MULTILINE)
    return {title: text for title, text in zip(parts[1::2], parts[2::2], strict=True) if "\n| --- " in text}


def linked_files(text: str) -> list[Path]:
    """Return the tables and summaries of all folders of results that the section links to."""
    folders = {Path(link).parent for link in re.findall(r"\]\(\.\./(results/[^)]+)\)", text)}
    return [file for folder in sorted(folders) for file in sorted((ROOT / folder).glob("*")) if is_data(file)]


def is_data(file: Path) -> bool:
    return file.suffix in {".json", ".txt"}


def numbers_in(value) -> set[float]:
    if isinstance(value, dict):
        return set().union(*map(numbers_in, value.values()))
    if isinstance(value, list):
        return set().union(*map(numbers_in, value))
    if isinstance(value, str):
        return {float(text) for text in NUMBER.findall(value)}
    return {float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else set()


def measured_numbers(text: str) -> set[float]:
    """Return all numbers in the linked files; fractions also in percent."""
    found: set[float] = set()
    for file in linked_files(text):
        found |= numbers_in(json.loads(file.read_text()) if file.suffix == ".json" else file.read_text())
    return found | {100 * number for number in found}


def cells(text: str):
    """Yield (first cell of the row, number as written) for the columns of all tables that are not the paper's."""
    header: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            header = []
            continue
        row = [cell.strip() for cell in line.strip("|").split("|")]
        if not header:
            header = row
        elif not row[0].startswith("---"):
            for title, cell in zip(header[1:], row[1:], strict=True):
                if "paper" not in title:
                    yield from ((row[0], number) for number in NUMBER.findall(cell))


def is_rounded(written: str, value: float) -> bool:
    """Return whether `written` is `value` rounded to as many digits."""
    if "e" in written:
        digits = len(written.split("e")[0].replace("-", "").replace(".", "")) - 1
        return float(f"{value:.{digits}e}") == float(written)
    digits = len(written.partition(".")[2])
    # A table may round a number of the file that is itself rounded, so allow for half a digit twice.
    return abs(value - float(written)) <= 0.56 * 10**-digits


@pytest.mark.parametrize("title", sections())
def test_numbers_of_tables_are_measured(title):
    text = sections()[title]
    measured = measured_numbers(text)
    assert measured, "the section links to no results"
    missing = [
        f"{row}: {written}" for row, written in cells(text) if not any(is_rounded(written, value) for value in measured)
    ]
    assert not missing


@pytest.mark.parametrize(
    ("written", "value", "expected"),
    [("54.6", 54.58, True), ("54.6", 54.7, False), ("1.6e-9", 1.649e-9, True), ("1.6e-9", 1.75e-9, False)],
)
def test_rounding(written, value, expected):
    assert is_rounded(written, value) == expected


def test_columns_of_the_paper_are_not_checked():
    table = "| method | accuracy | paper's accuracy |\n| --- | --- | --- |\n| online | 54.6 ± 0.4 | 91.1 ± 0.4 |\n"
    assert list(cells(table)) == [("online", "54.6"), ("online", "0.4")]
