"""The part of a task's context for provider jobs: `ctx.remote`, `ctx.remote_batch` and their sync twins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, overload

from tidegate.context.provider_job_runs import ProviderJobRuns
from tidegate.domain.readers import Seconds, wrong

if TYPE_CHECKING:  # imported by the first provider job
    from tidegate.steps.options import DoubtPolicy
    from tidegate.steps.pending import Pending
    from tidegate.steps.provider_job_options import Cancel, Find

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741 - an item
Ts = TypeVarTuple("Ts")

EVERY = "30s"
"""The first pause between polls."""
MAX_POLL_FAILURES = 20
MAX_SUBMITS = 3


class ProviderJobMethods(ProviderJobRuns):
    """Jobs that a provider does for minutes or hours. Between polls the task uses no slot of the worker."""

    @overload
    async def remote(
        self,
        name: str,
        submit: Callable[[*Ts], Awaitable[str] | str],
        poll: Callable[[str], Awaitable[Pending | T]],
        /,
        *args: *Ts,
        find: Find | None = None,
        cancel: Cancel | None = None,
        every: Seconds = EVERY,
        max_every: Seconds | None = None,
        timeout: Seconds | None = None,
        in_doubt: DoubtPolicy = "repeat",
        max_poll_failures: int = MAX_POLL_FAILURES,
        provider: str = "",
        key: str | None = None,
    ) -> T: ...

    @overload
    async def remote(
        self,
        name: str,
        submit: Callable[[*Ts], Awaitable[str] | str],
        poll: Callable[[str], Pending | T],
        /,
        *args: *Ts,
        find: Find | None = None,
        cancel: Cancel | None = None,
        every: Seconds = EVERY,
        max_every: Seconds | None = None,
        timeout: Seconds | None = None,
        in_doubt: DoubtPolicy = "repeat",
        max_poll_failures: int = MAX_POLL_FAILURES,
        provider: str = "",
        key: str | None = None,
    ) -> T: ...

    async def remote(
        self,
        name: str,
        submit: Callable[[*Ts], Any],
        poll: Callable[[str], Any],
        /,
        *args: *Ts,
        find: Find | None = None,
        cancel: Cancel | None = None,
        every: Seconds = EVERY,
        max_every: Seconds | None = None,
        timeout: Seconds | None = None,
        in_doubt: DoubtPolicy = "repeat",
        max_poll_failures: int = MAX_POLL_FAILURES,
        provider: str = "",
        key: str | None = None,
    ) -> Any:
        """Have a provider do a job, such as a video, and return its result. No slot is used meanwhile.

        `submit` starts the job and returns its id. The id is stored before the first poll, as the result of a
        step, so the job is submitted once: a retry or a redrive goes on with the same id. Between polls the
        task is `suspended`. For each poll the task runs from its beginning: its recorded steps return their
        results, and `poll` is called once. Such a run charges no attempt and no retry budget.

        Args:
            name: What the job does, 1 to 200 characters.
            submit: Starts the job and returns the id that the provider gave it. Inside it, send
                `ctx.idempotency_key` to a provider that starts nothing twice for one key.
            poll: Gets the id. It returns `Pending(…)` while the job is not done, otherwise the job's result.
                It raises `ProviderJobFailedError` if the provider says that the job failed. A poll that fails
                for a reason that may pass (429, 5xx, network) is repeated later; nothing is submitted again.
            args: The arguments of `submit`. They identify the job, with its name, unless there is a `key`.
            find: Gets the idempotency key of a submission that has no recorded answer, because the worker was
                killed. It returns the job's id, or None if the provider has no such job.
            cancel: Gets the id. Called if the task is cancelled, if the job or the task is out of time.
            every: The first pause between polls. Each later one is half longer.
            max_every: The longest pause; by default 10 minutes, or `every` if that is longer.
            timeout: The longest that the job may take: seconds, a timedelta, or text such as `26h`.
            in_doubt: What a later run does if a submission has no answer and there is no `find`:
                `repeat` submits again with the same idempotency key, `ask` waits for a person.
            max_poll_failures: After this many failed polls in a row the task fails with the poll's error.
                Its next run polls the same job.
            provider: The provider's name, for people. By default the upstream of the task.
            key: Identifies the job instead of its arguments.

        Returns:
            What `poll` returned at last, decoded from its stored form by the annotation of `poll`.

        Raises:
            ProviderJobFailedError: The job has no result.
            ProviderJobTimeoutError: The job took longer than `timeout`.
            StepInDoubtError: The submission is in doubt, and `in_doubt` is `ask`.
            TaskSuspended: The run ends for now. Let it pass.
            TaskStopped: The run was asked to stop.
            OptionError: An option is invalid.
            UsageError: Called inside a step.
            Exception: What `submit` or `poll` raised.
        """
        options = {
            "find": find, "cancel": cancel, "every": every, "max_every": max_every, "timeout": timeout,
            "in_doubt": in_doubt, "max_poll_failures": max_poll_failures, "key": key,
        }  # fmt: skip
        return await self._do_job(self._job(name, submit, args, poll, provider, None, options))

    @overload
    async def remote_batch(
        self,
        name: str,
        items: Mapping[str, I],
        submit: Callable[[dict[str, I]], Awaitable[str] | str],
        poll: Callable[[str], Awaitable[Pending | Mapping[str, T]]],
        /,
        *,
        find: Find | None = None,
        cancel: Cancel | None = None,
        every: Seconds = EVERY,
        max_every: Seconds | None = None,
        timeout: Seconds | None = None,
        in_doubt: DoubtPolicy = "repeat",
        max_poll_failures: int = MAX_POLL_FAILURES,
        max_submits: int = MAX_SUBMITS,
        provider: str = "",
        key: str | None = None,
    ) -> dict[str, T]: ...

    @overload
    async def remote_batch(
        self,
        name: str,
        items: Mapping[str, I],
        submit: Callable[[dict[str, I]], Awaitable[str] | str],
        poll: Callable[[str], Pending | Mapping[str, T]],
        /,
        *,
        find: Find | None = None,
        cancel: Cancel | None = None,
        every: Seconds = EVERY,
        max_every: Seconds | None = None,
        timeout: Seconds | None = None,
        in_doubt: DoubtPolicy = "repeat",
        max_poll_failures: int = MAX_POLL_FAILURES,
        max_submits: int = MAX_SUBMITS,
        provider: str = "",
        key: str | None = None,
    ) -> dict[str, T]: ...

    async def remote_batch(
        self,
        name: str,
        items: Mapping[str, I],
        submit: Callable[[dict[str, I]], Any],
        poll: Callable[[str], Any],
        /,
        *,
        find: Find | None = None,
        cancel: Cancel | None = None,
        every: Seconds = EVERY,
        max_every: Seconds | None = None,
        timeout: Seconds | None = None,
        in_doubt: DoubtPolicy = "repeat",
        max_poll_failures: int = MAX_POLL_FAILURES,
        max_submits: int = MAX_SUBMITS,
        provider: str = "",
        key: str | None = None,
    ) -> dict[str, Any]:
        """Have a provider do many items in one job, and return the result of each by its name.

        Works like `remote`. Each finished item is also recorded, so that it is never paid for again. If the
        job ends without the results of some items, because they expired for example, `submit` gets those
        alone.

        Args:
            name: What the job does, 1 to 200 characters.
            items: The items by their names, such as the `custom_id` of a Batch API.
            submit: Gets the items that have no result yet, starts a job for them and returns its id.
            poll: Gets the id. It returns `Pending(…)`, with `items=` for those that have finished, while the
                job goes on. At its end it returns the results by the names of the items. An item that failed
                for good needs a result too, such as its error: items without one are submitted again.
            find: As for `remote`.
            cancel: As for `remote`.
            every: As for `remote`.
            max_every: As for `remote`.
            timeout: The longest that each job may take.
            in_doubt: As for `remote`.
            max_poll_failures: As for `remote`.
            max_submits: How many jobs are submitted at most before the task fails. A redrive of the task goes
                on with the items that are left.
            provider: As for `remote`.
            key: Identifies the batch instead of the names of its items.

        Returns:
            The results by the names of the items, in the order of `items`.

        Raises:
            ProviderJobFailedError: Items are left after `max_submits` jobs, or the provider says that a job
                failed.
            ProviderJobTimeoutError: A job took longer than `timeout`.
            OptionError: An option is invalid.
        """
        if not (taken := _checked(items)):
            return {}
        options = {
            "find": find, "cancel": cancel, "every": every, "max_every": max_every, "timeout": timeout,
            "in_doubt": in_doubt, "max_poll_failures": max_poll_failures, "max_submits": max_submits,
            "key": key,
        }  # fmt: skip
        result: dict[str, Any] = await self._do_job(
            self._job(name, submit, (), poll, provider, taken, options)
        )
        return result

    def remote_sync(
        self,
        name: str,
        submit: Callable[[*Ts], str],
        poll: Callable[[str], Pending | T],
        /,
        *args: *Ts,
        find: Callable[[str], str | None] | None = None,
        cancel: Cancel | None = None,
        every: Seconds = EVERY,
        max_every: Seconds | None = None,
        timeout: Seconds | None = None,
        in_doubt: DoubtPolicy = "repeat",
        max_poll_failures: int = MAX_POLL_FAILURES,
        provider: str = "",
        key: str | None = None,
    ) -> T:
        """Do the same as `remote`, from a plain function."""
        options = {
            "find": find, "cancel": cancel, "every": every, "max_every": max_every, "timeout": timeout,
            "in_doubt": in_doubt, "max_poll_failures": max_poll_failures, "key": key,
        }  # fmt: skip
        result: T = self._do_job_sync(self._job(name, submit, args, poll, provider, None, options))
        return result

    def remote_batch_sync(
        self,
        name: str,
        items: Mapping[str, I],
        submit: Callable[[dict[str, I]], str],
        poll: Callable[[str], Pending | Mapping[str, T]],
        /,
        *,
        find: Callable[[str], str | None] | None = None,
        cancel: Cancel | None = None,
        every: Seconds = EVERY,
        max_every: Seconds | None = None,
        timeout: Seconds | None = None,
        in_doubt: DoubtPolicy = "repeat",
        max_poll_failures: int = MAX_POLL_FAILURES,
        max_submits: int = MAX_SUBMITS,
        provider: str = "",
        key: str | None = None,
    ) -> dict[str, T]:
        """Do the same as `remote_batch`, from a plain function."""
        if not (taken := _checked(items)):
            return {}
        options = {
            "find": find, "cancel": cancel, "every": every, "max_every": max_every, "timeout": timeout,
            "in_doubt": in_doubt, "max_poll_failures": max_poll_failures, "max_submits": max_submits,
            "key": key,
        }  # fmt: skip
        result: dict[str, T] = self._do_job_sync(self._job(name, submit, (), poll, provider, taken, options))
        return result


def _checked(items: Mapping[str, I]) -> dict[str, I]:
    """Return the items of a batch.

    Raises:
        OptionError: `items` is not a mapping, or a name is not text.
    """
    from tidegate.domain.step import KEY_LENGTH

    if not isinstance(items, Mapping):
        raise wrong("items", items, "use a dictionary: the items by their names")
    for name in items:
        if not isinstance(name, str) or not name or len(name) > KEY_LENGTH:
            raise wrong("items", name, f"name each item by a text of 1 to {KEY_LENGTH} characters")
    return dict(items)
