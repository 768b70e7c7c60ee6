"""Makes foreign text safe to store and show, and formats counts and durations."""

from __future__ import annotations

import re
from typing import Any

from tidegate.domain.redaction import MARGIN, redact

# PostgreSQL refuses NUL and lone surrogates. Terminals would interpret the other control characters.
_UNSTORABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def counted(count: int, what: str) -> str:
    """Return a count with its noun: `1 task`, `2 tasks`, `1,000 tasks`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def format_duration(seconds: float) -> str:
    """Return a duration in one unit: `0.25 s`, `42 s`, `10 min`, `2.5 h`, `3 d`."""
    if seconds < 60.0:
        return f"{seconds:.3g} s"
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size or (seconds >= size and seconds % size == 0):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def storable(text: str, limit: int) -> str:
    """Return the text with unstorable characters escaped, cut to `limit` characters.

    A cut text ends with a mark that states its original length: `… (cut, 3000000 characters)`.
    """
    return _cut(escaped(text[: limit + 1]), limit, len(text))


def redacted_text(text: str, limit: int) -> str:
    """Return the same as `storable` with secrets replaced by stars, for text that people read.

    A secret that the cut would split is replaced too.
    """
    seen = text[: limit + MARGIN]
    shown = escaped(redact(seen))
    return _cut(shown, limit, len(text)) if len(seen) == len(text) else _marked(shown, limit, len(text))


def escaped(text: str) -> str:
    r"""Return the text with unstorable characters shown as `\x00` or `\ud800`."""
    return _UNSTORABLE.sub(_visible, text)


def with_surrogates_escaped(value: Any) -> Any:
    r"""Return a value of plain containers and text with lone surrogates shown as `\ud800`."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [with_surrogates_escaped(item) for item in value]
    if isinstance(value, tuple):
        return tuple(with_surrogates_escaped(item) for item in value)
    if isinstance(value, dict):
        return {with_surrogates_escaped(key): with_surrogates_escaped(item) for key, item in value.items()}
    return value


def one_line(text: str) -> str:
    r"""Return the text with every unprintable character escaped (`\n`, `\x1b`), so that it stays one line."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def _cut(shown: str, limit: int, length: int) -> str:
    return shown if len(shown) <= limit else _marked(shown, limit, length)


def _marked(shown: str, limit: int, length: int) -> str:
    mark = f"… (cut, {length} characters)"
    return shown[: max(0, limit - len(mark))] + mark


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
