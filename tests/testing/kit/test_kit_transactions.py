"""Enqueues in a transaction of the code under test, for an application on PostgreSQL: no server is needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from tidegate import OptionError, Tidegate
from tidegate.testing import Kit

app = Tidegate("postgresql://nobody@nowhere.invalid/none")


@app.task
def bill(order: int) -> int:
    return order


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = create_engine("sqlite://", poolclass=StaticPool)
    yield made
    made.dispose()


@pytest.fixture
def kit() -> Iterator[Kit]:
    with Kit(app) as entered:
        yield entered


def orders(kit: Kit) -> list[int]:
    return [task.args["order"] for task in kit.enqueued()]


def test_a_task_of_a_session_exists_once_the_session_commits(kit: Kit, engine: Engine) -> None:
    with Session(engine) as session:
        handle = bill.using(conn=session).enqueue_sync(1)
        assert orders(kit) == []
        session.commit()
        assert orders(kit) == [1]
    kit.drain_sync()
    assert handle.result_sync(timeout=0) == 1


def test_a_task_of_a_session_that_rolls_back_never_exists(kit: Kit, engine: Engine) -> None:
    with Session(engine) as session:
        session.begin()
        bill.using(conn=session).enqueue_sync(1)
        session.rollback()
        bill.using(conn=session).enqueue_sync(2)
        session.commit()
    assert orders(kit) == [2]


def test_a_task_of_a_savepoint_that_rolls_back_never_exists(kit: Kit, engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        bill.using(conn=session).enqueue_sync(1)
        nested = session.begin_nested()
        bill.using(conn=session).enqueue_sync(2)
        nested.rollback()
    assert orders(kit) == [1]


def test_a_task_of_a_savepoint_goes_with_the_transaction_around_it(kit: Kit, engine: Engine) -> None:
    with Session(engine) as session:
        session.begin()
        with session.begin_nested():
            bill.using(conn=session, key="once").enqueue_sync(1)
        session.rollback()
    assert orders(kit) == []
    assert bill.using(key="once").enqueue_sync(2).created


def test_a_session_inside_the_transaction_of_a_test_commits_its_tasks(kit: Kit, engine: Engine) -> None:
    with engine.connect() as connection:
        outer = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            bill.using(conn=session).enqueue_sync(1)
            session.commit()
        assert orders(kit) == [1]
        outer.rollback()


@pytest.mark.parametrize(("is_committed", "found"), [(True, [1]), (False, [])])
def test_a_task_goes_with_the_transaction_of_a_connection(
    kit: Kit, engine: Engine, is_committed: bool, found: list[int]
) -> None:
    with engine.connect() as connection:
        assert isinstance(connection, Connection)
        transaction = connection.begin()
        bill.using(conn=connection).enqueue_many_sync([(1,)])
        assert orders(kit) == []
        if is_committed:
            transaction.commit()
        else:
            transaction.rollback()
    assert orders(kit) == found


def test_something_that_is_no_connection_is_refused_as_in_production(kit: Kit) -> None:
    with pytest.raises(OptionError, match=r"conn= is a builtins\.str"):
        bill.using(conn="connection").enqueue_sync(1)
    kit.assert_not_enqueued()


def test_a_task_of_a_psycopg_connection_exists_at_once(kit: Kit) -> None:
    connection = object.__new__(psycopg.Connection)  # only its class is looked at
    assert bill.using(conn=connection).enqueue_sync(1).created
    assert orders(kit) == [1]


def test_an_application_on_sqlite_refuses_a_connection_as_in_production(engine: Engine) -> None:
    embedded = Tidegate("sqlite:////dev/null/never-opened.db")
    function = embedded.task(name="embedded")(bill.function)
    with Kit(embedded), Session(engine) as session, pytest.raises(OptionError, match="conn"):
        function.using(conn=session).enqueue_sync(1)


DJANGO = """
import django
from django.conf import settings

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
django.setup()

from django.db import connection, transaction
from django.test import TestCase
from tidegate import Tidegate
from tidegate.testing import KitMixin

app = Tidegate("postgresql://nobody@nowhere.invalid/none")


@app.task(name="bill")
def bill(order: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM paid WHERE number = %s", [order])
        return cursor.fetchone()[0]


def buy(order: int, *, fails: bool = False) -> None:
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO paid VALUES (%s)", [order])
        bill.using(conn=connection, key=str(order)).enqueue_sync(order)
        if fails:
            raise ValueError(order)


class BuyTest(KitMixin, TestCase):
    tidegate_app = app

    def setUp(self):
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE paid (number INTEGER)")

    def test_a_task_of_a_block_exists_after_it_and_sees_what_it_wrote(self):
        buy(1)
        self.kit.assert_enqueued(bill, args=(1,))
        (run,) = self.kit.drain_sync(raise_on_failure=True).runs
        self.assertEqual(bill.handle(run.task_id).result_sync(timeout=0), 1)

    def test_a_task_of_a_block_that_was_rolled_back_does_not_exist(self):
        with self.assertRaises(ValueError):
            buy(1, fails=True)
        self.kit.assert_not_enqueued()
        self.assertEqual(len(self.kit.drain_sync()), 0)
        buy(1)
        self.kit.assert_enqueued(bill, count=1)


import unittest
unittest.main()
"""
"""Settings of Django are global to a process, so this is a program of its own."""


def test_on_django_a_task_goes_with_its_block_inside_the_transaction_of_a_test_case(tmp_path: Path) -> None:
    program = tmp_path / "buying.py"
    program.write_text(DJANGO)
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 2 tests" in done.stderr
