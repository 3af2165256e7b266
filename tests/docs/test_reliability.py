"""The table of invalid inputs in docs/reliability.md counts the cases that are tested."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| .* \| (\d+) \| `(.*)` \|$", (ROOT / "docs" / "reliability.md").read_text(), re.MULTILINE)


def with_braces_expanded(path):
    """The paths that a shell makes of `a_{b,c}.py`."""
    if not (braces := re.search(r"\{(.*)\}", path)):
        return [path]
    return [path[: braces.start()] + word + path[braces.end() :] for word in braces[1].split(",")]


def number_of_cpp_cases(path):
    table = re.search(r"kCases\[\] = \{\n(.*?)^\};", (ROOT / path).read_text(), re.DOTALL | re.MULTILINE)[1]
    return len(re.findall(r"^    \{\"", table, re.MULTILINE))


def number_of_python_tests(paths):
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *paths]
    collected = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sum("::" in line for line in collected.splitlines())


def test_table_has_the_four_rows():
    assert len(ROWS) == 4


@pytest.mark.parametrize(("cases", "path"), ROWS, ids=lambda value: value)
def test_number_of_cases(cases, path):
    if path.endswith(".cpp"):
        assert number_of_cpp_cases(path) == int(cases)
    else:
        assert number_of_python_tests(with_braces_expanded(path)) == int(cases)
