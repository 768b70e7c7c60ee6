"""Fingerprints as people give them: complete, or the first digits."""

from __future__ import annotations

import re

from tidegate.errors import OptionError
from tidegate.store.protocol import Store

LENGTH = 16
_DIGITS = re.compile(r"[0-9a-f]{4,16}")


async def optional_fingerprint(store: Store, given: str | None) -> str | None:
    """Return the fingerprint with these first digits; None for None.

    Raises:
        OptionError: For the same reasons as in `full_fingerprint`.
    """
    return None if given is None else await full_fingerprint(store, given)


async def known_fingerprint(store: Store, given: str) -> str:
    """Return the fingerprint with these first digits, if a group of failures has it.

    Raises:
        OptionError: For the same reasons as in `full_fingerprint`, and if no group has this fingerprint.
    """
    full = await full_fingerprint(store, given)
    if not await store.find_fingerprints(full):
        raise _unknown(given)
    return full


async def full_fingerprint(store: Store, given: str) -> str:
    """Return the fingerprint with these first digits. A complete fingerprint need not be known.

    Raises:
        OptionError: The text is no fingerprint, or not exactly one group of failures has these first digits.
    """
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
    if not found:
        raise _unknown(given)
    raise _wrong(given, "belongs to several groups of failures", "give more digits")


def _unknown(given: str) -> OptionError:
    return _wrong(given, "belongs to no group of failures", "see `tidegate dead groups`")


def _wrong(given: str, problem: str, fix: str) -> OptionError:
    return OptionError(f"fingerprint {given[:40]!r} {problem}", fix=fix, option="fingerprint", value=given)
