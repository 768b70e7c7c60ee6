"""The settings of a schedule that users write, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from tidegate.domain.readers import (
    choice_option,
    name_option,
    positive_option,
    seconds_option,
    whole_option,
    wrong,
)
from tidegate.domain.schedule import CatchUp, Overlap, ScheduleRule
from tidegate.errors import OptionError
from tidegate.policy.ticks import LONGEST_INTERVAL_SECONDS, cron_option, timezone_option

CatchUpName = Literal["none", "one", "all"]
OverlapName = Literal["skip", "queue", "allow"]
MOST_CAUGHT_UP = 1_000
_EVERY = re.compile(r"every\s+(\S.*)")
_WHEN_FIX = 'write cron, such as "0 7 * * 1-5", or an interval, such as "every 30s"'


RULE_SETTINGS = (
    "timezone", "catch_up", "catch_up_limit", "catch_up_window", "overlap", "not_later_than",
)  # fmt: skip
"""The settings of a schedule that `read_rule` reads."""


def read_rule(when: str, settings: Mapping[str, Any]) -> ScheduleRule:
    """Check a schedule's settings and return its rule.

    Args:
        when: Five fields of cron, a word such as `@daily`, or an interval such as `every 30s`.
        settings: The settings in `RULE_SETTINGS` by name; None for one that is not given.

    Raises:
        OptionError: A value is invalid. The error names the option, the value and the fix.
    """
    if not isinstance(when, str) or not when.strip():
        raise wrong("schedule", when, _WHEN_FIX)
    given = {name: settings[name] for name in RULE_SETTINGS if settings.get(name) is not None}
    catch_up = CatchUp(choice_option("catch_up", given.get("catch_up", "one"), CatchUp))
    overlap = Overlap(choice_option("overlap", _overlap(given, catch_up), Overlap))
    if catch_up is CatchUp.ALL and overlap is Overlap.SKIP:
        raise wrong(
            "overlap",
            "skip",
            'use "queue" with catch_up="all": missed ticks then run one after the other; or "allow"',
        )
    cron, every_seconds = _when(when)
    if every_seconds and "timezone" in given:
        raise wrong("timezone", given["timezone"], "leave it out: an interval follows real time everywhere")
    late = given.get("not_later_than")
    return ScheduleRule(
        cron=cron,
        every_seconds=every_seconds,
        timezone=timezone_option("timezone", given.get("timezone", "UTC")),
        catch_up=catch_up,
        catch_up_limit=whole_option("catch_up_limit", given.get("catch_up_limit", 100), most=MOST_CAUGHT_UP),
        catch_up_window=positive_option("catch_up_window", given.get("catch_up_window", "1d")),
        overlap=overlap,
        not_later_than=None if late is None else seconds_option("not_later_than", late, least=1.0),
    )


def changed_rule(rule: ScheduleRule, when: str | None, settings: Mapping[str, Any]) -> ScheduleRule:
    """Return a rule with some settings changed; settings that are not given stay the same.

    Args:
        rule: The present rule.
        when: Other moments; None: the present ones.
        settings: The settings in `RULE_SETTINGS` to change, by name. None for `not_later_than` removes the
            limit.

    Raises:
        OptionError: A value is invalid.
    """
    present: dict[str, Any] = {
        "timezone": rule.timezone,
        "catch_up": rule.catch_up.value,
        "catch_up_limit": rule.catch_up_limit,
        "catch_up_window": rule.catch_up_window,
        "overlap": rule.overlap.value,
        "not_later_than": rule.not_later_than,
    }
    wanted = present | {name: settings[name] for name in RULE_SETTINGS if name in settings}
    expression = rule.expression if when is None else when
    if "timezone" not in settings and _EVERY.fullmatch(expression.strip()):
        del wanted["timezone"]
    return read_rule(expression, wanted)


def _overlap(given: Mapping[str, Any], catch_up: CatchUp) -> Any:
    return given.get("overlap", "queue" if catch_up is CatchUp.ALL else "skip")


def _when(when: str) -> tuple[str, int]:
    """Return the cron expression and the interval in seconds; one of the two is empty."""
    if (match := _EVERY.fullmatch(when.strip())) is None:
        return cron_option("schedule", when), 0
    fix = 'write whole seconds, such as "every 30s", "every 15m", "every 2h"; a year at most'
    try:
        seconds = seconds_option("schedule", match[1])
    except OptionError:
        raise wrong("schedule", when, fix) from None
    if seconds != int(seconds) or not 1 <= seconds <= LONGEST_INTERVAL_SECONDS:
        raise wrong("schedule", when, fix)
    return "", int(seconds)


def schedule_name_option(option: str, name: str) -> str:
    """Return a checked name of a schedule. The name must not contain a slash, because it is part of a URL.

    Raises:
        OptionError: The text cannot be a schedule's name.
    """
    if "/" in name_option(option, name):
        raise wrong(option, name, "leave the slash out")
    return name
