"""The reference of the command line, from the help of every command."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
from tools.reference.markdown import anchor, paragraphs, table

from tidegate.cli import program

INTRODUCTION = """\
# Command line

```console
$ tidegate init                  # a tidegate.toml and a small application
$ tidegate dev                   # a worker that restarts when the code changes
$ tidegate status --json | jq .
```

Every command has `--help`. Results go to stdout, messages to stderr. With `--json` a command prints JSON: a
list is one object per line. [Exit codes](../how-to/operate.md#exit-codes) are the same for all commands.
"""


def page() -> str:
    """Return the page."""
    commands = list(walk(program, click.Context(program, info_name="tidegate")))
    rows = [
        (f"[`{context.command_path}`](#{anchor(context.command_path)})", command.get_short_help_str(200))
        for command, context in commands
        if not isinstance(command, click.Group)
    ]
    parts = [INTRODUCTION, table(["command", "what it does"], rows)]
    parts += ["\n\n".join(_section(command, context)) for command, context in commands]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def walk(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield every command below a command, each after its group."""
    if context.parent is not None:
        yield command, context
    # A command may have commands of its own without being a group for click: `worker health`.
    names = command.list_commands(context) if isinstance(command, click.Group) else _own_commands(command)
    for name in names:
        inner = (
            command.get_command(context, name)
            if isinstance(command, click.Group)
            else _own_commands(command)[name]
        )
        if inner is not None and not inner.hidden:
            yield from walk(inner, click.Context(inner, info_name=name, parent=context))


def _own_commands(command: click.Command) -> dict[str, click.Command]:
    found: dict[str, click.Command] = getattr(command, "commands", {})
    return found


def _section(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"## {context.command_path}"
    yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```"
    yield help_text(command.help or "")
    records = [
        (f"`{record[0].replace(' RANGE', '')}`", record[1])
        for parameter in command.get_params(context)
        if "--help" not in parameter.opts
        and (record := parameter.get_help_record(context))
        and record[1]  # the usage shows arguments that need no explanation
    ]
    if records:
        yield table(
            ["option", "meaning"],
            [(f"`{option.replace(' RANGE', '')}`", meaning) for option, meaning in records],
        )


def help_text(text: str) -> str:
    """Return the text of a command's help as Markdown: what click must not wrap is a code block."""
    parts = []
    for part in inspect.cleandoc(text).split("\n\n"):
        if part.startswith("\b\n"):
            parts.append(f"```text\n{part.removeprefix(chr(8) + chr(10))}\n```")
        else:
            parts.append(paragraphs(part))
    return "\n\n".join(parts)
