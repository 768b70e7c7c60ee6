"""The part of the store contract for jobs at providers, which tasks submit and poll."""

from __future__ import annotations

from typing import Protocol

from tidegate.store.provider_job_rows import (
    JobAnswer,
    JobBegin,
    JobItem,
    JobItems,
    JobReport,
    ProviderJobRow,
)


class ProviderJobs(Protocol):
    """Provider jobs of tasks.

    A job belongs to its task and is unique in it. If a task that can cancel its job is cancelled, or its
    deadline or total timeout is over, the task runs once more before it ends, so that its function cancels
    the job.
    """

    async def begin_provider_job(self, begin: JobBegin) -> JobAnswer:
        """Record that a run waits for a job; return what is recorded of it.

        A job that ended without a result begins again if a run of its task has failed since then. Before
        that, each run that waits for the job gets the same end. A job that timed out and cannot be
        cancelled goes on with the same id.
        """

    async def record_provider_job(self, report: JobReport) -> JobAnswer:
        """Record what a run reports of a job; return what is recorded now.

        A report of an earlier generation, or of a job that has ended, changes nothing but adds its items.
        """

    async def read_job_items(self, wanted: JobItems) -> list[JobItem]:
        """Return some finished items of a job, ordered by their names; none after the last."""

    async def list_provider_jobs(self, task_id: str) -> list[ProviderJobRow]:
        """Return the jobs of a task, in the order in which they were begun."""
