"""Who evaluates alerts, their episodes, and the messages that sinks must get."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import pytest
from store_build import START, Build, SettableClock, retrying

from tidegate.store.alert_rows import (
    ANY,
    Connections,
    Episode,
    EpisodeState,
    NewNotice,
    PassResult,
    Severity,
)
from tidegate.store.protocol import Store

pytestmark = pytest.mark.anyio

INTERVAL = 15.0
OPEN = Episode(
    id="e1",
    rule="depth",
    subject="main",
    state=EpisodeState.OPEN,
    severity=Severity.CRITICAL,
    first_at=START - 60.0,
    opened_at=START,
    calm_at=None,
    last_at=START,
    ended_at=None,
    value=math.inf,
    threshold=500.0,
    detail="",
    is_notified=True,
)


def notice(number: int, about: str = "e1", sink: str = "ops") -> NewNotice:
    return NewNotice(f"msg_{number}", sink, about, "alert.opened", "{}")


async def begin(store: Store, by: str = "w") -> int | None:
    begun = await store.begin_alert_pass(by, interval_seconds=INTERVAL)
    return None if begun is None else begun.number


async def test_one_of_many_processes_makes_each_pass(store: Store, twin: Store, clock: SettableClock) -> None:
    for number in (1, 2, 3):
        begun = await asyncio.gather(*(begin(each) for each in (store, twin) * 5))
        assert [each for each in begun if each is not None] == [number]
        clock.advance(INTERVAL)


async def test_a_process_that_dies_in_a_pass_holds_nothing(
    store: Store, twin: Store, clock: SettableClock
) -> None:
    assert await begin(store, "dies") == 1
    clock.advance(INTERVAL - 0.1)
    assert await begin(twin, "next") is None
    clock.advance(0.1)
    assert await begin(twin, "next") == 2
    last = await store.get_last_alert_pass()
    assert (last.number, last.evaluator, last.finished_at) == (2, "next", None)


async def test_passes_go_on_after_the_clock_was_set_back(store: Store, clock: SettableClock) -> None:
    clock.advance(86_400.0)
    assert await begin(store) == 1
    clock.advance(-86_400.0)
    assert await begin(store) == 2


async def test_a_pass_that_was_overtaken_writes_nothing(store: Store, clock: SettableClock) -> None:
    slow = await begin(store)
    clock.advance(INTERVAL)
    quick = await begin(store)
    assert slow is not None
    assert quick is not None
    late = PassResult(episodes=[OPEN], notices=[notice(1)], usual_json="{}")
    assert not await store.end_alert_pass(slow, late)
    assert await store.list_current_episodes() == []
    assert await store.claim_notices(["ops"], lease_seconds=9.0) == []
    assert await store.end_alert_pass(quick, PassResult())


async def test_an_episode_is_stored_changed_and_ended(store: Store, clock: SettableClock) -> None:
    await store.end_alert_pass(await begin(store) or 0, PassResult(episodes=[OPEN]))
    assert await store.list_current_episodes() == [OPEN]
    clock.advance(INTERVAL)
    ended = replace(OPEN, state=EpisodeState.ENDED, value=3.5, ended_at=clock.now, calm_at=START)
    await store.end_alert_pass(await begin(store) or 0, PassResult(episodes=[ended]))
    assert await store.list_current_episodes() == []
    assert await store.list_ended_episodes() == [ended]
    clock.advance(31 * 86_400.0)
    await store.end_alert_pass(await begin(store) or 0, PassResult())
    assert await store.list_ended_episodes() == []


async def test_a_pending_episode_that_came_to_nothing_is_deleted(store: Store, clock: SettableClock) -> None:
    pending = replace(OPEN, state=EpisodeState.PENDING, opened_at=None)
    await store.end_alert_pass(await begin(store) or 0, PassResult(episodes=[pending]))
    clock.advance(INTERVAL)
    await store.end_alert_pass(await begin(store) or 0, PassResult(dropped=["e1"]))
    assert await store.list_current_episodes() == []


async def test_what_is_usual_is_kept_until_it_is_computed_again(store: Store, clock: SettableClock) -> None:
    await store.end_alert_pass(await begin(store) or 0, PassResult(usual_json='{"a":1}'))
    for _ in range(2):
        clock.advance(INTERVAL)
        begun = await store.begin_alert_pass("w", interval_seconds=INTERVAL)
        assert begun is not None
        assert (begun.usual_json, begun.usual_at) == ('{"a":1}', START)
        await store.end_alert_pass(begun.number, PassResult())


async def test_a_message_is_claimed_by_one_process_and_again_when_that_one_died(
    store: Store, twin: Store, clock: SettableClock
) -> None:
    await store.add_notices([notice(1), notice(2, about="e2")])
    await store.add_notices([notice(1)])
    found = await asyncio.gather(*(each.claim_notices(["ops"], lease_seconds=30.0) for each in (store, twin)))
    assert sorted(each.id for claimed in found for each in claimed) == ["msg_1", "msg_2"]
    await store.finish_notice("msg_2")
    clock.advance(29.0)
    assert await twin.claim_notices(["ops"], lease_seconds=30.0) == []
    clock.advance(1.0)
    (again,) = await twin.claim_notices(["ops"], lease_seconds=30.0)
    assert (again.id, again.attempts) == ("msg_1", 2)


async def test_a_process_gets_only_messages_of_sinks_that_it_knows(store: Store) -> None:
    await store.add_notices([notice(1), notice(2, sink="pager")])
    (claimed,) = await store.claim_notices(["pager", "unknown"], lease_seconds=9.0)
    assert claimed.id == "msg_2"
    assert await store.claim_notices([], lease_seconds=9.0) == []


async def test_messages_about_one_thing_are_sent_in_their_order(store: Store, clock: SettableClock) -> None:
    await store.add_notices([notice(2)])
    clock.advance(1.0)
    await store.add_notices([notice(1)])
    (first,) = await store.claim_notices(["ops"], lease_seconds=9.0)
    assert first.id == "msg_2"
    await store.retry_notice("msg_2", "it answered 500", seconds=60.0)
    clock.advance(10.0)
    assert await store.claim_notices(["ops"], lease_seconds=9.0) == []
    (unsent,) = await store.count_unsent_notices()
    assert (unsent.sink, unsent.notices, unsent.oldest_at, unsent.error) == (
        "ops",
        2,
        START,
        "it answered 500",
    )
    await store.finish_notice("msg_2")
    (second,) = await store.claim_notices(["ops"], lease_seconds=9.0)
    assert second.id == "msg_1"


async def test_a_message_that_is_given_up_is_not_sent_again(store: Store, clock: SettableClock) -> None:
    await store.add_notices([notice(1)])
    await store.claim_notices(["ops"], lease_seconds=9.0)
    await store.retry_notice("msg_1", "it answered 410", seconds=None)
    clock.advance(1_000.0)
    assert await store.claim_notices(["ops"], lease_seconds=9.0) == []
    assert await store.count_unsent_notices() == []


async def test_a_failure_that_is_reported_late_does_not_undo_a_delivery(store: Store) -> None:
    await store.add_notices([notice(1)])
    await store.finish_notice("msg_1")
    await store.retry_notice("msg_1", "no answer in 10 s", seconds=0.0)
    assert await store.claim_notices(["ops"], lease_seconds=9.0) == []


async def test_a_mute_ends_by_itself_or_by_a_person(store: Store, clock: SettableClock) -> None:
    await store.mute_alerts("depth", "main", 60.0, by="ada", why="backfill")
    await store.mute_alerts(ANY, ANY, None, by="grace", why="")
    everything, depth = await store.list_alert_mutes()
    assert (everything.rule, everything.until_at, everything.by) == (ANY, None, "grace")
    assert (depth.subject, depth.until_at, depth.why) == ("main", START + 60.0, "backfill")
    clock.advance(60.0)
    assert await store.list_alert_mutes() == [everything]
    assert await store.unmute_alerts(ANY, ANY)
    assert not await store.unmute_alerts(ANY, ANY)


async def test_a_sink_is_disabled_until_a_person_enables_it(store: Store) -> None:
    await store.disable_sink("ops", "hash", "it answered 410")
    await store.disable_sink("ops", "hash 2", "it answered 410 again")
    (disabled,) = await store.list_disabled_sinks()
    assert (disabled.name, disabled.target, disabled.disabled_at) == ("ops", "hash 2", START)
    assert await store.enable_sink("ops")
    assert not await store.enable_sink("ops")
    assert await store.list_disabled_sinks() == []


async def test_a_lost_worker_and_an_orderly_end_differ(
    store: Store, build: Build, clock: SettableClock
) -> None:
    lost, stopped, live = [await build.worker() for _ in range(3)]
    await store.retire_worker(lost, why="lease ran out", is_loss=True, only_if_expired=False)
    await store.retire_worker(stopped, why="stopped", is_loss=False, only_if_expired=False)
    found = sorted(
        await store.list_worker_ends(), key=lambda each: (each.retired_at is not None, each.is_lost)
    )
    assert [(each.retired_at, each.is_lost) for each in found] == [
        (None, False),
        (START, False),
        (START, True),
    ]
    assert live


async def test_tasks_that_run_again_and_again_are_found_in_every_state(
    store: Store, build: Build, clock: SettableClock
) -> None:
    worker = await build.worker(lease=10_000.0)
    (task,) = await store.enqueue([build.new()])
    for run in range(1, 26):
        (claimed,) = (await store.claim(build.request(worker))).tasks
        await store.finish([retrying(claimed.fence, delay=1.0)])
        clock.advance(1.0)
        if run == 22:
            (found,) = await store.list_busy_tasks(runs=21, calls=10**6)
            assert (found.task_id, found.runs, found.queue, found.function) == (
                task.task_id,
                22,
                "main",
                "app:work",
            )
            assert await store.list_busy_tasks(runs=22, calls=10**6) == []
        await store.promote(10)
        if run == 23:
            (ready,) = await store.list_busy_tasks(runs=21, calls=10**6)
            assert ready.runs == 23
    await store.claim(build.request(worker))
    (running,) = await store.list_busy_tasks(runs=21, calls=10**6)
    assert running.runs == 26


async def test_a_server_has_a_number_of_connections_and_a_file_has_none(store: Store) -> None:
    found = await store.get_connections()
    if "Sqlite" in type(store).__name__:
        assert found is None
    else:
        assert isinstance(found, Connections)
        assert 1 <= found.used <= found.most
