"""The set of schedules that an application declares, and how it is kept in the store."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from tidegate.domain.schedule import ScheduledTask, ScheduleRule
from tidegate.policy.ticks import next_tick

if TYPE_CHECKING:
    from tidegate.store.protocol import Store

log = logging.getLogger("tidegate.schedules")

DECLARE_SECONDS = 30.0
"""Time between two declarations by one process: repeated, so that an older set returns after a rollback."""
GRACE_SECONDS = 60.0
"""How long an older set cannot replace a new one although no worker with the new set is registered yet."""


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """One schedule of an application, ready to be stored."""

    name: str
    rule: ScheduleRule
    task: ScheduledTask


@dataclass(frozen=True, slots=True)
class ScheduleSet:
    """All schedules that an application declares."""

    application: str
    """The reference of the application: `module:attribute`."""
    schedules: tuple[DeclaredSchedule, ...]
    """The schedules by name."""

    @classmethod
    def from_manifest(cls, application: str, manifest: Mapping[str, Any]) -> ScheduleSet:
        """Return the set of schedules in a manifest."""
        plain = manifest.get("schedules", {})
        return cls(
            reference(application),
            tuple(
                DeclaredSchedule(
                    name,
                    msgspec.convert(plain[name]["rule"], ScheduleRule),
                    msgspec.convert(plain[name]["task"], ScheduledTask),
                )
                for name in sorted(plain)
            ),
        )

    @property
    def fingerprint(self) -> str:
        """A fingerprint of the set. Any other set, also of another application, has another fingerprint."""
        content = msgspec.json.encode((self.application, self.schedules), order="sorted")
        return blake2b(content, digest_size=16).hexdigest()


def to_manifest(schedules: Sequence[DeclaredSchedule]) -> dict[str, Any]:
    """Return schedules in the form of a manifest, by name."""
    return {
        schedule.name: {
            "rule": msgspec.to_builtins(schedule.rule),
            "task": msgspec.to_builtins(schedule.task),
        }
        for schedule in schedules
    }


def reference(application: str) -> str:
    """Return the reference of an application with its attribute: `app:app` for `app`."""
    return application if ":" in application else f"{application}:app"


class ScheduleDeclarer:
    """Stores the schedules of one application, and keeps them up to date.

    Args:
        store: The store.
        schedule_set: What the application declares.
    """

    def __init__(self, store: Store, schedule_set: ScheduleSet) -> None:
        self._store = store
        self.schedule_set = schedule_set
        """The current set; replaced after a reload of the code."""
        self._was_in_force = True

    async def run_once(self) -> bool:
        """Declare the set. Always return False: there is never more to do at once.

        Raises:
            StoreError: The store is unreachable.
        """
        from tidegate.store.schedule_rows import NewSchedule

        declared = self.schedule_set
        now = await self._store.now()
        answer = await self._store.declare_schedules(
            declared.application,
            declared.fingerprint,
            [
                NewSchedule(schedule.name, schedule.rule, schedule.task, next_tick(schedule.rule, now))
                for schedule in declared.schedules
            ],
            grace_seconds=GRACE_SECONDS,
        )
        if answer.changed:
            log.info(
                "%s declares its schedules, generation %d: %s",
                declared.application,
                answer.generation,
                ", ".join(answer.changed),
            )
        for name in answer.taken:
            log.error(
                "%s declares the schedule %s, but a person added one of that name: remove that one, or give "
                "one of them another name",
                declared.application,
                name,
            )
        if self._was_in_force and not answer.is_in_force:
            log.info(
                "the schedules of %s stay those of a newer version of its code, while a worker runs it",
                declared.application,
            )
        self._was_in_force = answer.is_in_force
        return False
