"""Sends the messages that are due, each at least once.

A message is marked as sent after its receiver accepted it. A process that is killed in between leaves the
message claimed. When the claim has run out, another process sends the message again with the same id.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from tidegate.alerts.settings import AlertSettings
from tidegate.alerts.sink_settings import Sink, SlackSink, WebhookSink, target_hash
from tidegate.alerts.sinks import send
from tidegate.alerts.sinks.command import CommandRunner
from tidegate.alerts.sinks.errors import DeliveryError
from tidegate.alerts.sinks.http import post, require_success
from tidegate.store.alert_rows import ClaimedNotice
from tidegate.store.protocol import Store

log = logging.getLogger("tidegate.alerts")

BATCH = 50
GIVE_UP_SECONDS = 3 * 86_400.0
"""How long the delivery of a message is tried before it is given up."""
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 15.0, 3_600.0
_LEASE_MARGIN_SECONDS = 5.0
_PING_SECONDS = 10.0


class Delivery:
    """Sends due messages to the sinks that this process knows.

    Args:
        store: Holds the messages.
        settings: The sinks.
        clock: Seconds since the epoch, for signatures.
        rng: For jitter.
    """

    def __init__(
        self, store: Store, settings: AlertSettings, *, clock: Callable[[], float], rng: random.Random
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._sinks = {sink.name: sink for sink in settings.sinks}
        self._lease = max((_timeout(sink) for sink in settings.sinks), default=0.0) + _LEASE_MARGIN_SECONDS
        self.commands = CommandRunner()
        """The runner of the programs of command sinks."""

    async def send_due(self) -> bool:
        """Send one batch of due messages. Return whether there may be more to do at once.

        Raises:
            StoreError: The store is unreachable. Messages sent in this batch may be sent again.
        """
        disabled = {each.name: each.target for each in await self._store.list_disabled_sinks()}
        usable = [name for name, sink in self._sinks.items() if disabled.get(name) != _target(sink)]
        claimed = await self._store.claim_notices(usable, lease_seconds=self._lease, limit=BATCH)
        await asyncio.gather(*(self._send(each) for each in claimed))
        return len(claimed) == BATCH

    async def ping(self) -> None:
        """Call the dead-man URL, if there is one; log a failure."""
        url = self._settings.ping_url
        if url is None:
            return
        try:
            require_success(
                await post(
                    url,
                    b"",
                    {},
                    method="GET",
                    seconds=_PING_SECONDS,
                    allowed_hosts=self._settings.allowed_hosts,
                )
            )
        except DeliveryError as error:
            log.warning("the dead-man ping failed: %s", error.why)

    async def _send(self, notice: ClaimedNotice) -> None:
        sink = self._sinks[notice.sink]
        try:
            await send(
                sink,
                notice,
                now=self._clock(),
                allowed_hosts=self._settings.allowed_hosts,
                commands=self.commands,
            )
        except DeliveryError as error:
            await self._record_failure(sink, notice, error)
        else:
            await self._store.finish_notice(notice.id)

    async def _record_failure(self, sink: Sink, notice: ClaimedNotice, error: DeliveryError) -> None:
        if error.is_gone:
            log.error("sink %s (%s) is not used any more: %s", sink.name, sink.target, error.why)
            await self._store.disable_sink(sink.name, _target(sink), error.why)
        is_old = await self._store.now() - notice.created_at > GIVE_UP_SECONDS
        wait = None if error.is_gone or is_old else self._wait(notice.attempts, error.wait_seconds)
        log.warning(
            "a message to sink %s (%s) was not delivered: %s; %s",
            sink.name,
            sink.target,
            error.why,
            "it is given up" if wait is None else f"next attempt in {wait:.0f} s",
        )
        await self._store.retry_notice(notice.id, error.why, seconds=wait)

    def _wait(self, attempts: int, asked: float | None) -> float:
        """Return the seconds until the next attempt: twice as many each time, at least what is asked."""
        seconds = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2.0 ** min(attempts - 1, 20))
        return max(seconds * (0.8 + 0.4 * self._rng.random()), asked or 0.0)


def _timeout(sink: Sink) -> float:
    return getattr(sink, "timeout", 0.0)


def _target(sink: Sink) -> str:
    return target_hash(sink.url) if isinstance(sink, WebhookSink | SlackSink) else sink.name
