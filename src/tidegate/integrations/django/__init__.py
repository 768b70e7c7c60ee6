"""Inside Django: enqueue on commit, set Django up in workers, and (`.tasks`, Django 6) its tasks' backend.

With Django 5.2 task functions are Tidegate's own: `@queue.task` and `enqueue_on_commit`.
"""

from __future__ import annotations

import django
from django.apps import apps
from django.db import transaction

from tidegate.app import Tidegate
from tidegate.store.rows import NewTask


def use_django(queue: Tidegate) -> Tidegate:
    """Have Django set up in every worker process of a queue, before its first task; return the queue.

    The worker needs `DJANGO_SETTINGS_MODULE`.
    """
    queue.on_start(_set_up)
    queue.on_child_start(_set_up)
    return queue


def enqueue_on_commit(queue: Tidegate, *tasks: NewTask) -> list[str]:
    """Store tasks once the present transaction has committed, at once if there is none; return their ids.

    If the process dies between the commit and the enqueue, they are lost: where that must not be, the queue
    has to be in the same database and transaction.

    Args:
        queue: Where to.
        tasks: Made by `f.prepare(…)`, which has checked their arguments.
    """
    transaction.on_commit(lambda: queue.enqueue_many_sync(tasks))
    return [task.id for task in tasks]


def _set_up() -> None:
    if not apps.ready:
        django.setup()
