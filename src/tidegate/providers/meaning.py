"""What one piece of evidence says: the vocabulary in which the packs' tables are written."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from tidegate.domain.failure import Reason, Verdict


class Meaning(NamedTuple):
    """What one piece of evidence says."""

    verdict: Verdict
    reason: Reason


class Finding(NamedTuple):
    """A meaning, and what it was read from."""

    meaning: Meaning
    by: str
    """In a few words, for `Failure.evidence`."""
    code: str = ""
    decisive: bool = False
    """A code said so, rather than a status or a class."""


def _transient(reason: Reason) -> Meaning:
    return Meaning(Verdict.TRANSIENT, reason)


def _permanent(reason: Reason) -> Meaning:
    return Meaning(Verdict.PERMANENT, reason)


NOTHING_KNOWN = Meaning(Verdict.UNKNOWN, Reason.UNKNOWN)
MAYBE_DONE = Meaning(Verdict.UNKNOWN, Reason.SERVER_ERROR)
"""The change may have happened: a blind repeat could do it twice."""

RATE_LIMIT = _transient(Reason.RATE_LIMIT)
OVERLOADED = _transient(Reason.OVERLOADED)
USED_UP = _transient(Reason.QUOTA)
"""A quota that comes back by itself, at midnight say."""
TIMEOUT = _transient(Reason.TIMEOUT)
NETWORK = _transient(Reason.NETWORK)
SERVER_ERROR = _transient(Reason.SERVER_ERROR)
CANCELLED = _transient(Reason.CANCELLED)
INVALID_OUTPUT = _transient(Reason.INVALID_OUTPUT)
"""What a model wrote does not have the form that was asked for: another answer may."""
AUTH_FOR_NOW = _transient(Reason.AUTH)

NO_MONEY = _permanent(Reason.QUOTA)
INVALID = _permanent(Reason.INVALID_REQUEST)
AUTH = _permanent(Reason.AUTH)
NOT_FOUND = _permanent(Reason.NOT_FOUND)
TOO_LARGE = _permanent(Reason.TOO_LARGE)
CONTENT_POLICY = _permanent(Reason.CONTENT_POLICY)
CONTEXT_LENGTH = _permanent(Reason.CONTEXT_LENGTH)
CUT_OFF_BY_SETTING = _permanent(Reason.NETWORK)
"""The network is there, but this set-up never gets through it: a refused certificate, offline mode."""


def table(*rows: tuple[Meaning, str]) -> Mapping[str, Meaning]:
    """Return the meanings by word, from rows of one meaning and all words that have it."""
    return MappingProxyType({word: meaning for meaning, words in rows for word in words.split()})


def code_key(code: str) -> str:
    """Return the form under which a code is looked up, the same for all ways of writing it.

    `rate_limit_error`, `RateLimitError` and `rate-limit` are one; a name space before `#` and an AWS
    suffix after `:` do not count.
    """
    bare = code.rpartition("#")[2].partition(":")[0]
    key = "".join(letter for letter in bare.lower() if letter.isascii() and letter.isalnum())
    for ending in ("exception", "error"):
        if key.endswith(ending) and key != ending:
            return key.removesuffix(ending)
    return key


def codes(*rows: tuple[Meaning, str]) -> Mapping[str, Meaning]:
    """Return the meanings by `code_key`, from rows of one meaning and its codes as they are documented."""
    return MappingProxyType({code_key(word): meaning for meaning, words in rows for word in words.split()})
