"""Decides what the evidence of one response means: by the provider's pack first, then by the general tables.

The most specific evidence decides: a code, then the status, a number used as a code, a vague code, and the
response's finish reason last. The text only makes the reason more specific (`texts.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.providers.endings import ending_of
from tidegate.providers.evidence import Evidence
from tidegate.providers.general import (
    DECISIVE_CODES,
    TOO_LARGE_FOR_NOW,
    VAGUE_CODES,
    is_money,
    of_status,
)
from tidegate.providers.meaning import INVALID, NO_MONEY, NOTHING_KNOWN, SERVER_ERROR, Finding, code_key
from tidegate.providers.pack import Pack
from tidegate.providers.texts import sharpened

_STATUS_OVER_CODE = frozenset({402, 413})
"""With these statuses a code that means "later" is wrong: there is no money, or the request is too large."""


def judged(evidence: Evidence, pack: Pack) -> Finding | None:
    """Return what the evidence means by this pack; None if it shows nothing."""
    if evidence.status is None and evidence.document is None and not pack.judge:
        # A code on an error without a response may be the user's own.
        return None
    finding = _found(evidence, pack)
    return None if finding is None else sharpened(finding, evidence.text)


def class_names(source: object) -> Iterator[str]:
    """Yield the names of an exception's classes, the nearest first, without the built-in base classes."""
    for kind in type(source).__mro__:
        if kind not in (Exception, BaseException, object):
            yield kind.__name__


def _found(evidence: Evidence, pack: Pack) -> Finding | None:
    if pack.judge is not None and (finding := pack.judge(evidence)) is not None:
        return finding
    if evidence.status is None and evidence.document is None:
        return None
    return (
        _by_code(evidence, pack)
        or _by_status(evidence, pack)
        or _by_number(evidence)
        or _by_vague_code(evidence)
        or (ending_of(evidence.document) if evidence.document is not None else None)
    )


def _by_code(evidence: Evidence, pack: Pack) -> Finding | None:
    named = list(_named(evidence))
    for key, code, by in named:
        if meaning := pack.codes.get(key):
            return Finding(meaning, by, code, decisive=True)
    for key, code, by in named:
        if is_money(key):
            return Finding(NO_MONEY, by, code, decisive=True)
    if evidence.status in _STATUS_OVER_CODE:
        return None
    for key, code, by in named:
        if meaning := DECISIVE_CODES.get(key):
            return Finding(meaning, by, code, decisive=True)
    return None


def _named(evidence: Evidence) -> Iterator[tuple[str, str, str]]:
    """Yield (key, code, where the code was read)."""
    for code in evidence.codes:
        yield code_key(code), code, f"code {code}"
    if evidence.source is not None and evidence.status is not None and evidence.status >= 400:
        # SDKs have classes for some codes. Without a status it could be a user's own class of that name.
        for name in class_names(evidence.source):
            yield code_key(name), "", f"class {name}"


def _by_status(evidence: Evidence, pack: Pack) -> Finding | None:
    status = evidence.status
    if status is None or (meaning := pack.statuses.get(status) or of_status(status)) is None:
        return None
    by = f"status {status}"
    if status == 403 and evidence.is_page:
        return Finding(NOTHING_KNOWN, f"{by} with a page: an edge answered, which proves nothing")
    if status == 413 and evidence.header("retry-after") is not None:
        return Finding(TOO_LARGE_FOR_NOW, f"{by} with Retry-After")
    if meaning == INVALID and evidence.header("x-should-retry") == "true":
        return Finding(SERVER_ERROR, f"{by} with x-should-retry")
    return Finding(meaning, by)


def _by_number(evidence: Evidence) -> Finding | None:
    """Read a code that is an HTTP status, as in errors in a stream that began with 200."""
    for code in evidence.codes:
        if len(code) == 3 and code.isascii() and code.isdigit() and code < "600":
            meaning = of_status(int(code))
            if meaning is not None:
                return Finding(meaning, f"code {code}", code)
    return None


def _by_vague_code(evidence: Evidence) -> Finding | None:
    for code in evidence.codes:
        if meaning := VAGUE_CODES.get(code_key(code)):
            return Finding(meaning, f"code {code}", code)
    return None
