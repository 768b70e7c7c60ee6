"""Stores a task as another release stored it: with arguments that this release need not accept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidegate.app import Tidegate
from tidegate.codec import CODEC
from tidegate.domain.schedule import LABEL_PREFIX
from tidegate.handle import Handle
from tidegate.internals import core_of
from tidegate.options import read_options
from tidegate.store.rows import NewTask
from tidegate.threads.bridge import run_sync


def enqueue_stored(
    app: Tidegate,
    function: str,
    payload: Mapping[str, Any],
    *,
    max_attempts: int | None = None,
    timeout: float | None = None,
    tenant: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Handle[Any]:
    """Store a task with arguments in their stored form, unchecked, and return its handle. For sync code.

    Tasks that wait during a deploy were stored by the release before. Use this to test that the new code
    still takes them, or refuses them.

    Args:
        app: The application.
        function: The name of the task function: `app:summarize`.
        payload: Positional arguments in `a`, others by name in `k`, as JSON values.
        max_attempts: As in `using`.
        timeout: The same option as in `using`, in seconds.
        tenant: As in `using`.
        labels: The same option as in `using`, plus the labels that a schedule gave the task, so that
            `ctx.scheduled_for` has them.

    Raises:
        UnknownFunctionError: The application does not declare the function.
        OptionError: An option cannot work.
    """
    core = core_of(app)
    declared = core.function(function)
    own = {name: text for name, text in (labels or {}).items() if not name.startswith(LABEL_PREFIX)}
    options = {"max_attempts": max_attempts, "timeout": timeout, "tenant": tenant, "labels": own or None}
    fields = read_options(options)
    if labels:
        fields["labels"] = {**fields.get("labels", {}), **labels}
    task = NewTask(
        id=core.next_id(),
        function=declared.spec.name,
        queue=declared.spec.queue,
        priority=declared.spec.priority,
        args=msgspec.json.encode(payload),
        codec_tag=CODEC,
        upstream=declared.spec.upstream,
        **fields,
    )
    answer = run_sync(core.enqueue_prepared(task))
    return Handle(answer.task_id, core, declared.signature.load_result, created=answer.created)
