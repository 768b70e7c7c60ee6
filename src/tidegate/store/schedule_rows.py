"""The values that the store contract takes and returns about schedules, the same on both back ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import msgspec

from tidegate.domain.schedule import ScheduledTask, ScheduleRule, TickOutcome
from tidegate.domain.states import State
from tidegate.policy.due_ticks import DecidedTick
from tidegate.store.rows import NewTask

_RULE = msgspec.json.Decoder(ScheduleRule)
_TASK = msgspec.json.Decoder(ScheduledTask)


def rule_to_json(rule: ScheduleRule) -> str:
    """Return a rule in its stored form. Equal rules have equal texts."""
    return msgspec.json.encode(rule, order="sorted").decode()


def rule_from_json(text: str) -> ScheduleRule:
    """Return a stored rule.

    Raises:
        msgspec.DecodeError: A newer version of Tidegate stored it in a form that this one cannot read.
    """
    return _RULE.decode(text)


def task_to_json(task: ScheduledTask) -> str:
    """Return the task of a schedule in its stored form. Equal tasks have equal texts."""
    return msgspec.json.encode(task, order="sorted").decode()


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A schedule to be stored."""

    name: str
    rule: ScheduleRule
    task: ScheduledTask
    next_at: float | None
    """The first tick after now. The moment is used if the schedule is new, or ticks at other moments than
    before."""


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule as stored, with its latest tick."""

    name: str
    application: str
    """The application that declares the schedule; empty if a person added it."""
    rule_json: str
    task_json: str
    next_at: float | None
    """The first tick that is not decided yet; None while it is paused."""
    revision: int
    changed_at: float
    paused_at: float | None
    tick: TickRow | None
    """The schedule's latest tick with an outcome; None if there is none."""

    @property
    def rule(self) -> ScheduleRule:
        """When it ticks.

        Raises:
            msgspec.DecodeError: A newer version of Tidegate stored it in a form that this one cannot read.
        """
        return rule_from_json(self.rule_json)

    @property
    def task(self) -> ScheduledTask:
        """The task that each tick enqueues.

        Raises:
            msgspec.DecodeError: As `rule`.
        """
        return _TASK.decode(self.task_json)


@dataclass(frozen=True, slots=True)
class TickRow:
    """The outcome of one tick of a schedule, or of several missed ticks."""

    schedule: str
    at: float
    """The planned moment; for a run by hand, the moment of the request."""
    until_at: float
    """The planned moment of the last tick if this row stands for several ticks; otherwise equal to `at`."""
    ticks: int
    """How many ticks this row stands for."""
    outcome: TickOutcome
    reason: str
    """A value of `TickReason`; empty for a tick that fired in time."""
    decided_at: float
    task_id: str | None
    """The task of a fired tick."""


class UnfinishedTask(NamedTuple):
    """A task of an earlier tick that is not final."""

    task_id: str
    state: State


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """A schedule with a due tick, or with a tick that waits for an earlier task."""

    row: ScheduleRow
    unfinished: tuple[UnfinishedTask, ...]
    """The tasks of earlier ticks that are not final; empty if the rule allows overlap."""
    queued: tuple[float, ...]
    """The ticks that wait for these tasks, in order."""


class FiredTick(NamedTuple):
    """One decided tick, with its task if it fires."""

    decided: DecidedTick
    task: NewTask | None
    counts: bool
    """Whether the tick's task counts as unfinished for the next ticks until it is final."""


@dataclass(frozen=True, slots=True)
class Firing:
    """The outcomes of the due ticks of one schedule.

    The firing is applied only if the schedule has this revision.
    """

    name: str
    revision: int
    next_at: float | None
    ticks: Sequence[FiredTick]


@dataclass(frozen=True, slots=True)
class DeclaredSet:
    """The result of a declaration."""

    is_in_force: bool
    """False: a worker with a newer set is alive, so this set changes nothing."""
    generation: int
    """The generation of the set in force: 1 for the first set of an application, then rising."""
    changed: tuple[str, ...] = ()
    """The schedules that this declaration added, changed or removed."""
    taken: tuple[str, ...] = ()
    """The names of the set that are not stored, because a person added schedules with these names."""


class ScheduleAnswer(StrEnum):
    """What a change did to a schedule."""

    DONE = "done"
    EXISTS = "exists"
    """Another schedule has the name. Nothing changed."""
    UNKNOWN = "unknown"
    """There is no such schedule."""
    DECLARED = "declared"
    """An application declares it, so it cannot be changed or removed here."""
