"""The checks of chaos on made-up runs: what a fault explains passes, anything else is a violation."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import pytest

from chaos import report
from chaos.faults import ChaosFaultKind, ChaosFaultLog, GlobalFault
from chaos.plan import ChaosPlan
from chaos.process_logs import ClientLogs, ProcessStarted, StartedProcesses
from chaos.run_checks import check_chaos
from chaos.run_record import ChaosRecord, make_record
from checker import (
    ClientObservations,
    FunctionNote,
    ObservedCancel,
    RunLimits,
    StoreSnapshot,
    SubmittedTask,
    digest_of,
)
from harness.causes import cause_of
from harness.checks import Verdict, unique_names_are_unique
from harness.faults import Fault
from harness.record import FinalSeen, ScriptedEnd
from tidegate import Priority
from tidegate.domain.outcome import Counters, Fence
from tidegate.domain.states import State
from tidegate.store.rows import CancelStatus, HistoryRow, TaskRow

TASK, STEADY = "task", "chaos.functions:steady"
SUPERVISOR, POOL, SLOT, OTHER = 10, 11, 12, 99
ARGS, RESULT = digest_of(b"args"), digest_of(b"result")
T = 1_000.0
"""When the task is claimed first."""
PLAN = ChaosPlan(1, seconds=30.0, workers=2, lease=2.0)


@dataclass
class TwoRunHistory:
    """One task that ran twice on one host: the first run was taken from its worker, the second succeeded."""

    charge: str = "crash"
    why: str = "crash 1 of 3, uncharged: killed by signal 9 (SIGKILL)"
    outcome: str = "retrying"
    evidence: str = ""
    reason: str = "crash"
    lasted: float = 1.0
    waited: float = 0.5
    """Until the second run."""
    faults: list[Fault] = field(default_factory=list)
    first_starts_at: float = T + 0.1
    first_ends_at: float | None = None
    """When the first function recorded its end."""
    first_error: str = "CancelledError"
    scripted_end: ScriptedEnd = field(default_factory=ScriptedEnd)
    global_fault: GlobalFault | None = None
    cancels: tuple[ObservedCancel, ...] = ()
    finals: tuple[FinalSeen, ...] = ()
    unique_names: dict[str, list[str]] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    """Other things that were seen."""

    def record(self) -> ChaosRecord:
        closed_at = T + self.lasted
        again_at = closed_at + self.waited
        first = HistoryRow(
            "run", at=T, run=1, ended_at=closed_at, worker_id="w1", outcome=self.outcome, reason=self.reason,
            charge=self.charge, why=self.why, evidence=self.evidence, message="worker lost: killed",
        )  # fmt: skip
        second = HistoryRow(
            "run", at=again_at, run=2, ended_at=again_at + 1.0, worker_id="w2", outcome="succeeded"
        )
        notes = [FunctionNote("start", TASK, 1, POOL, self.first_starts_at)]
        if self.first_ends_at is not None:
            notes.append(FunctionNote("end", TASK, 1, POOL, self.first_ends_at, error=self.first_error))
        notes.append(FunctionNote("start", TASK, 2, 21, again_at + 0.1))
        notes.append(FunctionNote("end", TASK, 2, 21, again_at + 0.9, RESULT))
        plain: dict[str, Any] = {
            "limits": {STEADY: RunLimits()},
            "fault_log": ChaosFaultLog(
                [*self.faults, *enough_kills()], global_faults=[self.global_fault] if self.global_fault else []
            ),
            "began_at": T - 70,
            "faults_ended_at": T + 60,
            "final_after": 1.0,
            "open_at_end": 0,
            "ended_at": T + 70,
            "integrity_errors": (),
            "longest_drain": 0.1,
        }  # fmt: skip
        clients = ClientLogs(
            ClientObservations((SubmittedTask(TASK, ARGS),), self.cancels),
            [],
            {one.task_id for one in self.cancels},
            list(self.finals),
            [],
            scripted_ends={TASK: self.scripted_end},
            unique_names=self.unique_names,
        )
        processes = StartedProcesses(
            {
                "w1": ProcessStarted("pool", POOL, SUPERVISOR, "w1", "host-1", T - 60),
                "w2": ProcessStarted("pool", 21, 20, "w2", "host-2", T - 60),
            },
            {"w1": [ProcessStarted("slot", SLOT, POOL, "w1", "host-1", T - 50)]},
        )
        snapshot = StoreSnapshot(
            {TASK: self._row(again_at)}, {TASK: (first, second)}, {TASK: ARGS}, {TASK: RESULT}, ()
        )
        return make_record(PLAN, clients, processes, snapshot, tuple(notes), **(plain | self.more))

    def _row(self, again_at: float) -> TaskRow:
        spent = {"crash": "crashes", "loss": "losses", "release": "releases", "attempt": "attempts"}
        counted: dict[str, Any] = {spent[self.charge]: 1} if self.charge in spent else {}
        counters = Counters(**counted)
        return TaskRow(
            TASK, STEADY, "default", Priority.NORMAL, "", "", State.SUCCEEDED, 2, counters, 0, T - 1, None,
            again_at, again_at + 1.0, "w2", False, "", "",
        )  # fmt: skip

    def verdict(self) -> Verdict:
        return check_chaos(self.record())

    def broken(self) -> list[str]:
        return [violation.invariant for violation in self.verdict().violations]


def enough_kills() -> list[Fault]:
    """Kills of unrelated processes, long before: a run must have a number of kills."""
    return [
        Fault(ChaosFaultKind.KILL_CHILD, "host-3", T - 65, T - 65, frozenset({1})) for _ in range(PLAN.kills)
    ]


def fault(kind: ChaosFaultKind, at: float, *pids: int, host: str = "host-1", seconds: float = 0.0) -> Fault:
    return Fault(kind, host, at, at + seconds, frozenset(pids))


LOSS: dict[str, Any] = {"charge": "loss", "why": "loss 1 of 10, uncharged: lease ran out", "lasted": 4.0}
RELEASE: dict[str, Any] = {
    "charge": "release",
    "outcome": "released",
    "why": "released by shutdown",
    "reason": "",
}
STALL_LIMIT = "crash 1 of 3, uncharged: did not answer for 4 s (stall limit)"


@pytest.mark.parametrize(
    "history",
    [
        TwoRunHistory(faults=[fault(ChaosFaultKind.KILL_POOL, T + 0.9, POOL)]),
        TwoRunHistory(faults=[fault(ChaosFaultKind.KILL_WORKER, T + 0.9, SUPERVISOR, POOL, SLOT)]),
        TwoRunHistory(why=STALL_LIMIT, lasted=5.0, faults=[fault(ChaosFaultKind.STOP_POOL, T + 0.5, POOL, seconds=6.0)]),
        TwoRunHistory(**LOSS, faults=[fault(ChaosFaultKind.KILL_SUPERVISOR, T + 0.5, SUPERVISOR)]),
        TwoRunHistory(**LOSS, faults=[fault(ChaosFaultKind.STOP_BOTH, T + 0.5, SUPERVISOR, POOL, seconds=5.0)]),
        TwoRunHistory(**LOSS, faults=[fault(ChaosFaultKind.STALL, T + 0.5, host="", seconds=1.5)]),
        TwoRunHistory(
            **LOSS,
            faults=[
                fault(ChaosFaultKind.DRAIN, T + 0.5, SUPERVISOR, seconds=2.0),
                fault(ChaosFaultKind.BLOCKED, T, host="", seconds=3.0),
            ],
        ),
        TwoRunHistory(**RELEASE, faults=[fault(ChaosFaultKind.DRAIN, T + 0.5, SUPERVISOR, seconds=2.0)]),
        TwoRunHistory(
            **RELEASE | {"why": "its child process died before the run began: killed by signal 9 (SIGKILL)"},
            faults=[fault(ChaosFaultKind.KILL_CHILD, T - 0.1, SLOT)],
        ),
        TwoRunHistory(charge="attempt", reason="unknown", why="waits", first_ends_at=T + 0.9, first_error="Transient"),
        TwoRunHistory(
            charge="nothing", reason="unknown", why="asked by the task", evidence="ctx.retry",
            first_ends_at=T + 0.9, first_error="RetryRequested",
        ),
    ],
    ids=lambda history: f"{history.charge} by {history.faults[0].kind if history.faults else 'its body'}",
)  # fmt: skip
def test_a_rerun_with_a_matching_cause_is_accepted(history: TwoRunHistory) -> None:
    assert history.verdict().violations == ()


@pytest.mark.parametrize(
    "history",
    [
        TwoRunHistory(),
        TwoRunHistory(faults=[fault(ChaosFaultKind.KILL_POOL, T + 0.9, OTHER)]),
        TwoRunHistory(faults=[fault(ChaosFaultKind.KILL_POOL, T + 0.9, POOL, host="host-2")]),
        TwoRunHistory(faults=[fault(ChaosFaultKind.KILL_POOL, T - 10, POOL)]),
        TwoRunHistory(why=STALL_LIMIT, lasted=5.0, faults=[fault(ChaosFaultKind.FREEZE, T + 0.5, host="", seconds=4.0)]),
        TwoRunHistory(**LOSS, faults=[fault(ChaosFaultKind.OUTAGE, T + 0.2, host="", seconds=4.0)]),
        TwoRunHistory(**LOSS, faults=[fault(ChaosFaultKind.STOP_POOL, T + 0.5, POOL, seconds=3.0)]),
        TwoRunHistory(**LOSS, faults=[fault(ChaosFaultKind.STALL, T + 0.5, host="", seconds=0.3)]),
        TwoRunHistory(**LOSS, faults=[fault(ChaosFaultKind.DRAIN, T + 0.5, SUPERVISOR, seconds=2.0)]),
        TwoRunHistory(**LOSS, faults=[fault(ChaosFaultKind.BLOCKED, T + 0.1, host="", seconds=3.5)]),
        TwoRunHistory(**RELEASE, faults=[fault(ChaosFaultKind.KILL_POOL, T + 0.9, POOL)]),
        TwoRunHistory(charge="attempt", reason="unknown", why="waits"),
        TwoRunHistory(charge="attempt", reason="timeout", why="waits", first_ends_at=T + 0.9),
        TwoRunHistory(
            charge="nothing", reason="unknown", why="asked by the task", evidence="ctx.retry",
            first_ends_at=T + 0.9, first_error="Transient",
        ),
    ],
    ids=lambda history: f"{history.charge} by {history.faults[0].kind if history.faults else 'nothing'}",
)  # fmt: skip
def test_a_rerun_without_a_cause_is_a_violation(history: TwoRunHistory) -> None:
    assert "I12" in history.broken()


def test_a_store_outage_alone_must_not_cause_reruns() -> None:
    outage = fault(ChaosFaultKind.OUTAGE, T + 0.3, host="", seconds=4.0)
    global_fault = GlobalFault(outage, frozenset({Fence(TASK, 1)}), observed_until=T + 8, finished_after=0.1)
    threat = fault(ChaosFaultKind.KILL_SUPERVISOR, T + 0.5, SUPERVISOR)
    assert TwoRunHistory(**LOSS, faults=[threat, outage]).broken() == []
    assert TwoRunHistory(**LOSS, faults=[threat, outage], global_fault=global_fault).broken() == ["I12"]
    later = dataclasses.replace(global_fault, observed_until=T + 3)
    assert TwoRunHistory(**LOSS, faults=[threat, outage], global_fault=later).broken() == []


def test_a_store_that_came_back_and_accepted_nothing_is_a_violation() -> None:
    outage = fault(ChaosFaultKind.OUTAGE, T + 5, host="", seconds=4.0)
    kill = fault(ChaosFaultKind.KILL_POOL, T + 0.9, POOL)
    assert TwoRunHistory(faults=[kill, outage], global_fault=GlobalFault(outage, frozenset())).broken() == [
        "I13"
    ]


def test_a_function_that_starts_after_its_run_was_closed_needs_a_fault() -> None:
    kill = fault(ChaosFaultKind.KILL_SUPERVISOR, T + 0.5, SUPERVISOR)
    late = TwoRunHistory(**LOSS, waited=3.0, first_starts_at=T + 6, faults=[kill])
    assert late.broken() == ["I8"]
    stop = fault(ChaosFaultKind.STOP_BOTH, T + 0.5, SUPERVISOR, POOL, seconds=5.5)
    explained = TwoRunHistory(**LOSS, waited=3.0, first_starts_at=T + 6, faults=[stop])
    assert explained.broken() == []
    assert explained.verdict().late_starts == {Fence(TASK, 1)}


def test_a_late_start_after_an_answered_cancel_is_no_violation() -> None:
    stop = fault(ChaosFaultKind.STOP_BOTH, T + 0.5, SUPERVISOR, POOL, seconds=5.5)
    cancel = ObservedCancel(TASK, CancelStatus.CANCELLED, at=T + 5.0)
    history = TwoRunHistory(**LOSS, first_starts_at=T + 6, faults=[stop], cancels=(cancel,))
    assert "I19" not in [
        v.invariant for v in history.verdict().violations if "the function started" in v.evidence
    ]
    awake = TwoRunHistory(**LOSS, first_starts_at=T + 6, cancels=(cancel,))
    assert "I19" in [v.invariant for v in awake.verdict().violations if "the function started" in v.evidence]


def test_overlapping_runs_need_a_fault() -> None:
    kill = fault(ChaosFaultKind.KILL_POOL, T + 0.9, POOL)
    assert TwoRunHistory(faults=[kill], first_ends_at=T + 2.5).broken() == ["I8"]
    drain = fault(ChaosFaultKind.DRAIN, T + 0.5, SUPERVISOR, seconds=2.0)
    assert TwoRunHistory(**RELEASE, first_ends_at=T + 2.5, faults=[drain]).broken() == []
    assert TwoRunHistory(**RELEASE, first_ends_at=T + 2.5, faults=[drain]).verdict().overlaps == {
        Fence(TASK, 1)
    }


def test_an_orphan_is_resolved_within_the_bound_of_undisturbed_maintenance() -> None:
    kill = fault(ChaosFaultKind.KILL_WORKER, T + 0.5, SUPERVISOR, POOL)
    late = PLAN.orphan_bound + 1.0
    assert TwoRunHistory(**LOSS | {"lasted": late}, faults=[kill]).broken() == ["I14"]
    hindered = [
        fault(ChaosFaultKind.STOP_SUPERVISOR, T + at, 20, host="host-2", seconds=2.0)
        for at in (2.0, 5.0, 8.0)
    ]
    assert TwoRunHistory(**LOSS | {"lasted": late}, faults=[kill, *hindered]).broken() == []
    stalled = fault(ChaosFaultKind.STALL, T + 3.0, host="", seconds=1.5)
    assert TwoRunHistory(**LOSS | {"lasted": late}, faults=[kill, stalled]).broken() == []
    blocked = fault(ChaosFaultKind.BLOCKED, T + 1.0, host="", seconds=3.0)
    assert TwoRunHistory(**LOSS | {"lasted": late}, faults=[kill, blocked]).broken() == []
    assert TwoRunHistory(**LOSS | {"lasted": late + 3.5}, faults=[kill, blocked]).broken() == ["I14"]


def test_a_host_still_down_after_a_second_fault_runs_no_maintenance_yet() -> None:
    kill = fault(ChaosFaultKind.KILL_WORKER, T + 0.5, SUPERVISOR, POOL)
    other = fault(ChaosFaultKind.KILL_WORKER, T + 0.6, 20, 21, host="host-2")
    blocked = fault(ChaosFaultKind.BLOCKED, T + 1.0, host="", seconds=1.0)
    late = PLAN.orphan_bound + 5.0
    assert TwoRunHistory(**LOSS | {"lasted": late}, faults=[kill, other, blocked]).broken() == []


def test_the_death_of_a_pool_process_is_resolved_soon_by_its_own_supervisor() -> None:
    kill = fault(ChaosFaultKind.KILL_POOL, T + 0.5, POOL)
    assert TwoRunHistory(lasted=1.0 + PLAN.crash_bound, faults=[kill]).broken() == ["I14"]
    hindered = fault(ChaosFaultKind.STOP_SUPERVISOR, T + 2.0, SUPERVISOR, seconds=3.0)
    assert TwoRunHistory(lasted=1.0 + PLAN.crash_bound, faults=[kill, hindered]).broken() == []


def test_a_task_is_claimed_within_the_bound_after_its_run_was_resolved() -> None:
    kill = fault(ChaosFaultKind.KILL_POOL, T + 0.9, POOL)
    assert TwoRunHistory(faults=[kill], waited=PLAN.claim_bound - 0.5).broken() == []
    assert TwoRunHistory(faults=[kill], waited=PLAN.claim_bound + 0.5).broken() == ["I14"]


def test_orphans_of_a_worker_that_stopped_have_the_same_bound() -> None:
    blocked = fault(ChaosFaultKind.BLOCKED, T, host="", seconds=3.0)
    drain = fault(ChaosFaultKind.DRAIN, T + 0.5, SUPERVISOR, seconds=2.0)
    assert TwoRunHistory(**LOSS | {"lasted": 5.0}, faults=[drain, blocked]).broken() == []
    late = 3.0 + 3.0 + PLAN.orphan_bound + 1.0
    assert TwoRunHistory(**LOSS | {"lasted": late}, faults=[drain, blocked]).broken() == ["I14"]


def test_a_worker_that_does_not_stop_in_time_is_a_violation() -> None:
    drain = fault(ChaosFaultKind.DRAIN, T + 0.5, SUPERVISOR, seconds=PLAN.drain_bound + 0.5)
    assert TwoRunHistory(**RELEASE, faults=[drain]).broken() == ["I13"]


def test_a_claim_without_an_answer_must_not_have_started() -> None:
    kill = fault(ChaosFaultKind.KILL_CHILD, T + 0.5, SLOT)
    unanswered = TwoRunHistory(**RELEASE | {"why": "its claim was never answered"}, faults=[kill])
    assert unanswered.broken() == ["I12"]


def test_an_outage_for_everyone_explains_a_claim_without_an_answer() -> None:
    outage = fault(ChaosFaultKind.OUTAGE, T + 0.2, host="", seconds=0.5)
    unanswered = RELEASE | {"why": "its claim was never answered"}
    record = TwoRunHistory(**unanswered, faults=[outage]).record()
    assert cause_of(record, record.runs[Fence(TASK, 1)]) is outage
    record = TwoRunHistory(**RELEASE, faults=[outage]).record()
    assert cause_of(record, record.runs[Fence(TASK, 1)]) is None


def test_a_run_that_ignores_its_cancel_needs_a_fault() -> None:
    history = TwoRunHistory(
        charge="attempt", reason="unknown", why="w", first_ends_at=T + 5.9, first_error="Transient",
        lasted=PLAN.cancel_bound + 2.0, cancels=(ObservedCancel(TASK, CancelStatus.REQUESTED, at=T + 0.5),),
    )  # fmt: skip
    assert any("went on for more than" in violation.evidence for violation in history.verdict().violations)
    history.faults = [fault(ChaosFaultKind.STOP_POOL, T + 0.6, POOL, seconds=3.0)]
    assert not any("went on" in violation.evidence for violation in history.verdict().violations)


def test_two_open_tasks_of_one_unique_name_are_a_violation() -> None:
    kill = [fault(ChaosFaultKind.KILL_POOL, T + 0.9, POOL)]
    record = TwoRunHistory(faults=kill, unique_names={"u": [TASK, "other"]}).record()
    row = record.snapshot.rows[TASK]
    assert list(unique_names_are_unique(record)) == []
    for enqueued_at, broken in ((T, ["I3"]), (T + 60, [])):
        other = dataclasses.replace(row, id="other", enqueued_at=enqueued_at, finished_at=T + 61)
        snapshot = dataclasses.replace(record.snapshot, rows={TASK: row, "other": other})
        found = unique_names_are_unique(dataclasses.replace(record, snapshot=snapshot))
        assert [violation.invariant for violation in found] == broken


def test_recovery_counts_from_the_fault_to_the_next_run() -> None:
    (recovery,) = TwoRunHistory(faults=[fault(ChaosFaultKind.KILL_POOL, T + 0.8, POOL)]).verdict().recoveries
    assert recovery.seconds == pytest.approx(0.7)
    assert not recovery.is_loss


@pytest.mark.parametrize(
    ("more", "broken"),
    [
        ({"fault_log": ChaosFaultLog(enough_kills(), [("left", "a process: 7: sleep")])}, "left"),
        ({"integrity_errors": ("row missing",)}, "I20"),
        ({"final_after": None}, "I13"),
        ({"final_after": 10_000.0}, "I13"),
        ({"fault_log": ChaosFaultLog(enough_kills()[1:])}, "plan"),
        ({"fault_log": ChaosFaultLog(enough_kills(), [("seen", "host-1 ended by itself")])}, "seen"),
    ],
)
def test_leftovers_delays_and_client_errors_are_violations(more: dict[str, Any], broken: str) -> None:
    history = TwoRunHistory(
        charge="attempt", reason="unknown", why="w", first_ends_at=T + 0.9, first_error="Transient"
    )
    assert history.broken() == []
    history.more = more
    assert history.broken() == [broken]


def test_a_task_that_cannot_succeed_and_did_is_named() -> None:
    kill = fault(ChaosFaultKind.KILL_POOL, T + 0.9, POOL)
    assert TwoRunHistory(faults=[kill], scripted_end=ScriptedEnd(may_succeed=False)).broken() == ["I10"]


def test_what_a_client_saw_must_match_the_store() -> None:
    kill = [fault(ChaosFaultKind.KILL_POOL, T + 0.9, POOL)]
    assert TwoRunHistory(faults=kill, finals=(FinalSeen(TASK, "succeeded", 2),)).broken() == []
    assert TwoRunHistory(faults=kill, finals=(FinalSeen(TASK, "succeeded", 1),)).broken() == ["I6"]
    assert TwoRunHistory(faults=kill, finals=(FinalSeen(TASK, "dead", 0),)).broken() == ["I6"]


def test_the_table_and_the_histories_show_the_violations() -> None:
    history = TwoRunHistory(faults=[fault(ChaosFaultKind.KILL_POOL, T + 0.9, OTHER)])
    record, verdict = history.record(), history.verdict()
    lines = list(report.format_violations(record, verdict))
    assert lines[0].startswith("VIOLATION I12 task: run 1 of w1 on host-1 ended retrying")
    assert any("FAULT pool process killed on host-1 [99]" in line for line in lines)
    assert any("function: start of run 1 in process 11" in line for line in lines)
    assert dict(report.format_table(record, verdict))["violations"] == "1"
    assert report.to_plain(record, verdict)["ok"] is False
    assert report.to_plain(record, verdict)["reruns_by_reason"] == {"crash: killed": 1}
