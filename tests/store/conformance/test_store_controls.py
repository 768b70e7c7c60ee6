"""Orders to workers, and what the workers report."""

from __future__ import annotations

import pytest
from store_build import START, Build, SettableClock

from tidegate.domain.spec import Window
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.store.controls import ControlKind, ControlReport, ControlRow, wanted_settings
from tidegate.store.protocol import Store

pytestmark = pytest.mark.anyio

QUIET, CONCURRENCY, RELOAD = ControlKind.QUIET, ControlKind.CONCURRENCY, ControlKind.RELOAD
SLOW = Window("rate_limit", 1, 60.0)


async def test_each_change_makes_a_new_version_of_its_row(
    store: Store, build: Build, clock: SettableClock
) -> None:
    assert await store.set_control(QUIET, "w", 1, by="ada", why="a hot GPU") == 1
    clock.advance(5.0)
    assert await store.set_control(QUIET, "w", 0, by="grace", why="") == 2
    assert await store.set_control(CONCURRENCY, "gpu", None, by="ada", why="") == 1
    assert await store.list_controls() == [
        ControlRow(CONCURRENCY, "gpu", None, 1, START + 5.0, "ada"),
        ControlRow(QUIET, "w", 0, 2, START + 5.0, "grace"),
    ]


async def test_the_last_version_that_a_worker_reported_counts(
    store: Store, build: Build, clock: SettableClock
) -> None:
    new, old = (ControlReport(RELOAD, "*", "w@here", version, f"v{version}") for version in (2, 1))
    await store.report_controls([new, ControlReport(RELOAD, "other", "w@here", 9, "applied")])
    clock.advance(5.0)
    await store.report_controls([old])
    (report,) = await store.list_control_reports(RELOAD, "*")
    assert (report.reporter, report.version, report.answer, report.reported_at) == ("w@here", 2, "v2", START)
    await store.report_controls([])


async def test_the_slots_of_a_worker_can_be_recorded(store: Store, build: Build) -> None:
    worker = await build.worker(slots=4)
    await store.set_worker_slots(worker, 9)
    await store.set_worker_slots("unknown", 9)
    (row,) = await store.list_workers()
    assert row.slots == 9


async def test_what_was_wanted_of_processes_that_are_gone_is_deleted_with_their_reports(
    store: Store, build: Build, clock: SettableClock
) -> None:
    gone, here = "0" * 36, await build.worker(id="1" * 36)
    for name in (gone, here, "w"):
        await store.set_control(QUIET, name, 1, by="ada", why="")
        await store.report_controls([ControlReport(QUIET, name, name, 1, "applied")])
    clock.advance(100.0)
    await store.delete_retired_workers(50.0)
    assert [row.name for row in await store.list_controls()] == [here, "w"]
    assert await store.list_control_reports(QUIET, gone) == []
    assert len(await store.list_control_reports(QUIET, here)) == 1


def test_a_process_is_quiet_if_its_worker_or_itself_is() -> None:
    def row(kind: ControlKind, name: str, value: int | None) -> ControlRow:
        return ControlRow(kind, name, value, 1, 0.0, "ada")

    def quiet(*rows: ControlRow) -> bool:
        return wanted_settings(rows, worker="w", worker_id="id", pool="gpu").is_quiet

    assert quiet(row(QUIET, "w", 1), row(QUIET, "id", 0))
    assert quiet(row(QUIET, "id", 1))
    assert not quiet(row(QUIET, "other", 1), row(RELOAD, "w", None), row(QUIET, "w", 0))
    wanted = wanted_settings([row(CONCURRENCY, "gpu", 3)], worker="w", worker_id="id", pool="gpu")
    assert wanted.concurrency == 3


async def test_a_rate_limit_that_a_person_sets_counts_at_once_and_stays_when_the_code_declares_another(
    store: Store, build: Build
) -> None:
    await build.enqueue(3)
    await store.set_function_limits("app:work", Limits((SLOW,), set_by_person=("rate_limit",)))
    worker = await build.worker()
    assert len(await build.claim(worker)) == 1
    fast = LimitDeclaration(GateKind.FUNCTION, "app:work", Limits((Window("rate_limit", 500, 1.0),)))
    (row,) = await store.declare_limits([fast])
    assert row.limits.windows == (SLOW,)
    assert await build.claim(worker) == []
    await store.set_function_limits("app:work", Limits(set_by_person=("rate_limit",)))
    assert len(await build.claim(worker)) == 2


async def test_a_rate_limit_given_back_to_code_without_one_is_gone(store: Store, build: Build) -> None:
    await build.enqueue(3)
    await store.set_function_limits("app:work", Limits((SLOW,), set_by_person=("rate_limit",)))
    await store.set_function_limits("app:work", None)
    assert await store.list_gates() == []
    assert len(await build.claim(await build.worker())) == 3
