"""The transport as kombu's own programs use it."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import kombu
import psycopg
import pytest
from kombu.exceptions import OperationalError
from tests.celery.conftest import Connect
from tests.patience import wait_until

import spanmq.celery
from spanmq import Client
from spanmq.errors import NotPossibleError

ORDERS = kombu.Queue("orders", kombu.Exchange("orders"), routing_key="orders")


def publish(
    connection: kombu.Connection, *bodies: Any, exchange: Any = "", key: str = "orders", **options: Any
) -> None:
    producer = kombu.Producer(connection)
    for body in bodies:
        producer.publish(body, exchange=exchange, routing_key=key, **options)


class Receiver:
    """A consumer that keeps its messages."""

    def __init__(self, connection: kombu.Connection, *queues: kombu.Queue, **options: Any) -> None:
        self.messages: list[kombu.Message] = []
        self._connection = connection
        self.consumer = kombu.Consumer(connection, queues, on_message=self.messages.append, **options)
        self.consumer.consume()

    def receive(self, count: int) -> list[Any]:
        """Wait for so many messages and return the bodies of all."""
        while len(self.messages) < count:
            self._connection.drain_events()
        return [message.payload for message in self.messages]

    @property
    def is_idle(self) -> bool:
        """Whether a look finds nothing."""
        try:
            self._connection.drain_events(timeout=0)
        except TimeoutError:
            return True
        return False


def test_messages_have_priorities_limits_and_delays(connect: Connect, client: Client) -> None:
    connection = connect()
    ORDERS(connection).declare()
    publish(connection, "low", {"number": 1}, priority=2)
    publish(connection, b"\xff\x00", priority=9)
    publish(connection, "later", headers={"eta": (datetime.now(UTC) + timedelta(hours=1)).isoformat()})
    publish(connection, "naive", headers={"eta": "2999-01-01T00:00:00"})
    publish(connection, "short-lived", expiration=0.001, priority=8)
    receiver = Receiver(connection, ORDERS, prefetch_count=3)
    assert [message.body for message in client.peek("orders", 1)] != []
    assert receiver.receive(3) == [b"\xff\x00", "low", {"number": 1}]
    # No room for more, until one of them is acked.
    assert receiver.is_idle
    receiver.messages[0].ack()
    assert receiver.receive(4)[3] == "naive"
    first = receiver.messages[1]
    assert (first.delivery_info["redelivered"], first.delivery_info["exchange"]) == (False, "")
    # The one with an ETA is in the queue, not in the memory of a consumer.
    assert client.queues.metrics("orders").length - client.queues.metrics("orders").visible_length >= 3
    assert client.peek("orders")[1].body["body"] == '{"number": 1}'


def test_requeued_messages_come_again_until_their_attempts_are_used_up(
    connect: Connect, client: Client
) -> None:
    client.queues.set_policy("orders", max_attempts=2)
    connection = connect()
    publish(connection, "one", "two")
    client.send("orders", "not of kombu")
    receiver = Receiver(connection, ORDERS)
    assert receiver.receive(2) == ["one", "two"]
    receiver.messages[0].requeue()
    assert receiver.receive(3) == ["one", "two", "one"]
    assert receiver.messages[2].delivery_info["redelivered"]
    receiver.messages[2].requeue()
    receiver.messages[1].reject()
    dead = Counter(letter.error for letter in client.dead_letters.list("orders"))
    assert dead == {"requeued by the consumer": 1, "rejected by the consumer": 2}
    assert client.queues.metrics("orders").length == 0


def test_what_a_closed_connection_held_comes_again(connect: Connect, client: Client) -> None:
    first, second = connect(visibility_timeout=600), connect(visibility_timeout=600)
    publish(first, 1, 2, 3)
    held = Receiver(first, ORDERS)
    assert held.receive(3) == [1, 2, 3]
    held.messages[0].ack()
    first.close()
    other = Receiver(second, ORDERS)
    assert other.receive(2) == [2, 3]
    # A task that ends after the connection acks nothing that another consumer has.
    held.messages[1].ack()
    assert client.queues.metrics("orders").length == 2
    assert second.channel().queue_purge("orders") == 2


def test_leases_are_extended_while_messages_are_held(connect: Connect, client: Client) -> None:
    connection = connect(visibility_timeout=0.9)
    publish(connection, 1)
    receiver = Receiver(connection, ORDERS)
    receiver.receive(1)
    [received] = client.peek("orders")
    for _ in range(2):
        [before] = client.peek("orders")
        wait_until(lambda: client.peek("orders")[0].leased_until > before.leased_until)  # noqa: B023
    [held] = client.peek("orders")
    # Longer than without heartbeats, and never received again.
    assert (held.attempt, held.last_read_at) == (1, received.last_read_at)
    assert held.leased_until - received.leased_until > timedelta(seconds=0)
    receiver.messages[0].ack()
    assert client.peek("orders") == []


def test_sessions_that_the_server_ends_lose_nothing(
    connect: Connect, observer: psycopg.Connection[Any]
) -> None:
    observer.execute("select pgmq.create('orders')")
    connection = connect(visibility_timeout=600)
    publish(connection, 1, 2)
    receiver = Receiver(connection, ORDERS, prefetch_count=1)
    receiver.receive(1)

    def end_sessions(settings: str) -> None:
        observer.execute(f"alter database {observer.info.dbname} {settings}")
        observer.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where pid <> pg_backend_pid() and datname = current_database()"
        )

    def length() -> int:
        [count] = observer.execute("select queue_length from pgmq.metrics('orders')").fetchone() or [0]
        return int(count)

    # As a standby: an ack is not lost, but comes later.
    end_sessions("set default_transaction_read_only = on")
    receiver.messages[0].ack()
    assert length() == 2
    end_sessions("reset default_transaction_read_only")
    wait_until(lambda: length() == 1)
    assert receiver.receive(2) == [1, 2]
    receiver.messages[1].ack()
    assert length() == 0


def test_messages_are_routed_by_exchanges(connect: Connect, client: Client) -> None:
    sender, connection = connect(), connect()
    news, alarm = kombu.Exchange("ne ws", "topic"), kombu.Exchange("alarm", "fanout")
    bound = [
        kombu.Queue("world", news, routing_key="*.world"),
        kombu.Queue("all", news, routing_key="#"),
        kombu.Queue("bell", alarm),
    ]
    for queue in bound:
        queue(connection).declare()
    # The sender declares no queue: bindings are in the database.
    for exchange in (news, alarm):
        exchange(sender).declare()
    publish(sender, 1, exchange="ne ws", key="sport.world", priority=3)
    publish(sender, 2, exchange="ne ws", key="sport.*")
    publish(sender, 3, exchange="alarm", key="any.thing")
    publish(sender, 4, exchange="unbound", key="world")

    def bodies(queue: str) -> list[Any]:
        return [message.body["body"] for message in client.peek(queue)]

    assert (bodies("world"), bodies("all"), bodies("bell")) == (["1"], ["1", "2"], ["3"])
    bound[0](connection).unbind_from(news, "*.world")
    publish(sender, 5, exchange="ne ws", key="sport.world")
    assert bodies("world") == ["1"]
    bound[0](connection).delete()
    assert "world" not in {queue.name for queue in client.queues.list()}


def test_broadcasts_reach_every_consumer_and_leave_no_queue(
    connect: Connect, database: str, client: Client
) -> None:
    exchange = kombu.Exchange("calls", "fanout")
    queues = [kombu.Queue(f"worker{n}", exchange, exclusive=True) for n in range(2)]
    receivers = [Receiver(connect(), queue, no_ack=True) for queue in queues]
    sender = connect()
    publish(sender, 1, exchange="calls", key="")
    assert [receiver.receive(1) for receiver in receivers] == [[1], [1]]
    # A message that is committed after one with a higher id is read all the same.
    with psycopg.connect(database) as late:
        publish(spanmq.celery.joined(late), 2, exchange="calls", key="")
        publish(sender, 3, exchange="calls", key="")
        assert receivers[0].receive(2) == [1, 3]
    assert [sorted(receiver.receive(3)) for receiver in receivers] == [[1, 2, 3]] * 2
    # One that begins now gets what is sent from now on.
    new = Receiver(connect(), kombu.Queue("worker2", exchange, exclusive=True), no_ack=True)
    publish(sender, 4, exchange="calls", key="")
    assert new.receive(1) == [4]
    assert {queue.name for queue in client.queues.list()} == {"orders", "calls.broadcast"}


def test_messages_are_part_of_the_transaction_of_the_sender(
    database: str, client: Client, connect: Connect
) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("create table invoice (number int)")
        connection.commit()
        joined = spanmq.celery.joined(connection)
        for number in (1, 2):
            connection.execute("insert into invoice values (%s)", [number])
            publish(joined, number, declare=[ORDERS])
            assert client.queues.metrics("orders").length == 0
            if number == 1:
                connection.rollback()
        connection.commit()
        assert connection.execute("select * from invoice").fetchall() == [(2,)]
        with pytest.raises(NotPossibleError, match="only sends"):
            Receiver(joined, ORDERS)
    assert Receiver(connect(), ORDERS).receive(1) == [2]


def test_a_server_that_does_not_answer_is_a_connection_error() -> None:
    away = kombu.Connection("spanmq://me:secret@127.0.0.1:1/none?connect_timeout=1&password=secret")
    assert "secret" not in away.as_uri()
    with pytest.raises(OperationalError):
        away.ensure_connection(max_retries=1, interval_start=0)
