"""Stars where a message holds what looks like a secret: errors quote headers, URLs and settings."""

from __future__ import annotations

import re

_SECRETS = (
    (re.compile(r"(://[^/?#\s:@]*:)[^/?#\s@]+@"), r"\1***@"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{3,}"), r"\1 ***"),
    (re.compile(r"\b((?:sk|pk|rk|tg|xox[abp]|gh[pousr])[-_])[\w-]{4,}"), r"\1***"),
    (
        re.compile(r"(?i)\b(api[_-]?key|password|passwd|secret|token)(['\"]?\s*[=:]\s*['\"]?)[^\s'\",;&]+"),
        r"\1\2***",
    ),
)


def masked(text: str) -> str:
    """Return a message with what looks like a secret replaced by stars."""
    for pattern, stars in _SECRETS:
        text = pattern.sub(stars, text)
    return text
