"""Reports the dead tasks of each day once: one process makes the messages, the sinks of alerts send them."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date, timedelta

from tidegate.alerts.messages import body_of, notice
from tidegate.alerts.settings import AlertSettings
from tidegate.deadletter.daily_summary import DailySummary, read_summary
from tidegate.policy.daily import DailyTime
from tidegate.store.protocol import Store

KIND = "summary.daily"
_KEPT_DAYS = 400


class DailySummaryJob:
    """Reports a day when its summary is due, unless another process has reported it.

    Args:
        store: An open store.
        settings: The time of day, and the sinks.
    """

    def __init__(self, store: Store, settings: AlertSettings) -> None:
        self._store = store
        self._sinks = settings.sinks
        self._done = ""

    async def report_if_due(self, at: DailyTime) -> bool:
        """Make the messages of the last due day, unless another process has made them.

        Return whether this process made them. A store without counters from before that day is not reported:
        its first day is not over.
        """
        day, due = at.last_due(await self._store.now())
        if day == self._done:
            return False
        if await self._store.is_day_reported(day):
            self._done = day
            return False
        since = await self._store.counted_since()
        if since is None or since * 60.0 >= due:
            return False
        summary = await read_summary(self._store, due)
        notices = [
            notice(sink.name, f"summary {day}", KIND, _body(day, summary))
            for sink in self._sinks
            if sink.sends_alerts and not summary.is_empty
        ]
        keep_from = (date.fromisoformat(day) - timedelta(days=_KEPT_DAYS)).isoformat()
        is_first = await self._store.claim_daily_summary(day, keep_from=keep_from, notices=notices)
        self._done = day
        return is_first


def _body(day: str, summary: DailySummary) -> str:
    facts = asdict(summary) | {"day": day, "text": f"[summary of {day}] {summary.text}"}
    return body_of(KIND, summary.until, facts)
