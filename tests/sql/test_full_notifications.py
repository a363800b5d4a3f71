"""A server whose queue of notifications is full costs speed only: every role can fill it."""

import os
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from tests.sql.conformance.listening import listening
from tests.sql.queue import Connection, one, rows

from spanmq import embedded, schema

pytestmark = pytest.mark.skipif(
    "SPANMQ_TEST_DSN" in os.environ or os.environ.get("SPANMQ_TEST_POSTGRES", "18") != "18",
    reason="starts a server whose queue of notifications is small, a setting of PostgreSQL 17",
)
USAGE = "select pg_notification_queue_usage()"
# 2 MB of them in a transaction.
FLOOD = "select pg_notify('noise', repeat('x', 7900) || i) from generate_series(1, 250) i"


@pytest.fixture(scope="module")
def server() -> Iterator[embedded.TemporaryServer]:
    settings = {"max_notify_queue_pages": "1024", "fsync": "off", "autovacuum": "off"}
    with embedded.temporary(settings=settings) as server:
        yield server


@pytest.fixture
def session(server: embedded.TemporaryServer) -> Iterator[Connection]:
    with psycopg.connect(server.dsn, autocommit=True) as session:
        schema.install(session)
        yield session


@pytest.fixture
def listener(server: embedded.TemporaryServer, session: Connection) -> Iterator[Connection]:
    """A session that listens in an open transaction, while a role without rights has filled the queue."""
    session.execute("drop role if exists stranger; create role stranger login")
    with (
        psycopg.connect(server.dsn, autocommit=True) as listener,
        psycopg.connect(server.dsn, user="stranger", autocommit=True) as stranger,
    ):
        listener.execute("listen noise")
        listener.execute("begin")
        for _ in range(100):
            try:
                stranger.execute(FLOOD)
            except psycopg.Error as error:
                assert error.sqlstate == "54000"  # noqa: PT017 - whichever of the floods no longer fits
                break
        assert one(session, USAGE) > 0.5
        yield listener


def test_calls_that_notify_leave_it_out_while_the_queue_is_full(
    session: Connection, listener: Connection
) -> None:
    session.execute("select pgmq.create('jobs'), pgmq.enable_notify_insert('jobs', 0)")
    # Two listeners, so that one of them is rung even while the other was a moment ago.
    for key in (uuid4(), uuid4()):
        session.execute("select spanmq.await_messages('{jobs}', %s)", [key])
        session.execute("select spanmq.poll(%s)", [key])
    session.execute("select spanmq.create_token('t', repeat('0', 64), array['*'], array['send'])")
    assert one(session, "select pgmq.send('jobs', '1')") == 1
    assert rows(session, "select pgmq.send_batch('jobs', array['2', '3']::jsonb[])") == [(2,), (3,)]
    assert one(session, "select spanmq.revoke_token('t')")
    state = "select level from spanmq.doctor() where check_name = 'notifications'"
    assert one(session, state) == "problem"
    warnings: list[str] = []
    session.add_notice_handler(lambda notice: warnings.append(notice.message_primary or ""))
    session.execute("select spanmq.maintain()")
    assert [each for each in warnings if "queue of notifications" in each]

    listener.execute("rollback")
    session.execute("select spanmq.maintain()")
    assert one(session, USAGE) < 0.1
    assert one(session, state) == "ok"
    with listening(session.info.dsn, "pgmq.q_jobs.INSERT") as hearing:
        session.execute("select pgmq.send('jobs', '4')")
        assert hearing.heard(session) == [("pgmq.q_jobs.INSERT", "")]
    session.execute("select pgmq.drop_queue('jobs')")
