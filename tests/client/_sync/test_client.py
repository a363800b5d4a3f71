# Generated from tests/client/_async/test_client.py by tools/generate_sync.py: change that file.

"""The client's methods. What PGMQ has too runs on both, spanmq and upstream PGMQ."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from tests.client.concurrency import Tasks

from spanmq.client import Client
from spanmq.errors import InvalidArgumentError
from spanmq.model import Leased, Message, Routed, Settled


@pytest.fixture
def database(reused_database: str) -> str:
    return reused_database


@pytest.fixture
def upstream_database(reused_upstream_database: str) -> str:
    return reused_upstream_database


def ids(messages: list[Message]) -> list[int]:
    return sorted(message.message_id for message in messages)


# Queues.


def test_created_queue_is_listed_until_it_is_dropped(common: Client) -> None:
    common.queues.create("orders")
    common.queues.create("events", unlogged=True)
    listed = {queue.name: queue for queue in common.queues.list()}
    assert listed.keys() == {"orders", "events"}
    assert not listed["orders"].is_unlogged
    assert listed["events"].is_unlogged
    assert listed["orders"].created_at.tzinfo is not None
    assert common.queues.drop("orders")
    assert not common.queues.drop("orders")
    assert [queue.name for queue in common.queues.list()] == ["events"]


def test_partitioned_queue_is_one_with_intervals(client: Client) -> None:
    client.queues.create("by_count", partition_interval=1000)
    client.queues.create("by_time", partition_interval="1 day", retention_interval="7 days")
    assert {queue.name for queue in client.queues.list() if queue.is_partitioned} == {
        "by_count",
        "by_time",
    }
    with pytest.raises(InvalidArgumentError, match="unlogged and partitioned"):
        client.queues.create("both", unlogged=True, partition_interval=1000)


def test_purge_removes_all_and_counts_them(common: Client) -> None:
    common.send_batch("orders", range(7))
    assert common.queues.purge("orders") == 7
    assert (common.queues.metrics("orders")).length == 0


def test_metrics_count_what_is_there(common: Client) -> None:
    empty = common.queues.metrics("orders")
    assert (empty.queue, empty.length, empty.oldest_age_seconds) == ("orders", 0, None)
    common.send_batch("orders", range(3))
    common.read("orders")
    full = common.queues.metrics("orders")
    assert (full.length, full.visible_length, full.total_messages) == (3, 2, 3)
    assert full.oldest_age_seconds is not None
    assert [metrics.queue for metrics in common.queues.metrics_all()] == ["orders"]


# Sending.


def test_send_gives_the_id_that_is_read(common: Client) -> None:
    message_id = common.send("orders", {"order": 1}, headers={"trace": "t"}, group="customer-5")
    [message] = common.read("orders")
    assert message.message_id == message_id
    assert message.queue == "orders"
    assert message.body == {"order": 1}
    assert message.headers == {"trace": "t", "x-pgmq-group": "customer-5"}
    assert message.group == "customer-5"
    assert message.attempt == 1
    assert message.enqueued_at <= datetime.now(UTC) < message.leased_until


@pytest.mark.parametrize("delay", [60, 60.5, timedelta(minutes=1), datetime.now(UTC) + timedelta(hours=9)])
def test_delayed_message_is_hidden(common: Client, delay: Any) -> None:
    common.send("orders", 1, delay=delay)
    common.send_batch("orders", [2], delay=delay)
    assert common.read("orders", 5) == []
    assert (common.queues.metrics("orders")).length == 2


def test_delay_counts_from_the_clock_of_the_server(client: Client) -> None:
    client.send("orders", 1, delay=timedelta(days=3, milliseconds=1))
    [message] = client.peek("orders")
    delay = message.leased_until - message.enqueued_at
    assert abs(delay - timedelta(days=3)) < timedelta(seconds=5)


def test_moment_in_the_past_is_no_delay(common: Client) -> None:
    common.send("orders", 1, delay=datetime(2013, 1, 1, tzinfo=UTC))
    assert len(common.read("orders")) == 1


@pytest.mark.parametrize("count", [1, 999, 1_000, 1_001, 2_500])
def test_batch_of_any_size_keeps_its_order(common: Client, count: int) -> None:
    message_ids = common.send_batch("orders", ({"number": number} for number in range(count)))
    assert message_ids == sorted(message_ids)
    bodies = {message.message_id: message.body["number"] for message in common.read("orders", count + 1)}
    assert [bodies[message_id] for message_id in message_ids] == list(range(count))


def test_batch_of_large_bodies_is_cut_by_bytes(common: Client) -> None:
    bodies = [character * 3_000_000 for character in "abcdefgh"]
    assert len(common.send_batch("orders", bodies)) == 8
    assert sorted(message.body[0] for message in common.read("orders", 9)) == list("abcdefgh")


def test_batch_takes_headers_and_groups_for_all_or_one_each(common: Client) -> None:
    common.send_batch("orders", [1, 2], headers={"a": 1}, group="g")
    common.send_batch("orders", [3, 4], headers=[{"b": 2}, None], group=[None, "h"])
    common.send_batch("orders", [5, 6], headers=[None, {"c": '"\\'}])
    found = {message.body: message.headers for message in common.read("orders", 9)}
    assert found == {
        1: {"a": 1, "x-pgmq-group": "g"},
        2: {"a": 1, "x-pgmq-group": "g"},
        3: {"b": 2},
        4: {"x-pgmq-group": "h"},
        5: None,
        6: {"c": '"\\'},
    }


@pytest.mark.parametrize(
    "options",
    [
        {"headers": [{}]},
        {"headers": [{}] * 3},
        {"group": ["a"]},
        {"group": ["a"] * 3},
        {"headers": [{}] * 2, "group": ["a"]},
        {"headers": 5},
    ],
    ids=repr,
)
def test_batch_of_unlike_lengths_sends_nothing(common: Client, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"batch|list"):
        common.send_batch("orders", [1, 2], **options)
    assert (common.queues.metrics("orders")).length == 0


@pytest.mark.parametrize("bodies", [[], iter(()), None, "text", b"bytes", {"a": 1}, 5])
def test_batch_that_is_none_is_refused(common: Client, bodies: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        common.send_batch("orders", bodies)
    with pytest.raises(InvalidArgumentError):
        common.topics.send_batch("orders", bodies)


def test_bad_body_late_in_a_batch_sends_nothing(common: Client) -> None:
    with pytest.raises(InvalidArgumentError):
        common.send_batch("orders", (number if number < 2_500 else object() for number in range(3_000)))
    assert (common.queues.metrics("orders")).length == 0


# Taking and settling.


def test_read_message_is_hidden_until_its_lease_ends(common: Client) -> None:
    common.send("orders", 1)
    assert len(common.read("orders", lease=60)) == 1
    assert common.read("orders") == []
    [hidden] = common.set_vt("orders", 1, 0)
    assert hidden.attempt == 1
    [again] = common.read("orders")
    assert again.attempt == 2


def test_set_vt_takes_a_duration_or_a_moment_for_one_or_many(common: Client) -> None:
    common.send_batch("orders", range(3))
    moment = datetime(2063, 4, 5, tzinfo=UTC)
    assert [message.leased_until for message in common.set_vt("orders", [1, 2, 99], moment)] == [moment] * 2
    assert len(common.set_vt("orders", 3, timedelta(hours=1))) == 1
    assert common.read("orders", 3) == []


def test_read_takes_what_contains_the_condition(common: Client) -> None:
    common.send_batch("orders", [{"kind": "a"}, {"kind": "b", "more": 1}, {"kind": "b"}])
    assert ids(common.read("orders", 5, conditional={"kind": "b"})) == [2, 3]


def test_delete_archive_and_pop_take_messages_out(common: Client) -> None:
    common.send_batch("orders", range(6))
    assert sorted(common.delete("orders", [1, 2, 99])) == [1, 2]
    assert common.archive("orders", 3) == [3]
    assert common.archive("orders", 3) == []
    assert common.delete("orders", []) == []
    assert ids(common.pop("orders", 2)) == [4, 5]
    assert (common.queues.metrics("orders")).length == 1


def test_grouped_reads_keep_the_order_of_a_group(common: Client) -> None:
    common.send_batch("orders", range(6), group=["a", "a", "b", "b", "c", "c"])
    assert ids(common.read("orders", 2, grouped="head")) == [1, 3]
    assert ids(common.read("orders", 5, grouped="round_robin")) == [5, 6]
    assert common.read("orders", 5, grouped="fill") == []
    common.delete("orders", [1, 3])
    assert ids(common.read("orders", 5, grouped="fill")) == [2, 4]


def test_received_messages_name_their_lease(client: Client) -> None:
    client.send_batch("orders", range(4), group="g")
    messages = client.receive("orders", 4, lease=timedelta(seconds=90), slots=2)
    assert ids(messages) == [1, 2, 3, 4]
    assert len({message.lease_id for message in messages}) == 1
    assert messages[0].lease_id is not None
    assert [message.slot for message in messages] == [1, 1, 2, 2]
    assert {message.attempt for message in messages} == {1}
    assert {message.group for message in messages} == {"g"}
    assert messages[0].leased_until - datetime.now(UTC) > timedelta(seconds=60)


def test_ack_settles_each_message_once(client: Client) -> None:
    client.queues.create("events")
    client.send_batch("orders", range(4))
    client.send("events", 1)
    messages = client.receive("orders", 2) + client.receive("orders", 2) + client.receive("events")
    assert {settled.outcome for settled in client.ack(messages[1:])} == {"acked"}
    assert client.ack(messages[0]) == [Settled(1, "acked")]
    assert client.ack(messages[:2]) == [Settled(1, "stale"), Settled(2, "stale")]
    assert client.ack([]) == []
    assert (client.queues.metrics("orders")).length == (client.queues.metrics("events")).length == 0


def test_ack_of_a_lease_that_is_over_is_stale(client: Client) -> None:
    client.send("orders", 1)
    [slow] = client.receive("orders", lease=0)
    [quick] = client.receive("orders")
    assert quick.attempt == 2
    assert client.ack(slow) == [Settled(1, "stale")]
    lease_id = quick.lease_id
    assert lease_id is not None
    assert client.ack(Leased("orders", lease_id, [1])) == [Settled(1, "acked")]


def test_ack_of_what_read_gave_is_refused(client: Client) -> None:
    client.send("orders", 1)
    with pytest.raises(InvalidArgumentError, match="not received under a lease"):
        client.ack(client.read("orders"))


def test_peek_looks_and_does_not_take(client: Client) -> None:
    client.send_batch("orders", range(5))
    client.receive("orders", 2)
    assert [message.message_id for message in client.peek("orders", 3)] == [1, 2, 3]
    assert [message.message_id for message in client.peek("orders", after=3)] == [4, 5]
    assert {message.attempt for message in client.peek("orders")} == {0, 1}
    assert len(client.receive("orders", 9)) == 3


def test_cancel_takes_back_what_nobody_holds(client: Client) -> None:
    client.send_batch("orders", range(3))
    client.receive("orders")
    outcomes = {settled.message_id: settled.outcome for settled in client.cancel("orders", [1, 2, 99])}
    assert outcomes == {1: "processing", 2: "cancelled", 99: "unknown"}
    assert ids(client.receive("orders", 9)) == [3]


# Topics and announcements.


def test_topic_reaches_the_queues_whose_patterns_match(common: Client) -> None:
    common.queues.create("all")
    common.queues.create("errors")
    common.topics.bind("logs.#", "all")
    common.topics.bind("logs.*.error", "errors")
    assert {binding.queue for binding in common.topics.match("logs.api.error")} == {"all", "errors"}
    assert common.topics.send("logs.api.error", {"a": 1}, headers={"h": 1}, group="g") == 2
    assert common.topics.send("logs.api.info", 2, delay=timedelta(seconds=0.5)) == 1
    assert common.topics.send("nothing", 3) == 0
    routed = common.topics.send_batch("logs.api.error", [4, 5], headers=[{"n": 4}, {"n": 5}], delay=60)
    assert {entry.queue for entry in routed} == {"all", "errors"}
    assert len(routed) == 4
    assert all(isinstance(entry, Routed) for entry in routed)
    [message] = common.read("errors", 5)
    assert (message.body, message.headers) == ({"a": 1}, {"h": 1, "x-pgmq-group": "g"})
    [binding] = common.topics.list("errors")
    assert (binding.pattern, binding.queue, binding.expression) == (
        "logs.*.error",
        "errors",
        r"^logs\.[^.]+\.error$",
    )
    assert len(common.topics.list()) == 2
    assert common.topics.unbind("logs.#", "all")
    assert not common.topics.unbind("logs.#", "all")


def test_announcements_are_enabled_changed_and_disabled(common: Client) -> None:
    common.admin.notifications.enable("orders")
    [throttle] = common.admin.notifications.list()
    assert (throttle.queue, throttle.throttle_ms) == ("orders", 250)
    common.admin.notifications.update("orders", throttle=timedelta(seconds=1.5))
    assert (common.admin.notifications.list())[0].throttle_ms == 1500
    common.admin.notifications.disable("orders")
    assert common.admin.notifications.list() == []


def test_concurrent_receivers_share_the_messages(database: str, client: Client) -> None:
    client.send_batch("orders", range(2_500))
    with Tasks() as tasks:
        receivers = [tasks.start(client.receive, "orders", 1_000) for _ in range(4)]
        received = [receiver() for receiver in receivers]
    # A receiver skips up to 255 messages that its neighbour splits: they are left for the next.
    received.append(client.receive("orders", 1_000))
    messages = [message for batch in received for message in batch]
    assert len({message.message_id for message in messages}) == len(messages) == 2_500
    assert {settled.outcome for settled in client.ack(messages)} == {"acked"}


# The schema.


def test_install_fills_an_empty_database_and_may_be_repeated(empty_database: str) -> None:
    with Client(empty_database) as client:
        assert client.admin.flavour() == "none"
        installed = client.install()
        assert installed.functions_applied
        assert not (client.install()).functions_applied
        assert client.admin.flavour() == "spanmq"
        assert client.admin.version() == installed.version
        client.queues.create("orders")
        assert client.send("orders", 1) == 1
    with psycopg.Connection.connect(empty_database) as connection:
        assert not (Client(connection=connection).install()).functions_applied


def test_maintain_works_until_nothing_is_left(client: Client) -> None:
    steps = [step for _ in range(50) for step in client.admin.maintain()]
    assert {step.queue for step in steps} == {"orders"}
    assert client.admin.maintain() == []
