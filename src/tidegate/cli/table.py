"""Prints tables that fit the terminal: columns are dropped or shortened until a row fits into a line."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import click

from tidegate.cli.formatting import printable
from tidegate.cli.output import style

_GAP = 2
_MIN_WIDTH = 12
"""The least width of a shortened column, in characters."""
_EMPTY = frozenset({"0", "-", ""})


@dataclass(slots=True)
class _Column:
    head: str
    cells: list[str]
    to_right: bool
    width: int

    def is_empty(self) -> bool:
        return all(cell in _EMPTY for cell in self.cells)


def print_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    numbers: Collection[str] = (),
    optional: Sequence[str] = (),
    shorten: Collection[str] = (),
) -> None:
    """Print a table. A pipe gets every column in full. On a terminal each row fits into a line.

    Args:
        heads: Names of the columns.
        rows: The rows, with one cell for each column.
        numbers: Names of the columns that are aligned to the right.
        optional: Names of the columns that a narrow terminal may leave out, in this order. Columns without
            any value are left out first.
        shorten: Names of the columns that may be shortened, in addition to the last column.
    """
    table = [[printable(str(cell)) for cell in row] for row in rows]
    columns = [
        _column(head, [row[at] for row in table], to_right=head in numbers) for at, head in enumerate(heads)
    ]
    if sys.stdout.isatty():
        columns = fit_columns(columns, shutil.get_terminal_size().columns, optional=optional, shorten=shorten)
    click.echo(style(_line(columns, None), "bold"))
    for at in range(len(table)):
        click.echo(_line(columns, at))


def fit_columns(
    columns: list[_Column], width: int, *, optional: Sequence[str], shorten: Collection[str]
) -> list[_Column]:
    """Return the columns that fit into a line of this width, shortened where needed."""
    by_head = {column.head: column for column in columns}
    dispensable = [by_head[head] for head in optional if by_head[head].is_empty()]
    columns = _without(columns, dispensable, width)
    cut = [column for column in columns if column.head in shorten or column is columns[-1]]
    while (excess := _width(columns) - width) > 0:
        widest = max(cut, key=lambda column: column.width, default=None)
        if widest is None or widest.width <= _MIN_WIDTH:
            break
        following = max((column.width for column in cut if column.width < widest.width), default=_MIN_WIDTH)
        widest.width -= min(excess, max(1, widest.width - max(following, _MIN_WIDTH)))
    return _without(columns, [by_head[head] for head in optional], width)


def _without(columns: list[_Column], dispensable: Sequence[_Column], width: int) -> list[_Column]:
    for column in dispensable:
        if _width(columns) <= width:
            break
        columns = [other for other in columns if other is not column]
    return columns


def _column(head: str, cells: list[str], *, to_right: bool) -> _Column:
    return _Column(head, cells, to_right, max(map(_cell_width, [head, *cells])))


def _width(columns: Sequence[_Column]) -> int:
    return sum(column.width for column in columns) + _GAP * (len(columns) - 1)


def _line(columns: Sequence[_Column], at: int | None) -> str:
    shown = []
    for column in columns:
        text = _truncate(column.head if at is None else column.cells[at], column.width)
        space = " " * (column.width - _cell_width(text))
        shown.append(space + text if column.to_right else text + space)
    return (" " * _GAP).join(shown).rstrip()


def _truncate(text: str, width: int) -> str:
    if _cell_width(text) <= width:
        return text
    while _cell_width(text) > width - 1:
        text = text[:-1]
    return text + "…"


def _cell_width(text: str) -> int:
    """Return how many cells of a terminal a text takes. Most Chinese characters and emoji take two cells."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
