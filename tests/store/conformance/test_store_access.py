"""Access: valid tokens are found by their digest, and every change has an audit entry."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest
from store_build import Build, SettableClock, expire

from tidegate.domain.access import Role
from tidegate.store.access import NewAuditEntry, NewToken
from tidegate.store.protocol import Store

YEAR = 365 * 86_400.0


def token(number: int = 1, **changes: object) -> NewToken:
    made = NewToken(f"t{number}", sha256(b"%d" % number).digest(), "front end", Role.SUBMITTER, "acme")
    return replace(made, **changes)


def entry(build: Build, target: str = "task", **changes: object) -> NewAuditEntry:
    made = NewAuditEntry(build.id(), "front end", "submitter", "acme", "cancel", target, "cancelled", "late")
    return replace(made, **changes)


async def test_a_token_is_found_only_by_its_digest(store: Store, clock: SettableClock) -> None:
    await store.add_token(token())
    found = await store.find_token(token().digest)
    assert found is not None
    assert (found.id, found.name, found.role, found.tenant) == ("t1", "front end", Role.SUBMITTER, "acme")
    assert (found.created_at, found.expires_at, found.revoked_at) == (clock.now, None, None)
    for wrong in (b"", b"t1", token(2).digest):
        assert await store.find_token(wrong) is None


async def test_a_token_for_all_tenants_differs_from_a_token_for_the_empty_tenant(store: Store) -> None:
    await store.add_token(token(tenant=None, role=Role.ADMIN))
    found = await store.find_token(token().digest)
    assert found is not None
    assert found.tenant is None


async def test_adding_a_token_again_changes_nothing(store: Store) -> None:
    await store.add_token(token())
    await store.add_token(token(role=Role.ADMIN))
    assert [row.role for row in await store.list_tokens()] == [Role.SUBMITTER]


async def test_an_expired_token_is_not_found(store: Store, clock: SettableClock) -> None:
    await store.add_token(token(expires_seconds=60.0))
    clock.advance(59)
    assert await store.find_token(token().digest) is not None
    clock.advance(1)
    assert await store.find_token(token().digest) is None
    assert [row.expires_at for row in await store.list_tokens()] == [clock.now]


async def test_a_revoked_token_is_not_found_but_stays_in_the_list(
    store: Store, twin: Store, clock: SettableClock
) -> None:
    await store.add_token(token(1))
    await store.add_token(token(2))
    revoked_at = clock.now
    assert await store.revoke_token("t1")
    clock.advance(5)
    assert await store.revoke_token("t1")
    assert not await store.revoke_token("t9")
    assert await twin.find_token(token(1).digest) is None
    assert await twin.find_token(token(2).digest) is not None
    assert [(row.id, row.revoked_at) for row in await store.list_tokens()] == [
        ("t1", revoked_at),
        ("t2", None),
    ]


async def test_audit_entries_are_listed_newest_first_in_pages(build: Build, store: Store) -> None:
    entries = [entry(build, f"task {number}") for number in range(7)]
    await store.add_audit_entries(entries[:4])
    await store.add_audit_entries(entries[4:])
    seen: list[str] = []
    after = None
    while page := await store.list_audit_entries(after=after, limit=3):
        seen += [row.target for row in page]
        after = page[-1].id
    assert seen == [f"task {number}" for number in reversed(range(7))]


async def test_an_audit_entry_stores_actor_action_and_time(
    build: Build, store: Store, clock: SettableClock
) -> None:
    await store.add_audit_entries([entry(build, tenant=None)])
    [row] = await store.list_audit_entries()
    assert (row.at, row.actor, row.role, row.tenant) == (clock.now, "front end", "submitter", None)
    assert (row.action, row.target, row.answer, row.why) == ("cancel", "task", "cancelled", "late")


async def test_a_resent_entry_is_recorded_once(build: Build, store: Store) -> None:
    twice = entry(build)
    await store.add_audit_entries([twice])
    await store.add_audit_entries([twice, entry(build)])
    await store.add_audit_entries([])
    assert len(await store.list_audit_entries()) == 2


async def test_audit_entries_are_kept_for_a_year(build: Build, store: Store, clock: SettableClock) -> None:
    await store.add_audit_entries([entry(build, "old")])
    clock.advance(YEAR)
    await store.add_audit_entries([entry(build, "new")])
    await expire(store, finished_seconds=YEAR, dead_seconds=YEAR)
    assert [row.target for row in await store.list_audit_entries()] == ["new", "old"]
    clock.advance(1)
    await expire(store, finished_seconds=YEAR, dead_seconds=YEAR)
    assert [row.target for row in await store.list_audit_entries()] == ["new"]


@pytest.mark.parametrize("text", ["<img src=x>", "a\x00b", "\ud800", "🌊"])
async def test_any_text_can_be_recorded(build: Build, store: Store, text: str) -> None:
    await store.add_audit_entries([entry(build, text, why=text)])
    [row] = await store.list_audit_entries()
    assert row.target == {"a\x00b": "a\\x00b", "\ud800": "\\ud800"}.get(text, text)
