"""A schema newer than the code: older processes work with it if its migrations allow it, and otherwise refuse
it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
from store_back_ends import Clients, opened
from store_build import Build, SettableClock, succeeded

from support import upgraded_by_later_release
from tidegate.domain.states import State
from tidegate.errors import SchemaError
from tidegate.store.common.migrate import Migration, require_compatible_schema
from tidegate.store.postgres import schema as postgres_schema
from tidegate.store.postgres.store import PostgresStore
from tidegate.store.protocol import Store
from tidegate.store.sqlite import schema as sqlite_schema

NEWEST = len(sqlite_schema.known_migrations())
ADDS = "ALTER TABLE /*schema*/task ADD COLUMN colour text;"
BREAKS = f"UPDATE /*schema*/compatible SET since = {NEWEST + 1};"
BREAKS_NEXT = f"UPDATE /*schema*/compatible SET since = {NEWEST + 2};"


@pytest.fixture
async def made(unmade: Clients) -> AsyncIterator[Store]:
    """A client of a schema that this release created and that the test may upgrade."""
    store = unmade()
    await store.migrate()
    await store.open()
    yield store
    await store.close()


async def test_the_schema_of_this_version_is_not_newer(made: Store) -> None:
    assert await made.count_newer_migrations() == 0


async def test_old_code_works_if_every_later_migration_allows_it(
    made: Store,
    unmade: Clients,
    clock: SettableClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    build = Build(made, clock)
    task_id = await build.one()
    await upgraded_by_later_release(made, monkeypatch, ADDS, "SELECT 1;")
    with caplog.at_level(logging.INFO, "tidegate.store"):
        async with opened(unmade) as old:
            assert await old.count_newer_migrations() == 2
            build.store = old
            run = (await build.claim(await build.worker()))[0]
            await build.done(succeeded(run.fence))
            other = await build.one()
            assert await build.states([task_id, other]) == {task_id: State.SUCCEEDED, other: State.READY}
    assert [
        record.getMessage().partition("is ")[2] for record in caplog.records if "newer" in record.message
    ] == ["2 migrations newer than this version of Tidegate, which can work with it"]


@pytest.mark.parametrize(
    "later", [(BREAKS,), (ADDS, BREAKS_NEXT), (BREAKS, ADDS)], ids=["one", "second", "first"]
)
async def test_old_code_refuses_a_schema_that_a_later_migration_made_incompatible(
    made: Store, unmade: Clients, monkeypatch: pytest.MonkeyPatch, later: tuple[str, ...]
) -> None:
    await upgraded_by_later_release(made, monkeypatch, *later)
    old = unmade()
    for look in (old.open, old.count_newer_migrations):
        with pytest.raises(SchemaError, match=r"newer .*upgrade Tidegate") as caught:
            await look()
        assert (caught.value.database_version, caught.value.code_version) == (NEWEST + len(later), NEWEST)
    await old.close()


async def test_a_release_that_knows_the_incompatible_migration_works_with_a_newer_one(
    made: Store, unmade: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    await upgraded_by_later_release(made, monkeypatch, BREAKS, ADDS)
    for back_end in (sqlite_schema, postgres_schema):
        known = (*back_end.known_migrations(), Migration(NEWEST + 1, f"{NEWEST + 1:03d}_later", BREAKS))
        monkeypatch.setattr(back_end, "known_migrations", lambda known=known: known)
    async with opened(unmade) as next_one:
        assert await next_one.count_newer_migrations() == 1


async def test_old_code_never_changes_a_newer_schema(
    made: Store, unmade: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    await upgraded_by_later_release(made, monkeypatch, ADDS)
    with pytest.raises(SchemaError, match="newer"):
        await made.migrate()
    if isinstance(made, PostgresStore):
        with pytest.raises(SchemaError, match="newer"):
            await made.upgrade_script()


@pytest.mark.parametrize(
    ("applied", "since", "says"),
    [
        ({1, 2}, 1, None),
        ({1, 2, 3}, 2, None),
        ({1, 2, 3}, 3, r"newer \(003\) than this version of Tidegate knows \(002\)"),
        ({1}, 1, "older"),
        ({1, 3}, 1, "older"),
        ({1, 3}, 3, "newer"),
    ],
)
def test_a_schema_is_compatible_if_it_has_all_known_migrations_and_allows_this_version(
    applied: set[int], since: int, says: str | None
) -> None:
    known = [Migration(number, "", "") for number in (1, 2)]
    names = dict.fromkeys(applied, "")
    if says is None:
        require_compatible_schema(known, names, since, place="here")
    else:
        with pytest.raises(SchemaError, match=says):
            require_compatible_schema(known, names, since, place="here")
