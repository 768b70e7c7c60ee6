"""Inside Django: enqueue on commit, set Django up in workers, and (`.tasks`, Django 6) its tasks' backend.

With Django 5.2 task functions are Tidegate's own: `@queue.task` and `enqueue_on_commit`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import django
from django.apps import apps
from django.db import connections, transaction

from tidegate.app import Tidegate
from tidegate.configured import PreparedTask
from tidegate.threads.bridge import require_threads


def use_django(queue: Tidegate) -> Tidegate:
    """Have Django set up in every worker process of a queue, before its first task; return the queue.

    The worker needs `DJANGO_SETTINGS_MODULE`.

    Raises:
        ConfigError: The server has replaced this process's threads, as gevent and eventlet workers do.
    """
    require_threads()
    queue.on_start(_set_up)
    queue.on_child_start(_set_up)
    return queue


def enqueue_on_commit(queue: Tidegate, *tasks: PreparedTask, using: str | None = None) -> list[str]:
    """Store tasks once the present transaction has committed, at once if there is none; return their ids.

    With several databases, every transaction that is open in this thread must commit. If one is rolled back,
    no task is stored.

    If the process dies between the commit and the enqueue, they are lost. If that must not happen, keep the
    queue in the same database and enqueue in the same transaction.

    Args:
        queue: Where to.
        tasks: Made by `f.prepare(…)`, which has checked their arguments.
        using: The alias of the database whose transaction counts; None: all open transactions.
    """
    on_commit(lambda: queue.enqueue_many_sync(tasks), using=using)
    return [task.task_id for task in tasks]


def on_commit(callback: Callable[[], object], *, using: str | None = None) -> None:
    """Call a function once the transaction of a database has committed; at once if none is open.

    Args:
        callback: What to do.
        using: The alias of the database; None: after all transactions that are open in this thread.
    """
    if using is not None:
        transaction.on_commit(callback, using=using)
        return
    waiting = {conn.alias for conn in connections.all(initialized_only=True) if conn.in_atomic_block}
    if not waiting:
        callback()

    def committed(alias: str) -> None:
        waiting.discard(alias)
        if not waiting:
            callback()

    for alias in sorted(waiting):  # a transaction that rolls back never calls this, so no task is stored
        transaction.on_commit(functools.partial(committed, alias), using=alias)


def _set_up() -> None:
    if not apps.ready:
        django.setup()
