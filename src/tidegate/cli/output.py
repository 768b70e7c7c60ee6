"""What goes to stdout and stderr: data to the one, talk to the other.

JSON is strict: no NaN, and integers that a reader with doubles would round travel as strings.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any

import click

from tidegate.cli.formatting import printable
from tidegate.domain.spec import Priority

_LARGEST_EXACT = 2**53


def print_message(message: str) -> None:
    """Print to stderr what is not data."""
    click.echo(printable(message), err=True)


def print_json(value: object) -> None:
    """Print one value as one line of JSON. A list is printed by calling this for each item (NDJSON)."""
    click.echo(json_text(value))


def json_text(value: object) -> str:
    """Return a value as one line of JSON that neither steers a terminal nor fails on its encoding."""
    tree = jsonable(value)
    text = json.dumps(tree, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(tree, allow_nan=False)
    if text.isprintable():
        return text
    # What is not printable stands within a string of the JSON, so an escape means the same.
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


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


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values, a line each; values that are empty or None are left out."""
    shown = {name: printable(str(value)) for name, value in facts.items() if value not in {None, "", "-"}}
    width = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        click.echo(f"{name:<{width}}  {value}")
