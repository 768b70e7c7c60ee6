"""Deaths and ended tasks in ranges of minutes, and the surges that follow from them."""

from __future__ import annotations

from store_build import START, Build, SettableClock, dead, succeeded

from tidegate.deadletter.surges import find_surges, surge_fields
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.policy.surge import Window
from tidegate.store.history_rows import WindowDeaths, WindowEnded

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
FIRST = int(START // 60)


async def end(build: Build, deaths: int, successes: int, *, queue: str = "main") -> None:
    """Let tasks die and succeed now."""
    tasks = await build.running(deaths + successes, queue=queue)
    failure = Failure(Verdict.PERMANENT, Reason.REJECTED, "page 1 is empty", error_class="app.Empty")
    await build.done(
        *[dead(task.fence, failure=failure) for task in tasks[:deaths]],
        *[succeeded(task.fence) for task in tasks[deaths:]],
    )


async def test_each_range_has_its_own_deaths_and_ended_tasks_before_and_after_the_fold(
    build: Build, clock: SettableClock
) -> None:
    assert await build.store.counted_since() is None
    await end(build, 2, 3, queue="main")
    clock.advance(HOUR)
    await end(build, 1, 0, queue="other")
    windows = [Window(FIRST, FIRST + 60), Window(FIRST + 60, FIRST + 120), Window(FIRST - 60, FIRST)]
    for _ in range(2):
        found = await build.store.count_windows(windows)
        fingerprint = found.deaths[0].fingerprint
        assert sorted(found.deaths) == [
            WindowDeaths(0, "main", "app:work", "rejected", fingerprint, 2),
            WindowDeaths(1, "other", "app:work", "rejected", fingerprint, 1),
        ]
        assert sorted(found.ended) == [
            WindowEnded(0, "main", "app:work", 5),
            WindowEnded(1, "other", "app:work", 1),
        ]
        assert await build.store.counted_since() == FIRST
        clock.advance(10 * MINUTE)
        await build.store.compact_history()


async def test_names_choose_the_deaths_of_ranges(build: Build) -> None:
    await end(build, 2, 3, queue="main")
    await end(build, 1, 0, queue="other")
    window = [Window(FIRST, FIRST + 1)]

    async def count(**names: str) -> tuple[int, int]:
        found = await build.store.count_windows(window, **names)
        return sum(row.deaths for row in found.deaths), sum(row.ended for row in found.ended)

    (row, *_) = (await build.store.count_windows(window)).deaths
    assert await count(queue="main") == (2, 5)
    assert await count(function="app:work") == (3, 6)
    assert await count(function="app:no") == (0, 0)
    assert await count(reason="rejected", fingerprint=row.fingerprint) == (3, 6)
    assert await count(reason="quota") == (0, 6)
    assert await count(fingerprint="0" * 16) == (0, 6)


async def test_deaths_surge_against_the_same_hours_of_the_days_before(
    build: Build, clock: SettableClock
) -> None:
    for _ in range(4):
        await end(build, 1, 20)
        clock.advance(DAY)
        await build.store.compact_history()
    assert await find_surges(build.store) == []
    await end(build, 1, 20)
    (usual,) = await find_surges(build.store)
    assert (usual.key, usual.surge.surges) == ("app:work", False)
    await end(build, 14, 5)
    for by, key in (("function", "app:work"), ("queue", "main"), ("reason", "rejected")):
        (found,) = await find_surges(build.store, by=by)
        assert (found.key, found.surge.count.surges, found.surge.share.surges) == (key, True, True)
        assert "the same hours of 3 earlier days" in found.surge.why
    (found,) = await find_surges(build.store, by="fingerprint", reason="rejected")
    shown = surge_fields(found)
    assert shown["surges"]
    assert (shown["count"]["now"], shown["count"]["expected"]) == (15, 1.0)
    assert await find_surges(build.store, queue="none") == []


async def test_a_store_of_some_hours_is_compared_with_them(build: Build, clock: SettableClock) -> None:
    for _ in range(3):
        await end(build, 0, 20)
        clock.advance(HOUR)
    await end(build, 10, 10)
    (found,) = await find_surges(build.store, window="5m")
    assert found.surge.surges
    assert "the 2 hours before" in found.surge.why
