"""Formats tables as text."""

from collections.abc import Sequence

from tensorion_lab.report.document import Table


def text_table(table: Table) -> str:
    """Formats a table with aligned columns, aligns the signs ± within each column, and appends the notes."""
    columns = [[name, *_align(cells)] for name, *cells in zip(table.header, *table.rows, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    lines = [
        "  ".join(
            cell.rjust(width) if letter == "r" else cell.ljust(width)
            for cell, width, letter in zip(row, widths, table.alignment, strict=True)
        ).rstrip()
        for row in zip(*columns, strict=True)
    ]
    return "\n".join([*lines, *table.notes])


def _align(cells: Sequence[str]) -> list[str]:
    """Pads the deviations in cells of the form "mean ± deviation" to equal width."""
    parts = [cell.partition(" ± ") for cell in cells]
    width = max(len(deviation) for _, _, deviation in parts)
    return [f"{mean} ± {deviation.rjust(width)}" if sign else mean for mean, sign, deviation in parts]
