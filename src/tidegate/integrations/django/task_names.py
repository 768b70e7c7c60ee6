"""Gives each Django task a task function of its own name, so that lists and logs say which one it is.

Tasks are found where clients and workers find the same ones: in the `tasks` modules of the installed
applications, and in `modules` of the configuration. Any other runs under the one name for all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import django
from django.apps import apps
from django.tasks.base import Task
from django.utils.module_loading import autodiscover_modules

from tidegate.app import Tidegate
from tidegate.internals import core_of

_SEPARATOR = "runs_django_tasks"


def task_function_name(task: Task) -> str:
    """Return the name of a task's function: `shop.tasks:add`."""
    return f"{task.func.__module__}:{task.func.__qualname__}"


def runs_django_tasks(queue: Tidegate, name: str) -> bool:
    """Return whether a task function of a queue is one that runs Django tasks."""
    function = core_of(queue).functions.get(name)
    return function is not None and getattr(function.function, _SEPARATOR, False)


class DjangoTaskNames:
    """Declares the functions once, as soon as Django's applications are there.

    Args:
        queue: Where the tasks are declared.
        run: Runs any Django task by its path.
        settings_of: Returns the settings of `@queue.task` for a task.
    """

    def __init__(
        self, queue: Tidegate, run: Callable[..., Any], settings_of: Callable[[Task], dict[str, Any]]
    ) -> None:
        self._queue = queue
        self._run = run
        self._settings_of = settings_of
        self._is_done = False
        setattr(run, _SEPARATOR, True)

    def declare(self) -> None:
        """Find the tasks and declare them; nothing while Django is still being set up. Safe to repeat."""
        if self._is_done or (not apps.ready and apps.loading):
            return
        if not apps.ready:
            django.setup()
        self._is_done = True
        for task in self._find_tasks():
            if task_function_name(task) not in core_of(self._queue).functions:
                self._queue.task(name=task_function_name(task), **self._settings_of(task))(self._run)

    def _find_tasks(self) -> Iterator[Task]:
        autodiscover_modules("tasks")
        names = [f"{app.name}.tasks" for app in apps.get_app_configs()]
        for name in (*names, *core_of(self._queue).modules):
            values = vars(sys.modules[name]).values() if name in sys.modules else ()
            yield from (value for value in values if isinstance(value, Task))
