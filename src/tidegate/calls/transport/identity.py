"""Gives each call of a task an identity that is the same when the task runs again and repeats the call.

The identity of a call is its task or step, its content (method, URL and body), and its number among the equal
calls of its run. Idempotency keys and recorded calls use it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter, defaultdict
from collections.abc import MutableMapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any
from weakref import WeakKeyDictionary

from tidegate.calls.transport.libraries import content_of
from tidegate.context import current_context
from tidegate.steps import current_step


@dataclass(frozen=True, slots=True)
class CallIdentity:
    """Identifies one call of a task in each of its runs."""

    work: str
    """The task, or the idempotency key of the step that makes the call."""
    content: str
    """The digest of the method, the URL and the body."""
    number: int
    """The call's number among the equal calls of its run (or step), from 1."""

    @property
    def idempotency_key(self) -> str:
        """What identifies the call for the provider."""
        named = f"{self.work} {self.content} {self.number}"
        return f"tg-{hashlib.sha256(named.encode()).hexdigest()[:32]}"


class _Numbers:
    """Numbers equal calls from 1. May be used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._released: defaultdict[tuple[str, str], list[int]] = defaultdict(list)

    def take(self, call: tuple[str, str]) -> int:
        with self._lock:
            if self._released[call]:
                return heappop(self._released[call])
            self._counts[call] += 1
            return self._counts[call]

    def release(self, call: tuple[str, str], number: int) -> None:
        with self._lock:
            heappush(self._released[call], number)


_numbers: MutableMapping[object, _Numbers] = WeakKeyDictionary()
"""The numbers of each run, and of each execution of a step."""
_lock = threading.Lock()


def identify_call(request: Any, numbered_in: object | None = None) -> CallIdentity | None:
    """Return the identity of the call that the current run makes now.

    Args:
        request: The request, before anything is added to it.
        numbered_in: What the equal calls are numbered in. None: the current step or, outside steps, the run.

    Returns:
        None outside a task, and for an upload that is not read yet: two different uploads must never count
        as one call.
    """
    run, step, body = current_context(), current_step(), content_of(request)
    if run is None or body is None:
        return None
    parts = (request.method.encode(), str(request.url).encode(), body)
    content = hashlib.sha256(b"\0".join(parts)).hexdigest()
    work = run.task_id if step is None else step.idempotency_key
    number = _numbers_in(numbered_in or step or run).take((work, content))
    return CallIdentity(work, content, number)


def release_number(identity: CallIdentity, numbered_in: object) -> None:
    """Give the number of a call that failed to the next equal call, which repeats it."""
    _numbers_in(numbered_in).release((identity.work, identity.content), identity.number)


def _numbers_in(owner: object) -> _Numbers:
    with _lock:
        return _numbers.setdefault(owner, _Numbers())
