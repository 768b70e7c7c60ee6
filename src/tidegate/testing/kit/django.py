"""Lets tasks in threads see what a Django `TestCase` wrote in its transaction."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from tidegate.testing.kit.session import ShareConnections


class ShareDjangoConnections(ShareConnections):
    """Shares the database connections of the test's thread while they are in a transaction.

    The test's thread waits meanwhile, so only one thread uses a connection at a time. Django's own
    `LiveServerTestCase` shares connections in the same way.

    Args:
        connections: Django's connections, in the test's thread.
    """

    def __init__(self, connections: Any) -> None:
        self._connections = connections
        self._of_test = {connection.alias: connection for connection in connections.all()}

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Share inside the block, in a thread of a function."""
        shared = {alias: conn for alias, conn in self._of_test.items() if conn.in_atomic_block}
        for alias, connection in shared.items():
            connection.inc_thread_sharing()
            self._connections[alias] = connection
        try:
            yield
        finally:
            for alias, connection in shared.items():
                del self._connections[alias]
                connection.dec_thread_sharing()
            if shared != self._of_test:
                self._connections.close_all()


def sharing_for_this_thread() -> ShareConnections:
    """Return what shares the test's connections, if this program uses Django's databases."""
    database = sys.modules.get("django.db")
    if database is None or not sys.modules["django.conf"].settings.configured:
        return ShareConnections()
    return ShareDjangoConnections(database.connections)
