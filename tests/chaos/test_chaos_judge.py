"""The judge of chaos on made-up runs: what has a fault behind it passes, what has none is named."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chaos import report
from chaos.faults import Fault, Hush, Journal, Kind
from chaos.judge import Verdict, judge
from chaos.ledgers import (
    Answered,
    Clients,
    Final,
    Ledger,
    Processes,
    Sent,
    SignIn,
    Trouble,
    is_waiting,
    read_clients,
    read_lines,
)
from chaos.plan import Plan
from chaos.seen import Seen
from tidegate import Priority
from tidegate.domain.outcome import Counters, Fence
from tidegate.domain.states import State
from tidegate.store.rows import CancelAnswer, HistoryRow, NewTask, TaskRow
from tidegate.testing.checker import CancelTold, Limits, Note, Record, Submitted, Told, digest_of

TASK, NAP = "task", "chaos.bodies:nap"
SUPERVISOR, POOL, SLOT, OTHER = 10, 11, 12, 99
ARGS, RESULT = digest_of(b"args"), digest_of(b"result")
T = 1_000.0
"""When the task is claimed first."""
PLAN = Plan(1, seconds=30.0, workers=2, lease=2.0)


@dataclass
class Tale:
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
    """When the first body wrote its last line."""
    first_error: str = "CancelledError"
    function: str = NAP
    hush: Hush | None = None
    cancels: tuple[CancelTold, ...] = ()
    finals: tuple[Final, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)
    """Other things that were seen."""

    def seen(self) -> Seen:
        closed_at = T + self.lasted
        again_at = closed_at + self.waited
        first = HistoryRow(
            "run", at=T, run=1, ended_at=closed_at, worker_id="w1", outcome=self.outcome, reason=self.reason,
            charge=self.charge, why=self.why, evidence=self.evidence, message="worker lost: killed",
        )  # fmt: skip
        second = HistoryRow(
            "run", at=again_at, run=2, ended_at=again_at + 1.0, worker_id="w2", outcome="succeeded"
        )
        notes = [Note("start", TASK, 1, POOL, self.first_starts_at)]
        if self.first_ends_at is not None:
            notes.append(Note("end", TASK, 1, POOL, self.first_ends_at, error=self.first_error))
        notes.append(Note("start", TASK, 2, 21, again_at + 0.1))
        notes.append(Note("end", TASK, 2, 21, again_at + 0.9, RESULT))
        plain: dict[str, Any] = {
            "plan": PLAN,
            "clients": Clients(
                Told((Submitted(TASK, ARGS),), self.cancels), [], {one.task_id for one in self.cancels},
                list(self.finals), [], functions={TASK: self.function},
            ),
            "notes": tuple(notes),
            "record": Record(
                {TASK: self._row(again_at)}, {TASK: (first, second)}, {TASK: ARGS}, {TASK: RESULT}, ()
            ),
            "limits": {NAP: Limits()},
            "journal": Journal(
                [*self.faults, *enough_kills()], [self.hush] if self.hush else []
            ),
            "processes": Processes(
                {
                    "w1": SignIn("pool", POOL, SUPERVISOR, "w1", "host-1", T - 60),
                    "w2": SignIn("pool", 21, 20, "w2", "host-2", T - 60),
                },
                {"w1": [SignIn("slot", SLOT, POOL, "w1", "host-1", T - 50)]},
            ),
            "began_at": T - 70,
            "calm_at": T + 60,
            "settled_after": 1.0,
            "open_then": 0,
            "ended_at": T + 70,
            "left_processes": (),
            "left_scratch": (),
            "faults_in_store": (),
            "longest_drain": 0.1,
        }  # fmt: skip
        return Seen(**(plain | self.more))

    def _row(self, again_at: float) -> TaskRow:
        spent = {"crash": "crashes", "loss": "losses", "release": "releases", "attempt": "attempts"}
        counted: dict[str, Any] = {spent[self.charge]: 1} if self.charge in spent else {}
        counters = Counters(**counted)
        return TaskRow(
            TASK, self.function, "default", Priority.NORMAL, "", "", State.SUCCEEDED, 2, counters, 0, T - 1, None,
            again_at, again_at + 1.0, "w2", False, "", "",
        )  # fmt: skip

    def verdict(self) -> Verdict:
        return judge(self.seen())

    def broken(self) -> list[str]:
        return [violation.invariant for violation in self.verdict().violations]


def enough_kills() -> list[Fault]:
    """Kills of nobody's processes, long before: a run must have its number of them."""
    return [Fault(Kind.KILL_SLOT, "host-3", T - 65, T - 65, frozenset({1})) for _ in range(PLAN.kills)]


def fault(kind: Kind, at: float, *pids: int, host: str = "host-1", seconds: float = 0.0) -> Fault:
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
    "tale",
    [
        Tale(faults=[fault(Kind.KILL_POOL, T + 0.9, POOL)]),
        Tale(faults=[fault(Kind.KILL_WORKER, T + 0.9, SUPERVISOR, POOL, SLOT)]),
        Tale(why=STALL_LIMIT, lasted=5.0, faults=[fault(Kind.STOP_POOL, T + 0.5, POOL, seconds=6.0)]),
        Tale(**LOSS, faults=[fault(Kind.KILL_SUPERVISOR, T + 0.5, SUPERVISOR)]),
        Tale(**LOSS, faults=[fault(Kind.STOP_BOTH, T + 0.5, SUPERVISOR, POOL, seconds=5.0)]),
        Tale(**LOSS, faults=[fault(Kind.STALL, T + 0.5, host="", seconds=1.5)]),
        Tale(
            **LOSS,
            faults=[
                fault(Kind.DRAIN, T + 0.5, SUPERVISOR, seconds=2.0),
                fault(Kind.BLOCKED, T, host="", seconds=3.0),
            ],
        ),
        Tale(**RELEASE, faults=[fault(Kind.DRAIN, T + 0.5, SUPERVISOR, seconds=2.0)]),
        Tale(
            **RELEASE | {"why": "its child process had died before it began: killed by signal 9 (SIGKILL)"},
            faults=[fault(Kind.KILL_SLOT, T - 0.1, SLOT)],
        ),
        Tale(charge="attempt", reason="unknown", why="waits", first_ends_at=T + 0.9, first_error="Transient"),
        Tale(
            charge="nothing", reason="unknown", why="asked by the task", evidence="ctx.retry",
            first_ends_at=T + 0.9, first_error="RetryRequested",
        ),
    ],
    ids=lambda tale: f"{tale.charge} by {tale.faults[0].kind if tale.faults else 'its body'}",
)  # fmt: skip
def test_a_re_run_whose_reason_has_its_cause_is_in_order(tale: Tale) -> None:
    assert tale.verdict().violations == ()


@pytest.mark.parametrize(
    "tale",
    [
        Tale(),
        Tale(faults=[fault(Kind.KILL_POOL, T + 0.9, OTHER)]),
        Tale(faults=[fault(Kind.KILL_POOL, T + 0.9, POOL, host="host-2")]),
        Tale(faults=[fault(Kind.KILL_POOL, T - 10, POOL)]),
        Tale(why=STALL_LIMIT, lasted=5.0, faults=[fault(Kind.FREEZE, T + 0.5, host="", seconds=4.0)]),
        Tale(**LOSS, faults=[fault(Kind.OUTAGE, T + 0.2, host="", seconds=4.0)]),
        Tale(**LOSS, faults=[fault(Kind.STOP_POOL, T + 0.5, POOL, seconds=3.0)]),
        Tale(**LOSS, faults=[fault(Kind.STALL, T + 0.5, host="", seconds=0.3)]),
        Tale(**LOSS, faults=[fault(Kind.DRAIN, T + 0.5, SUPERVISOR, seconds=2.0)]),
        Tale(**LOSS, faults=[fault(Kind.BLOCKED, T + 0.1, host="", seconds=3.5)]),
        Tale(**RELEASE, faults=[fault(Kind.KILL_POOL, T + 0.9, POOL)]),
        Tale(charge="attempt", reason="unknown", why="waits"),
        Tale(charge="attempt", reason="timeout", why="waits", first_ends_at=T + 0.9),
        Tale(
            charge="nothing", reason="unknown", why="asked by the task", evidence="ctx.retry",
            first_ends_at=T + 0.9, first_error="Transient",
        ),
    ],
    ids=lambda tale: f"{tale.charge} by {tale.faults[0].kind if tale.faults else 'nothing'}",
)  # fmt: skip
def test_a_re_run_whose_reason_has_no_cause_is_unexplained(tale: Tale) -> None:
    assert "I12" in tale.broken()


def test_what_ran_when_the_store_went_away_must_not_run_again_for_it() -> None:
    outage = fault(Kind.OUTAGE, T + 0.3, host="", seconds=4.0)
    hush = Hush(outage, frozenset({Fence(TASK, 1)}), quiet_until=T + 8, finished_after=0.1)
    threat = fault(Kind.KILL_SUPERVISOR, T + 0.5, SUPERVISOR)
    assert Tale(**LOSS, faults=[threat, outage]).broken() == []
    assert Tale(**LOSS, faults=[threat, outage], hush=hush).broken() == ["I12"]
    later = dataclasses.replace(hush, quiet_until=T + 3)
    assert Tale(**LOSS, faults=[threat, outage], hush=later).broken() == []


def test_a_store_that_came_back_and_took_nothing_is_a_fault() -> None:
    outage = fault(Kind.OUTAGE, T + 5, host="", seconds=4.0)
    kill = fault(Kind.KILL_POOL, T + 0.9, POOL)
    assert Tale(faults=[kill, outage], hush=Hush(outage, frozenset())).broken() == ["I13"]


def test_a_body_that_begins_after_its_run_was_closed_needs_a_fault() -> None:
    kill = fault(Kind.KILL_SUPERVISOR, T + 0.5, SUPERVISOR)
    late = Tale(**LOSS, waited=3.0, first_starts_at=T + 6, faults=[kill])
    assert late.broken() == ["I8"]
    stop = fault(Kind.STOP_BOTH, T + 0.5, SUPERVISOR, POOL, seconds=5.5)
    explained = Tale(**LOSS, waited=3.0, first_starts_at=T + 6, faults=[stop])
    assert explained.broken() == []
    assert explained.verdict().zombies == 1


def test_a_zombie_that_begins_after_an_answered_cancel_is_held_against_nobody() -> None:
    stop = fault(Kind.STOP_BOTH, T + 0.5, SUPERVISOR, POOL, seconds=5.5)
    cancel = CancelTold(TASK, CancelAnswer.CANCELLED, at=T + 5.0)
    tale = Tale(**LOSS, first_starts_at=T + 6, faults=[stop], cancels=(cancel,))
    assert "I19" not in [v.invariant for v in tale.verdict().violations if "a body started" in v.evidence]
    awake = Tale(**LOSS, first_starts_at=T + 6, cancels=(cancel,))
    assert "I19" in [v.invariant for v in awake.verdict().violations if "a body started" in v.evidence]


def test_bodies_of_two_runs_at_once_need_a_fault() -> None:
    kill = fault(Kind.KILL_POOL, T + 0.9, POOL)
    assert Tale(faults=[kill], first_ends_at=T + 2.5).broken() == ["I8"]
    drain = fault(Kind.DRAIN, T + 0.5, SUPERVISOR, seconds=2.0)
    assert Tale(**RELEASE, first_ends_at=T + 2.5, faults=[drain]).broken() == []
    assert Tale(**RELEASE, first_ends_at=T + 2.5, faults=[drain]).verdict().overlaps == 1


def test_an_orphan_is_decided_within_the_bound_of_a_steward_that_nothing_hinders() -> None:
    kill = fault(Kind.KILL_WORKER, T + 0.5, SUPERVISOR, POOL)
    late = PLAN.orphan_bound + 1.0
    assert Tale(**LOSS | {"lasted": late}, faults=[kill]).broken() == ["I14"]
    hindered = [fault(Kind.STOP_SUPERVISOR, T + at, 20, host="host-2", seconds=2.0) for at in (2.0, 5.0, 8.0)]
    assert Tale(**LOSS | {"lasted": late}, faults=[kill, *hindered]).broken() == []
    stalled = fault(Kind.STALL, T + 3.0, host="", seconds=1.5)
    assert Tale(**LOSS | {"lasted": late}, faults=[kill, stalled]).broken() == []
    blocked = fault(Kind.BLOCKED, T + 1.0, host="", seconds=3.0)
    assert Tale(**LOSS | {"lasted": late}, faults=[kill, blocked]).broken() == []
    assert Tale(**LOSS | {"lasted": late + 3.5}, faults=[kill, blocked]).broken() == ["I14"]


def test_a_host_that_is_still_down_when_a_second_fault_ends_is_no_steward_yet() -> None:
    kill = fault(Kind.KILL_WORKER, T + 0.5, SUPERVISOR, POOL)
    other = fault(Kind.KILL_WORKER, T + 0.6, 20, 21, host="host-2")
    blocked = fault(Kind.BLOCKED, T + 1.0, host="", seconds=1.0)
    late = PLAN.orphan_bound + 5.0
    assert Tale(**LOSS | {"lasted": late}, faults=[kill, other, blocked]).broken() == []


def test_the_death_of_a_pool_process_is_decided_soon_by_its_own_supervisor() -> None:
    kill = fault(Kind.KILL_POOL, T + 0.5, POOL)
    assert Tale(lasted=1.0 + PLAN.crash_bound, faults=[kill]).broken() == ["I14"]
    hindered = fault(Kind.STOP_SUPERVISOR, T + 2.0, SUPERVISOR, seconds=3.0)
    assert Tale(lasted=1.0 + PLAN.crash_bound, faults=[kill, hindered]).broken() == []


def test_a_task_whose_run_was_decided_is_claimed_within_the_bound() -> None:
    kill = fault(Kind.KILL_POOL, T + 0.9, POOL)
    assert Tale(faults=[kill], waited=PLAN.claim_bound - 0.5).broken() == []
    assert Tale(faults=[kill], waited=PLAN.claim_bound + 0.5).broken() == ["I14"]


def test_recovery_counts_from_the_fault_to_the_next_run() -> None:
    (recovery,) = Tale(faults=[fault(Kind.KILL_POOL, T + 0.8, POOL)]).verdict().recoveries
    assert recovery.seconds == pytest.approx(0.7)
    assert not recovery.is_loss


@pytest.mark.parametrize(
    ("more", "broken"),
    [
        ({"left_processes": ("7: sleep",)}, "left"),
        ({"left_scratch": ("scratch/w1",)}, "left"),
        ({"faults_in_store": ("row missing",)}, "I20"),
        ({"settled_after": None}, "I13"),
        ({"settled_after": 10_000.0}, "I13"),
        ({"journal": Journal(enough_kills()[1:])}, "plan"),
        ({"journal": Journal(enough_kills(), problems=["host-1 ended by itself"])}, "seen"),
    ],
)
def test_what_is_left_behind_or_late_or_was_seen_is_named(more: dict[str, Any], broken: str) -> None:
    tale = Tale(charge="attempt", reason="unknown", why="w", first_ends_at=T + 0.9, first_error="Transient")
    assert tale.broken() == []
    tale.more = more
    assert tale.broken() == [broken]


def test_a_task_that_cannot_succeed_and_did_is_named() -> None:
    kill = fault(Kind.KILL_POOL, T + 0.9, POOL)
    assert Tale(faults=[kill], function="chaos.bodies:hopeless").broken() == ["I10"]


def test_what_a_client_was_told_must_be_what_the_store_says() -> None:
    kill = [fault(Kind.KILL_POOL, T + 0.9, POOL)]
    assert Tale(faults=kill, finals=(Final(TASK, "succeeded", 2),)).broken() == []
    assert Tale(faults=kill, finals=(Final(TASK, "succeeded", 1),)).broken() == ["I6"]
    assert Tale(faults=kill, finals=(Final(TASK, "dead", 0),)).broken() == ["I6"]


def test_the_table_and_the_histories_tell_what_is_wrong() -> None:
    tale = Tale(faults=[fault(Kind.KILL_POOL, T + 0.9, OTHER)])
    seen, verdict = tale.seen(), tale.verdict()
    lines = list(report.offending(seen, verdict))
    assert lines[0].startswith("VIOLATION I12 task: run 1 of w1 on host-1 ended retrying")
    assert any("FAULT pool process killed on host-1 [99]" in line for line in lines)
    assert any("body: start of run 1 in process 11" in line for line in lines)
    assert dict(report.table(seen, verdict))["violations"] == "1"
    assert report.to_plain(seen, verdict)["ok"] is False
    assert report.to_plain(seen, verdict)["reruns_by_reason"] == {"crash: killed": 1}


# --- ledgers and ticker ----------------------------------------------------------------------------------


def new_task(task_id: str) -> NewTask:
    return NewTask(task_id, NAP, "default", Priority.NORMAL, b"args", "json/1", key="k")


def test_a_line_that_a_kill_cut_off_is_as_if_never_written(tmp_path: Path) -> None:
    path = tmp_path / "client-1.ndjson"
    first = Ledger(path)
    first.write(Sent("call-1", (new_task("a"),), many=False))
    assert is_waiting(path)
    first.write(Answered("call-1", ("b",)))
    assert not is_waiting(path)
    with path.open("ab") as file:
        file.write(b'{"type":"sent","call":"call-2"')
    Ledger(path).write(Trouble("later"))
    assert read_lines(path) == [
        Sent("call-1", (new_task("a"),), many=False),
        Answered("call-1", ("b",)),
        Trouble("later"),
    ]


def test_an_enqueue_without_an_answer_may_be_stored_or_not(tmp_path: Path) -> None:
    path = tmp_path / "client-1.ndjson"
    ledger = Ledger(path)
    ledger.write(Sent("call-1", (new_task("a"),), many=False))
    ledger.write(Sent("call-2", (new_task("c"), new_task("d")), many=True))
    ledger.write(Answered("call-2", ("c", "e")))
    clients = read_clients([path])
    assert [(one.task_id, one.ok) for one in clients.told.submitted] == [
        ("a", False),
        ("c", True),
        ("e", True),
    ]
    assert [sent.call for sent in clients.unanswered] == ["call-1"]


def test_a_machine_that_stands_still_is_noticed() -> None:
    program = (
        "import sys, time\n"
        "from chaos.ticker import Ticker\n"
        "with Ticker() as ticker:\n"
        "    print('ticks', flush=True)\n"
        "    sys.stdin.readline()\n"
        "print(any(stall.ended_at - stall.began_at > 0.3 for stall in ticker.stalls))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ticks\n"
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.4)
    process.send_signal(signal.SIGCONT)
    stdout, _ = process.communicate("\n", timeout=20)
    assert stdout == "True\n"
