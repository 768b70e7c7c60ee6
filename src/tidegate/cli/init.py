"""`tidegate init`: write a configuration and an application to start from."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.cli.common import json_option
from tidegate.cli.error_report import CONFLICT
from tidegate.cli.output import print_json, print_message

_APP = '''\
"""A first application. In one terminal: `tidegate dev`. In another: `tidegate enqueue greet Ada --wait`."""

import asyncio

from tidegate import Context, Tidegate

app = Tidegate()


@app.task(max_attempts=5)
async def greet(ctx: Context, name: str) -> str:
    """Say hello, as slowly as a model would."""
    for step in range(1, 4):
        ctx.progress(step, 3, "thinking")
        await asyncio.sleep(1)
    return f"hello {name}"
'''


@click.command()
@click.option("--force", is_flag=True, help="Replace an existing tidegate.toml. Code is never replaced.")
@json_option
def command(force: bool, as_json: bool) -> int:
    """Write a tidegate.toml with three worker pools, and a small app.py if there is none."""
    from tidegate.config import preset_toml

    settings, code = Path("tidegate.toml"), Path("app.py")
    if settings.exists() and not force:
        print_message("Error: tidegate.toml exists already; nothing was written → use --force to replace it")
        return CONFLICT
    settings.write_text(preset_toml(), encoding="utf-8")
    written = [settings.name]
    if not code.exists():
        code.write_text(_APP, encoding="utf-8")
        written.append(code.name)
    if as_json:
        print_json({"written": written})
    else:
        click.echo("\n".join(f"wrote {name}" for name in written))
        print_message(
            "next: `tidegate dev` here, and in another terminal: `tidegate enqueue greet Ada --wait`"
        )
    return 0
