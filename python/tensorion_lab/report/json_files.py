"""Files of JSON, and of a JSON object a line; errors name the file and the line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tensorion_lab.report.errors import ReportError


def read_object(path: Path) -> dict[str, Any]:
    return _object(_read_text(path), path)


def read_lines(path: Path, *, complete: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object with its place. The last line of a file that is not complete may be half written."""
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
        # Of a file the line; of a line, the place has it already.
        line = f", line {error.lineno}" if isinstance(where, Path) and isinstance(error, json.JSONDecodeError) else ""
        raise ReportError(f"{where}{line}: broken JSON: {getattr(error, 'msg', error)}") from None
    if not isinstance(value, dict):
        raise ReportError(f"{where}: expected a JSON object, got {shown(value)}")
    return value
