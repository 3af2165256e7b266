"""The table of ratios in docs/performance.md has the numbers of the committed results."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "performance"
TEXT = (ROOT / "docs" / "performance.md").read_text()


def cells(line):
    return [cell.strip().strip("*") for cell in line.strip().strip("|").split("|")]


def ratio_table():
    """The lines of the first table after the heading, as lists of cells."""
    section = TEXT.split("## Ratios to reach\n")[1].split("\n## ")[0]
    return [cells(line) for line in section.splitlines() if line.startswith("|")]


def results():
    """The results that the columns after the third come from, in their order: the list of files names them first."""
    files = re.findall(r"^- AVX.*?`results/performance/([\w.-]+\.json)`", TEXT, re.MULTILINE)
    return [json.loads((RESULTS / name).read_text()) for name in files]


def test_every_column_has_results():
    header = ratio_table()[0]
    found = results()
    assert len(found) == len(header) - 3 >= 1
    for title, result in zip(header[3:], found, strict=True):
        assert result["machine"]["instructions"] in title.upper().replace("-", "")
        assert ("emulated" in title) == bool(result["machine"]["emulated_by"])


@pytest.mark.parametrize("row", ratio_table()[2:], ids=lambda row: row[0])
def test_ratio(row):
    name, at_most, aim, *measured = row
    for text, result in zip(measured, results(), strict=True):
        ratio = next((one for one in result["ratios"] if one["name"] == name.replace("`", "")), None)
        if ratio is None:
            assert text == "-"
            continue
        assert (float(at_most), float(aim)) == (ratio["at_most"], ratio["aim"])
        decimals = len(text.partition(".")[2])
        assert text == f"{ratio['measured']:.{decimals}f}"


def test_no_ratio_is_missing():
    names = {row[0].replace("`", "") for row in ratio_table()[2:]}
    first, *others = [{one["name"] for one in result["ratios"]} for result in results()]
    assert first == names
    assert all(other <= names for other in others)


PARTS = json.loads((RESULTS / "parts.json").read_text())["rows"]


def test_table_of_parts():
    section = TEXT.split("## How the time is spent\n")[1]
    table = [cells(line)[1:] for line in section.splitlines() if line.startswith("|")][2:]
    columns = [(threads, unfolding) for threads in (1, 2) for unfolding in ("balanced", "flattened", "online")]
    measured = {}
    for row in PARTS:
        measured.setdefault(row["part"], {})[row["threads"], row["unfolding"]] = f"{row['without']:.2f}"
    assert sorted(table) == sorted([values[column] for column in columns] for values in measured.values())
