"""The tables of settings in the page on configuration, from the fields of their classes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from tools.reference.fields import docstrings_of_class
from tools.reference.markdown import paragraphs, replace_part, table

from tidegate import Pool, Retention, Timings
from tidegate.monitor.otel.settings import TelemetrySettings

PAGE = Path("docs/reference/configuration.md")


def page(root: Path) -> str:
    """Return the page with its tables made from the code."""
    text = (root / PAGE).read_text(encoding="utf-8")
    text = replace_part(text, "pools", settings_table(Pool()))
    text = replace_part(text, "worker", settings_table(Timings()))
    text = replace_part(text, "retention", settings_table(Retention()))
    return replace_part(text, "telemetry", settings_table(TelemetrySettings()))


def settings_table(defaults: Pool | Timings | Retention | TelemetrySettings) -> str:
    """Return a row for each setting: its key, its default as the file has it, and what it does."""
    kind: type = type(defaults)
    texts = docstrings_of_class(kind)
    rows = [
        (f"`{field.name}`", shown(getattr(defaults, field.name)), paragraphs(texts[field.name]))
        for field in fields(defaults)
        if field.name != "name" and (kind, field.name) != (Retention, "queues")
    ]
    return table(["key", "default", "meaning"], rows)


def shown(value: Any) -> str:
    """Return a default as one would write it in the file; `none` if there is none."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{value:.12g}`"
    if isinstance(value, tuple):
        return f"`{json.dumps(list(value))}`"
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{priority.word} = {share:g}" for priority, share in sorted(value.items()))
        return f"`{{ {pairs} }}`"
    return f"`{value}`"
