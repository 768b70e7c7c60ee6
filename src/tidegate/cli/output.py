"""What goes to stdout and stderr: data to the one, talk to the other.

JSON is strict: no NaN, and integers that a reader with doubles would round travel as strings.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TextIO

import click

from tidegate.cli.text import clean
from tidegate.domain.spec import Priority

_LARGEST_EXACT = 2**53
_NARROWEST = 24


def talk(message: str) -> None:
    """Print to stderr what is not data."""
    click.echo(clean(message), err=True)


def print_json(value: object) -> None:
    """Print one value as one line of JSON. A list is printed by calling this for each item (NDJSON)."""
    tree = jsonable(value)
    text = json.dumps(tree, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(tree, allow_nan=False)
    click.echo(text)


def jsonable(value: object) -> Any:
    """Return what strict JSON can hold of a value: rows become objects, priorities words, large ints text."""
    if isinstance(value, Priority):
        return value.word
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -_LARGEST_EXACT < value < _LARGEST_EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def stored_json(data: bytes, codec_tag: str) -> Any:
    """Return stored arguments or a stored result as JSON values, every digit kept; tags stay visible."""
    if not codec_tag.startswith("json"):
        return f"({len(data)} bytes of {codec_tag})"
    return json.loads(data)


def print_table(
    heads: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: Sequence[str] = ()
) -> None:
    """Print rows under heads; the columns named in `numbers` to the right.

    On a terminal the last column is cut to the width; in a pipe nothing is.
    """
    cells = [[clean(str(cell)) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in [list(heads), *cells]) for at in range(len(heads))]
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns - sum(widths[:-1]) - 2 * (len(widths) - 1)
        widths[-1] = min(widths[-1], max(room, _NARROWEST))
    right = [head in numbers for head in heads]
    click.echo(style(_line(heads, widths, right), "bold"))
    for row in cells:
        click.echo(_line(row, widths, right))


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    shown = [
        _cut(cell, width).rjust(width) if to_right else _cut(cell, width).ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    ]
    return "  ".join(shown).rstrip()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values, a line each; values that are empty or None are left out."""
    shown = {name: clean(str(value)) for name, value in facts.items() if value not in {None, "", "-"}}
    width = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        click.echo(f"{name:<{width}}  {value}")


def style(text: str, look: str) -> str:
    """Return a text with a look (`bold`, or a colour) where colours are wanted.

    `NO_COLOR` turns them off, `FORCE_COLOR` on; else a terminal has them and a pipe has not.
    """
    if not wants_color(sys.stdout):
        return text
    return click.style(text, bold=True) if look == "bold" else click.style(text, fg=look)


def wants_color(stream: TextIO) -> bool:
    """Return whether colours may be written there."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()
