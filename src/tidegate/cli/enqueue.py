"""`tidegate enqueue`: check the arguments against the function's signature and enqueue one task."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.common import json_option, load_app, run
from tidegate.cli.error_report import FAILED
from tidegate.cli.output import jsonable, print_json, print_message, result_json
from tidegate.cli.rendering import join_parts
from tidegate.cli.values import (
    as_deadline,
    as_labels,
    as_moment,
    as_named_value,
    as_priority,
    as_seconds,
    json_or_text,
    strict_json,
)

if TYPE_CHECKING:
    from tidegate.store.protocol import Store
    from tidegate.store.rows import NewTask, StoredResult


@dataclass(frozen=True, slots=True)
class _Wait:
    wanted: bool
    timeout: float | None


class _EnqueueCommand(click.Command):
    """A command that explains the error for an argument that begins with a dash."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the arguments that are left after parsing.

        Raises:
            click.UsageError: An option is wrong.
        """
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if not error.option_name.removeprefix("-")[:1].isdigit():
                raise
            raise click.UsageError(
                f"{error.option_name} looks like an option: write -- before the arguments, as in "
                "tidegate enqueue --wait f -- -1",
                ctx,
            ) from None


@click.command(cls=_EnqueueCommand)
@click.argument("function")
@click.argument("args", metavar="[ARG]...", nargs=-1)
@click.option(
    "--arg",
    "named",
    metavar="NAME=VALUE",
    type=as_named_value,
    multiple=True,
    help="A named argument. Repeatable.",
)
@click.option("--kwargs", metavar="JSON", help="Named arguments as one JSON object.")
@click.option("--queue", metavar="NAME", help="Use this queue instead of the function's.")
@click.option("--priority", metavar="PRIORITY", type=as_priority, help="interactive, normal or bulk.")
@click.option("--delay", metavar="SPAN", type=as_seconds, help="Run after this delay: 90 (seconds), 15m, 1h.")
@click.option(
    "--run-at", metavar="MOMENT", type=as_moment, help="Run at this time: ISO 8601 with an offset or Z."
)
@click.option(
    "--deadline",
    metavar="SPAN|MOMENT",
    type=as_deadline,
    help="End the task after this time from now, or at this moment, even if it is still waiting.",
)
@click.option(
    "--total-timeout",
    metavar="SPAN",
    type=as_seconds,
    help="Limit the time of all runs, counted from the first start; waits for an upstream do not count.",
)
@click.option("--tenant", metavar="NAME", help="The tenant of the task.")
@click.option("--key", metavar="TEXT", help="Idempotency key: the same key returns the same task.")
@click.option(
    "--unique",
    metavar="SPAN",
    help="Refuse an equal task until this task ends (until_final) or for this time (1h).",
)
@click.option(
    "--label",
    "labels",
    metavar="NAME=VALUE",
    type=as_named_value,
    multiple=True,
    callback=lambda _context, _option, pairs: as_labels(pairs) or None,
    help="A label of the task. Repeatable.",
)
@click.option(
    "--after",
    metavar="TASK",
    multiple=True,
    callback=lambda _context, _option, ids: list(ids) or None,
    help="Wait until this task has succeeded. Repeatable.",
)
@click.option(
    "--on-failure",
    type=click.Choice(["wait", "cancel", "run"]),
    help="With --after: what happens if that task dies or is cancelled; default: wait.",
)
@click.option(
    "--on-final",
    metavar="FUNCTION",
    help="Enqueue a task of this function when the task succeeds, dies or is cancelled.",
)
@click.option("--wait", is_flag=True, help="Wait until the task ends and print its result.")
@click.option(
    "--timeout",
    metavar="SPAN",
    type=as_seconds,
    help="With --wait: stop waiting after this time.",
)
@click.option("--app", metavar="MODULE:NAME", help="The application; default: the configured one.")
@click.option("--database", metavar="URL", help="Use this database instead of the application's.")
@json_option
def command(
    function: str,
    args: Sequence[str],
    named: Sequence[tuple[str, str]],
    kwargs: str | None,
    wait: bool,
    timeout: float | None,
    app: str | None,
    database: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Enqueue one task of FUNCTION and print its id.

    Each ARG and each value of --arg is read as JSON if it is valid JSON, otherwise as text: 5 is a number,
    Ada and '"5"' are text. Write a dataclass as an object, a datetime as ISO 8601 text. If an ARG begins with
    a dash, write -- before the first ARG. The task continues the W3C trace context in the variables
    TRACEPARENT and TRACESTATE.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    application = load_app(app)
    declared = application.function(function)
    if options["on_final"] is not None:
        options["on_final"] = application.function(options["on_final"])
    options |= {name.lower(): os.environ.get(name) for name in ("TRACEPARENT", "TRACESTATE")}
    payload = json.dumps({"a": [json_or_text(text) for text in args], "k": arguments_by_name(named, kwargs)})
    positional, keyword = declared.signature.load(payload.encode())
    task = declared.using(**options).prepare(*positional, **keyword).new_task
    return run(_store(application, database, task, _Wait(wait, timeout), as_json))


def arguments_by_name(named: Sequence[tuple[str, str]], kwargs: str | None) -> dict[str, Any]:
    """Return the arguments by name from `--kwargs` and `--arg`."""
    values: Any = {}
    if kwargs is not None:
        try:
            values = strict_json(kwargs)
        except ValueError as error:
            raise click.UsageError(f"--kwargs is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise click.UsageError("--kwargs must be a JSON object such as '{\"name\": 1}'")
    for name, text in named:
        if name in values:
            raise click.UsageError(f"argument {name} is given twice")
        values[name] = json_or_text(text)
    return values  # type: ignore[no-any-return]


async def _store(application: Any, database: str | None, task: NewTask, wait: _Wait, as_json: bool) -> int:
    store = await _opened(application, database)
    try:
        enqueued = await application.enqueue_in(store, task)
        if not enqueued.created:
            print_message("a task with this key or unique name exists already; nothing was enqueued")
        facts = {
            "task_id": enqueued.task_id,
            "created": enqueued.created,
            "function": task.function,
            "queue": task.queue,
        }
        if not wait.wanted:
            print_json(facts) if as_json else click.echo(enqueued.task_id)
            return 0
        if not as_json:
            print_message(enqueued.task_id)
        return await _print_end(store, facts, wait.timeout, as_json)
    finally:
        await store.close()


async def _opened(application: Any, database: str | None) -> Store:
    if database is None:
        opened: Store = await application.opened_store()
        return opened
    from tidegate.store.connect import open_store

    store = open_store(database)
    await store.open()
    return store


async def _print_end(store: Store, facts: dict[str, Any], timeout: float | None, as_json: bool) -> int:
    from tidegate.domain.states import State
    from tidegate.handle import wait_until_final
    from tidegate.operations.task_watcher import TaskWatcher

    stored = await wait_until_final(store, TaskWatcher(store), facts["task_id"], timeout)
    succeeded = stored.state is State.SUCCEEDED
    if as_json:
        print_json(facts | _end(stored))
    elif succeeded:
        print_json(jsonable_result(stored))
    else:
        print_message(join_parts(stored.state, stored.reason, stored.error_class, stored.message))
        print_message(f"see `tidegate tasks show {facts['task_id']}`")
    return 0 if succeeded else FAILED


def _end(stored: StoredResult) -> dict[str, Any]:
    if stored.data:
        return {"state": stored.state, "result": jsonable_result(stored)}
    return {
        "state": stored.state,
        "reason": stored.reason,
        "error_class": stored.error_class,
        "message": stored.message,
    }


def jsonable_result(stored: StoredResult) -> Any:
    """Return a stored result as JSON values that no JSON reader rounds."""
    return jsonable(result_json(stored.data, stored.codec_tag))
