"""`tidegate approvals`: list, show, approve and reject what tasks ask."""

from __future__ import annotations

import base64
from typing import Any

from cli_support import Workspace

from tidegate.domain.approval import ApprovalState
from tidegate.domain.links import verify
from tidegate.domain.outcome import Suspended
from tidegate.domain.states import State
from tidegate.store.approval_rows import NewApproval

KEY = b"k" * 32
SECRET = "whsec_" + base64.b64encode(KEY).decode()
ANY = ("--state", "all")


def asking(workspace: Workspace, *keys: str, **fields: Any) -> str:
    """Return the id of a task that is suspended for answers to these questions."""
    (task_id,) = workspace.add(1, **fields)
    claimed: list[Any] = []
    workspace.work(lambda task: claimed.append(task.fence))
    (fence,) = claimed

    async def ask(store: Any) -> None:
        for key in keys:
            await store.ask_approval(
                NewApproval(fence, key, f"may I {key}?", "ada@x", b'{"cents":7}', "json/1", 3_600.0)
            )
        await store.finish([Suspended(fence, 3_600.0, f"waits for an approval: may I {keys[0]}?", 0.0, keys)])

    workspace.ask(ask)
    return task_id


def row(workspace: Workspace, task_id: str) -> Any:
    return workspace.ask(lambda store: store.list_approvals(task_id=task_id, state=None))[0]


def test_open_approvals_are_listed_and_shown(workspace: Workspace) -> None:
    assert "no approval matches" in workspace.run("approvals", "ls").stderr
    task_id = asking(workspace, "refund", tenant="acme")
    asking(workspace, "mail", tenant="other")

    text = workspace.run("approvals", "ls", "--tenant", "acme").stdout
    assert [line.split()[:3] for line in text.splitlines()] == [
        ["TASK", "KEY", "STATE"],
        [task_id, "refund", "open"],
    ]
    (found,) = workspace.lines("approvals", "ls", "--task", task_id[:30])
    assert (found["question"], found["to"], found["data"]) == ("may I refund?", "ada@x", {"cents": 7})
    assert len(workspace.lines("approvals", "ls", "--limit", "1")) == 1
    shown = workspace.run("approvals", "show", task_id).stdout
    assert "may I refund?" in shown
    assert "link" not in shown
    assert workspace.json("approvals", "show", task_id, "refund") == found


def test_the_link_is_shown_if_links_are_configured(workspace: Workspace) -> None:
    task_id = asking(workspace, "refund")
    configured = {"TIDEGATE_LINKS_URL": "https://tasks.example", "TIDEGATE_LINKS_SECRET": SECRET}
    shown = workspace.run("approvals", "show", task_id, **configured).stdout
    (token,) = [line.rpartition("/approve/")[2] for line in shown.splitlines() if "/approve/" in line]
    signed = verify([KEY], token)
    assert signed is not None
    assert (signed.task_id, signed.key) == (task_id, "refund")


def test_an_approval_wakes_its_task_and_is_in_the_audit_log(workspace: Workspace) -> None:
    task_id = asking(workspace, "refund", tenant="acme")
    done = workspace.run(
        "approvals", "approve", task_id[:30], "--comment", "is fine", "--data", '{"limit": 9}'
    )
    assert f"approved: may I refund?; task {task_id} goes on" in done.stderr
    asked = row(workspace, task_id)
    assert (asked.state, asked.comment, asked.answer) == (ApprovalState.APPROVED, "is fine", b'{"limit":9}')
    assert asked.answered_by.endswith("(command line)")
    assert workspace.ask(lambda store: store.promote()) == 1
    entries = workspace.ask(lambda store: store.list_audit_entries())
    assert [(entry.action, entry.target, entry.answer, entry.why, entry.tenant) for entry in entries] == [
        ("approval approved", task_id, "refund", "is fine", "acme")
    ]


def test_a_rejection_is_recorded_and_a_second_answer_is_refused(workspace: Workspace) -> None:
    task_id = asking(workspace, "refund")
    rejected = workspace.json("approvals", "reject", task_id, "refund")
    assert (rejected["state"], rejected["answer"]) == ("rejected", None)
    refused = workspace.run("approvals", "approve", task_id, code=4)
    assert "(command line) rejected this at 20" in refused.stderr
    assert "TG128" in refused.stderr
    assert [found["state"] for found in workspace.lines("approvals", "ls", *ANY)] == ["rejected"]


def test_a_task_with_several_questions_needs_a_key(workspace: Workspace) -> None:
    task_id = asking(workspace, "refund", "mail")
    refused = workspace.run("approvals", "approve", task_id, code=3)
    assert "give the key of one: refund, mail" in refused.stderr
    workspace.run("approvals", "approve", task_id, "mail")
    workspace.run("approvals", "reject", task_id)
    states = {found["key"]: found["state"] for found in workspace.lines("approvals", "ls", *ANY)}
    assert states == {"refund": "rejected", "mail": "approved"}


def test_a_task_that_asks_nothing_is_not_found(workspace: Workspace) -> None:
    (task_id,) = workspace.add(1)
    for command in ("show", "approve", "reject"):
        assert "has asked no question" in workspace.run("approvals", command, task_id, code=3).stderr
    workspace.run("approvals", "show", "no-id", code=2)


def test_other_commands_say_what_the_task_waits_for(workspace: Workspace) -> None:
    task_id = asking(workspace, "refund")
    assert workspace.ask(lambda store: store.read_tasks([task_id]))[task_id].state is State.SUSPENDED
    why = workspace.run("tasks", "why", task_id).stdout
    assert "suspended: waits for an approval: may I refund?, for" in why
