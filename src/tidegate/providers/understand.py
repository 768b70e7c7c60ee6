"""Decides what an exception or response means. This is the only entry point to the packs.

HTTP evidence takes precedence over class names, because some clients' 401 is an `OSError` too. Among explicit
causes the most specific evidence decides. An implicit context is used only if the exception and its causes
show nothing, because it may be an error that was already handled.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace

from tidegate.domain.failure import MESSAGE_LIMIT, Failure
from tidegate.domain.text import redacted_text
from tidegate.providers.evidence import Evidence, evidence_of_answer, read_evidence
from tidegate.providers.general import CLIENT_FAULTS, of_class_name
from tidegate.providers.judging import class_names, judged
from tidegate.providers.meaning import NETWORK, NOTHING_KNOWN, TIMEOUT, Finding, Meaning
from tidegate.providers.pack import Pack
from tidegate.providers.packs import GENERAL, pack_for
from tidegate.providers.texts import sharpened
from tidegate.providers.unsent import never_sent
from tidegate.providers.waits import Headers, server_wait

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


def understand(exc: BaseException, *, now: float, provider: str = "") -> Failure:
    """Return what the exception means; unknown if nothing shows it.

    Args:
        exc: The exception, with its chain of causes and contexts.
        now: Seconds since the epoch, UTC.
        provider: The provider that the task's upstream declares. The response's host and the exception's SDK
            take precedence over it.
    """
    if not isinstance(exc, Exception) and of_class_name(type(exc).__name__) is None:
        # SystemExit, KeyboardInterrupt and the like end the function, so their causes explain nothing.
        return Failure(*NOTHING_KNOWN, evidence=f"{type(exc).__name__} raised by the task function")
    causes, contexts = chain(exc)
    for links in (causes, contexts):
        found = _from_answers(links, now, provider) or _from_classes(links, [*causes, *contexts])
        if found is not None:
            failure, link = found
            if failure.status is None and never_sent(links):
                failure = replace(failure, is_unsent=True)
            return failure if link is exc else _about(failure, link)
    nothing = Finding(NOTHING_KNOWN, f"nothing known of {type(exc).__name__}")
    return _failure(read_evidence(exc), nothing, GENERAL, now)


def understand_answer(
    status: int | None,
    headers: Headers,
    body: object,
    *,
    now: float,
    provider: str = "",
    host: str = "",
) -> Failure | None:
    """Return what a response means; None if it is a success or shows nothing.

    Args:
        status: The HTTP status; None for a piece of a stream that reports an error.
        headers: The headers, in any form that `server_wait` accepts.
        body: JSON as values, text or bytes; None if it was not read.
        now: Seconds since the epoch, UTC.
        provider: The provider that the upstream declares. The host takes precedence over it.
        host: The host that answered.
    """
    evidence = evidence_of_answer(status, headers, body, host=host)
    pack = pack_for(host=host, provider=provider)
    finding = judged(evidence, pack)
    if finding is None:
        return None
    return replace(
        _failure(evidence, finding, pack, now), message=redacted_text(evidence.text, MESSAGE_LIMIT)
    )


def chain(exc: BaseException) -> tuple[list[BaseException], list[BaseException]]:
    """Return two lists: the exception with its explicit causes, and the implicit contexts behind them."""
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


def _from_answers(
    links: Sequence[BaseException], now: float, provider: str
) -> tuple[Failure, BaseException] | None:
    """Return the first decisive HTTP evidence of the links, else the first of any kind."""
    best: tuple[Evidence, Finding, Pack, BaseException] | None = None
    for link in links:
        evidence = read_evidence(link)
        pack = pack_for(host=evidence.host, modules=evidence.modules, provider=provider)
        finding = judged(evidence, pack)
        if finding is not None and (best is None or (finding.decisive and not best[1].decisive)):
            best = evidence, finding, pack, link
    return None if best is None else (_failure(*best[:3], now), best[3])


def _from_classes(
    links: Sequence[BaseException], whole: Sequence[BaseException]
) -> tuple[Failure, BaseException] | None:
    for link in links:
        meaning, name = _of_class(link)
        if meaning is None:
            continue
        unsent = never_sent(links)
        if unsent and meaning == TIMEOUT:
            meaning, name = NETWORK, unsent
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
    evidence = read_evidence(exc)
    of_pack = pack_for(modules=evidence.modules).classes
    for name in class_names(exc):
        if meaning := of_pack.get(name):
            return sharpened(Finding(meaning, name), evidence.text).meaning, name
        if meaning := of_class_name(name):
            return meaning, name
    if isinstance(exc, OSError) and exc.errno in _NETWORK_ERRNOS:
        return NETWORK, f"{type(exc).__name__} with errno {exc.errno}"
    return None, ""


def _failure(evidence: Evidence, finding: Finding, pack: Pack, now: float) -> Failure:
    code = finding.code or next((code for code in evidence.codes if code != str(evidence.status)), "")
    body = {"message": evidence.text} if evidence.document is None else evidence.document
    wait = server_wait(evidence.headers, now=now, body=body)
    return Failure(
        *finding.meaning,
        wait_seconds=pack.read_wait(evidence, now, wait) if pack.read_wait is not None else wait,
        status=evidence.status,
        code=redacted_text(code, _SHORT),
        request_id=redacted_text(evidence.request_id, _SHORT),
        evidence=finding.by,
    )


def _about(failure: Failure, link: BaseException) -> Failure:
    return replace(failure, evidence=f"{failure.evidence} (in {type(link).__name__})")
