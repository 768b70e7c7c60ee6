"""How a run does a provider job: it submits the job once, polls it when due, and waits in between."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from tidegate.context.run_control import Progress, StopReason
from tidegate.context.stop import TaskStopped
from tidegate.context.waits import WaitMethods
from tidegate.domain.readers import text_option
from tidegate.errors import ArgumentsError, UsageError

if TYPE_CHECKING:  # imported by the first provider job
    from tidegate.steps.provider_job import ProviderJob
    from tidegate.store.provider_job_rows import JobReport


class ProviderJobRuns(WaitMethods):
    """Does provider jobs, on the event loop and in plain functions."""

    def _job(
        self,
        name: str,
        submit: Callable[..., Any],
        args: tuple[Any, ...],
        poll: Callable[[str], Any],
        provider: str,
        items: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> ProviderJob:
        from tidegate.steps import current_step
        from tidegate.steps.provider_job import ProviderJob
        from tidegate.steps.provider_job_options import provider_job_options

        self._require_current()
        taken = provider_job_options(name, submit, poll, **options)
        if provider != "":
            text_option("provider", provider)
        if current_step() is not None:
            raise UsageError("ctx.remote was called inside a step", fix="call it between the steps")
        return ProviderJob(
            self._steps(), name, submit, args, poll, taken, items=items, provider=provider or self.upstream
        )

    async def _do_job(self, job: ProviderJob) -> Any:
        """Submit a job unless it was submitted, poll it when a poll is due, and return its result."""
        from tidegate.steps import StepLost, StepRefused, answered

        steps = self._steps()
        try:
            while (under_way := steps.enter(job.key)) is not None:
                await answered(under_way)
            try:
                return await self._job_result(job)
            except Exception:
                job.release()
                raise
            finally:
                steps.leave(job.key)
        except StepLost:
            raise TaskStopped(StopReason.LOST.value) from None
        except StepRefused:
            await self._stop_cancelling()

    async def _job_result(self, job: ProviderJob) -> Any:
        from tidegate.steps import answered, do_step
        from tidegate.steps.waits import Wait

        steps, control = self._steps(), self._control
        with steps.waits.doing_step():
            job.take(await answered(steps.port.begin_job(job.begin())), control.clock())
            if (loading := steps.load()) is not None:
                steps.take(await answered(loading))
            job.meet_submissions()
            after = ""
            while (wanted := job.items_after(after)) is not None and (
                items := await answered(steps.port.read_job_items(wanted))
            ):
                job.take_items(items)
                after = items[-1].item
            if control.is_cancelling and not job.has_ended:
                await self._cancel_job(job)
        while not job.has_ended:
            if not job.job_id and (report := job.nothing_to_submit()) is not None:
                await self._report_job(job, report)
            elif not job.job_id:
                with steps.waits.doing_step():
                    execution, function, options = job.submission()
                    job_id = await do_step(
                        execution, steps, function, options, self._require_current, self._wait_for_work
                    )
                    await self._report_job(job, job.submitted(job_id))
            elif (left := job.next_at() - control.clock()) > 0:
                if control.step_port is None:
                    await asyncio.sleep(left)
                    continue
                with steps.waits.waiting(Wait(job.next_at(), job.why(self._store_now() + left))) as wait:
                    await self._wait(wait)
            else:
                with steps.waits.doing_step():
                    await self._poll_job(job)
        return job.value()

    async def _poll_job(self, job: ProviderJob) -> None:
        from tidegate.steps.current import without_recorded_calls
        from tidegate.steps.doing import called
        from tidegate.steps.provider_job import POLL_SECONDS

        try:
            async with asyncio.timeout(POLL_SECONDS):
                with without_recorded_calls():
                    found = await called(job.polling())
        except Exception as error:
            report, is_raised = job.report_of_error(error)
            await self._report_job(job, report)
            if is_raised:
                raise
            return
        for report in job.reports_of(found):
            await self._report_job(job, report)
        if not job.has_ended and job.job_id and job.is_late(self._control.clock()):
            await self._report_job(job, job.timed_out(await self._call_cancel(job)))

    async def _report_job(self, job: ProviderJob, report: JobReport) -> None:
        """Record what was learned about a job."""
        from tidegate.steps import answered

        now = self._control.clock
        if self._control.step_port is None:
            job.take_unrecorded(report, now())
            return
        job.take(await answered(self._steps().port.report_job(report)), now())
        self._report_progress(report)

    async def _cancel_job(self, job: ProviderJob) -> NoReturn:
        """Cancel the job of a task that ends with this run."""
        from tidegate.steps import StepRefused
        from tidegate.steps.provider_job_functions import error_text

        try:
            found = job.find_submission()
            job.job_id = (await found if inspect.isawaitable(found) else found) or ""
        except Exception as error:
            failure = error_text(error)
        else:
            failure = await self._call_cancel(job) if job.job_id else job.doubt()
        await self._report_job(job, job.cancelled(failure))
        raise StepRefused

    async def _call_cancel(self, job: ProviderJob) -> str:
        """Ask the provider to cancel a job; return why it did not, or an empty text."""
        from tidegate.steps.doing import called
        from tidegate.steps.provider_job import CANCEL_PAUSE_SECONDS, CANCEL_TRIES
        from tidegate.steps.provider_job_functions import error_text, may_try_again

        function = job.cancelling()
        if function is None:
            return ""
        for tries_left in range(CANCEL_TRIES - 1, -1, -1):
            try:
                await called(function)
            except Exception as error:
                if tries_left == 0 or not may_try_again(error):
                    return error_text(error)
                await asyncio.sleep(CANCEL_PAUSE_SECONDS)
            else:
                return ""
        raise AssertionError  # the last round returns

    def _report_progress(self, report: JobReport) -> None:
        if report.done is not None:
            self._control.on_progress(Progress(report.done, report.total, report.note))

    # --- the same from a plain function ------------------------------------------------------------------

    def _do_job_sync(self, job: ProviderJob) -> Any:
        from tidegate.steps import StepLost, StepRefused

        self._require_no_loop("ctx.remote_sync", "use `await ctx.remote(…)`")
        steps = self._steps()
        try:
            while (under_way := steps.enter(job.key)) is not None:
                under_way.result()
            try:
                return self._job_result_sync(job)
            except Exception:
                job.release()
                raise
            finally:
                steps.leave(job.key)
        except StepLost:
            raise TaskStopped(StopReason.LOST.value) from None
        except StepRefused:
            raise TaskStopped(StopReason.CANCEL.value) from None

    def _job_result_sync(self, job: ProviderJob) -> Any:
        from tidegate.steps import do_step_sync
        from tidegate.steps.waits import Wait

        steps, control = self._steps(), self._control
        with steps.waits.doing_step():
            job.take(steps.port.begin_job(job.begin()).result(), control.clock())
            if (loading := steps.load()) is not None:
                steps.take(loading.result())
            job.meet_submissions()
            after = ""
            while (wanted := job.items_after(after)) is not None and (
                items := steps.port.read_job_items(wanted).result()
            ):
                job.take_items(items)
                after = items[-1].item
            if control.is_cancelling and not job.has_ended:
                self._cancel_job_sync(job)
        while not job.has_ended:
            self.raise_if_cancelled()
            if not job.job_id and (report := job.nothing_to_submit()) is not None:
                self._report_job_sync(job, report)
            elif not job.job_id:
                with steps.waits.doing_step():
                    execution, function, options = job.submission()
                    job_id = do_step_sync(
                        execution, steps, function, options, self._require_current, self._wait_for_work_sync
                    )
                    self._report_job_sync(job, job.submitted(job_id))
            elif (left := job.next_at() - control.clock()) > 0:
                if control.step_port is None:
                    time.sleep(left)
                    continue
                with steps.waits.waiting(Wait(job.next_at(), job.why(self._store_now() + left))) as wait:
                    self._wait_sync(wait)
            else:
                with steps.waits.doing_step():
                    self._poll_job_sync(job)
        return job.value()

    def _poll_job_sync(self, job: ProviderJob) -> None:
        from tidegate.steps.current import without_recorded_calls

        try:
            with without_recorded_calls():
                found = _plain(job.polling(), "poll")
        except Exception as error:
            report, is_raised = job.report_of_error(error)
            self._report_job_sync(job, report)
            if is_raised:
                raise
            return
        for report in job.reports_of(found):
            self._report_job_sync(job, report)
        if not job.has_ended and job.job_id and job.is_late(self._control.clock()):
            self._report_job_sync(job, job.timed_out(self._call_cancel_sync(job)))

    def _report_job_sync(self, job: ProviderJob, report: JobReport) -> None:
        if self._control.step_port is None:
            job.take_unrecorded(report, self._control.clock())
            return
        job.take(self._steps().port.report_job(report).result(), self._control.clock())
        self._report_progress(report)

    def _cancel_job_sync(self, job: ProviderJob) -> NoReturn:
        from tidegate.steps import StepRefused
        from tidegate.steps.provider_job_functions import error_text

        try:
            job.job_id = _plain(job.find_submission, "find") or ""
        except Exception as error:
            failure = error_text(error)
        else:
            failure = self._call_cancel_sync(job) if job.job_id else job.doubt()
        self._report_job_sync(job, job.cancelled(failure))
        raise StepRefused

    def _call_cancel_sync(self, job: ProviderJob) -> str:
        from tidegate.steps.provider_job import CANCEL_PAUSE_SECONDS, CANCEL_TRIES
        from tidegate.steps.provider_job_functions import error_text, may_try_again

        function = job.cancelling()
        if function is None:
            return ""
        for tries_left in range(CANCEL_TRIES - 1, -1, -1):
            try:
                _plain(function, "cancel")
            except Exception as error:
                if tries_left == 0 or not may_try_again(error):
                    return error_text(error)
                time.sleep(CANCEL_PAUSE_SECONDS)
            else:
                return ""
        raise AssertionError  # the last round returns


def _plain(function: Callable[[], Any], option: str) -> Any:
    """Call a plain function of the application.

    Raises:
        ArgumentsError: It returned an awaitable.
    """
    value = function()
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise ArgumentsError(
            f"ctx.remote_sync: {option} returned an awaitable",
            fix="pass a plain function, or use `await ctx.remote(…)`",
        )
    return value
