"""`tidegate worker health` and `tidegate scheduler health`: check the processes on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.common import json_option, opened_store, run
from tidegate.cli.error_report import FAILED, NOT_FOUND
from tidegate.cli.formatting import printable
from tidegate.cli.output import print_json
from tidegate.cli.values import as_seconds
from tidegate.domain.redaction import redact
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.worker.supervisor.health import Health

_NAME = "health"


class CommandWithHealth(click.Command):
    """A command with a few subcommands. Any other first word is an argument of the command itself."""

    @property
    def commands(self) -> dict[str, click.Command]:
        """The subcommands of this command: `health`."""
        return {_NAME: health_of(self.name or "")}

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the subcommand that the first word names, otherwise that of this command."""
        if args and (beneath := self.commands.get(args[0])) is not None:
            return beneath.make_context(f"{info_name} {args[0]}", args[1:], parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)


def health_of(kind: str) -> click.Command:
    """Return the command that checks the services of a kind (`worker`, `scheduler`)."""

    @click.command(
        _NAME,
        help=f"""Check whether the {kind} on this machine is alive and ready.

        Exit code 0 if it is, 1 if not, 3 if no {kind} runs here. Run this as the user of the {kind}, or with
        the same TIDEGATE_RUN.

        --live checks that the event loop runs. --ready (the default) also checks that the store answers and
        has this version's schema, and that every process works.
        """,
    )
    @click.option("--live/--ready", "only_live", default=False, help="What to check; default: --ready.")
    @click.option("--name", metavar="NAME", help=f"Check only the {kind} with this name; default: all.")
    @click.option(
        "--timeout",
        metavar="SPAN",
        type=as_seconds,
        default="5",
        help="How long to wait for an answer; default: 5 s.",
    )
    @json_option
    def command(only_live: bool, name: str | None, timeout: float, as_json: bool) -> int:
        from tidegate.worker.supervisor.health import query_health, run_directory

        answers = query_health(kind, name, timeout)
        if not answers:
            named = f" named {name}" if name else ""
            click.echo(f"no {kind}{named} answers in {run_directory()}", err=True)
            return NOT_FOUND
        verdicts = [_evaluate(answer, only_live, timeout) for answer in answers]
        if as_json:
            print_json({"healthy": not any(v["problems"] for v in verdicts), f"{kind}s": verdicts})
        else:
            for verdict in verdicts:
                _print(kind, verdict)
        return FAILED if any(verdict["problems"] for verdict in verdicts) else 0

    return command


def _evaluate(answer: Health | None, only_live: bool, timeout: float) -> dict[str, Any]:
    if answer is None:
        return {"name": None, "pid": None, "problems": [f"no answer within {timeout:g} s: it hangs"]}
    problems = [] if only_live else [*answer.problems, *run(_store_problems(answer.database_url))]
    return {"name": answer.name, "pid": answer.pid, "status": answer.status, "problems": problems}


def _print(kind: str, verdict: dict[str, Any]) -> None:
    words = "; ".join(verdict["problems"]) or f"ok, {verdict['status']}"
    process = f" (process {verdict['pid']})" if verdict["pid"] is not None else ""
    shown = f"{kind} {verdict['name'] or '?'}{process}: {words}"
    click.echo(printable(redact(shown)), err=bool(verdict["problems"]))


async def _store_problems(url: str) -> list[str]:
    from tidegate.cli.common import StoreLocation

    try:
        async with opened_store(StoreLocation(url)) as store:
            await store.now()
            await store.list_workers()
    except TidegateError as error:
        return [str(error)]
    return []
