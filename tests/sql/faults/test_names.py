"""W14, W15: names that differ in case, that are empty, too long in bytes, or not words."""

import psycopg
import pytest
from tests.sql.conftest import System
from tests.sql.queue import Connection, column, one

# 45 letters, 90 bytes: with `q_` more than a table's name can have, and alike in the first 63 bytes.
LONG, LONG_TOO = "é" * 44 + "a", "é" * 44 + "b"


def test_w14_names_that_differ_in_case_are_one_queue(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('MyOrders')")
    session.execute("select pgmq.create('myorders')")
    names = column(session, "select queue_name from pgmq.list_queues()")
    assert names == (["MyOrders", "myorders"] if system.is_upstream else ["MyOrders"])
    assert one(session, "select pgmq.drop_queue('myorders')") is True
    if system.is_upstream:
        with pytest.raises(psycopg.errors.UndefinedTable):
            session.execute("select * from pgmq.metrics_all()")
    else:
        assert session.execute("select * from pgmq.metrics_all()").fetchall() == []


def test_w14_settings_of_a_queue_are_found_by_any_case(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('MyOrders')")
    if system.is_upstream:
        with pytest.raises(psycopg.errors.RaiseException, match='"myorders" does not exist'):
            session.execute("select pgmq.bind_topic('a', 'myorders')")
        return
    session.execute("select pgmq.bind_topic('a', 'myorders')")
    session.execute("select pgmq.enable_notify_insert('MYORDERS', 0)")
    assert column(session, "select queue_name from pgmq.list_topic_bindings('myORDERS')") == ["MyOrders"]
    assert column(session, "select queue_name from pgmq.list_notify_insert_throttles()") == ["MyOrders"]
    assert one(session, "select pgmq.unbind_topic('a', 'MYORDERS')") is True


def test_w15_an_empty_name_is_refused(system: System, session: Connection) -> None:
    if system.is_upstream:
        session.execute("select pgmq.create('')")
        assert column(session, "select queue_name from pgmq.list_queues()") == [""]
        return
    with pytest.raises(psycopg.Error, match="queue name cannot be NULL or empty") as raised:
        session.execute("select pgmq.create('')")
    assert raised.value.sqlstate == "P0001"


def test_w15_a_name_is_measured_in_bytes(system: System, session: Connection) -> None:
    if system.is_upstream:
        session.execute("select pgmq.create(%s), pgmq.create(%s)", [LONG, LONG_TOO])
        # Two queues, one table, and its second index was skipped: it would have had the table's name.
        session.execute("select pgmq.send(%s, '1')", [LONG])
        assert session.execute("select message from pgmq.read(%s, 100, 1)", [LONG_TOO]).fetchall() == [(1,)]
        indexes = "select count(*) from pg_indexes where schemaname = 'pgmq' and tablename ~ '^q_'"
        assert one(session, indexes) == 1
        return
    with pytest.raises(psycopg.Error, match="maximum length is 47 bytes") as raised:
        session.execute("select pgmq.create(%s)", [LONG])
    assert raised.value.sqlstate == "P0001"
    session.execute("select pgmq.create(%s)", ["é" * 23])
    assert column(session, "select queue_name from pgmq.list_queues()") == ["é" * 23]


def test_w15_an_archive_is_converted_whatever_its_queue_is_called(
    system: System, session: Connection
) -> None:
    session.execute("select pgmq.create('my-orders')")
    if system.is_upstream:
        with pytest.raises(psycopg.errors.SyntaxError):
            session.execute("select pgmq.convert_archive_partitioned('my-orders')")
    else:
        session.execute("select pgmq.convert_archive_partitioned('my-orders')")
