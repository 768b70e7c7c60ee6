"""The stall watch with a test clock: it kills silent processes, unless the supervisor itself did not run."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.worker.supervisor.stall_watch import StallWatch

LIMIT = 4.0


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Process:
    """A pool process that answers, or does not."""

    clock: Clock
    pid: int = 1
    answers: bool = True
    kill_reason: list[str] = field(default_factory=list)
    owes_since: float | None = None

    def ping(self) -> None:
        if self.owes_since is None and not self.answers:
            self.owes_since = self.clock.now

    def stalled_seconds(self) -> float:
        return 0.0 if self.owes_since is None else self.clock.now - self.owes_since

    def discount(self, seconds: float) -> None:
        if self.owes_since is not None:
            self.owes_since += seconds

    def kill(self, why: str) -> None:
        self.kill_reason.append(why)


def check_for(watch: StallWatch, clock: Clock, seconds: float) -> None:
    for _ in range(round(seconds)):
        clock.now += 1.0
        watch.check()


def test_a_process_that_does_not_answer_for_longer_than_the_limit_is_killed() -> None:
    clock = Clock()
    mute, sound = Process(clock, answers=False), Process(clock)
    watch = StallWatch(lambda: [mute, sound], limit=LIMIT, clock=clock)
    check_for(watch, clock, LIMIT + 1)
    assert mute.kill_reason == []
    check_for(watch, clock, 1)
    assert mute.kill_reason == ["did not answer for 5 s (stall limit)"]
    assert sound.kill_reason == []


def test_a_ping_sent_before_the_machine_froze_may_be_answered_afterwards() -> None:
    clock = Clock()
    process = Process(clock, answers=False)
    watch = StallWatch(lambda: [process], limit=LIMIT, clock=clock)
    check_for(watch, clock, 2)
    clock.now += 10 * LIMIT  # every process is frozen; the ping has been sent
    watch.check()
    assert process.kill_reason == []
    check_for(watch, clock, 2)
    assert process.kill_reason == []
    check_for(watch, clock, 1)
    assert process.kill_reason == ["did not answer for 5 s (stall limit)"]


def test_a_supervisor_that_always_runs_late_still_kills_stalled_processes() -> None:
    clock = Clock()
    process = Process(clock, answers=False)
    watch = StallWatch(lambda: [process], limit=LIMIT, clock=clock)
    for _ in range(6):
        clock.now += 3.0
        watch.check()
    assert process.kill_reason
