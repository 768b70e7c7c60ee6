"""Approvals over HTTP: the list, the answer with a token, and the page of a signed link."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from web_support import UNKNOWN, bearer, direct, make, serve

from chromium import Page
from tidegate import Context, Tidegate
from tidegate.domain.links import LinkSettings, SignedApproval, sign
from tidegate.internals import core_of
from tidegate.web import Role, create_app

pytestmark = pytest.mark.anyio

OLD = LinkSettings("http://localhost", (b"the old secret of the links",))
LINKS = LinkSettings("http://localhost", (b"the new secret of the links", *OLD.keys))
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
LATER = 4_000_000_000


@pytest.fixture(autouse=True)
def links(app: Tidegate) -> None:
    """Configure links, and declare a task function that asks."""
    core_of(app).links = LINKS

    @app.task(name="web:ask")
    async def ask(ctx: Context, **options: Any) -> Any:
        approval = await ctx.approve("refund > $50", key="refund", **options)
        return [approval.approved, approval.by, approval.comment, approval.data]


async def asking(app: Tidegate, tenant: str | None = None, **options: Any) -> str:
    """Return the id of a task that asks and is suspended."""
    task_id = (await app.function("web:ask").using(tenant=tenant).enqueue(**options)).id
    async with app.worker():
        await suspended(app, task_id)
    return task_id


async def suspended(app: Tidegate, task_id: str) -> None:
    async with asyncio.timeout(20):
        while (await app.status(task_id)).state != "suspended":
            await asyncio.sleep(0.02)


async def result(app: Tidegate, task_id: str) -> Any:
    async with app.worker():
        return await app.result(task_id, 20)


async def link(app: Tidegate, task_id: str) -> str:
    return (await app.admin.approvals.get(task_id)).link


def signed(task_id: str, key: str = "refund", expires_at: int = LATER, *, by: LinkSettings = LINKS) -> str:
    return "/approve/" + sign(by.keys[0], SignedApproval(task_id, key, expires_at))


async def send(client: httpx2.AsyncClient, url: str, answer: str, comment: str = "") -> httpx2.Response:
    return await client.post(url, data={"answer": answer, "comment": comment})


def is_page(response: httpx2.Response, status: int, *texts: str) -> None:
    """Require a page with these texts, and its protective headers."""
    assert (response.status_code, response.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert response.headers["cache-control"] == "no-store"
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert policy.endswith("form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
    assert "unsafe" not in policy
    for text in texts:
        assert text in response.text


async def test_an_open_approval_is_listed_and_answered_with_a_token_and_its_task_goes_on(
    app: Tidegate,
) -> None:
    task_id = await asking(app, timeout=3600, data={"cents": 7}, to="ada@x")
    token = await make(app, Role.OPERATOR)
    async with direct(app) as client:
        client.headers |= bearer(token)
        [asked] = (await client.get("/api/v1/approvals")).json()["approvals"]
        assert asked == {
            "number": 1,
            "task_id": task_id,
            "key": "refund",
            "function": "web:ask",
            "queue": "default",
            "tenant": None,
            "task_state": None,
            "state": "open",
            "question": "refund > $50",
            "data": {"cents": 7},
            "to": "ada@x",
            "asked_at": asked["asked_at"],
            "until": pytest.approx(asked["asked_at"] + 3600),
            "answered_by": "",
            "answered_at": None,
            "comment": "",
            "answer": None,
        }
        url = f"/api/v1/tasks/{task_id}/approvals/refund"
        body = {"approved": True, "comment": "is fine", "data": {"limit": 9}}
        done = await client.post(url, json=body)
        assert done.status_code == 200
        assert (done.json()["state"], done.json()["answer"]) == ("approved", {"limit": 9})
        assert done.json()["answered_by"].startswith("operator of None (")
        assert (await client.post(url, json=body)).json() == done.json()
        assert (await client.get("/api/v1/approvals")).json() == {"approvals": [], "next": None}
        everything = (await client.get("/api/v1/approvals", params={"state": "all"})).json()["approvals"]
        assert everything == [done.json()]
    assert await result(app, task_id) == [True, done.json()["answered_by"], "is fine", {"limit": 9}]
    entries = await (await core_of(app).opened_store()).list_audit_entries()
    assert [(each.action, each.target, each.answer, each.why) for each in entries][-1] == (
        "approval approved",
        task_id,
        "refund",
        "is fine",
    )


async def test_a_second_answer_is_refused_with_who_answered_and_when(app: Tidegate) -> None:
    task_id = await asking(app)
    first, second = [await make(app, Role.OPERATOR) for _ in range(2)]
    url = f"/api/v1/tasks/{task_id}/approvals/refund"
    async with direct(app) as client:
        done = (await client.post(url, json={"approved": False}, headers=bearer(first))).json()
        refused = await client.post(url, json={"approved": True}, headers=bearer(second))
    assert refused.status_code == 409
    problem = refused.json()
    assert problem["type"].endswith("/refused")
    assert (problem["code"], problem["state"]) == ("TG128", "rejected")
    assert (problem["by"], problem["at"]) == (done["answered_by"], done["answered_at"])


async def test_another_tenants_questions_are_neither_shown_nor_answered(app: Tidegate) -> None:
    task_id = await asking(app, tenant="acme")
    mine, theirs = await make(app, Role.OPERATOR, "acme"), await make(app, Role.OPERATOR, "other")
    url = f"/api/v1/tasks/{task_id}/approvals/refund"
    async with direct(app) as client:
        listed = await client.get("/api/v1/approvals", params={"tenant": "acme"}, headers=bearer(theirs))
        assert listed.json()["approvals"] == []
        refused = await client.post(url, json={"approved": True}, headers=bearer(theirs))
        assert refused.status_code == 404
        [asked] = (await client.get("/api/v1/approvals", headers=bearer(mine))).json()["approvals"]
        assert asked["tenant"] == "acme"
        assert (await client.post(url, json={"approved": True}, headers=bearer(mine))).status_code == 200


@pytest.mark.parametrize("role", [Role.VIEWER, Role.SUBMITTER])
async def test_a_role_that_may_not_answer_gets_no_link_either(app: Tidegate, role: Role) -> None:
    task_id = await asking(app)
    token = await make(app, role)
    async with direct(app) as client:
        refused = await client.post(
            f"/api/v1/tasks/{task_id}/approvals/refund", json={"approved": True}, headers=bearer(token)
        )
        assert refused.status_code == 403
        listed = await client.get("/api/v1/approvals", headers=bearer(token))
    assert "/approve/" not in listed.text


async def test_an_answer_to_a_question_that_was_not_asked_is_not_found(app: Tidegate) -> None:
    task_id = await asking(app)
    async with direct(app) as client:
        for target in (f"{task_id}/approvals/other", f"{UNKNOWN}/approvals/refund"):
            missing = await client.post(f"/api/v1/tasks/{target}", json={"approved": True})
            assert missing.status_code == 404


async def test_a_page_shows_the_question_and_to_load_it_answers_nothing(app: Tidegate) -> None:
    task_id = await asking(app, data={"user": "<b>&ada"}, to="boss@x", timeout=3600)
    await make(app, Role.ADMIN)
    async with direct(app) as client:
        for headers in ({}, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}):
            page = await client.get(await link(app, task_id), headers=headers)
            is_page(page, 200, "refund &gt; $50", "&lt;b&gt;&amp;ada", "recorded as that of boss@x")
            assert re.search(r"Please answer before 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC", page.text)
            assert '<form method="post">' in page.text
            assert not re.search(r"<script|javascript:|\son\w+=|https?://", page.text)
    assert len(await app.admin.approvals.list()) == 1


@pytest.mark.parametrize(("answer", "approved"), [("approve", True), ("reject", False)])
async def test_the_form_of_a_page_answers_once_and_each_later_use_shows_who_did(
    app: Tidegate, answer: str, approved: bool
) -> None:
    task_id = await asking(app, to="boss@x")
    url = await link(app, task_id)
    state = "approved" if approved else "rejected"
    async with direct(app) as client:
        own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
        done = await client.post(url, data={"answer": answer, "comment": " ok\r\nñ & <i> "}, headers=own)
        is_page(done, 200, f"boss@x (link) {state} this at 20", "ok\nñ &amp; &lt;i&gt;")
        assert "<form" not in done.text
        is_page(await client.get(url), 200, f"boss@x (link) {state} this at 20")
        other = "reject" if approved else "approve"
        is_page(await send(client, url, other), 409, f"boss@x (link) {state} this at 20")
    assert await result(app, task_id) == [approved, "boss@x (link)", "ok\nñ & <i>", None]
    entries = await (await core_of(app).opened_store()).list_audit_entries()
    found = [(entry.action, entry.actor, entry.target) for entry in entries]
    assert found == [(f"approval {state}", "boss@x (link)", task_id)]


async def test_an_answer_by_a_link_after_one_by_a_token_changes_nothing(app: Tidegate) -> None:
    task_id = await asking(app)
    url = await link(app, task_id)
    await app.admin.approvals.reject(task_id, by="ada")
    async with direct(app) as client:
        is_page(await send(client, url, "approve"), 409, "ada rejected this at 20")
    assert (await app.admin.approvals.get(task_id)).state == "rejected"


async def test_people_who_use_one_link_at_the_same_moment_get_one_answer(app: Tidegate) -> None:
    task_id = await asking(app)
    url = await link(app, task_id)
    async with direct(app) as client:
        pages = await asyncio.gather(*(send(client, url, each) for each in ("approve", "reject") * 4))
    asked = await app.admin.approvals.get(task_id)
    answer = "approve" if asked.state == "approved" else "reject"
    by_answer = dict(zip(("approve", "reject") * 4, (page.status_code for page in pages), strict=True))
    assert by_answer == {answer: 200, "reject" if answer == "approve" else "approve": 409}
    assert all(f"holder of the link {asked.state} this" in page.text for page in pages)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_link_that_was_changed_or_has_expired_does_nothing(app: Tidegate, method: str) -> None:
    task_id = await asking(app)
    good = signed(task_id)
    foreign = signed(task_id, by=LinkSettings("", (b"guessed",)))
    async with direct(app) as client:

        async def use(url: str) -> httpx2.Response:
            return await (client.get(url) if method == "GET" else send(client, url, "approve"))

        for url in (good[:-1], good + "A", foreign, "/approve/x", "/approve/a.b", "/approve/" + "x" * 5_000):
            is_page(await use(url), 404, "This link is not valid")
        is_page(await use(signed(task_id, expires_at=1_700_000_000)), 410, "This link has expired")
        is_page(await use(signed(UNKNOWN)), 410, "This question no longer exists")
        is_page(await use(signed(task_id, "other")), 410, "This question no longer exists")
        core_of(app).links = None
        is_page(await use(good), 404, "This link is not valid")
    assert (await app.admin.approvals.get(task_id)).state == "open"


async def test_a_link_signed_with_the_old_secret_works_until_that_is_removed(app: Tidegate) -> None:
    task_id = await asking(app)
    url = signed(task_id, by=OLD)
    async with direct(app) as client:
        is_page(await client.get(url), 200, "Approve")
        core_of(app).links = replace(LINKS, keys=LINKS.keys[:1])
        is_page(await client.get(url), 404, "not valid")


async def test_a_link_to_a_task_that_was_cancelled_or_deleted_says_so(app: Tidegate) -> None:
    task_id = await asking(app)
    url = signed(task_id)
    await app.handle(task_id).cancel()
    async with direct(app) as client:
        is_page(await client.get(url), 410, "the task is cancelled, so nobody waits for the answer")
        is_page(await send(client, url, "approve"), 410, "the task is cancelled")
        await app.admin.forget(task_id=task_id)
        is_page(await client.get(url), 410, "This question no longer exists")
        is_page(await send(client, url, "approve"), 410, "This question no longer exists")


async def test_a_link_of_a_forgotten_tenant_shows_nothing(app: Tidegate) -> None:
    task_id = await asking(app, tenant="acme")
    url = signed(task_id)
    await app.handle(task_id).cancel()
    await app.admin.forget(tenant="acme")
    async with direct(app) as client:
        page = await client.get(url)
        is_page(page, 410, "This question no longer exists")
        assert "refund" not in page.text


async def test_a_link_after_the_time_out_says_that_the_time_is_over(app: Tidegate) -> None:
    handle = await app.function("web:ask").enqueue(timeout=0.05, on_timeout="reject")
    assert (await result(app, handle.id))[0] is False
    url = signed(handle.id)
    async with direct(app) as client:
        is_page(await client.get(url), 410, "the time for the answer was over at 20")
        is_page(await send(client, url, "approve"), 410, "the time for the answer was over at 20")


@pytest.mark.parametrize(
    "body",
    [b"", b"answer=", b"answer=maybe", b"comment=x", b"\xff\xfe", b"answer=approve&" * 20, b"x" * 70_000],
)
async def test_a_form_without_an_answer_records_nothing(app: Tidegate, body: bytes) -> None:
    task_id = await asking(app)
    async with direct(app) as client:
        is_page(await client.post(signed(task_id), content=body, headers=FORM), 400, "Nothing was recorded")
        long = await send(client, signed(task_id), "approve", "x" * 2_001)
        is_page(long, 400, "at most 2,000 characters")
    assert (await app.admin.approvals.get(task_id)).state == "open"


async def test_a_page_of_another_site_cannot_answer(app: Tidegate) -> None:
    task_id = await asking(app)
    async with direct(app) as client:
        for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            refused = await client.post(signed(task_id), data={"answer": "approve"}, headers=headers)
            assert (refused.status_code, refused.json()["type"].rsplit("/")[-1]) == (403, "wrong-origin")
    assert (await app.admin.approvals.get(task_id)).state == "open"


@pytest.mark.timeout(420)  # the first one may have to install Chromium
async def test_a_person_answers_in_a_browser_below_the_path_of_another_site(
    app: Tidegate, page: Page
) -> None:
    task_id = await asking(app, data={"user": "Ada"}, to="boss@x")
    site = FastAPI()
    site.mount("/queue", create_app(app))
    async with serve(site) as url:
        await page.open(f"{url}/queue{signed(task_id)}")
        assert await page.run("document.querySelector('h1').innerText") == "refund > $50"
        assert await page.run("getComputedStyle(document.querySelector('textarea')).padding") == "8px"
        await page.run("document.querySelector('textarea').focus()")
        await page.type("fine\nby me")
        await page.run("document.querySelector('button[value=reject]').click()")
        await page.until("document.body.innerText.includes('boss@x (link) rejected this at 20')")
        assert await page.run("document.querySelector('form')") is None
    assert page.complaints == []
    asked = await app.admin.approvals.get(task_id)
    assert (asked.state, asked.comment) == ("rejected", "fine\nby me")
