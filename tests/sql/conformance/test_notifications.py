"""Notifications: the channel, the payload, when they come and when not. The same on PGMQ and here."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.sql.conformance.conftest import Pair
from tests.sql.conformance.listening import Listener, listening
from tests.sql.queue import Connection

CHANNEL = "pgmq.q_orders.INSERT"
ONE = [(CHANNEL, "")]


@pytest.fixture(params=["upstream", "here"])
def sender(request: pytest.FixtureRequest, pair: Pair) -> Connection:
    connection: Connection = getattr(pair, request.param)
    connection.execute("set client_min_messages = error")
    connection.execute("select pgmq.create('orders')")
    return connection


@pytest.fixture
def listener(sender: Connection) -> Iterator[Listener]:
    with listening(sender.info.dsn, CHANNEL) as opened:
        yield opened


SEND = "select pgmq.send('orders', '1')"
# Statements one after the other, and whether a notification is heard of each.
STORY = (
    (SEND, False),
    ("select pgmq.enable_notify_insert('orders', 0)", False),
    (SEND, True),
    (SEND, True),
    ("select pgmq.send('orders', '2', 100)", True),
    ("select pgmq.send_batch('orders', array['3', '4', '5']::jsonb[])", True),
    ("select pgmq.bind_topic('#', 'orders')", False),
    ("select pgmq.send_topic('a', '1')", True),
    ("select pgmq.send_batch_topic('a', array['1', '2']::jsonb[])", True),
    ("select pgmq.read('orders', 100, 3)", False),
    ("select pgmq.set_vt('orders', 1, 0)", False),
    ("select pgmq.delete('orders', 1), pgmq.archive('orders', 2)", False),
    ("select pgmq.pop('orders')", False),
    ("select pgmq.purge_queue('orders')", False),
    ("select pgmq.disable_notify_insert('orders')", False),
    (SEND, False),
    # A throttle lets one through; a changed interval begins anew.
    ("select pgmq.enable_notify_insert('orders', 3600000)", False),
    (SEND, True),
    (SEND, False),
    ("select pgmq.update_notify_insert('orders', 3600001)", False),
    (SEND, True),
    (SEND, False),
    ("select pgmq.enable_notify_insert('orders', 3600000)", False),
    (SEND, True),
)


def test_sends_notify_with_an_empty_payload_as_they_are_told_to(
    sender: Connection, listener: Listener
) -> None:
    for place, (statement, is_heard) in enumerate(STORY):
        sender.execute(statement.encode())
        assert listener.heard(sender) == (ONE if is_heard else []), (place, statement)


def test_notification_comes_once_and_with_the_commit_only(sender: Connection, listener: Listener) -> None:
    sender.execute("select pgmq.enable_notify_insert('orders', 0)")
    with psycopg.connect(sender.info.dsn, autocommit=True) as other:
        with sender.transaction():
            for _ in range(3):
                sender.execute(SEND.encode())
            assert listener.heard(other) == []
        assert listener.heard(other) == ONE
        with sender.transaction(force_rollback=True):
            sender.execute(SEND.encode())
        assert listener.heard(other) == []
