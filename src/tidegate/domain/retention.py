"""How long what belongs to final tasks is kept. Plain values, checked on creation, and what they decide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, NamedTuple

from tidegate.domain.readers import (
    Seconds,
    choice_option,
    kept_option,
    name_option,
    set_fields,
    text_option,
    wrong,
)
from tidegate.domain.states import State

DAY_SECONDS = 86_400.0


class Data(StrEnum):
    """A kind of data that has its own retention."""

    TASKS = "tasks"
    """The task itself: its row, its state and everything else that belongs to it."""
    PAYLOADS = "payloads"
    """Its arguments."""
    RESULTS = "results"
    """What its function returned."""
    CHUNKS = "chunks"
    """The chunks that the task emitted."""
    STEPS = "steps"
    """The steps of the task with their results, and the ledger of their doubts."""
    HISTORY = "history"
    """The runs without success, with messages and tracebacks, and the actions of people."""


PARTS = (Data.PAYLOADS, Data.RESULTS, Data.CHUNKS, Data.STEPS, Data.HISTORY)
"""Data that may be removed earlier than its task."""


class Rule(NamedTuple):
    """A setting of retention."""

    name: str
    """Its key: `finished`, `results`…"""
    queue: str
    """The queue it is for; empty for all queues."""
    seconds: float


class FinalTable(StrEnum):
    """A table of final tasks."""

    ARCHIVE = "archive"
    """Succeeded and cancelled tasks."""
    DEAD = "dead"
    """Dead letters."""


class ArchiveFormat(StrEnum):
    """How the files of finished days are written."""

    NDJSON = "ndjson"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True, init=False)
class QueueRetention:
    """How long the tasks of one queue are kept. What is None is as for all queues.

    Raises:
        OptionError: A value is not allowed.
    """

    finished: float | None
    """Succeeded and cancelled tasks."""
    succeeded: float | None
    """Succeeded tasks."""
    cancelled: float | None
    """Cancelled tasks."""
    dead: float | None
    """Dead letters."""
    redriven: float | None
    """Finished tasks that were dead before and were redriven."""
    payloads: float | None
    """Arguments of finished tasks."""
    results: float | None
    """Results."""
    chunks: float | None
    """What finished tasks emitted."""
    steps: float | None
    """Steps of finished tasks, with their results and doubts."""
    history: float | None
    """Runs without success, and actions, of finished tasks."""

    def __init__(
        self,
        finished: Seconds | None = None,
        succeeded: Seconds | None = None,
        cancelled: Seconds | None = None,
        dead: Seconds | None = None,
        redriven: Seconds | None = None,
        payloads: Seconds | None = None,
        results: Seconds | None = None,
        chunks: Seconds | None = None,
        steps: Seconds | None = None,
        history: Seconds | None = None,
    ) -> None:
        given = {
            "finished": finished,
            "succeeded": succeeded,
            "cancelled": cancelled,
            "dead": dead,
            "redriven": redriven,
            "payloads": payloads,
            "results": results,
            "chunks": chunks,
            "steps": steps,
            "history": history,
        }
        set_fields(self, **{name: _kept(f"retention: {name}", value) for name, value in given.items()})


RULES = tuple(field.name for field in fields(QueueRetention))
"""The names of the rules: keys of `[retention]` and of `[retention.queues.NAME]`."""


@dataclass(frozen=True, slots=True, init=False)
class Retention:
    """How long final tasks and their data are kept, in seconds; written as in `tidegate.toml`: `dead="30d"`.

    Times count from the end of the task. Infinity (`inf`) keeps the data for ever.

    Raises:
        OptionError: A value is not allowed.
    """

    finished: float
    """How long succeeded and cancelled tasks are kept."""
    succeeded: float | None
    """How long succeeded tasks are kept. Default: as `finished`."""
    cancelled: float | None
    """How long cancelled tasks are kept. Default: as `finished`."""
    dead: float
    """How long dead letters are kept."""
    redriven: float | None
    """How long finished tasks are kept that were dead before and were redriven. Default: as other finished
    tasks."""
    payloads: float | None
    """How long the arguments of finished tasks are kept. Default: as long as their task. Dead letters keep
    theirs: a redrive needs them."""
    results: float | None
    """How long results are kept. Default: as long as their task."""
    chunks: float | None
    """How long the emitted chunks of finished tasks are kept. Default: as long as their task."""
    steps: float | None
    """How long the steps of finished tasks are kept, with their results and doubts. Default: as long as their
    task."""
    history: float | None
    """How long the runs without success and the actions of finished tasks are kept. Default: as long as their
    task."""
    queues: Mapping[str, QueueRetention]
    """Other times for some queues."""
    archive: str | None
    """A folder on the machine of each worker. Rows are written to files there before they are removed. None:
    no archive."""
    archive_format: ArchiveFormat
    """How finished days are stored: `ndjson`, or `parquet`, which needs `tidegate[parquet]`."""

    def __init__(
        self,
        finished: Seconds = 7 * DAY_SECONDS,
        succeeded: Seconds | None = None,
        cancelled: Seconds | None = None,
        dead: Seconds = 90 * DAY_SECONDS,
        redriven: Seconds | None = None,
        payloads: Seconds | None = None,
        results: Seconds | None = None,
        chunks: Seconds | None = None,
        steps: Seconds | None = None,
        history: Seconds | None = None,
        queues: Mapping[str, QueueRetention] | None = None,
        archive: str | None = None,
        archive_format: ArchiveFormat | str = ArchiveFormat.NDJSON,
    ) -> None:
        rules = QueueRetention(
            finished, succeeded, cancelled, dead, redriven, payloads, results, chunks, steps, history
        )
        set_fields(
            self,
            **{name: getattr(rules, name) for name in RULES},
            queues=_queues(queues or {}),
            archive=None if archive is None else text_option("retention: archive", archive),
            archive_format=ArchiveFormat(
                choice_option("retention: archive_format", str(archive_format), ArchiveFormat)
            ),
        )


def task_seconds(retention: Retention, state: State, queue: str, *, is_redriven: bool) -> float:
    """Return how long a final task is kept."""
    names = _names(state, is_redriven=is_redriven)
    return _rule(retention, queue, names).seconds


def rule_of(retention: Retention, data: Data, state: State, queue: str, *, is_redriven: bool) -> Rule:
    """Return the rule that decides how long this data of a final task is kept."""
    if data is not Data.TASKS:
        return _rule(retention, queue, [str(data)])
    return _rule(retention, queue, _names(state, is_redriven=is_redriven))


def due_data(
    retention: Retention, state: State, queue: str, age_seconds: float, *, is_redriven: bool
) -> frozenset[Data]:
    """Return what of a final task is to be removed at this age. A task takes all its parts along."""
    if age_seconds > task_seconds(retention, state, queue, is_redriven=is_redriven):
        return frozenset((Data.TASKS,))
    if state is State.DEAD:
        return frozenset()
    return frozenset(part for part in PARTS if age_seconds > _rule(retention, queue, [str(part)]).seconds)


def ages_of(retention: Retention, table: FinalTable) -> tuple[float, ...]:
    """Return all ages at which something of this table's tasks is to be removed, the least first."""
    names = ["dead"] if table is FinalTable.DEAD else [name for name in RULES if name != "dead"]
    found = {getattr(rules, name) for rules in (retention, *retention.queues.values()) for name in names}
    return tuple(sorted(age for age in found if age is not None and age != math.inf))


def rules_set(retention: Retention) -> list[Rule]:
    """Return every rule that is set: those for all queues, then those of single queues."""
    scopes = [("", retention), *retention.queues.items()]
    return [
        Rule(name, queue, value)
        for queue, rules in scopes
        for name in RULES
        if (value := getattr(rules, name)) is not None
    ]


def _names(state: State, *, is_redriven: bool) -> list[str]:
    """Return the rules that may decide about a task, the most special first."""
    if state is State.DEAD:
        return ["dead"]
    return [*(["redriven"] if is_redriven else []), str(state), "finished"]


def _rule(retention: Retention, queue: str, names: list[str]) -> Rule:
    """Return the first of these rules that is set, for the queue before all queues; infinity if none is."""
    own = retention.queues.get(queue)
    scopes = [("", retention)] if own is None else [(queue, own), ("", retention)]
    for scope, rules in scopes:
        for name in names:
            value: float | None = getattr(rules, name)
            if value is not None:
                return Rule(name, scope, value)
    return Rule(names[-1], "", math.inf)


def retention_option(retention: Retention) -> Retention:
    """Return the retention of an application.

    Raises:
        OptionError: The value is not a `Retention`.
    """
    if not isinstance(retention, Retention):
        raise wrong("retention", retention, 'give a Retention: retention=Retention(dead="30d")')
    return retention


def retention_to_dict(retention: Retention) -> dict[str, Any]:
    """Return the values of a retention, for another process."""
    plain = {field.name: getattr(retention, field.name) for field in fields(retention)}
    queues = {
        name: {rule: getattr(rules, rule) for rule in RULES} for name, rules in retention.queues.items()
    }
    return plain | {"queues": queues}


def retention_from_dict(plain: Mapping[str, Any]) -> Retention:
    """Return the retention with the values of `retention_to_dict`."""
    queues = {name: QueueRetention(**rules) for name, rules in plain["queues"].items()}
    return Retention(**{**plain, "queues": queues})


def _kept(option: str, value: Seconds | None) -> float | None:
    return None if value is None else kept_option(option, value)


def _queues(queues: Mapping[str, QueueRetention]) -> dict[str, QueueRetention]:
    if not isinstance(queues, Mapping) or not all(
        isinstance(rules, QueueRetention) for rules in queues.values()
    ):
        raise wrong("queues", queues, 'name them: queues={"audit": QueueRetention(finished="1w")}')
    return {name_option("retention: queue", name): rules for name, rules in queues.items()}
