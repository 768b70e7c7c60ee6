"""An application whose tasks are enqueued in transactions of their callers; as a program, one that uses Django.

    python joining.py URL USER_URL (commit|rollback|autocommit)

Prints the tasks' ids.
"""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

from tidegate import Tidegate


def make_app(url: str):
    app = Tidegate(url)

    @app.task(name="joining:work")
    async def work(number: int) -> int:
        return number

    return app, work


def main(url: str, user_url: str, end: str) -> None:
    from django.conf import settings
    from django.db import connection, transaction

    parts = urlsplit(user_url)
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "USER": parts.username}
    settings.configure(DATABASES={"default": database | {"HOST": parts.hostname, "PORT": parts.port}})
    app, work = make_app(url)
    enqueuing = work.using(conn=connection)
    if end == "autocommit":
        enqueuing.enqueue_sync(1)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO own.orders (number) VALUES (1)")
        many = [work.using(key="k", labels={"kind": "größer"}).prepare(2), work.prepare(3)]
        print(enqueuing.enqueue_sync(1).id, *app.enqueue_many_sync(many, conn=connection))
        transaction.set_rollback(end == "rollback")
    connection.close()
    app.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
