"""How a call ended that broke off, and how its permit is settled whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any

from tidegate.calls.settings import CallSettings
from tidegate.domain.calls import CallResult
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.errors import StoreError
from tidegate.providers.understand import understand

_log = logging.getLogger("tidegate.calls")
_POOL_TIMEOUT = "PoolTimeout"
"""The class of an error that is no fact about the upstream: the client's own connections are all in use."""
_GATEWAY_GAVE_UP = frozenset({408, 504, 522, 524})
"""Answers of somebody in between: whether the model did its work is not known."""


def result_of_error(error: BaseException, settings: CallSettings, *, seconds: float) -> CallResult:
    """Return how a call ended that raised after it was sent, or was to be sent."""
    failure = _understood(error, settings)
    return CallResult(
        failure=failure,
        status=failure.status,
        seconds=seconds,
        is_in_doubt=failure.status is None and not failure.is_unsent,
    )


def is_pool_timeout(error: BaseException) -> bool:
    """Return whether the request only ever waited for one of our own connections."""
    return any(kind.__name__ == _POOL_TIMEOUT for kind in type(error).__mro__)


def _understood(error: BaseException, settings: CallSettings) -> Failure:
    """Return what an error means. Never raises."""
    try:
        return understand(error, now=time.time(), provider=settings.provider_name)
    except Exception:
        # The permit must be given back whatever a stranger's exception does.
        return Failure(Verdict.UNKNOWN, Reason.UNKNOWN, evidence="could not be understood")


def is_in_doubt(status: int) -> bool:
    """Return whether an answer leaves open if the work was done."""
    return status in _GATEWAY_GAVE_UP


_settling: set[asyncio.Future[None]] = set()
"""Referenced, so that those whose caller was cancelled still come to their end."""


async def run_to_end(work: Coroutine[Any, Any, None]) -> None:
    """Await the end of a permit, also while the caller is being cancelled.

    If the store cannot be reached it is only told of in the log: the answer is there and must not be lost,
    and the permit comes back by its lease.
    """
    await asyncio.shield(run_in_background(work))


def run_in_background(work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
    """Do this of a permit beside the call, and only tell in the log if the store cannot be reached."""
    settling = asyncio.ensure_future(_tolerant(work))
    _settling.add(settling)
    settling.add_done_callback(_settling.discard)
    return settling


async def _tolerant(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except StoreError as error:
        _log.warning("a permit could not be settled: %s", error)
