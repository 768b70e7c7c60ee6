"""A Django site, in one file, whose views submit tasks.

    pip install tidegate django
    python app.py runserver                                     # one terminal
    DJANGO_SETTINGS_MODULE=app tidegate worker app:queue        # another one
    curl -si localhost:8000/report/2026

With Django 6 its own `@task` functions can be run too: see docs/how-to/enqueue-from-web-frameworks.md.
"""

import os
import sys
from pathlib import Path
from uuid import UUID

from django.http import Http404, HttpRequest, JsonResponse
from django.urls import URLPattern, URLResolver

from tidegate import TaskNotFoundError, Tidegate

SECRET_KEY = "for this example only"
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
ROOT_URLCONF = __name__
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path("site.db")}}

queue = Tidegate()


@queue.task(queue="reports")
def make_report(year: int) -> str:
    from django.db import connection

    with connection.cursor() as cursor:  # Django is set up in every worker process
        cursor.execute("SELECT sqlite_version()")
        return f"report of {year}, by SQLite {cursor.fetchone()[0]}"


def report(request: HttpRequest, year: int) -> JsonResponse:
    from django.db import transaction
    from django.urls import reverse

    from tidegate.integrations.django import enqueue_on_commit

    with transaction.atomic():  # pyright: ignore[reportGeneralTypeIssues]: Django has no types of its own
        # … what the report will be about is written here; the task is stored when that is committed
        [task_id] = enqueue_on_commit(queue, make_report.prepare(year))
    return JsonResponse(
        {"task_id": task_id}, status=202, headers={"Location": reverse("task", args=[task_id])}
    )


def task(request: HttpRequest, task_id: UUID) -> JsonResponse:
    try:
        row = queue.status_sync(str(task_id))
    except TaskNotFoundError:
        raise Http404 from None
    return JsonResponse({"task_id": row.task_id, "state": row.state.value})


def _urlpatterns() -> list[URLPattern | URLResolver]:
    from django.urls import path

    return [path("report/<int:year>", report), path("tasks/<uuid:task_id>", task, name="task")]


def __getattr__(name: str) -> list[URLPattern | URLResolver]:
    """Give Django its URLs when it asks: a client or worker that imports this file needs none."""
    if name == "urlpatterns":
        return _urlpatterns()
    raise AttributeError(name)


def _use_django() -> None:
    from tidegate.integrations.django import use_django

    use_django(queue)


_use_django()

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "app")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
