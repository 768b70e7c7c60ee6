"""The settings of one rule. The values are checked when they are created."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from tidegate.domain.readers import flag_option, number_option, seconds_option, whole_option, wrong
from tidegate.store.alert_rows import Severity

LONGEST_HOLD_SECONDS = 7 * 86_400.0


class Unit(StrEnum):
    """What the value of a rule counts."""

    SECONDS = "seconds"
    COUNT = "count"
    SHARE = "share"
    """0 to 1, shown as percent."""
    FACTOR = "factor"
    """A multiple of what is usual."""


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """The settings of one rule, for all subjects or for one."""

    limit: float
    """The condition holds while the value is above this."""
    severity: Severity = Severity.WARNING
    clear: float = 0.8
    """An alert ends after the value was at most this share of the limit for `clear_seconds`."""
    hold_seconds: float = 0.0
    """The setting `for`: how many seconds the condition must hold before the alert opens."""
    clear_seconds: float = 120.0
    minimum: int = 0
    """The setting `min_runs`: with fewer runs the value means too little, so the condition does not hold."""
    is_enabled: bool = True
    subjects: Mapping[str, RuleSettings] = field(default_factory=dict)
    """Different settings for single subjects, such as a queue or an upstream."""

    def of(self, subject: str) -> RuleSettings:
        """Return the settings that apply to a subject."""
        return self.subjects.get(subject, self)


RULE_KEYS = ("limit", "severity", "clear", "for", "clear_for", "min_runs", "enabled")
"""The settings of a rule, by the names that users write."""


def change_rule(place: str, rule: RuleSettings, values: Mapping[str, Any], *, unit: Unit) -> RuleSettings:
    """Return a rule's settings with some of them changed.

    Args:
        place: The rule's name, for errors.
        rule: The settings so far.
        values: The changes, by the keys of `RULE_KEYS`. Durations may be text.
        unit: The unit of `limit`.

    Raises:
        OptionError: A value is not allowed.
    """
    changes: dict[str, Any] = {}
    if "limit" in values:
        changes["limit"] = _limit(f"{place}.limit", values["limit"], unit)
    if "severity" in values:
        changes["severity"] = _severity(f"{place}.severity", values["severity"])
    if "clear" in values:
        clear = number_option(f"{place}.clear", values["clear"])
        if not 0.0 <= clear <= 1.0:
            raise wrong(f"{place}.clear", clear, "use a share of the limit, from 0 to 1")
        changes["clear"] = clear
    for key, name in (("for", "hold_seconds"), ("clear_for", "clear_seconds")):
        if key in values:
            changes[name] = seconds_option(f"{place}.{key}", values[key], most=LONGEST_HOLD_SECONDS)
    if "min_runs" in values:
        changes["minimum"] = whole_option(f"{place}.min_runs", values["min_runs"])
    if "enabled" in values:
        changes["is_enabled"] = flag_option(f"{place}.enabled", values["enabled"])
    return replace(rule, **changes)


def _limit(option: str, value: Any, unit: Unit) -> float:
    if unit is Unit.SECONDS:
        return seconds_option(option, value)
    limit = number_option(option, value)
    if limit < 0:
        raise wrong(option, value, "use 0 or more")
    if unit is Unit.SHARE and limit > 1.0:
        raise wrong(option, value, "use a share, from 0 to 1: 0.2 for 20%")
    return limit


def _severity(option: str, value: Any) -> Severity:
    try:
        return Severity(value)
    except ValueError:
        raise wrong(option, value, "use warning or critical") from None
