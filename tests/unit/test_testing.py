"""The fixtures that users get: databases of their own, roll-backs, and waiting for a lock."""

import threading
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from spanmq.testing import new_database, wait_until_waiting, with_database

Connection = psycopg.Connection[Any]


def databases(server: str) -> set[str]:
    with psycopg.connect(server) as connection:
        return {row[0] for row in connection.execute("select datname from pg_database")}


def test_new_database_is_a_copy_that_goes_when_it_is_no_longer_needed(spanmq_server: str) -> None:
    with new_database(spanmq_server) as template:
        with psycopg.connect(with_database(spanmq_server, template)) as connection:
            connection.execute("create table kept as select 42 as answer")
        with new_database(spanmq_server, template=template) as copy:
            assert {template, copy} <= databases(spanmq_server)
            with psycopg.connect(with_database(spanmq_server, copy)) as connection:
                assert connection.execute("select answer from kept").fetchone() == (42,)
                # Still connected: it must go all the same.
            lingering = psycopg.connect(with_database(spanmq_server, copy))
        assert copy not in databases(spanmq_server)
        lingering.close()
    assert template not in databases(spanmq_server)


def test_database_has_spanmq(database: str) -> None:
    with psycopg.connect(database) as connection:
        row = connection.execute("select to_regproc('spanmq.version') is not null").fetchone()
    assert row == (True,)


def test_upstream_database_has_pgmq_and_not_spanmq(upstream_database: str) -> None:
    with psycopg.connect(upstream_database) as connection:
        connection.execute("select pgmq.create('orders')")
        row = connection.execute("select to_regproc('spanmq.version') is null").fetchone()
    assert row == (True,)


def test_connection_may_not_commit(connection: Connection) -> None:
    with pytest.raises(psycopg.ProgrammingError, match="commit"):
        connection.commit()


@pytest.mark.parametrize("run", [1, 2])
def test_connection_is_rolled_back(connection: Connection, run: int) -> None:
    connection.execute("create table only_here (id int)")


@pytest.mark.parametrize(
    "server",
    [
        "postgresql://ada@/postgres?host=%2Frun%2Fa%20b&port=5432",
        "postgresql://ada:secret@example:5432/postgres",
        "host=/run user=ada dbname=postgres",
    ],
)
def test_other_database_of_a_server_differs_in_its_name_only(server: str) -> None:
    expected = conninfo_to_dict(server) | {"dbname": "it's 50%"}
    assert conninfo_to_dict(with_database(server, "it's 50%")) == expected


def test_waiting_session_is_seen_though_it_came_after_the_first_look(empty_database: str) -> None:
    with psycopg.connect(empty_database) as holder:
        holder.execute(
            "select pg_advisory_xact_lock(1), count(*) from pg_stat_activity where pid = pg_backend_pid()"
        )
        with psycopg.connect(empty_database) as waiter:
            thread = threading.Thread(target=waiter.execute, args=["select pg_advisory_xact_lock(1)"])
            thread.start()
            wait_until_waiting(holder, waiter.info.backend_pid)
            holder.rollback()
            thread.join()


def test_session_that_does_not_wait_is_reported(empty_database: str) -> None:
    complaint = pytest.raises(AssertionError, match="did not wait for a lock")
    with psycopg.connect(empty_database) as connection, complaint:
        wait_until_waiting(connection, connection.info.backend_pid, timeout=0.05)
