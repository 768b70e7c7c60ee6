"""Provider jobs in real workers: a kill at any moment submits nothing twice, and forgets no job."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support import EVERYDAY_ON_SQLITE, all_final, ledger, load_app, until, worker_process
from tidegate import DoubtState, JobState, State
from tidegate.context import waits
from tidegate.internals import core_of

pytestmark = [pytest.mark.anyio, EVERYDAY_ON_SQLITE]

FORMS = ["in_loop", *(pytest.param(form, marks=pytest.mark.slow) for form in ("in_child", "in_thread"))]


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that is the provider."""
    folder = tmp_path / "provider"
    folder.mkdir()
    monkeypatch.setenv("PROVIDER", str(folder))
    return folder


@pytest.fixture
def providing(store_url: str, provider: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The application of these tests, on both stores."""
    monkeypatch.setattr(waits, "SUSPEND_SECONDS", waits.SUSPEND_SECONDS)  # the application changes it
    return load_app("providing", tmp_path, monkeypatch, url=store_url)


def counts(directory: Path) -> Counter[str]:
    """Return how often each function of the provider was called."""
    return Counter(entry["what"] for entry in ledger(directory))


async def has_called(directory: Path, what: str, times: int = 1) -> None:
    """Wait until a function of the provider was called that often."""

    async def is_called() -> bool:
        return counts(directory)[what] >= times

    await until(is_called, within=60, what=f"{what} was called")


async def the_end(providing: Any, task_id: str) -> Any:
    return (await all_final(providing.app, [task_id], within=60))[task_id]


async def killed_at(
    where: str, providing: Any, handle_of: Any, provider: Path, tmp_path: Path, store_url: str
) -> Any:
    """Enqueue a task, and kill its worker at this place."""
    (provider / f"hang-{where}").touch()
    with worker_process("providing:app", tmp_path, TIDEGATE_DATABASE_URL=store_url) as worker:
        handle = await handle_of()
        await has_called(tmp_path, "hangs")
        worker.close()
    (provider / f"hang-{where}").unlink()
    return handle


@pytest.mark.parametrize("form", FORMS)
async def test_a_kill_between_polls_and_one_in_a_poll_submit_nothing_twice(
    form: str, providing: Any, provider: Path, store_url: str, tmp_path: Path
) -> None:
    function = getattr(providing, form)
    handle = await killed_at("poll", providing, function.enqueue, provider, tmp_path, store_url)
    with worker_process("providing:app", tmp_path, TIDEGATE_DATABASE_URL=store_url) as worker:
        await has_called(tmp_path, "poll", 3)
        worker.close()
    with worker_process("providing:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        await has_called(tmp_path, "poll", 4)
        (provider / "done").touch()
        row = await the_end(providing, handle.id)
    assert row.state is State.SUCCEEDED
    assert await handle.result(5) == "result of job-1"
    assert counts(tmp_path)["submit"] == 1
    assert row.counters.attempts == 0
    assert await providing.app.admin.doubts.list(state=None) == []


@pytest.mark.parametrize("form", FORMS)
async def test_a_submission_without_an_answer_is_found_by_its_key(
    form: str, providing: Any, provider: Path, store_url: str, tmp_path: Path
) -> None:
    function = getattr(providing, form)
    handle = await killed_at(
        "submit", providing, lambda: function.enqueue("find"), provider, tmp_path, store_url
    )
    (provider / "done").touch()
    with worker_process("providing:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        await the_end(providing, handle.id)
    assert await handle.result(5) == "result of job-1"
    assert (counts(tmp_path)["submit"], counts(tmp_path)["find"]) == (1, 1)
    [doubt] = await providing.app.admin.doubts.list(state=None)
    assert doubt.state is DoubtState.RECONCILED


async def test_a_submission_without_an_answer_is_repeated_with_its_key_and_listed(
    providing: Any, provider: Path, store_url: str, tmp_path: Path
) -> None:
    handle = await killed_at("submit", providing, providing.in_loop.enqueue, provider, tmp_path, store_url)
    (provider / "done").touch()
    with worker_process("providing:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        await the_end(providing, handle.id)
    assert await handle.result(5) == "result of job-2"
    assert len({entry["key"] for entry in ledger(tmp_path) if entry["what"] == "submit"}) == 1
    [doubt] = await providing.app.admin.doubts.list(state=None)
    assert (doubt.step, doubt.state) == ("video", DoubtState.REPEATED)


async def test_a_submission_without_an_answer_waits_for_a_person_if_it_is_to_ask(
    providing: Any, provider: Path, store_url: str, tmp_path: Path
) -> None:
    handle = await killed_at(
        "submit", providing, lambda: providing.in_loop.enqueue("ask"), provider, tmp_path, store_url
    )
    (provider / "done").touch()
    with worker_process("providing:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        row = await the_end(providing, handle.id)
        assert (row.state, row.reason) == (State.DEAD, "in_doubt")
        [doubt] = await providing.app.admin.doubts.list()
        await providing.app.admin.doubts.accept(doubt.id, result="job-1")

        async def has_succeeded() -> bool:
            store = await core_of(providing.app).opened_store()
            return (await store.read_tasks([handle.id]))[handle.id].state is State.SUCCEEDED

        await until(has_succeeded, within=60)
    assert await handle.result(5) == "result of job-1"
    assert counts(tmp_path)["submit"] == 1


@pytest.mark.parametrize("form", FORMS)
async def test_a_kill_in_the_cancel_of_a_suspended_task_still_cancels_its_job(
    form: str, providing: Any, provider: Path, store_url: str, tmp_path: Path
) -> None:
    (provider / "hang-cancel").touch()
    with worker_process("providing:app", tmp_path, TIDEGATE_DATABASE_URL=store_url) as worker:
        handle = await getattr(providing, form).enqueue()
        await has_called(tmp_path, "poll", 2)
        await handle.cancel()
        await has_called(tmp_path, "hangs")
        worker.close()
    (provider / "hang-cancel").unlink()
    with worker_process("providing:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        row = await the_end(providing, handle.id)
    assert row.state is State.CANCELLED
    assert counts(tmp_path)["cancel"] == 2
    [job] = await providing.app.admin.tasks.provider_jobs(handle.id)
    assert (job.state, job.job_id) == (JobState.CANCELLED, "job-1")


@pytest.mark.parametrize("form", ["in_loop", pytest.param("in_child", marks=pytest.mark.slow)])
async def test_a_task_that_is_cancelled_while_it_submits_cancels_the_job_that_it_finds(
    form: str, providing: Any, provider: Path, store_url: str, tmp_path: Path
) -> None:
    function = getattr(providing, form)
    handle = await killed_at(
        "submit", providing, lambda: function.enqueue("find"), provider, tmp_path, store_url
    )
    await handle.cancel()
    with worker_process("providing:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        row = await the_end(providing, handle.id)
    assert row.state is State.CANCELLED
    assert [entry["job"] for entry in ledger(tmp_path) if entry["what"] == "cancel"] == ["job-1"]
    assert counts(tmp_path)["submit"] == 1
