"""What a report consists of, whatever it reports on."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Cells of text. `alignment` has a letter for each column: "l" or "r"."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    alignment: str
    best: int | None = None  # the row to stress
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Picture:
    """A figure: `name` is its file's, without the ending."""

    name: str
    title: str
    caption: str
    png: bytes


@dataclass(frozen=True)
class Section:
    title: str
    table: Table
    pictures: Sequence[Picture]
    configuration: Table | None  # where rows have options of their own
    common: Sequence[tuple[str, str]]  # options that all rows share


@dataclass(frozen=True)
class Document:
    title: str
    source: str  # what was read
    sections: Sequence[Section]
    left_out: Sequence[str] = ()  # what could not be read, and why
