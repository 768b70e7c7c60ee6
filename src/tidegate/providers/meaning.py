"""The meanings that the tables of packs refer to: a verdict and a reason for one piece of evidence."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from tidegate.domain.failure import Reason, Verdict


class Meaning(NamedTuple):
    """What one piece of evidence means."""

    verdict: Verdict
    reason: Reason


class Finding(NamedTuple):
    """A meaning and its evidence."""

    meaning: Meaning
    by: str
    """The evidence in a few words, for `Failure.evidence`."""
    code: str = ""
    decisive: bool = False
    """Whether a code decided the meaning, and not a status or a class."""


def _transient(reason: Reason) -> Meaning:
    return Meaning(Verdict.TRANSIENT, reason)


def _permanent(reason: Reason) -> Meaning:
    return Meaning(Verdict.PERMANENT, reason)


NOTHING_KNOWN = Meaning(Verdict.UNKNOWN, Reason.UNKNOWN)
MAYBE_DONE = Meaning(Verdict.UNKNOWN, Reason.SERVER_ERROR)
"""The work may have been done: a retry could do it twice."""

RATE_LIMIT = _transient(Reason.RATE_LIMIT)
OVERLOADED = _transient(Reason.OVERLOADED)
USED_UP = _transient(Reason.QUOTA)
"""A quota that resets by itself, at midnight for example."""
TIMEOUT = _transient(Reason.TIMEOUT)
NETWORK = _transient(Reason.NETWORK)
SERVER_ERROR = _transient(Reason.SERVER_ERROR)
CANCELLED = _transient(Reason.CANCELLED)
INVALID_OUTPUT = _transient(Reason.INVALID_OUTPUT)
"""The model's output does not have the requested form. Another output may."""
AUTH_FOR_NOW = _transient(Reason.AUTH)

NO_MONEY = _permanent(Reason.QUOTA)
INVALID = _permanent(Reason.INVALID_REQUEST)
AUTH = _permanent(Reason.AUTH)
NOT_FOUND = _permanent(Reason.NOT_FOUND)
TOO_LARGE = _permanent(Reason.TOO_LARGE)
CONTENT_POLICY = _permanent(Reason.CONTENT_POLICY)
CONTEXT_LENGTH = _permanent(Reason.CONTEXT_LENGTH)
CUT_OFF_BY_SETTING = _permanent(Reason.NETWORK)
"""The network works, but not with this configuration: a refused certificate, or offline mode."""


def table(*rows: tuple[Meaning, str]) -> Mapping[str, Meaning]:
    """Return the meanings by word, from rows of a meaning and its words."""
    return MappingProxyType({word: meaning for meaning, words in rows for word in words.split()})


def code_key(code: str) -> str:
    """Return the key of a code in the tables, which is the same for all its spellings.

    `rate_limit_error`, `RateLimitError` and `rate-limit` have the same key. A name space before `#` and an
    AWS suffix after `:` are ignored.
    """
    bare = code.rpartition("#")[2].partition(":")[0]
    key = "".join(letter for letter in bare.lower() if letter.isascii() and letter.isalnum())
    for ending in ("exception", "error"):
        if key.endswith(ending) and key != ending:
            return key.removesuffix(ending)
    return key


def codes(*rows: tuple[Meaning, str]) -> Mapping[str, Meaning]:
    """Return the meanings by `code_key`, from rows of a meaning and its codes as documented."""
    return MappingProxyType({code_key(word): meaning for meaning, words in rows for word in words.split()})
