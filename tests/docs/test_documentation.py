"""Runs all examples in README.md, docs/ and the docstrings of the package."""

import doctest
import re
import shlex
import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch

import tensorion

ROOT = Path(__file__).parents[2]
# docs/recipes.md needs frameworks that are not installed. tests/recipes tests it.
DOCUMENTS = [ROOT / "README.md", *sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "recipes.md"})]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language):
    """Return the code blocks of a language as (document, number of the first line, text)."""
    for document in DOCUMENTS:
        text = document.read_text()
        for match in BLOCK.finditer(text):
            if match[1] == language:
                yield document.relative_to(ROOT), text.count("\n", 0, match.start(2)) + 1, match[2]


def parameters(language):
    return [pytest.param(*block, id=f"{block[0]}:{block[1]}") for block in blocks(language)]


@pytest.mark.parametrize("document", {document for document, _, _ in blocks("python")}, ids=str)
def test_python(document, monkeypatch, tmp_path):
    # The blocks of a document run as one program. Blank lines give tracebacks the line numbers of the document.
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for name, line, text in blocks("python"):
        if name == document:
            exec(compile("\n" * (line - 1) + text, str(ROOT / document), "exec"), namespace)


@pytest.mark.parametrize(("document", "line", "text"), parameters("console"))
def test_console(document, line, text):
    commands = re.findall(r"^\$ (tensorion .*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)
    assert commands, f"no `$ tensorion ...` in the block at {document}:{line}"
    for command, expected in commands:
        program, *arguments = shlex.split(command)
        path = Path(sysconfig.get_path("scripts")) / program
        assert subprocess.check_output([path, *arguments], text=True) == expected


@pytest.mark.parametrize(("document", "line", "text"), parameters("cpp") + parameters("cmake"))
def test_block_is_part_of_a_tested_file(document, line, text):
    built = [*ROOT.glob("tests/cmake_project/*"), *ROOT.glob("tests/subproject/*"), *ROOT.glob("examples/**/*")]
    assert any(text in path.read_text() for path in built if path.is_file()), (
        f"the block at {document}:{line} is in no file of tests/cmake_project, tests/subproject or examples"
    )


@pytest.mark.parametrize("name", tensorion.__all__)
def test_docstring_examples(name):
    runner = doctest.DocTestRunner()
    scope = {"tensorion": tensorion, "torch": torch}
    for example in doctest.DocTestFinder(recurse=False).find(getattr(tensorion, name), name, globs=scope):
        runner.run(example)
    assert runner.summarize().failed == 0
