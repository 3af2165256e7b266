"""The parts of a report: a document has sections, and a section has a table and figures."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table of text. `alignment` has one letter per column: "l" or "r"."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    alignment: str
    best: int | None = None  # index of the row to highlight
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class RenderedFigure:
    """A figure as a PNG file. `name` is the file name without the extension."""

    name: str
    title: str
    caption: str
    png: bytes


@dataclass(frozen=True)
class Section:
    title: str
    table: Table
    figures: Sequence[RenderedFigure]
    configuration: Table | None  # the options in which the rows differ
    common: Sequence[tuple[str, str]]  # the options that all rows share


@dataclass(frozen=True)
class Document:
    title: str
    source: str  # describes the input: how many runs, and from which folders
    sections: Sequence[Section]
    left_out: Sequence[str] = ()  # errors of inputs that could not be read
