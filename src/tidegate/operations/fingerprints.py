"""Fingerprints that people give: whole, or their first digits."""

from __future__ import annotations

import re

from tidegate.errors import OptionError
from tidegate.store.protocol import Store

LENGTH = 16
_DIGITS = re.compile(r"[0-9a-f]{4,16}")


async def full_fingerprint(store: Store, given: str | None) -> str | None:
    """Return the fingerprint with these first digits; None for none.

    Raises:
        OptionError: It is not one, or no group or several groups of failures have these first digits.
    """
    if given is None:
        return None
    text = given.strip().lower()
    if not _DIGITS.fullmatch(text):
        raise _wrong(
            given, "is not a fingerprint", "give 4 to 16 hex digits, as `tidegate dead groups` shows them"
        )
    if len(text) == LENGTH:
        return text
    found = await store.find_fingerprints(text)
    if len(found) == 1:
        return found[0]
    problem = "belongs to several groups of failures" if found else "belongs to no group of failures"
    raise _wrong(given, problem, "give more digits" if found else "see `tidegate dead groups`")


def _wrong(given: str, problem: str, fix: str) -> OptionError:
    return OptionError(f"fingerprint {given[:40]!r} {problem}", fix=fix, option="fingerprint", value=given)
