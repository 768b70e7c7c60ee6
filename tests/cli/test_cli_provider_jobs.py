"""`tidegate tasks show` and `why` of a task that waits for a provider job."""

from __future__ import annotations

from tidegate.domain.outcome import Suspended
from tidegate.store.provider_job_rows import JobBegin, JobEvent, JobReport

WHY = "waits for provider job batch_abc at openai, polled 1 time, next at 2026-12-01 14:05:10 UTC"


def waiting(workspace):
    """Return the id of a task that waits for its provider job."""
    (task_id,) = workspace.add(1)
    claimed = []
    workspace.work(lambda task: claimed.append(task.fence))
    (fence,) = claimed

    async def wait(store):
        await store.begin_provider_job(JobBegin(fence, "job:1", "summaries", "openai", can_cancel=True))
        for event in (JobEvent.SUBMITTED, JobEvent.PENDING):
            await store.record_provider_job(
                JobReport(fence, "job:1", 1, event, "batch_abc", 600, note="in line")
            )
        await store.finish([Suspended(fence, 600, WHY)])

    workspace.ask(wait)
    return task_id


def test_show_lists_the_jobs_of_a_task_with_their_ids(workspace):
    task_id = waiting(workspace)
    text = workspace.run("tasks", "show", task_id).stdout
    heading, row = (
        line.split() for line in text.splitlines() if "PROVIDER JOB" in line or "summaries" in line
    )
    assert heading[:5] == ["PROVIDER", "JOB", "ID", "STATE", "PROVIDER"]
    assert row[:5] == ["summaries", "batch_abc", "running", "openai", "1"]
    [job] = workspace.json("tasks", "show", task_id)["provider_jobs"]
    assert (job["job_id"], job["state"], job["polls"], job["note"]) == ("batch_abc", "running", 1, "in line")


def test_why_names_the_job_the_polls_and_the_next_one(workspace):
    assert WHY in workspace.run("tasks", "why", waiting(workspace)).stdout


def test_a_cancel_waits_for_the_cancel_of_the_job(workspace):
    task_id = waiting(workspace)
    assert "requested" in workspace.run("tasks", "cancel", task_id).stdout
    assert "suspended" in workspace.run("tasks", "ls").stdout
