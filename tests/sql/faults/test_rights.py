"""W21: roles that may only send, or only read; functions that do what they do whoever calls."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString

import psycopg
import pytest
from tests.sql.conftest import System
from tests.sql.queue import Connection, column


@contextmanager
def acting_as(session: Connection, role: LiteralString) -> Iterator[None]:
    """Act as a role; an error ends it too."""
    with session.transaction():
        session.execute(b"set local role " + role.encode())
        yield
        session.execute("reset role")


@pytest.fixture
def sender(session: Connection, system: System) -> Iterator[LiteralString]:
    """Make a role that may send into the queue `orders`, and nothing else. It is rolled back."""
    session.execute("select pgmq.create('orders')")
    with session.transaction(force_rollback=True):
        session.execute("create role spanmq_test_sender")
        if system.is_upstream:
            session.execute("grant usage on schema pgmq to spanmq_test_sender")
            session.execute("grant insert on pgmq.q_orders to spanmq_test_sender")
        else:
            session.execute("select spanmq.grant_queue('spanmq_test_sender', 'orders', 'send')")
        yield "spanmq_test_sender"


def test_w21_a_role_that_may_insert_can_send(
    sender: LiteralString, system: System, session: Connection
) -> None:
    if system.is_upstream:
        with pytest.raises(psycopg.errors.InsufficientPrivilege), acting_as(session, sender):
            session.execute("select pgmq.send('orders', '1')")
        return
    with acting_as(session, sender):
        assert column(session, "select pgmq.send('orders', '1')") == [1]


def test_w21_a_role_that_may_only_send_can_do_nothing_else(
    sender: LiteralString, system: System, session: Connection
) -> None:
    if system.is_upstream:
        # What it needs to send (select of msg_id is part of insert … returning) lets it forge messages.
        session.execute("grant select on pgmq.q_orders to spanmq_test_sender")
        with acting_as(session, sender):
            assert column(session, "select pgmq.send('orders', '1')") == [1]
            session.execute("insert into pgmq.q_orders (vt, read_ct, message) values (now(), 99, '2')")
        return
    # What it may call is in tests/sql/test_rights.py.
    with pytest.raises(psycopg.errors.InsufficientPrivilege), acting_as(session, sender):
        session.execute("select pgmq.read('orders', 100, 1)")
    for statement in ("select * from pgmq.q_orders", "insert into pgmq.q_orders (message) values ('2')"):
        with pytest.raises(psycopg.Error) as raised, acting_as(session, sender):
            session.execute(statement)
        assert raised.value.sqlstate in ("42501", "MQ004")
