"""Enqueues in a transaction of the code under test, for an application on PostgreSQL: no server is needed."""

from __future__ import annotations

from collections.abc import Iterator

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


def test_an_application_on_sqlite_refuses_a_connection_as_in_production(engine: Engine) -> None:
    embedded = Tidegate("sqlite:////dev/null/never-opened.db")
    function = embedded.task(name="embedded")(bill.function)
    with Kit(embedded), Session(engine) as session, pytest.raises(OptionError, match="conn"):
        function.using(conn=session).enqueue_sync(1)
