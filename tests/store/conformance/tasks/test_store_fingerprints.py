"""Maintenance adds the fingerprints that older code left out."""

from __future__ import annotations

import pytest
from store_build import FAILED, Build, dead, retrying

from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.fingerprint import fingerprint_of
from tidegate.store.common import outcomes
from tidegate.store.rows import TaskFilter

UNKNOWN = Failure(Verdict.UNKNOWN, Reason.UNKNOWN, "page 7 is empty", error_class="app.Empty")


async def test_letters_of_older_code_are_found_by_fingerprint_after_maintenance(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older_code:
        older_code.setattr(outcomes, "_fingerprint", lambda outcome: None)
        letters = await build.running(3, queue="q")
        await build.done(*[dead(task.fence) for task in letters])
        await build.done(retrying((await build.run()).fence, failure=UNKNOWN))
        await build.done(retrying((await build.run()).fence))
    which = TaskFilter(fingerprint=fingerprint_of(FAILED).id)
    assert await build.store.count_dead_letters(which) == 0

    assert await build.store.add_fingerprints(limit=100) == 4 + 3, "four attempts and three letters"
    assert await build.store.count_dead_letters(which) == 3
    assert await build.store.add_fingerprints(limit=100) == 0
    assert await build.store.find_fingerprints(fingerprint_of(UNKNOWN).id) == [fingerprint_of(UNKNOWN).id]


async def test_fingerprints_are_added_in_batches(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older_code:
        older_code.setattr(outcomes, "_fingerprint", lambda outcome: None)
        await build.done(*[dead(task.fence) for task in await build.running(5)])

    added = [await build.store.add_fingerprints(limit=2) for _ in range(4)]

    assert added == [4, 4, 2, 0]
    assert await build.store.count_dead_letters(TaskFilter(fingerprint=fingerprint_of(FAILED).id)) == 5


async def test_new_letters_need_no_maintenance(build: Build) -> None:
    await build.done(dead((await build.run()).fence))
    await build.done(retrying((await build.run()).fence, failure=UNKNOWN))

    assert await build.store.add_fingerprints() == 0
