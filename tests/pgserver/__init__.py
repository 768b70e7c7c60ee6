"""The tests' own PostgreSQL and pgbouncer: real ones, on free ports of loopback, gone when the tests are.

One server a test process, started by the first test that asks for it. Nothing of it outlives the process that
started it, however that ends.
"""

from pgserver.bouncer import Bouncer, pgbouncer
from pgserver.debian import NotHereError, unpacked
from pgserver.proxy import Proxy, proxied
from pgserver.server import Server, postgres_server

__all__ = [
    "Bouncer",
    "NotHereError",
    "Proxy",
    "Server",
    "pgbouncer",
    "postgres_server",
    "proxied",
    "unpacked",
]
