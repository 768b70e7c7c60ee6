"""Approvals in real workers, on both stores: one mail and one answer, whatever is killed."""

from __future__ import annotations

import base64
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support import EVERYDAY_ON_SQLITE, all_final, ledger, load_app, until, worker_process
from tidegate import State
from tidegate.context import waits
from tidegate.domain.links import verify
from tidegate.internals import core_of

pytestmark = [pytest.mark.anyio, EVERYDAY_ON_SQLITE]

KEY = b"k" * 32
LINKS = {
    "TIDEGATE_LINKS_URL": "https://tasks.example",
    "TIDEGATE_LINKS_SECRET": "whsec_" + base64.b64encode(KEY).decode(),
}
FORMS = [
    "in_loop",
    *(pytest.param(form, marks=pytest.mark.slow) for form in ("in_child", "in_thread", "in_child_loop")),
]


@pytest.fixture
def suspending(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The application of these tests, on both stores."""
    monkeypatch.setattr(waits, "SUSPEND_SECONDS", waits.SUSPEND_SECONDS)  # the application changes it
    return load_app("suspending", tmp_path, monkeypatch, url=store_url)


def calls(directory: Path) -> Counter[str]:
    """Return how often each step was done."""
    return Counter(entry["item"] for entry in ledger(directory) if entry["what"] == "call")


async def suspended(suspending: Any, task_id: str) -> None:
    """Wait until a task is suspended."""

    async def is_suspended() -> bool:
        store = await core_of(suspending.app).opened_store()
        return (await store.read_tasks([task_id]))[task_id].state is State.SUSPENDED

    await until(is_suspended, within=60, what="it is suspended")


async def the_end(suspending: Any, task_id: str) -> Any:
    return (await all_final(suspending.app, [task_id], within=60))[task_id]


@pytest.mark.parametrize("form", FORMS)
async def test_a_kill_while_a_task_waits_for_a_person_loses_nothing_and_sends_one_mail(
    form: str, suspending: Any, store_url: str, tmp_path: Path
) -> None:
    env = LINKS | {"TIDEGATE_DATABASE_URL": store_url}
    with worker_process("suspending:app", tmp_path, **env) as worker:
        handle = await getattr(suspending, f"approval_{form}").enqueue({"cents": 7})
        await suspended(suspending, handle.id)
        worker.close()
    done = await suspending.app.admin.approvals.approve(handle.id, by="ada", data=[1, 2])
    assert (done.state, done.data, done.to) == ("approved", {"cents": 7}, "ada")
    with worker_process("suspending:app", tmp_path, **env):
        row = await the_end(suspending, handle.id)
    assert (row.state, row.run, row.counters.attempts) == (State.SUCCEEDED, 2, 0)
    assert await handle.result(5) == [True, "ada", [1, 2], "AFTER"]
    assert calls(tmp_path) == Counter(mail=1, after=1)
    [link] = [entry["link"] for entry in ledger(tmp_path) if entry.get("item") == "mail"]
    assert link.startswith("https://tasks.example/approve/")
    signed = verify([KEY], link.rpartition("/")[2])
    assert signed is not None
    assert (signed.task_id, signed.key) == (handle.id, "sure")


async def test_a_run_that_is_killed_after_the_mail_and_before_its_suspension_sends_no_second_one(
    suspending: Any, store_url: str, tmp_path: Path
) -> None:
    with worker_process("suspending:app", tmp_path, TIDEGATE_DATABASE_URL=store_url) as worker:
        handle = await suspending.approval_beside_a_step.enqueue(60.0)

        async def is_mailed() -> bool:
            store = await core_of(suspending.app).opened_store()
            steps = await store.read_steps(handle.id)
            return calls(tmp_path)["slow"] > 0 and any(
                step.name == "notify approver" and step.data for step in steps
            )

        await until(
            is_mailed, within=60, what="the mail is sent"
        )  # the step in flight holds the suspension up
        (tmp_path / "fast").touch()
        for pid in worker.children():
            os.kill(pid, signal.SIGKILL)
        await suspended(suspending, handle.id)
        await suspending.app.admin.approvals.approve(handle.id, by="ada")
        await the_end(suspending, handle.id)
    assert await handle.result(5) == ["ada", "slow"]
    assert calls(tmp_path) == Counter(mail=1, slow=2)


async def test_a_run_that_cannot_be_suspended_yet_gets_its_answer(
    suspending: Any, store_url: str, tmp_path: Path
) -> None:
    with worker_process("suspending:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        handle = await suspending.approval_beside_a_step.enqueue(3.0)
        await until(suspending.app.admin.approvals.list, within=60)
        await suspending.app.admin.approvals.reject(handle.id, by="ada")
        row = await the_end(suspending, handle.id)
    assert row.run == 1
    assert await handle.result(5) == ["ada", "slow"]
