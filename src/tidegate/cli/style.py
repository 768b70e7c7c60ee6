"""Colours, where they are wanted."""

from __future__ import annotations

import os
import sys
from typing import TextIO

import click


def style(text: str, color: str) -> str:
    """Return a text with a look (`bold`, or a colour) where colours are wanted.

    `NO_COLOR` turns them off, `FORCE_COLOR` on; else a terminal has them and a pipe has not.
    """
    if not wants_color(sys.stdout):
        return text
    return click.style(text, bold=True) if color == "bold" else click.style(text, fg=color)


def wants_color(stream: TextIO) -> bool:
    """Return whether colours may be written there."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()
