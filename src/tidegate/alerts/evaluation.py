"""Makes a pass: reads the numbers, applies the rules, and stores the episodes with the messages to send."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tidegate.alerts.episodes import Changes, apply_pass
from tidegate.alerts.messages import notices_of
from tidegate.alerts.muted_groups import read_muted_groups
from tidegate.alerts.reading import read_observation
from tidegate.alerts.rules import measure
from tidegate.alerts.settings import AlertSettings
from tidegate.alerts.task_messages import read_task_messages
from tidegate.alerts.usual import Usual, is_current, read_usual, usual_from_json
from tidegate.store.alert_rows import AlertPass, PassResult
from tidegate.store.protocol import Store

log = logging.getLogger("tidegate.alerts")

_LONGEST_GAP_PASSES = 4.0


@dataclass(frozen=True, slots=True)
class EvaluatedPass:
    """What one pass did."""

    number: int
    changes: Changes


async def evaluate_if_due(
    store: Store, settings: AlertSettings, *, evaluator: str, make_id: Callable[[], str]
) -> EvaluatedPass | None:
    """Make a pass if one is due and no other process makes it; return None otherwise.

    A process that dies in a pass blocks nothing: the next pass is due one interval after this one began.

    Args:
        store: The store.
        settings: The rules and the sinks.
        evaluator: A description of this process for people.
        make_id: Makes the id of a new episode.

    Raises:
        StoreError: The store is unreachable.
    """
    begun = await store.begin_alert_pass(evaluator, interval_seconds=settings.interval)
    if begun is None:
        return None
    last = await store.get_last_alert_pass()
    muted = await read_muted_groups(store, begun.at)
    usual, stored = await _usual(store, begun, muted)
    runs, calls = (int(settings.rules[name].limit) for name in ("task_runs", "task_calls"))
    seen = await read_observation(store, begun.at, usual, muted=muted, runs=runs, calls=calls)
    changes = apply_pass(
        await store.list_current_episodes(),
        measure(seen),
        rules=settings.rules,
        mutes=await store.list_alert_mutes(),
        now=begun.at,
        longest_gap=_LONGEST_GAP_PASSES * settings.interval,
        make_id=make_id,
    )
    result = PassResult(
        episodes=changes.saved,
        dropped=[each.id for each in changes.dropped],
        notices=[
            *notices_of(changes.opened, changes.ended, settings.sinks),
            *await read_task_messages(store, settings.sinks, last.finished_at, begun.at),
        ],
        usual_json=stored,
    )
    if not await store.end_alert_pass(begun.number, result):
        log.warning("this pass took longer than an interval, so another process has made the next one")
        return None
    return EvaluatedPass(begun.number, changes)


async def _usual(store: Store, begun: AlertPass, muted: Collection[str]) -> tuple[Usual, str | None]:
    """Return the usual values, and their JSON if they were computed now."""
    usual = usual_from_json(begun.usual_json)
    if usual is not None and is_current(begun.usual_at, begun.at):
        return usual, None
    usual = await read_usual(store, begun.at, muted)
    return usual, usual.to_json()
