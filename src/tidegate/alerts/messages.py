"""Makes the messages about alerts: JSON for programs, with a text for people.

A message never contains arguments, results, messages of errors, or secrets.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from tidegate.alerts.rules import RULES, format_value
from tidegate.alerts.sink_settings import Sink
from tidegate.domain.text import format_duration, one_line
from tidegate.store.alert_rows import Episode, EpisodeState, NewNotice, Severity

OPENED, ENDED, TEST = "alert.opened", "alert.ended", "alert.test"
_MOST_CHARACTERS = 500


def describe(episode: Episode) -> str:
    """Return one line that describes an alert, with its number and limit."""
    rule = RULES.get(episode.rule)
    if rule is None:  # a newer version of Tidegate opened the alert
        return one_line(f"{episode.rule} {episode.subject}: {episode.value:g}, limit {episode.threshold:g}")
    text = rule.describe(episode.subject, episode.value)
    limit = "" if episode.threshold == 0 else f" (limit {format_value(rule.unit, episode.threshold)})"
    detail = f"; {episode.detail}" if episode.detail else ""
    return _short(one_line(text + limit + detail))


def command_of(episode: Episode) -> str:
    """Return the command that shows more about an alert."""
    rule = RULES.get(episode.rule)
    return "tidegate status" if rule is None else one_line(rule.show_command(episode.subject))


def text_of(episode: Episode) -> str:
    """Return the whole message for people, in one line."""
    if episode.state is EpisodeState.ENDED:
        began = episode.opened_at if episode.opened_at is not None else episode.first_at
        lasted = format_duration(max(0.0, (episode.ended_at or began) - began))
        return f"[ended] {describe(episode)}; it lasted {lasted}"
    return (
        f"[{episode.severity}] {describe(episode)}; since {_clock(episode.first_at)};"
        f" more: {command_of(episode)}"
    )


def notices_of(opened: Iterable[Episode], ended: Iterable[Episode], sinks: Sequence[Sink]) -> list[NewNotice]:
    """Return one notice for each sink that gets alerts. The id of a notice is derived from its content."""
    return [
        notice(each.name, episode.id, kind, alert_body(kind, episode))
        for kind, episodes in ((OPENED, opened), (ENDED, ended))
        for episode in episodes
        for each in sinks
        if each.sends_alerts
    ]


def notice(sink: str, about: str, kind: str, body: str) -> NewNotice:
    """Return a notice. The same message to the same sink always has the same id."""
    digest = hashlib.sha256(f"{sink}\0{about}\0{kind}".encode()).hexdigest()
    return NewNotice(f"msg_{digest[:32]}", sink, about, kind, body)


def alert_body(kind: str, episode: Episode) -> str:
    """Return the JSON of a message about an alert."""
    rule = RULES.get(episode.rule)
    data = {
        "id": episode.id,
        "rule": episode.rule,
        "about": "" if rule is None else str(rule.about),
        "subject": episode.subject,
        "severity": str(episode.severity),
        "state": str(episode.state),
        "value": _finite(episode.value),
        "limit": _finite(episode.threshold),
        "unit": "" if rule is None else str(rule.unit),
        "since": moment(episode.first_at),
        "opened_at": moment(episode.opened_at),
        "ended_at": moment(episode.ended_at),
        "text": text_of(episode),
        "command": command_of(episode),
    }
    at = episode.ended_at if kind == ENDED else episode.opened_at
    return body_of(kind, at if at is not None else episode.last_at, data)


def test_body(now: float) -> str:
    """Return the JSON of a test message for a sink."""
    text = "[test] Tidegate can send alerts here; nothing is wrong"
    return body_of(TEST, now, {"text": text, "severity": str(Severity.WARNING)})


def body_of(kind: str, at: float, data: dict[str, Any]) -> str:
    """Return the JSON of a message in the form of Standard Webhooks: type, timestamp and data."""
    return msgspec.json.encode({"type": kind, "timestamp": moment(at), "data": data}).decode()


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def moment(at: float | None) -> str | None:
    """Return a moment in the form of the messages: ISO 8601 in UTC; None for None."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
