"""Decides which episodes begin, open and end. Pure. A condition must hold for a while before its alert opens.

The value must stay clearly below the limit for a while before the alert ends. So a value that moves around
its limit opens one alert, not many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.alerts.rule_settings import RuleSettings
from tidegate.alerts.rules import Measurement
from tidegate.store.alert_rows import ANY, AlertMute, Episode, EpisodeState

Key = tuple[str, str]
"""A rule and a subject."""


@dataclass(slots=True)
class Changes:
    """What one pass changes."""

    saved: list[Episode] = field(default_factory=list)
    """New and changed episodes."""
    dropped: list[Episode] = field(default_factory=list)
    """Pending episodes whose condition does not hold any more."""
    opened: list[Episode] = field(default_factory=list)
    """Episodes whose opening must be sent now."""
    ended: list[Episode] = field(default_factory=list)
    """Episodes whose end must be sent now."""


def apply_pass(
    current: Sequence[Episode],
    measured: Mapping[Key, Measurement],
    *,
    rules: Mapping[str, RuleSettings],
    mutes: Sequence[AlertMute],
    now: float,
    longest_gap: float,
    make_id: Callable[[], str],
) -> Changes:
    """Return what a pass changes.

    Args:
        current: The pending and open episodes, at most one for each rule and subject.
        measured: The values by rule and subject.
        rules: The settings by rule.
        mutes: The mutes in force.
        now: The present moment.
        longest_gap: Seconds. After a longer time without a pass it is unknown what happened in between, so
            the time for which a condition held, or did not hold, starts again.
        make_id: Makes the id of a new episode.
    """
    changes = Changes()
    known = {(each.rule, each.subject): each for each in current}
    for key in {**known, **measured}:
        settings = rules[key[0]].of(key[1]) if key[0] in rules else None
        found = _applicable(measured.get(key), settings)
        episode = known.get(key)
        if episode is None:
            if found is None or settings is None or not found.value > _limit(found, settings):
                continue
            episode = _new_episode(key, found, settings, now, make_id())
        if episode.state is EpisodeState.PENDING:
            _apply_to_pending(episode, found, settings, now, longest_gap, changes, mutes)
        else:
            _apply_to_open(episode, found, settings, now, longest_gap, changes, mutes)
    return changes


def is_muted(mutes: Sequence[AlertMute], rule: str, subject: str) -> bool:
    """Return whether one of these mutes covers a rule and subject."""
    return any(mute.rule in (ANY, rule) and mute.subject in (ANY, subject) for mute in mutes)


def _applicable(found: Measurement | None, settings: RuleSettings | None) -> Measurement | None:
    """Return the measurement; None if the rule is off or the value comes from too few runs."""
    if found is None or settings is None or not settings.is_enabled or found.runs < settings.minimum:
        return None
    return found


def _limit(found: Measurement, settings: RuleSettings) -> float:
    return max(settings.limit, found.least_limit)


def _new_episode(key: Key, found: Measurement, settings: RuleSettings, now: float, made_id: str) -> Episode:
    rule, subject = key
    return Episode(
        id=made_id,
        rule=rule,
        subject=subject,
        state=EpisodeState.PENDING,
        severity=settings.severity,
        first_at=now,
        opened_at=None,
        calm_at=None,
        last_at=now,
        ended_at=None,
        value=found.value,
        threshold=_limit(found, settings),
        detail=found.detail,
        is_notified=False,
    )


def _apply_to_pending(
    episode: Episode,
    found: Measurement | None,
    settings: RuleSettings | None,
    now: float,
    longest_gap: float,
    changes: Changes,
    mutes: Sequence[AlertMute],
) -> None:
    if found is None or settings is None or not found.value > _limit(found, settings):
        changes.dropped.append(episode)
        return
    since = episode.first_at if _continues(episode, now, longest_gap) else now
    episode = _with_value(replace(episode, first_at=since, severity=settings.severity), found, settings, now)
    if now - since < settings.hold_seconds:
        changes.saved.append(episode)
        return
    opened = replace(episode, state=EpisodeState.OPEN, opened_at=now)
    changes.saved.append(_notify_unless_muted(opened, changes, mutes))


def _apply_to_open(
    episode: Episode,
    found: Measurement | None,
    settings: RuleSettings | None,
    now: float,
    longest_gap: float,
    changes: Changes,
    mutes: Sequence[AlertMute],
) -> None:
    if settings is None or not settings.is_enabled:
        _end(episode, now, changes)
        return
    if found is not None and found.value > _limit(found, settings) * settings.clear:
        episode = _with_value(episode, found, settings, now)
        if not episode.is_notified:
            episode = _notify_unless_muted(episode, changes, mutes)
        changes.saved.append(episode)
        return
    has_been_calm = episode.calm_at is not None and _continues(episode, now, longest_gap)
    calm_at = episode.calm_at if has_been_calm and episode.calm_at is not None else now
    episode = replace(episode, calm_at=calm_at, last_at=now)
    if now - calm_at < settings.clear_seconds:
        changes.saved.append(episode)
    else:
        _end(episode, now, changes)


def _continues(episode: Episode, now: float, longest_gap: float) -> bool:
    """Return whether the last pass was recent. A clock that was set back also starts the time again."""
    return 0.0 <= now - episode.last_at <= longest_gap


def _with_value(episode: Episode, found: Measurement, settings: RuleSettings, now: float) -> Episode:
    return replace(
        episode,
        value=found.value,
        threshold=_limit(found, settings),
        detail=found.detail,
        last_at=now,
        calm_at=None,
    )


def _notify_unless_muted(episode: Episode, changes: Changes, mutes: Sequence[AlertMute]) -> Episode:
    if is_muted(mutes, episode.rule, episode.subject):
        return episode
    notified = replace(episode, is_notified=True)
    changes.opened.append(notified)
    return notified


def _end(episode: Episode, now: float, changes: Changes) -> None:
    ended = replace(episode, state=EpisodeState.ENDED, ended_at=now, last_at=now)
    changes.saved.append(ended)
    if ended.is_notified:
        changes.ended.append(ended)
