"""Django: enqueue on commit and Django set up in workers; with Django 6 its own tasks, stored and run by Tidegate.

Each test is a Django project of its own, in a process of its own: settings are global to a process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import django
import pytest

from support import worker_process

HAS_TASKS = django.VERSION >= (6, 0)
needs_tasks = pytest.mark.skipif(
    not HAS_TASKS, reason="django.tasks came with Django 6, which needs Python 3.12"
)

SETTINGS = """
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db"}}
TASKS = {
    "default": {
        "BACKEND": "tidegate.integrations.django.tasks.TidegateBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"app": "shop_queue:queue"},
    }
}
"""
QUEUE = """
from tidegate.internals import core_of
from tidegate import Fixed, Pool, Tidegate, Timings
from tidegate.integrations.django import use_django

queue = use_django(Tidegate(pools=[Pool(poll_interval=0.05)], timings=Timings(promote=0.05)))

@queue.task(name="shop:count")
def count() -> int:
    from django.db import connection
    with connection.cursor() as cursor:
        cursor.execute("SELECT 40 + 2")
        return cursor.fetchone()[0]
"""
DJANGO_QUEUE = """
from tidegate import Fixed, Pool, Tidegate, Timings
from tidegate.integrations.django.tasks import declare_django_tasks

queue = declare_django_tasks(
    Tidegate(pools=[Pool(poll_interval=0.05)], timings=Timings(promote=0.05)), backoff=Fixed(0.05), max_attempts=2
)
"""
TASKS = """
from django.tasks import task

@task
def add(a, b):
    return a + b

@task(queue_name="mail", priority=10)
async def greet(name):
    return {"greeting": f"hello {name}"}

@task(takes_context=True)
def fails_once(context):
    if context.attempt == 1:
        raise OSError("not now")
    return context.attempt

def no_task():
    return "should never run"
"""


class Project:
    """A Django project in a directory."""

    def __init__(self, directory: Path, queue: str) -> None:
        self.directory = directory
        (directory / "shop_settings.py").write_text(SETTINGS)
        (directory / "shop_queue.py").write_text(queue)
        (directory / "shop_tasks.py").write_text(TASKS)
        self.env = {
            "DJANGO_SETTINGS_MODULE": "shop_settings",
            "TIDEGATE_DATABASE_URL": f"sqlite:///{directory}/queue.db",
            "PYTHONPATH": os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")]),
        }

    def run(self, code: str) -> list[str]:
        """Run a script of the project; return the lines it printed."""
        done = subprocess.run(
            [sys.executable, "-c", "import django; django.setup()\n" + code],
            cwd=self.directory, env=os.environ | self.env, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def worker(self):
        """A worker of the project."""
        return worker_process("shop_queue:queue", self.directory, **self.env)


def test_a_task_is_stored_when_its_transaction_commits_and_never_when_it_rolls_back(tmp_path: Path) -> None:
    project = Project(tmp_path, QUEUE)
    lines = project.run("""
from django.db import transaction
from shop_queue import count, queue
from tidegate import TaskNotFoundError
from tidegate.integrations.django import enqueue_on_commit

def there(task_id):
    try:
        return queue.status_sync(task_id).state.value
    except TaskNotFoundError:
        return "not there"

with transaction.atomic():
    [kept] = enqueue_on_commit(queue, count.prepare())
    print(there(kept))
print(there(kept))
try:
    with transaction.atomic():
        [lost] = enqueue_on_commit(queue, count.prepare())
        raise ValueError
except ValueError:
    print(there(lost))
[at_once] = enqueue_on_commit(queue, count.prepare())
print(there(at_once))
""")
    assert lines == ["not there", "ready", "not there", "ready"]


OTHER_DATABASE = """
DATABASES["other"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": "other.db"}
"""


def test_a_rollback_on_any_database_drops_the_task_and_using_names_the_one_that_counts(
    tmp_path: Path,
) -> None:
    project = Project(tmp_path, QUEUE)
    (tmp_path / "shop_settings.py").write_text(SETTINGS + OTHER_DATABASE)
    lines = project.run("""
from contextlib import ExitStack
from django.db import transaction
from shop_queue import count, queue
from tidegate import TaskNotFoundError
from tidegate.integrations.django import enqueue_on_commit

def stored(opened, rolled_back, **options):
    with ExitStack() as stack:
        for alias in opened:
            stack.enter_context(transaction.atomic(using=alias))
            if alias in rolled_back:
                transaction.set_rollback(True, using=alias)
        [task_id] = enqueue_on_commit(queue, count.prepare(), **options)
    try:
        return queue.status_sync(task_id).state.value
    except TaskNotFoundError:
        return "not there"

print(stored(["other"], ["other"]))
print(stored(["other"], []))
print(stored(["default", "other"], ["default"]))
print(stored(["default", "other"], ["other"]))
print(stored(["default", "other"], []))
print(stored(["default", "other"], ["default"], using="other"))
print(stored(["default", "other"], ["other"], using="other"))
""")
    assert lines == ["not there", "ready", "not there", "not there", "ready", "ready", "not there"]


def test_django_is_set_up_in_child_processes_of_workers(tmp_path: Path) -> None:
    project = Project(tmp_path, QUEUE)
    with project.worker():
        assert project.run("from shop_queue import count; print(count.enqueue_sync().result_sync(40))") == [
            "42"
        ]


@needs_tasks
def test_djangos_own_tasks_are_stored_and_run(tmp_path: Path) -> None:
    project = Project(tmp_path, DJANGO_QUEUE)
    script = """
import time
from datetime import timedelta
from django.db import transaction
from django.tasks import TaskResultStatus
from django.tasks.signals import task_enqueued
from django.utils import timezone
from shop_tasks import add, fails_once, greet

def finished(result):
    ends_at = time.monotonic() + 40
    while not result.is_finished and time.monotonic() < ends_at:
        time.sleep(0.05)
        result.refresh()
    return result

with transaction.atomic():
    held = add.enqueue(1, b=2)
    try:
        add.get_result(held.id)
    except Exception as error:
        print(type(error).__name__)
print(finished(held).return_value, held.args, held.kwargs, held.status.name)
print(finished(greet.enqueue("Ada")).return_value)
again = finished(fails_once.enqueue())
print(again.return_value, again.attempts, [error.exception_class.__name__ for error in again.errors])
later = add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1, 2)
print(add.get_result(later.id).status.name)
"""
    with project.worker():
        assert project.run(script) == [
            "TaskResultDoesNotExist",
            "3 [1] {'b': 2} SUCCESSFUL",
            "{'greeting': 'hello Ada'}",
            "2 2 ['OSError']",
            "READY",
        ]


@needs_tasks
def test_tasks_of_installed_applications_carry_their_own_names(tmp_path: Path) -> None:
    project = Project(tmp_path, DJANGO_QUEUE)
    (tmp_path / "shop_settings.py").write_text(SETTINGS + 'INSTALLED_APPS = ["shop"]\n')
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "tasks.py").write_text(TASKS)
    script = """
import time
from shop.tasks import add, greet
from shop_queue import queue
from shop_tasks import add as elsewhere
from tidegate.internals import core_of

results = [add.enqueue(1, b=2), greet.enqueue("Ada"), elsewhere.enqueue(3, 4)]
print([queue.status_sync(result.id).function for result in results])
for result in results:
    ends_at = time.monotonic() + 40
    while not result.is_finished and time.monotonic() < ends_at:
        time.sleep(0.05)
        result.refresh()
print([result.return_value for result in results])
print(core_of(queue).functions["shop.tasks:greet"].spec.queue)
"""
    with project.worker():
        assert project.run(script) == [
            "['shop.tasks:add', 'shop.tasks:greet', 'django:task']",
            "[3, {'greeting': 'hello Ada'}, 7]",
            "mail",
        ]


@needs_tasks
def test_nothing_but_a_django_task_is_run_by_its_path(tmp_path: Path) -> None:
    project = Project(tmp_path, DJANGO_QUEUE)
    script = """
from shop_queue import queue
from tidegate import TaskFailedError
from tidegate.integrations.django.tasks import FUNCTION
from tidegate.internals import core_of

for path in ("shop_tasks.no_task", "os.system", "nowhere.at_all"):
    handle = core_of(queue).functions[FUNCTION].enqueue_sync(path=path, args=[], kwargs={})
    try:
        handle.result_sync(40)
    except TaskFailedError as error:
        print(error.facts["error_class"])
"""
    with project.worker():
        assert project.run(script) == ["tidegate.verdicts.Permanent"] * 3


@needs_tasks
def test_a_mistake_in_the_settings_is_reported(tmp_path: Path) -> None:
    project = Project(tmp_path, QUEUE)
    [line] = project.run("""
from django.core.exceptions import ImproperlyConfigured
from shop_tasks import add
try:
    add.enqueue(1, 2)
except ImproperlyConfigured as error:
    print(error)
""")
    assert "declare_django_tasks" in line
