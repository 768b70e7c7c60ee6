"""Prints results to stdout and messages to stderr, in colours if wanted.

JSON is strict, without NaN. Integers that readers with 64-bit floats would round are written as strings.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any, TextIO

import click

from tidegate.cli.formatting import printable
from tidegate.domain.spec import Priority

_LARGEST_EXACT = 2**53


def print_message(message: str) -> None:
    """Print a message to stderr."""
    click.echo(printable(message), err=True)


def print_json(value: object) -> None:
    """Print one value as one line of JSON. For a list, call this for each item (NDJSON)."""
    click.echo(json_text(value))


def json_text(value: object) -> str:
    """Return a value as one line of JSON that cannot control a terminal and fits the encoding of stdout."""
    tree = jsonable(value)
    text = json.dumps(tree, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(tree, allow_nan=False)
    if text.isprintable():
        return text
    # Unprintable characters occur only inside JSON strings, where an escape has the same meaning.
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def jsonable(value: object) -> Any:
    """Convert a value to strict JSON values.

    Dataclasses become objects, priorities their names, large integers strings.
    """
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
    """Return stored arguments or chunks as JSON values, with type tags and every digit kept."""
    if not codec_tag.startswith("json"):
        return f"({len(data)} bytes of {codec_tag})"
    return json.loads(data)


def result_json(data: bytes, codec_tag: str) -> Any:
    """Return a stored result as JSON values without type tags, as the HTTP API shows it."""
    from tidegate.codec.plain import plain, unstorable

    if not codec_tag.startswith("json"):
        return stored_json(data, codec_tag)
    if missing := unstorable(data):
        return {"unstorable": {"type": missing.type_name, "reason": missing.reason}}
    return json.loads(bytes(plain(data)))


def print_facts(facts: Mapping[str, object]) -> None:
    """Print one line per name and value; leave out values that are empty or None."""
    shown = {name: printable(str(value)) for name, value in facts.items() if value not in {None, "", "-"}}
    width = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        click.echo(f"{name:<{width}}  {value}")


def style(text: str, color: str) -> str:
    """Return the text in bold or in a colour if stdout takes colours.

    `NO_COLOR` turns colours off, `FORCE_COLOR` turns them on; otherwise only a terminal gets colours.
    """
    if not wants_color(sys.stdout):
        return text
    return click.style(text, bold=True) if color == "bold" else click.style(text, fg=color)


def wants_color(stream: TextIO) -> bool:
    """Return whether to write colours to the stream."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()
