"""Both stores answer the same random reports of steps alike, and keep what they promise about them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from store_back_ends import BACK_ENDS, opened
from store_build import Build, SettableClock, dead, retrying

from tidegate.domain.outcome import Fence
from tidegate.domain.step import DoubtAnswer, DoubtState, OnDoubt, StepState
from tidegate.store.step_rows import EndStatus, StepBegin, StepEnd

pytestmark = pytest.mark.anyio
KEYS = ("a", "b", "c")


@pytest.fixture
async def builds(request: pytest.FixtureRequest, clock: SettableClock) -> AsyncIterator[list[Build]]:
    """A store of each back end, whose tasks get the same ids."""
    async with AsyncExitStack() as stack:
        made: list[Build] = []
        for name in ("postgres", "sqlite"):
            clients = stack.enter_context(BACK_ENDS[name].clients(request, clock))
            made.append(Build(await stack.enter_async_context(opened(clients)), clock))
        yield made


async def alike(calls: list[Any]) -> Any:
    """Return the answer that all stores give."""
    answers = [await call for call in calls]
    assert all(answer == answers[0] for answer in answers), answers
    return answers[0]


async def known(build: Build, task_id: str) -> tuple[list[Any], list[Any]]:
    """Return the steps and the ledger of a task, without what the order within a batch decides."""
    entries = await build.store.list_doubts(state=None, task_id=task_id)
    entries = [replace(each, id=0) for each in entries]
    steps = await build.store.read_steps(task_id)
    return sorted(steps, key=lambda each: each.key), sorted(
        entries, key=lambda each: (each.key, each.run, each.attempt)
    )


def begin(chance: random.Random, fence: Fence) -> StepBegin:
    on_doubt, upstream = chance.choice(list(OnDoubt)), chance.choice(("", "openai"))
    return StepBegin(fence, chance.choice(KEYS), chance.randint(1, 2), "step", on_doubt, upstream)


def end(chance: random.Random, fence: Fence) -> StepEnd:
    status = chance.choice([EndStatus.DONE, EndStatus.FAILED, EndStatus.IN_DOUBT])
    key, attempt = chance.choice(KEYS), chance.randint(1, 2)
    cause, request_id = chance.choice(("", "it was reset")), chance.choice(("", "req_1"))
    used = {"input_tokens": chance.choice((None, 0, 7)), "output_tokens": chance.choice((None, 3))}
    if status is not EndStatus.DONE:
        return StepEnd(fence, key, attempt, status, cause=cause, request_id=request_id, **used)
    result = f"{fence.run}.{attempt}".encode()
    return StepEnd(fence, key, attempt, status, result, "json", upstream="other", **used)


class Story:
    """One task in both stores, to which random things happen."""

    def __init__(self, builds: list[Build], chance: random.Random) -> None:
        self.builds = builds
        self.chance = chance
        self.fence = Fence("", 0)

    async def start(self) -> None:
        """Store the task and claim its first run."""
        self.fence = (await alike([build.run(queue="q") for build in self.builds])).fence

    async def happen(self) -> None:
        """Let one thing happen."""
        what = self.chance.choices(
            (self.begin, self.end, self.find, self.resolve, self.run_again), (8, 8, 2, 2, 1)
        )[0]
        await what()

    async def begin(self) -> None:
        given = [begin(self.chance, self._any_run()) for _ in range(self.chance.randint(1, 3))]
        await alike([build.store.begin_steps(given) for build in self.builds])

    async def end(self) -> None:
        given = [end(self.chance, self._any_run()) for _ in range(self.chance.randint(1, 3))]
        await alike([build.store.end_steps(given) for build in self.builds])

    async def find(self) -> None:
        await alike([build.store.find_doubts() for build in self.builds])

    async def resolve(self) -> None:
        """Decide about an entry: the same of each store, whatever its id there."""
        answer, place = self.chance.choice(list(DoubtAnswer)), self.chance.random()
        statuses = []
        for build in self.builds:
            entries = await build.store.list_doubts(state=None, task_id=self.fence.task_id)
            if entries:
                entry = entries[int(place * len(entries))]
                given = {"data": b"given", "codec": "json"} if answer is DoubtAnswer.ACCEPT else {}
                found = await build.store.resolve_doubts([entry.id], answer, by="ada", **given)
                statuses += found.values()
        assert len(set(statuses)) <= 1

    async def run_again(self) -> None:
        """End the run in one of two ways, and claim the next one."""
        is_dead = self.chance.random() < 0.5
        for build in self.builds:
            await build.done(dead(self.fence) if is_dead else retrying(self.fence, delay=0.0))
            await (build.store.redrive([self.fence.task_id]) if is_dead else build.store.promote())
        claims = [await build.claim(await build.worker(), queues=("q",)) for build in self.builds]
        assert [claim[0].fence for claim in claims] == [claims[0][0].fence] * len(claims)
        self.fence = claims[0][0].fence

    def _any_run(self) -> Fence:
        """Return the current run most of the time, else an earlier one."""
        if self.chance.random() < 0.6:
            return self.fence
        return self.fence._replace(run=self.chance.randint(1, self.fence.run))


@pytest.mark.parametrize("seed", range(6))
async def test_random_reports_are_answered_alike_by_both_stores(builds: list[Build], seed: int) -> None:
    story = Story(builds, random.Random(seed))
    await story.start()
    results: dict[str, bytes] = {}
    for _ in range(100):
        builds[0].clock.advance(1.0)
        await story.happen()
        steps, entries = await alike([known(build, story.fence.task_id) for build in builds])
        for step in steps:
            if step.state is StepState.DONE:
                assert results.setdefault(step.key, step.data) == step.data, (
                    "the first result is the only one"
                )
            unanswered = [e for e in entries if e.key == step.key and e.state is DoubtState.OPEN]
            assert len(unanswered) <= 1
            for entry in unanswered:
                assert step.state is StepState.OPEN
                assert (entry.run, entry.attempt) == (step.run, step.attempt)
        assert results.keys() <= {step.key for step in steps if step.state is StepState.DONE}
