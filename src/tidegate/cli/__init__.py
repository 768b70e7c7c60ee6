"""The command line. Names and short helps live here; a command's module is imported when it is used.

So `tidegate --help` loads nothing but click. Every command ends with one of these exit codes: 0 done,
1 failed, 2 wrong usage, 3 not found, 4 conflict or unmet condition, 69 store unreachable, 75 busy (try
later), 78 wrong configuration, 124 time-out, 128 + n ended by signal n.
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
    "init": "Write a tidegate.toml and a small application.",
    "dev": "Run one worker for everything, restarted when code changes.",
    "worker": "Run the worker pools of an application.",
    "scheduler": "Keep house without an application: due tasks, lost workers, retention.",
    "enqueue": "Store one task.",
    "status": "Show each queue at a glance, and the live workers.",
    "tasks": "List, show, cancel, retry and re-rank tasks.",
    "upstreams": "Look at upstreams; set limits; park, open and probe.",
    "budget": "Show what the retry budgets have spent.",
    "dead": "List, show, redrive and purge dead letters.",
    "classify": "Say what Tidegate would do about a provider's answer.",
    "web": "Serve the HTTP API of an application.",
    "tokens": "Make, list and revoke tokens of the HTTP API.",
    "db": "Bring the database up to date, or check it.",
    "doctor": "Look for what is wrong with this set-up.",
    "demo": "See failures, a killed worker, and nothing lost.",
    "version": "Print the version.",
}
"""Each command with its help in a line; its module, `tidegate.cli.NAME`, holds it as `command`."""


class Program(click.Group):
    """The group of all commands. Loads one when it is asked for; turns errors into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return list(SHORT_HELPS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by name, its module loaded."""
        if cmd_name not in SHORT_HELPS:
            return None
        command: click.Command = import_module(f"tidegate.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SHORT_HELPS.items()))

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run the command line and exit. A command returns its exit code, None for 0."""
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
    """Open the null device in place of each closed standard stream. Call it first.

    Else the next files and sockets would get the numbers 0 to 2, and children would use them as streams.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            os.set_inheritable(descriptor, True)
    for name, mode, descriptor in (("stdin", "r", 0), ("stdout", "w", 1), ("stderr", "w", 2)):
        if getattr(sys, name) is None:
            stream = open(descriptor, mode, closefd=False)  # noqa: SIM115 - a descriptor, for ever
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
