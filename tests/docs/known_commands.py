"""Checks that a command line of `tidegate` on a page exists, with its options."""

from __future__ import annotations

import click

from tidegate.cli import program


def require_known(words: list[str], line: str) -> None:
    """Fail unless click knows every subcommand and option; values are not looked at."""
    command: click.Command = program
    context = click.Context(command)
    while words and (isinstance(command, click.Group) or words[0] in getattr(command, "commands", ())):
        name = words.pop(0)
        found = (
            command.get_command(context, name) if isinstance(command, click.Group) else command.commands[name]
        )
        assert found is not None, line
        command = found
    names = [(*parameter.opts, *parameter.secondary_opts) for parameter in command.params]
    options = {name for both in names for name in both} | {"--help"}
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in options]
    assert unknown == [], line
