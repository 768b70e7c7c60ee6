"""The tests' own PostgreSQL: there when asked for, gone afterwards, whatever happens to the tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from pgserver import NotHereError, Server, pgbouncer, postgres_server

TESTS = Path(__file__).parents[1]

_WAITS_TO_BE_KILLED = """
import sys
from pgserver import postgres_server
with postgres_server() as server:
    print(server.directory, server.process_id, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server():
    with postgres_server() as server:
        yield server


def test_a_crash_of_the_server_loses_nothing_committed(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")

    server.stop(immediately=True)
    server.start()

    with server.connect() as connection:
        assert connection.execute("SELECT number FROM kept").fetchall() == [(7,)]


def test_root_starts_it_as_somebody_else(server: Server) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has to")
    owner = os.stat(f"/proc/{server.process_id}").st_uid

    assert owner != 0


def test_the_pooler_keeps_no_session_between_transactions(server: Server) -> None:
    try:
        with pgbouncer(server) as bouncer, psycopg.connect(bouncer.url(), prepare_threshold=None) as one:
            first = one.execute("SELECT pg_backend_pid()").fetchone()
            one.commit()
            with psycopg.connect(bouncer.url(), prepare_threshold=None) as two:
                second = two.execute("SELECT pg_backend_pid()").fetchone()
    except NotHereError as error:
        pytest.skip(str(error))

    assert first == second


def test_it_is_gone_after_the_block() -> None:
    with postgres_server() as server:
        directory, port = server.directory, server.port

    assert not directory.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres", connect_timeout=1)


def test_it_is_gone_when_the_tests_are_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WAITS_TO_BE_KILLED],
        cwd=TESTS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as tests:
        assert tests.stdout is not None
        directory, postmaster = tests.stdout.readline().split()

        tests.kill()

        ends_at = time.monotonic() + 20
        while Path(directory).exists() or _runs(int(postmaster)):
            assert time.monotonic() < ends_at, "the server outlived its tests"
            time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False
