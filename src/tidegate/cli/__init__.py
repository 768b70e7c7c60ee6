"""The command line: the names of the commands and their one-line helps.

The module of a command is imported when the command is used, so `tidegate --help` loads only click. Every
command exits with one of these codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 conflict or unmet
condition, 69 store unreachable, 75 store busy (try later), 78 wrong configuration, 124 time-out, 128 + n
ended by signal n.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NoReturn

import click

from tidegate._version import __version__
from tidegate.errors import TidegateError

SHORT_HELPS: Mapping[str, str] = {
    "init": "Write a tidegate.toml and a small application to start from.",
    "dev": "Run one worker for every queue; restart it when code changes.",
    "worker": "Run the worker pools of an application.",
    "scheduler": "Run maintenance without an application: due tasks, schedules, lost workers, retention.",
    "enqueue": "Enqueue one task.",
    "status": "Show the queues, the upstreams and the live workers.",
    "stats": "Show what happened over hours and days: counts, times, tokens.",
    "top": "Watch queues, upstreams, workers and failures live.",
    "why": "Show when a queue will be empty, what limits it, and why its tasks wait.",
    "autoscale": "Show how many workers each pool should have now, and why.",
    "metrics": "Print the metrics in Prometheus' text format.",
    "tasks": "List, show, cancel and retry tasks, or change their priority.",
    "events": "Send events to tasks that wait for them.",
    "queues": "List queues, pause and resume them, and wait until a queue is empty.",
    "functions": "List task functions, and pause and resume them.",
    "limits": "List and set the rate limits of task functions.",
    "pools": "List the pools of the live workers, and change their concurrency.",
    "schedules": "Show, add, edit, pause, run and preview schedules.",
    "upstreams": "Show upstreams, set their limits, and park, open or probe their gates.",
    "budget": "Show how much of each retry budget is used.",
    "alerts": "List and check alerts, mute them, and test a sink.",
    "dead": "List, show, redrive and purge dead letters, or write one as a test.",
    "approvals": "List, show and answer the questions that tasks ask people.",
    "doubts": "List, show and decide calls that were sent and have no definite answer.",
    "failures": "List failures that no rule classifies, and mark them as reviewed.",
    "maps": "List, show, cancel and retry maps: many tasks enqueued as one.",
    "ops": "List, show, abort and undo redrives and purges of dead letters.",
    "replay": "Run the function of a task here, without its store or the network.",
    "classify": "Show how Tidegate would handle a provider's response.",
    "web": "Serve the HTTP API of an application.",
    "tokens": "Create, list and revoke tokens for the HTTP API.",
    "db": "Upgrade, check, measure, restore or move the database.",
    "forget": "Remove a task or a tenant for good, from tables, archive and files.",
    "doctor": "Find problems in this installation and suggest fixes.",
    "demo": "Watch tasks survive provider failures and a killed worker.",
    "version": "Print the version.",
}
"""The one-line help of each command. The module `tidegate.cli.NAME` defines the command as `command`."""


class Program(click.Group):
    """The group of all commands.

    The group imports a command on first use and turns errors into exit codes.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order in which the help lists them."""
        return list(SHORT_HELPS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command and return the command; None if there is no such command."""
        if cmd_name not in SHORT_HELPS:
            return None
        command: click.Command = import_module(f"tidegate.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SHORT_HELPS.items()))

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run the command line and exit. A command returns its exit code; None means 0."""
        words = args[0] if args else extra.get("args")
        as_json = "--json" in (sys.argv[1:] if words is None else words)
        try:
            code = super().main(*args, **(extra | {"standalone_mode": False}))
        except click.ClickException as error:
            from tidegate.cli.error_report import report_usage

            report_usage(error, as_json=as_json)
            code = error.exit_code
        except click.Abort:
            code = 130
        except TidegateError as error:
            from tidegate.cli.error_report import exit_code, report

            report(error, as_json=as_json)
            code = exit_code(error)
        sys.exit(code or 0)


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tidegate", message="%(prog)s %(version)s")
def program() -> None:
    """Tidegate: a durable task queue for AI work.

    Start with `tidegate init`, then `tidegate dev`.
    """


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    ensure_standard_streams()
    program.main(prog_name="tidegate")


def ensure_standard_streams() -> None:
    """Open the null device for each closed standard stream. Call this before anything opens a file.

    Otherwise the next files and sockets get the numbers 0 to 2, and child processes use these as streams.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # `os.open` uses the lowest free number, which is this descriptor
            os.set_inheritable(descriptor, True)
    for name, mode, descriptor in (("stdin", "r", 0), ("stdout", "w", 1), ("stderr", "w", 2)):
        if getattr(sys, name) is None:
            stream = open(descriptor, mode, closefd=False)  # noqa: SIM115 - stays open until the process ends
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
