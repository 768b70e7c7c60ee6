"""Runs the start and stop hooks of an application in the event loop of its tasks."""

from __future__ import annotations

import contextvars
import inspect

from tidegate.worker import report
from tidegate.worker.application import Application


async def run_start_hooks(app: Application, *, keeps_context: bool) -> contextvars.Context:
    """Run the start hooks and return the context in which runs start.

    Args:
        app: The application.
        keeps_context: True, in a pool process: the context holds what the application's import and its start
            hooks set. False, in an embedded worker: it holds only what the start hooks set. Such a worker may
            be started anywhere, for example in a request, whose trace must not reach every task.
    """
    before = contextvars.copy_context()
    for hook in app.start_hooks:
        returned = hook()
        if inspect.isawaitable(returned):
            await returned
    after = contextvars.copy_context()
    if keeps_context:
        return after
    base_context = contextvars.Context()
    for variable, value in after.items():
        if variable not in before or before[variable] is not value:
            base_context.run(variable.set, value)
    return base_context


async def run_stop_hooks(app: Application) -> None:
    """Run the stop hooks, the last one first. If one raises, the others still run."""
    for hook in reversed(app.stop_hooks):
        try:
            returned = hook()
            if inspect.isawaitable(returned):
                await returned
        except Exception as error:
            report.stop_hook_failed(hook, error)
