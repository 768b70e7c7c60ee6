"""The provider jobs of a task over HTTP, and in `app.admin`."""

from __future__ import annotations

import pytest
from web_support import bearer, direct, make

from tidegate import Context, JobState, Pending, Tidegate
from tidegate.internals import core_of
from tidegate.web import Role

pytestmark = pytest.mark.anyio


async def with_a_job(app: Tidegate, tenant: str | None = None) -> str:
    """Return the id of a task whose provider job is done after two polls."""
    answers: list[Pending | str] = [Pending(done=1, total=2, note="half"), "secret"]

    @app.task(name="web:film")
    async def film(ctx: Context) -> int:
        result = await ctx.remote(
            "video", lambda: "video_1", lambda job_id: answers.pop(0), every=0.01, provider="openai"
        )
        return len(result)

    task_id = (await film.using(tenant=tenant).enqueue()).id
    core = core_of(app)
    async with app.worker():
        await core.task_watcher(await core.opened_store()).final(task_id)
    return task_id


async def test_provider_jobs_are_listed_without_their_results(app: Tidegate) -> None:
    task_id = await with_a_job(app)
    async with direct(app) as client:
        response = await client.get(f"/api/v1/tasks/{task_id[:30]}/provider-jobs")
    [job] = response.json()["provider_jobs"]
    assert (job["name"], job["job_id"], job["provider"], job["state"]) == (
        "video",
        "video_1",
        "openai",
        "done",
    )
    assert (job["polls"], job["submits"], job["done"], job["total"], job["note"]) == (2, 1, 1, 2, "half")
    assert job["next_poll_at"] is None
    assert "secret" not in response.text
    [same] = await app.admin.tasks.provider_jobs(task_id)
    assert (same.state, same.job_id, same.next_poll_at) == (JobState.DONE, "video_1", None)


async def test_a_token_of_a_tenant_sees_the_jobs_of_its_own_tasks_only(app: Tidegate) -> None:
    theirs = await with_a_job(app, tenant="other")
    async with direct(app) as client:
        ours = bearer(await make(app, Role.VIEWER, tenant="acme"))
        assert (await client.get(f"/api/v1/tasks/{theirs}/provider-jobs", headers=ours)).status_code == 404
