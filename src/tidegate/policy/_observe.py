"""The verdict that an exception and the chain behind it give by themselves, nobody asked.

HTTP evidence decides before class names: many a client's 401 is also an `OSError`. Along explicit causes
the most specific evidence wins; an implicit context only speaks where the exception and its causes are
silent, since it may be an error that was dealt with.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tidegate.domain.failure import Failure
from tidegate.policy._evidence import Evidence, read_evidence
from tidegate.policy._meanings import (
    CLIENT_FAULTS,
    DECISIVE_CODES,
    NETWORK,
    NO_MONEY,
    NOTHING_KNOWN,
    TOO_LARGE_FOR_NOW,
    VAGUE_CODES,
    Meaning,
    code_key,
    is_money,
    of_class_name,
    of_status,
)
from tidegate.policy.describe import storable
from tidegate.policy.waits import server_wait

_LONGEST_CHAIN = 50
_SHORT = 200
_NETWORK_ERRNOS = frozenset(
    {
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.EPIPE,
        errno.ETIMEDOUT,
    }
)
_STATUS_OVER_CODE = frozenset({402, 413})
"""Beside these a code that says "later" is about something else: no money, or larger than the bucket."""


class _Finding(NamedTuple):
    meaning: Meaning
    by: str
    """In a few words, for `Failure.evidence`."""
    code: str = ""
    decisive: bool = False
    """A code said so, rather than a status or a class."""


def observe(exc: BaseException, *, now: float) -> Failure:
    """Return what the exception says by itself; unknown where nothing does."""
    if not isinstance(exc, Exception) and of_class_name(type(exc).__name__) is None:
        # SystemExit, KeyboardInterrupt and the like: the body was ended, its causes explain nothing.
        return Failure(*NOTHING_KNOWN, evidence=f"{type(exc).__name__} raised by the body")
    causes, contexts = chain(exc)
    for links in (causes, contexts):
        found = _from_answers(links, now) or _from_classes(links, [*causes, *contexts])
        if found is not None:
            failure, link = found
            return failure if link is exc else _about(failure, link)
    nothing = _Finding(NOTHING_KNOWN, f"nothing known of {type(exc).__name__}")
    return _failure(read_evidence(exc), nothing, now)


def chain(exc: BaseException) -> tuple[list[BaseException], list[BaseException]]:
    """Return the exception with its explicit causes, and what is only known as context of those."""
    links: tuple[list[BaseException], list[BaseException]] = ([], [])
    seen: set[int] = set()
    explicit = True
    link: BaseException | None = exc
    while link is not None and id(link) not in seen and len(seen) < _LONGEST_CHAIN:
        seen.add(id(link))
        links[0 if explicit else 1].append(link)
        cause = link.__cause__
        explicit = explicit and cause is not None
        context = None if link.__suppress_context__ else link.__context__
        link = context if cause is None else cause
    return links


def _from_answers(links: Sequence[BaseException], now: float) -> tuple[Failure, BaseException] | None:
    """Return the first decisive HTTP evidence of the links, else the first of any kind."""
    best: tuple[Evidence, _Finding, BaseException] | None = None
    for link in links:
        evidence = read_evidence(link)
        finding = _judged(link, evidence)
        if finding is not None and (best is None or (finding.decisive and not best[1].decisive)):
            best = evidence, finding, link
    return None if best is None else (_failure(best[0], best[1], now), best[2])


def _judged(link: BaseException, evidence: Evidence) -> _Finding | None:
    if evidence.status is None and evidence.document is None:
        # A code on an error that carries no answer may be of the user's own making.
        return None
    return (
        _by_decisive_code(link, evidence)
        or _by_status(evidence)
        or _by_number(evidence)
        or _by_vague_code(evidence)
    )


def _by_decisive_code(link: BaseException, evidence: Evidence) -> _Finding | None:
    named = [(code_key(code), code, f"code {code}") for code in evidence.codes]
    if evidence.status is not None and evidence.status >= 400:
        # SDKs give some codes a class; without a status a user's own class might bear such a name.
        named.extend((code_key(name), "", f"class {name}") for name in _class_names(link))
    for key, code, by in named:
        if is_money(key):
            return _Finding(NO_MONEY, by, code, decisive=True)
    if evidence.status in _STATUS_OVER_CODE:
        return None
    for key, code, by in named:
        if meaning := DECISIVE_CODES.get(key):
            return _Finding(meaning, by, code, decisive=True)
    return None


def _by_status(evidence: Evidence) -> _Finding | None:
    if evidence.status is None or (meaning := of_status(evidence.status)) is None:
        return None
    by = f"status {evidence.status}"
    if evidence.status == 403 and evidence.is_page:
        return _Finding(NOTHING_KNOWN, f"{by} with a page: an edge answered, which proves nothing")
    if evidence.status == 413 and any(name == "retry-after" for name, _ in evidence.headers):
        return _Finding(TOO_LARGE_FOR_NOW, f"{by} with Retry-After")
    return _Finding(meaning, by)


def _by_number(evidence: Evidence) -> _Finding | None:
    """Judge a code that is an HTTP status: errors in a stream that began with 200 come so."""
    for code in evidence.codes:
        if len(code) == 3 and code.isascii() and code.isdigit() and code < "600":
            meaning = of_status(int(code))
            if meaning is not None:
                return _Finding(meaning, f"code {code}", code)
    return None


def _by_vague_code(evidence: Evidence) -> _Finding | None:
    for code in evidence.codes:
        if meaning := VAGUE_CODES.get(code_key(code)):
            return _Finding(meaning, f"code {code}", code)
    return None


def _from_classes(
    links: Sequence[BaseException], whole: Sequence[BaseException]
) -> tuple[Failure, BaseException] | None:
    for link in links:
        meaning, name = _of_class(link)
        if meaning is None:
            continue
        fault = _client_fault(whole) if meaning == NETWORK else None
        return fault or (Failure(*meaning, evidence=f"class {name}"), link)
    return None


def _client_fault(links: Sequence[BaseException]) -> tuple[Failure, BaseException] | None:
    for link in links:
        meaning, name = _of_class(link)
        if meaning in CLIENT_FAULTS:
            return Failure(*meaning, evidence=f"class {name}"), link
    return None


def _of_class(exc: BaseException) -> tuple[Meaning | None, str]:
    for name in _class_names(exc):
        if meaning := of_class_name(name):
            return meaning, name
    if isinstance(exc, OSError) and exc.errno in _NETWORK_ERRNOS:
        return NETWORK, f"{type(exc).__name__} with errno {exc.errno}"
    return None, ""


def _class_names(exc: BaseException) -> Iterator[str]:
    for kind in type(exc).__mro__:
        if kind not in (Exception, BaseException, object):
            yield kind.__name__


def _failure(evidence: Evidence, finding: _Finding, now: float) -> Failure:
    code = finding.code or next((code for code in evidence.codes if code != str(evidence.status)), "")
    return Failure(
        *finding.meaning,
        wait_seconds=server_wait(evidence.headers, now=now, body=evidence.document),
        status=evidence.status,
        code=storable(code, _SHORT),
        request_id=storable(evidence.request_id, _SHORT),
        evidence=finding.by,
    )


def _about(failure: Failure, link: BaseException) -> Failure:
    return replace(failure, evidence=f"{failure.evidence} (in {type(link).__name__})")
