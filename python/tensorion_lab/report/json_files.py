"""Reads JSON and JSON Lines files. Errors contain the path and the line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tensorion_lab.report.errors import ReportError


def read_object(path: Path) -> dict[str, Any]:
    return _object(_read_text(path), path)


def read_lines(path: Path, *, complete: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the location ("path, line 3") and the object of each line.

    If `complete` is false, the program may still be writing the file, so a last line without a newline is skipped.
    """
    *lines, rest = _read_text(path).split("\n")
    if complete:
        lines.append(rest)
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where = f"{path}, line {number}"
            yield where, _object(line, where)


def shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ReportError(f"{path}: expected UTF-8 text: {error.reason} at byte {error.start}") from None


def _object(text: str, where: Path | str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        # For a whole file, add the line number. For a single line, `where` contains it already.
        line = f", line {error.lineno}" if isinstance(where, Path) and isinstance(error, json.JSONDecodeError) else ""
        raise ReportError(f"{where}{line}: not valid JSON: {getattr(error, 'msg', error)}") from None
    if not isinstance(value, dict):
        raise ReportError(f"{where}: expected a JSON object, got {shown(value)}")
    return value
