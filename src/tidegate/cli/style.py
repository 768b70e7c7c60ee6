"""Colours for terminal output."""

from __future__ import annotations

import os
import sys
from typing import TextIO

import click


def style(text: str, color: str) -> str:
    """Return the text in bold or in a colour if stdout takes colours.

    `NO_COLOR` turns colours off, `FORCE_COLOR` turns them on; otherwise only a terminal gets them.
    """
    if not wants_color(sys.stdout):
        return text
    return click.style(text, bold=True) if color == "bold" else click.style(text, fg=color)


def wants_color(stream: TextIO) -> bool:
    """Return whether to write colours to the stream."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()
