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


def test_send_notifies_with_an_empty_payload(sender: Connection, listener: Listener) -> None:
    sender.execute("select pgmq.enable_notify_insert('orders', 0)")
    sender.execute("select pgmq.send('orders', '1')")
    assert listener.heard(sender) == ONE
    sender.execute("select pgmq.send('orders', '2', 100)")
    assert listener.heard(sender) == ONE
    sender.execute("select pgmq.send_batch('orders', array['3', '4', '5']::jsonb[])")
    assert listener.heard(sender) == ONE


def test_topics_notify_too(sender: Connection, listener: Listener) -> None:
    sender.execute("select pgmq.enable_notify_insert('orders', 0)")
    sender.execute("select pgmq.bind_topic('#', 'orders')")
    sender.execute("select pgmq.send_topic('a', '1')")
    assert listener.heard(sender) == ONE
    sender.execute("select pgmq.send_batch_topic('a', array['1', '2']::jsonb[])")
    assert listener.heard(sender) == ONE


def test_nothing_is_said_unless_enabled(sender: Connection, listener: Listener) -> None:
    sender.execute("select pgmq.send('orders', '1')")
    assert listener.heard(sender) == []
    sender.execute("select pgmq.enable_notify_insert('orders', 0)")
    assert listener.heard(sender) == []
    sender.execute("select pgmq.disable_notify_insert('orders')")
    sender.execute("select pgmq.send('orders', '1')")
    assert listener.heard(sender) == []


def test_reading_and_settling_say_nothing(sender: Connection, listener: Listener) -> None:
    sender.execute("select pgmq.send_batch('orders', array['1', '2', '3', '4']::jsonb[])")
    sender.execute("select pgmq.enable_notify_insert('orders', 0)")
    sender.execute("select pgmq.read('orders', 100, 3)")
    sender.execute("select pgmq.set_vt('orders', 1, 0)")
    sender.execute("select pgmq.delete('orders', 1), pgmq.archive('orders', 2)")
    sender.execute("select pgmq.pop('orders')")
    sender.execute("select pgmq.purge_queue('orders')")
    assert listener.heard(sender) == []


def test_throttle_lets_one_through(sender: Connection, listener: Listener) -> None:
    sender.execute("select pgmq.enable_notify_insert('orders', 3600000)")
    for _ in range(3):
        sender.execute("select pgmq.send('orders', '1')")
    assert listener.heard(sender) == ONE
    # A changed interval begins anew.
    sender.execute("select pgmq.update_notify_insert('orders', 3600001)")
    for _ in range(2):
        sender.execute("select pgmq.send('orders', '1')")
    assert listener.heard(sender) == ONE
    sender.execute("select pgmq.enable_notify_insert('orders', 3600000)")
    sender.execute("select pgmq.send('orders', '1')")
    assert listener.heard(sender) == ONE


def test_without_throttle_each_transaction_notifies(sender: Connection, listener: Listener) -> None:
    sender.execute("select pgmq.enable_notify_insert('orders', 0)")
    for _ in range(3):
        sender.execute("select pgmq.send('orders', '1')")
    assert listener.heard(sender) == 3 * ONE
    with sender.transaction():
        for _ in range(3):
            sender.execute("select pgmq.send('orders', '1')")
    assert listener.heard(sender) == ONE


def test_notification_comes_with_the_commit_only(sender: Connection, listener: Listener) -> None:
    sender.execute("select pgmq.enable_notify_insert('orders', 0)")
    with psycopg.connect(sender.info.dsn, autocommit=True) as other:
        with sender.transaction():
            sender.execute("select pgmq.send('orders', '1')")
            assert listener.heard(other) == []
        assert listener.heard(other) == ONE
        with sender.transaction(force_rollback=True):
            sender.execute("select pgmq.send('orders', '1')")
        assert listener.heard(other) == []
