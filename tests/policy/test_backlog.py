"""Ready tasks are sorted into those that may start, those that are paced and those that are blocked."""

from __future__ import annotations

import pytest

from tidegate.domain.spec import Window
from tidegate.limits import token_bucket
from tidegate.limits.settings import GateKind, Limits
from tidegate.limits.values import Gate, GateRow, GateState, ParkedBy, TokenBucket
from tidegate.policy.backlog import Backlog, ChannelCount, WaitKind, count_backlogs
from tidegate.policy.live_workers import LiveWorker, LiveWorkers

NOW = 1_800_000_000.0
PER_MINUTE = Window("requests_per_minute", 30, 60.0)
PER_DAY = Window("requests_per_day", 100, 86_400.0, is_fixed=True)


def upstream(
    name: str = "u",
    *windows: Window,
    max_in_flight: int | None = None,
    gate: Gate | None = None,
    used: int = 0,
) -> GateRow:
    buckets: dict[str, TokenBucket] = {}
    for _ in range(used):
        buckets = token_bucket.charge_all(
            windows, buckets, token_bucket.next_slot_in_all(windows, buckets, NOW)
        )
    limits = Limits(windows, max_in_flight)
    return GateRow(GateKind.UPSTREAM, name, limits, gate or Gate(), buckets)


def channel(
    tasks: int, *, upstream: str = "u", queue: str = "q", function: str = "f", age: float = 9.0
) -> ChannelCount:
    return ChannelCount(queue, upstream, function, tasks, NOW - age)


def one(
    channels: list[ChannelCount], *rows: GateRow, in_flight: int = 0, serving: LiveWorkers | None = None
) -> Backlog:
    found = count_backlogs(
        channels, rows, {"u": in_flight}, NOW, None if serving is None else serving.unserved
    )
    return found["q"]


def counts(backlog: Backlog) -> tuple[int, int, int]:
    return backlog.ready, backlog.paced, backlog.blocked


def test_tasks_without_a_gate_are_ready():
    assert counts(one([channel(7, upstream="")])) == (7, 0, 0)


def test_tasks_over_max_in_flight_are_paced_and_name_the_limit():
    backlog = one([channel(49)], upstream(max_in_flight=1), in_flight=1)

    assert counts(backlog) == (0, 49, 0)
    (wait,) = backlog.waits
    assert (wait.kind, wait.by, wait.tasks) == (WaitKind.PACED, "upstream u", 49)
    assert wait.reason == "limit: max_in_flight 1, 1 in flight; a slot is free when one ends"
    assert backlog.oldest_at == NOW - 9.0


def test_tasks_over_a_rate_limit_are_paced():
    backlog = one([channel(60)], upstream("u", PER_MINUTE, used=1))

    assert counts(backlog) == (0, 60, 0)
    (wait,) = backlog.waits
    assert wait.reason == "limit: requests_per_minute, 30 in 1 min, next slot in 2 s"


def test_the_task_whose_slot_has_come_is_ready_and_none_is_shown_as_blocked_meanwhile():
    row = upstream("u", PER_MINUTE, used=1)
    shown = {counts(count_backlogs([channel(60)], [row], {}, NOW + tenths / 10)["q"]) for tenths in range(30)}

    assert shown == {(0, 60, 0), (1, 59, 0)}


def test_tasks_of_a_slow_rate_are_paced_too():
    backlog = one([channel(5)], upstream("u", Window("requests_per_hour", 1, 3600.0), used=1))

    assert counts(backlog) == (0, 5, 0)


def test_a_fast_rate_lets_a_few_start_at_once():
    backlog = one([channel(100)], upstream("u", Window("requests_per_second", 10, 1.0)))

    assert counts(backlog) == (8, 92, 0), (
        "half a second to catch up, a quarter ahead, and the one that is due"
    )


def test_queues_behind_one_limit_share_its_slots():
    row = upstream("u", PER_MINUTE)
    found = count_backlogs([channel(10, queue="a"), channel(20, queue="b", age=5.0)], [row], {}, NOW)

    assert [counts(found[name]) for name in "ab"] == [(1, 9, 0), (0, 20, 0)]


def test_a_task_must_pass_both_gates_and_the_tighter_one_is_named():
    function = GateRow(GateKind.FUNCTION, "f", Limits((Window("rate_limit", 1, 60.0),)))
    backlog = one([channel(9)], upstream(max_in_flight=4), function)

    assert counts(backlog) == (1, 8, 0)
    assert [wait.by for wait in backlog.waits] == ["rate limit of f"]


def test_tasks_of_a_parked_gate_are_blocked_and_count_neither_for_drain_nor_for_age():
    parked = Gate(GateState.PARKED, ParkedBy.SERVER, reason="rate_limit", until_at=NOW + 12.0)
    backlog = one([channel(3), channel(2, upstream="", age=1.0)], upstream("u", PER_MINUTE, gate=parked))

    assert counts(backlog) == (2, 0, 3)
    assert backlog.oldest_at == NOW - 1.0
    (wait,) = backlog.waits
    assert (wait.kind, wait.reason) == (
        WaitKind.BLOCKED,
        "gate: parked for 12 s more, as the server asked: rate_limit",
    )


def test_tasks_of_an_exhausted_day_are_blocked_until_the_next_day():
    backlog = one([channel(3)], upstream("u", PER_DAY, used=100))

    assert counts(backlog) == (0, 0, 3)
    assert backlog.waits[0].reason.startswith("gate: requests_per_day used up; opens in ")


def test_a_gate_that_admits_only_probes_lets_one_through_and_paces_the_rest():
    held = Gate(failures=2, failed_task_ids=("one", "other"), reason="server_error", probe_at=NOW + 1.0)
    backlog = one([channel(3)], upstream(gate=held))

    assert counts(backlog) == (0, 3, 0)
    assert "only probes start" in backlog.waits[0].reason


SERVED = LiveWorkers([LiveWorker(["q", "l"], {"f"}, 3)])


def test_tasks_that_no_live_worker_runs_are_blocked_with_a_reason():
    channels = [channel(1, upstream=""), channel(2, upstream="", function="old")]
    found = count_backlogs([*channels, channel(4, queue="llm", upstream="")], [], {}, NOW, SERVED.unserved)

    assert [counts(found[name]) for name in ("q", "llm")] == [(1, 0, 2), (0, 0, 4)]
    assert "declares the function old: it was renamed or removed" in found["q"].waits[0].reason
    assert "nothing serves the queue llm: the live workers serve l, q" in found["llm"].waits[0].reason
    assert {wait.by for name in ("q", "llm") for wait in found[name].waits} == {"workers"}


def test_without_any_live_worker_the_description_names_the_command():
    assert LiveWorkers([]).unserved("q", "f") == (
        "nothing serves the queue q: no live worker; start one: tidegate worker MODULE:APP"
    )


def test_a_worker_whose_functions_are_unknown_may_run_any():
    assert LiveWorkers([LiveWorker(["*"])]).unserved("q", "old") == ""


@pytest.mark.parametrize("used", [0, 1, 40, 99, 100, 250])
@pytest.mark.parametrize("window", [PER_MINUTE, PER_DAY, Window("requests_per_second", 50, 1.0)])
def test_the_arithmetic_of_slots_agrees_with_taking_them_one_by_one(window, used):
    bucket = upstream("u", window, used=used).buckets.get(window.name, TokenBucket())
    until, taken, at, last = NOW + 0.25, 0, bucket, NOW
    for number in range(1, 200):
        slot = token_bucket.next_slot_at(window, at, max(NOW, last) if window.is_fixed else NOW)
        taken += slot <= until
        at, last = token_bucket.charge(window, at, slot), slot
        assert token_bucket.seconds_until_slot(window, bucket, NOW, number) == pytest.approx(
            slot - NOW, abs=1e-4
        )
    assert min(199, token_bucket.count_slots(window, bucket, NOW, until)) == taken
