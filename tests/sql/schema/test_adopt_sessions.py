"""A take-over among other sessions: locks, time limits, dry runs, transactions."""

import threading
from typing import Any

import psycopg
import pytest
from tests.sql.queue import Connection, one
from tests.sql.schema.upstream import fill, messages, relations

from spanmq import schema
from spanmq.errors import (
    NotPossibleError,
    SchemaMissingError,
    ServerError,
    StatementCancelledError,
    from_driver,
)
from spanmq.schema.adopt import AdoptReport, adopt
from spanmq.testing import wait_until_waiting


def test_nothing_to_adopt_is_said(session: Connection) -> None:
    with pytest.raises(SchemaMissingError, match="the database has no PGMQ to take over"):
        adopt(session)
    schema.install(session)
    with pytest.raises(NotPossibleError, match="holds spanmq 0"):
        adopt(session, dry_run=True)
    assert schema.verify(session) == []


def test_adoption_joins_the_callers_transaction(filled: Connection) -> None:
    before, tables = messages(filled, "orders"), relations(filled)
    with filled.transaction(force_rollback=True):
        filled.execute("set local lock_timeout = '7s'")
        adopt(filled)
        assert one(filled, "select current_setting('lock_timeout')") == "7s"
        assert messages(filled, "orders") == before
    assert (messages(filled, "orders"), relations(filled)) == (before, tables)
    assert one(filled, "select pgmq.send('orders', '{}')") == 61


class Adopting(threading.Thread):
    """A take-over in a session of its own."""

    def __init__(self, dsn: str, **options: Any) -> None:
        super().__init__(daemon=True)
        self.session = psycopg.connect(dsn, autocommit=True)
        self.options = options
        self.result: AdoptReport | Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = adopt(self.session, **self.options)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            self.result = error

    def finish(self) -> AdoptReport:
        self.join()
        self.session.close()
        assert isinstance(self.result, AdoptReport), self.result
        return self.result


def test_what_commits_while_we_wait_goes_over_and_who_waits_for_us_goes_on(
    upstream: Connection, upstream_database: str
) -> None:
    # The delete has a queue of its own: who reads beside it skips the rows that it holds, and finds none.
    for queue in ("aaa", "aab", "bbb"):
        upstream.execute("select pgmq.create(%s)", [queue])
    for queue in ("aaa", "aab"):
        upstream.execute("select pgmq.send_batch(%s, array_fill('{}'::jsonb, array[3]))", [queue])
    outcomes: dict[str, Any] = {}

    def call(name: str, statement: str) -> tuple[threading.Thread, int]:
        opened = psycopg.connect(upstream_database, autocommit=True)

        def run() -> None:
            with opened:
                try:
                    outcomes[name] = one(opened, statement)
                except psycopg.Error as error:
                    outcomes[name] = from_driver(error)

        return threading.Thread(target=run, daemon=True), opened.info.backend_pid

    with psycopg.connect(upstream_database) as sender:
        sender.execute("select pgmq.send('bbb', '{}')")
        adopting = Adopting(upstream_database)
        wait_until_waiting(upstream, adopting.session.info.backend_pid)
        late = [
            call("send", "select pgmq.send('aaa', '{}')"),
            call("delete", "select pgmq.delete('aab', 2)"),
            call("read", "select count(*) from pgmq.read('aaa', 60, 1)"),
        ]
        for thread, pid in late:
            thread.start()
            wait_until_waiting(upstream, pid)
        sender.commit()
    assert adopting.finish().messages == 7
    for thread, _ in late:
        thread.join()
    # They were inside upstream's functions and find a view where their table was: it takes an insert and a delete,
    # but no row lock.
    assert outcomes["send"] == 4
    assert isinstance(outcomes["read"], ServerError)
    assert outcomes["read"].sqlstate == "0A000"
    assert outcomes["delete"] is True
    held = {queue: [row[0] for row in messages(upstream, queue)] for queue in ("aaa", "aab", "bbb")}
    assert held == {"aaa": [1, 2, 3, 4], "aab": [1, 3], "bbb": [1]}


def test_second_adoption_and_an_installation_meet_the_first(
    filled: Connection, upstream_database: str
) -> None:
    before = messages(filled, "orders")
    with psycopg.connect(upstream_database) as first:
        first.execute("begin")
        assert adopt(first).messages == len(before)
        second = Adopting(upstream_database)
        wait_until_waiting(first, second.session.info.backend_pid)
        with pytest.raises(NotPossibleError):
            schema.install(filled)
        first.commit()
    second.join()
    second.session.close()
    assert isinstance(second.result, NotPossibleError)
    assert not schema.install(filled).functions_applied
    assert messages(filled, "orders") == before
    assert schema.verify(filled) == []


def test_tables_in_use_end_the_adoption_in_time(filled: Connection, upstream_database: str) -> None:
    before, tables = messages(filled, "orders"), relations(filled)
    with psycopg.connect(upstream_database) as user:
        user.execute("select pgmq.send('orders', '{}')")
        with pytest.raises(StatementCancelledError, match="did not end in time"):
            adopt(filled, lock_timeout_seconds=0.05)
        user.rollback()
    assert (messages(filled, "orders"), relations(filled)) == (before, tables)


def test_dry_run_waits_for_nobody_and_changes_nothing(filled: Connection, upstream_database: str) -> None:
    filled.execute("select pgmq.bind_topic('a', 'orders'); select pgmq.enable_notify_insert('orders', 9)")
    before, tables = messages(filled, "orders"), relations(filled)
    with psycopg.connect(upstream_database) as user:
        user.execute("select pgmq.send('orders', '{}')")
        told = adopt(filled, dry_run=True, lock_timeout_seconds=0.05)
        user.rollback()
    assert (messages(filled, "orders"), relations(filled)) == (before, tables)
    assert schema.state(filled).holding is schema.Holding.UPSTREAM_SQL_ONLY
    done = adopt(filled)
    assert (told.queues[0].messages, told.queues[0].topics, told.queues[0].notify_ms) == (44, ("a",), 9)
    assert told.queues[0].last_id == done.queues[0].last_id - 0 == 61
    assert told.is_dry_run
    assert not done.is_dry_run


def test_database_of_an_application_role_goes_over_by_its_owner(owner: Connection) -> None:
    pgmq = pytest.importorskip("pgmq")
    owner.execute(pgmq.get_embedded_install_sql())
    fill(owner, "orders")
    before = messages(owner, "orders")
    adopt(owner)
    assert messages(owner, "orders") == before
    assert schema.verify(owner) == []
    assert one(owner, "select pgmq.send('orders', '{}')") == 61
