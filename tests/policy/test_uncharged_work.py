"""Uncharged work has a bound, and a gate moves once for each of its calls: over random histories of runs."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.calls.gate_permit import is_interrupted
from tidegate.domain.calls import CallLog, CallResult, CallSummary
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.outcome import Charge, Counters, Dead, Fence, Outcome, Released, Retrying, Succeeded
from tidegate.domain.spec import Fixed
from tidegate.limits import gate as gates
from tidegate.limits.gate_rows import counts_as_success, is_silent_probe
from tidegate.limits.settings import Limits
from tidegate.limits.values import Gate
from tidegate.policy.charge import (
    INTERRUPTED_LIMIT,
    UNCHARGED_LIMIT,
    charge_for_failure,
    charge_for_release,
    is_refused_before_work,
    may_be_processed,
)
from tidegate.policy.crash import LOSS_LIMIT, decide_orphan, release_run
from tidegate.policy.retry import RetryTerms, call_failure_of, decide, spent
from tidegate.store.common.outcomes import EndedRunRow, get_charge, proves_upstream_answers

UPSTREAMS = ("a", "b")
MAX_ATTEMPTS, CRASH_LIMIT = 3, 3
LIMITS = Limits()


def failed(reason: Reason, status: int | None, verdict: Verdict = Verdict.TRANSIENT, **more) -> CallResult:
    failure = Failure(verdict, reason, status=status, **more)
    return CallResult(failure, status, is_in_doubt=status is None and not failure.is_unsent)


ENDS = {
    "good": CallResult(status=200),
    "limited": failed(Reason.RATE_LIMIT, 429),
    "overloaded": failed(Reason.OVERLOADED, 529),
    "overloaded in the middle": failed(Reason.OVERLOADED, 200),
    "broken": failed(Reason.SERVER_ERROR, 500),
    "slow": failed(Reason.TIMEOUT, None),
    "unreachable": failed(Reason.NETWORK, None, is_unsent=True),
    "revoked": failed(Reason.AUTH, 401, Verdict.PERMANENT),
    "cut": failed(Reason.CANCELLED, None),
}
PROCESSED = {"good", "overloaded in the middle", "broken", "slow", "cut"}
"""Calls that the provider may have worked on."""

ENDINGS = ("returns", "raises", "raises other", "refused", "released", "crashes", "lost", "times out")
RARE = ("returns", "crashes", "lost")
"""Endings that would soon end every task."""


@dataclass
class Task:
    """One task and what its runs came to."""

    number: int
    counters: Counters = field(default_factory=Counters)
    run: int = 0
    paid: int = 0
    """Runs with a call that may have been processed."""
    crashes: int = 0
    interrupted: int = 0
    is_over: bool = False

    @property
    def upstream(self) -> str:
        return ("a", "b", "")[self.number]


@dataclass
class World:
    """Some tasks, and two gates whose moves are counted."""

    tasks: list[Task] = field(default_factory=lambda: [Task(number) for number in range(3)])
    gates: dict[str, Gate] = field(default_factory=lambda: dict.fromkeys(UPSTREAMS, Gate()))
    moves: Counter[str] = field(default_factory=Counter)
    own_calls: Counter[str] = field(default_factory=Counter)
    now: float = 1_800_000_000.0
    rng: random.Random = field(default_factory=lambda: random.Random(1))

    def perform(self, task: Task, made: list[tuple[str, str]], ending: str, *, is_probe: bool) -> None:
        """Make one run of a task, with these calls, ended so."""
        self.now += 1.0
        task.run += 1
        fence = Fence(str(task.number), task.run)
        terms = RetryTerms(MAX_ATTEMPTS, Fixed(1.0), upstream=task.upstream)
        outcome: Outcome | None = spent(fence, terms.max_attempts, task.counters)
        if outcome is None:
            log = CallLog()
            for upstream, end in made:
                self._call(task, log, upstream, ENDS[end])
            failed_last = ENDS[made[-1][1]].failure if made else None
            outcome = self._outcome(fence, terms, task, log.summary(task.upstream), ending, failed_last)
            self._settle(task, made, ending, outcome, is_probe=is_probe)
        task.is_over = isinstance(outcome, Dead | Succeeded)

    def _call(self, task: Task, log: CallLog, upstream: str, end: CallResult) -> None:
        log.begin(upstream)
        log.end(
            upstream, end.failure, may_be_processed=may_be_processed(end), is_interrupted=is_interrupted(end)
        )
        if is_interrupted(end):
            return
        self.own_calls[upstream] += 1
        call_failure = (
            None if end.failure is None else call_failure_of(end.failure, self.rng, task_id=str(task.number))
        )
        if call_failure is not None:
            self._move(upstream, gates.apply_failure(self.gates[upstream], call_failure, LIMITS, self.now))
        else:
            self._move(upstream, gates.apply_call_success(self.gates[upstream], self.now))

    def _outcome(
        self,
        fence: Fence,
        terms: RetryTerms,
        task: Task,
        made: CallSummary,
        ending: str,
        failed_last: Failure | None,
    ) -> Outcome:
        counters = task.counters
        if ending == "released":
            called = made.may_be_processed or (made.count == 0 and bool(task.upstream))
            charge = charge_for_release(counters, may_have_called=called)
            return release_run(fence, "drain", charge, calls=made)
        if ending in ("crashes", "lost"):
            return decide_orphan(
                fence,
                why=ending,
                loss=ending == "lost",
                cancel_requested=False,
                crash_limit=CRASH_LIMIT,
                base_seconds=1.0,
                cap_seconds=1.0,
                counters=counters,
            )
        if ending == "returns":
            return Succeeded(fence, b"", "", made)
        failure = {
            "raises": failed_last or Failure(Verdict.UNKNOWN, Reason.UNKNOWN),
            "raises other": Failure(Verdict.UNKNOWN, Reason.UNKNOWN),
            "refused": Failure(Verdict.TRANSIENT, Reason.OVERLOADED, is_refusal=True, upstream="b"),
            "times out": Failure(Verdict.TRANSIENT, Reason.TIMEOUT),
        }[ending]
        return decide(fence, failure, None, terms, counters, self.rng, made)

    def _settle(
        self, task: Task, made: list[tuple[str, str]], ending: str, outcome: Outcome, *, is_probe: bool
    ) -> None:
        """Count what the run cost its task, and let its end move gates as stores do."""
        charge = Charge.NOTHING if isinstance(outcome, Succeeded) else get_charge(outcome)
        spent_on = Counter({charge: 1})
        task.counters = replace(
            task.counters,
            attempts=task.counters.attempts + spent_on[Charge.ATTEMPT],
            parks=task.counters.parks + spent_on[Charge.PARK],
            crashes=task.counters.crashes + spent_on[Charge.CRASH],
            losses=task.counters.losses + spent_on[Charge.LOSS],
            interruptions=task.counters.interruptions
            + (isinstance(outcome, Released) and charge in (Charge.INTERRUPTED, Charge.ATTEMPT)),
        )
        task.crashes += charge in (Charge.CRASH, Charge.LOSS)
        task.interrupted += charge is Charge.INTERRUPTED
        task.paid += any(end in PROCESSED for _, end in made)
        run = EndedRunRow("w", "q", 1, task.upstream, "f", "", 0.0, 0.0, None, False, is_probe)
        self._settle_gates(run, made, ending, outcome)

    def _settle_gates(
        self, run: EndedRunRow, made: list[tuple[str, str]], ending: str, outcome: Outcome
    ) -> None:
        call_failure = outcome.call_failure if isinstance(outcome, Retrying | Dead) else None
        if call_failure is not None and not call_failure.is_reported:
            name = call_failure.upstream or run.upstream
            cut = [upstream for upstream, end in made if end == "cut"]
            # A run without calls through transports is one call of its upstream; else it reports the cut one.
            self.own_calls[name] += 1
            assert (name == run.upstream and not made) or (name == cut[-1] and ending == "times out")
            self._move(name, gates.apply_failure(self.gates[name], call_failure, LIMITS, self.now))
        elif (
            call_failure is None and isinstance(outcome, Retrying | Dead) and proves_upstream_answers(outcome)
        ):
            assert not made
        elif not isinstance(outcome, Succeeded) and is_silent_probe(run, outcome.calls):
            assert not any(upstream == run.upstream for upstream, end in made if end != "cut") or ending in (
                "crashes",
                "lost",
            ), "nobody reports a probe that has called as silent"
        if isinstance(outcome, Succeeded) and made and counts_as_success(run, outcome.calls):
            own = [end for upstream, end in made if upstream == run.upstream and end != "cut"]
            assert own[-1] == "good"

    def _move(self, upstream: str, after: Gate) -> None:
        self.gates[upstream] = after
        self.moves[upstream] += 1


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), runs=st.integers(1, 90), favoured=st.sampled_from(sorted(ENDS)))
def test_runs_that_may_be_billed_are_bounded_and_each_call_moves_its_gate_once(
    seed: int, runs: int, favoured: str
) -> None:
    world, rng = World(), random.Random(seed)
    for _ in range(runs):
        task = rng.choice(world.tasks)
        ends = [favoured if rng.random() < 0.7 else rng.choice(sorted(ENDS)) for _ in range(rng.randrange(4))]
        ending = rng.choice([one for one in ENDINGS if one not in RARE or rng.random() < 0.2])
        if not task.is_over:
            made = [(rng.choice(UPSTREAMS), end) for end in ends]
            world.perform(task, made, ending, is_probe=rng.random() < 0.5)
    for task in world.tasks:
        assert task.paid <= MAX_ATTEMPTS + task.crashes + task.interrupted
        assert task.interrupted <= INTERRUPTED_LIMIT
        assert task.counters.parks <= UNCHARGED_LIMIT
        assert task.crashes <= CRASH_LIMIT + LOSS_LIMIT
        assert task.counters.attempts <= MAX_ATTEMPTS
    assert world.moves == world.own_calls


@given(st.lists(st.sampled_from(sorted(ENDS)), min_size=1, max_size=4))
def test_a_run_is_free_only_if_all_its_calls_were_refused_before_any_work(ends) -> None:
    log = CallLog()
    for end in ends:
        log.begin("a")
        call = ENDS[end]
        log.end(
            "a", call.failure, may_be_processed=may_be_processed(call), is_interrupted=is_interrupted(call)
        )
    last = ENDS[ends[-1]].failure or Failure(Verdict.UNKNOWN, Reason.UNKNOWN)
    charge = charge_for_failure(last, log.summary("a"), Counters())
    assert (charge is Charge.ATTEMPT) == (not PROCESSED.isdisjoint(ends))


def test_a_call_that_the_function_cancelled_is_not_blamed_for_the_timeout_of_another() -> None:
    log = CallLog()
    for upstream, end in (("a", ENDS["cut"]), ("b", ENDS["slow"])):
        log.begin(upstream)
        log.end(
            upstream, end.failure, may_be_processed=may_be_processed(end), is_interrupted=is_interrupted(end)
        )
    slow = ENDS["slow"].failure
    assert slow is not None
    terms = RetryTerms(MAX_ATTEMPTS, Fixed(1.0), upstream="a")
    outcome = decide(Fence("t", 1), slow, None, terms, Counters(), random.Random(1), log.summary("a"))
    assert isinstance(outcome, Retrying)
    assert outcome.call_failure is not None
    assert (outcome.call_failure.upstream, outcome.call_failure.is_reported) == ("b", True)


def test_a_call_in_flight_when_the_run_ends_may_have_been_processed() -> None:
    log = CallLog()
    log.begin("a")
    made = log.summary("a")
    assert (made.may_be_processed, made.interrupted_upstream, made.count) == (True, "a", 1)
    log.record_unsent("a")
    assert log.summary("a") == CallSummary()


def test_waits_for_our_own_gate_never_count_unless_a_call_was_billed_before() -> None:
    refusal = Failure(Verdict.TRANSIENT, Reason.RATE_LIMIT, is_refusal=True, upstream="a")
    spent_all = Counters(parks=UNCHARGED_LIMIT)
    assert is_refused_before_work(refusal)
    assert charge_for_failure(refusal, CallSummary(), spent_all) is Charge.WAIT
    paid = CallSummary(count=1, may_be_processed=True, own_succeeded=True)
    assert charge_for_failure(refusal, paid, spent_all) is Charge.ATTEMPT


@given(st.integers(0, 30))
def test_the_sixth_interruption_and_each_later_one_is_charged(interruptions: int) -> None:
    counters = Counters(interruptions=interruptions)
    charge = charge_for_release(counters, may_have_called=True)
    assert charge is (Charge.INTERRUPTED if interruptions < INTERRUPTED_LIMIT else Charge.ATTEMPT)
    assert charge_for_release(counters, may_have_called=False) is Charge.RELEASE


def test_a_task_whose_attempts_were_spent_by_interruptions_does_not_begin() -> None:
    terms = RetryTerms(MAX_ATTEMPTS, Fixed(1.0))
    full = Counters(attempts=MAX_ATTEMPTS, interruptions=INTERRUPTED_LIMIT + 1)
    assert spent(Fence("t", 1), terms.max_attempts, replace(full, attempts=MAX_ATTEMPTS - 1)) is None
    assert spent(Fence("t", 1), terms.max_attempts, replace(full, interruptions=0)) is None
    end = spent(Fence("t", 1), terms.max_attempts, full)
    assert isinstance(end, Dead)
    assert end.charge is Charge.NOTHING
