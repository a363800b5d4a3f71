"""The client's methods. What PGMQ has too runs on both, spanmq and upstream PGMQ."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from spanmq.client import AsyncClient
from spanmq.errors import InvalidArgumentError
from spanmq.model import Message, Routed

pytestmark = pytest.mark.reused


@pytest.fixture
def upstream_database(reused_upstream_database: str) -> str:
    return reused_upstream_database


def ids(messages: list[Message]) -> list[int]:
    return sorted(message.message_id for message in messages)


# Queues.


async def test_created_queue_is_listed_until_it_is_dropped(common: AsyncClient) -> None:
    await common.queues.create("orders")
    await common.queues.create("events", unlogged=True)
    listed = {queue.name: queue for queue in await common.queues.list()}
    assert listed.keys() == {"orders", "events"}
    assert not listed["orders"].is_unlogged
    assert listed["events"].is_unlogged
    assert listed["orders"].created_at.tzinfo is not None
    assert await common.queues.drop("orders")
    assert not await common.queues.drop("orders")
    assert [queue.name for queue in await common.queues.list()] == ["events"]


async def test_partitioned_queue_is_one_with_intervals(client: AsyncClient) -> None:
    await client.queues.create("by_count", partition_interval=1000)
    await client.queues.create("by_time", partition_interval="1 day", retention_interval="7 days")
    assert {queue.name for queue in await client.queues.list() if queue.is_partitioned} == {
        "by_count",
        "by_time",
    }
    with pytest.raises(InvalidArgumentError, match="unlogged and partitioned"):
        await client.queues.create("both", unlogged=True, partition_interval=1000)


async def test_metrics_and_a_purge_count_what_is_there(common: AsyncClient) -> None:
    empty = await common.queues.metrics("orders")
    assert (empty.queue, empty.length, empty.oldest_age_seconds) == ("orders", 0, None)
    await common.send_batch("orders", range(3))
    await common.read("orders")
    full = await common.queues.metrics("orders")
    assert (full.length, full.visible_length, full.total_messages) == (3, 2, 3)
    assert full.oldest_age_seconds is not None
    assert [metrics.queue for metrics in await common.queues.metrics_all()] == ["orders"]
    assert await common.queues.purge("orders") == 3
    assert (await common.queues.metrics("orders")).length == 0


# Sending.


async def test_send_gives_the_id_that_is_read(common: AsyncClient) -> None:
    message_id = await common.send("orders", {"order": 1}, headers={"trace": "t"}, group="customer-5")
    [message] = await common.read("orders")
    assert message.message_id == message_id
    assert message.queue == "orders"
    assert message.body == {"order": 1}
    assert message.headers == {"trace": "t", "x-pgmq-group": "customer-5"}
    assert message.group == "customer-5"
    assert message.attempt == 1
    assert message.enqueued_at <= datetime.now(UTC) < message.leased_until


@pytest.mark.parametrize(
    ("delay", "visible"),
    [
        (60, []),
        (60.5, []),
        (timedelta(minutes=1), []),
        (datetime.now(UTC) + timedelta(hours=9), []),
        (datetime(2013, 1, 1, tzinfo=UTC), [1, 2]),
    ],
)
async def test_delayed_message_is_hidden(common: AsyncClient, delay: Any, visible: list[int]) -> None:
    await common.send("orders", 1, delay=delay)
    await common.send_batch("orders", [2], delay=delay)
    assert sorted(message.body for message in await common.read("orders", 5)) == visible
    assert (await common.queues.metrics("orders")).length == 2


@pytest.mark.parametrize("count", [1, 999, 1_000, 1_001, 2_500])
async def test_batch_of_any_size_keeps_its_order(common: AsyncClient, count: int) -> None:
    message_ids = await common.send_batch("orders", ({"number": number} for number in range(count)))
    assert message_ids == sorted(message_ids)
    bodies = {
        message.message_id: message.body["number"] for message in await common.read("orders", count + 1)
    }
    assert [bodies[message_id] for message_id in message_ids] == list(range(count))


async def test_batch_of_large_bodies_is_cut_by_bytes(common: AsyncClient) -> None:
    bodies = [character * 3_000_000 for character in "abcdefgh"]
    assert len(await common.send_batch("orders", bodies)) == 8
    assert sorted(message.body[0] for message in await common.read("orders", 9)) == list("abcdefgh")


async def test_batch_takes_headers_and_groups_for_all_or_one_each(common: AsyncClient) -> None:
    await common.send_batch("orders", [1, 2], headers={"a": 1}, group="g")
    await common.send_batch("orders", [3, 4], headers=[{"b": 2}, None], group=[None, "h"])
    await common.send_batch("orders", [5, 6], headers=[None, {"c": '"\\'}])
    headers_of = {message.body: message.headers for message in await common.read("orders", 9)}
    assert headers_of == {
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
async def test_batch_of_unlike_lengths_sends_nothing(common: AsyncClient, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"batch|list"):
        await common.send_batch("orders", [1, 2], **options)
    assert (await common.queues.metrics("orders")).length == 0


@pytest.mark.parametrize("bodies", [[], iter(()), None, "text", b"bytes", {"a": 1}, 5])
async def test_batch_that_is_none_is_refused(common: AsyncClient, bodies: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        await common.send_batch("orders", bodies)
    with pytest.raises(InvalidArgumentError):
        await common.topics.send_batch("orders", bodies)


# Taking and settling.


async def test_read_message_is_hidden_until_its_lease_ends(common: AsyncClient) -> None:
    await common.send("orders", 1)
    assert len(await common.read("orders", lease=60)) == 1
    assert await common.read("orders") == []
    [hidden] = await common.set_vt("orders", 1, 0)
    assert hidden.attempt == 1
    [again] = await common.read("orders")
    assert again.attempt == 2


async def test_set_vt_takes_a_duration_or_a_moment_for_one_or_many(common: AsyncClient) -> None:
    await common.send_batch("orders", range(3))
    moment = datetime(2063, 4, 5, tzinfo=UTC)
    assert [message.leased_until for message in await common.set_vt("orders", [1, 2, 99], moment)] == [
        moment
    ] * 2
    assert len(await common.set_vt("orders", 3, timedelta(hours=1))) == 1
    assert await common.read("orders", 3) == []


async def test_read_takes_what_contains_the_condition(common: AsyncClient) -> None:
    await common.send_batch("orders", [{"kind": "a"}, {"kind": "b", "more": 1}, {"kind": "b"}])
    assert ids(await common.read("orders", 5, conditional={"kind": "b"})) == [2, 3]


async def test_delete_archive_and_pop_take_messages_out(common: AsyncClient) -> None:
    await common.send_batch("orders", range(6))
    assert sorted(await common.delete("orders", [1, 2, 99])) == [1, 2]
    assert await common.archive("orders", 3) == [3]
    assert await common.archive("orders", 3) == []
    assert await common.delete("orders", []) == []
    assert ids(await common.pop("orders", 2)) == [4, 5]
    assert (await common.queues.metrics("orders")).length == 1


async def test_grouped_reads_keep_the_order_of_a_group(common: AsyncClient) -> None:
    await common.send_batch("orders", range(6), group=["a", "a", "b", "b", "c", "c"])
    assert ids(await common.read("orders", 2, grouped="head")) == [1, 3]
    assert ids(await common.read("orders", 5, grouped="round_robin")) == [5, 6]
    assert await common.read("orders", 5, grouped="fill") == []
    await common.delete("orders", [1, 3])
    assert ids(await common.read("orders", 5, grouped="fill")) == [2, 4]


async def test_received_messages_name_their_lease(client: AsyncClient) -> None:
    await client.send_batch("orders", range(4), group="g")
    messages = await client.receive("orders", 4, lease=timedelta(hours=2), slots=2)
    assert ids(messages) == [1, 2, 3, 4]
    assert len({message.lease_id for message in messages}) == 1
    assert messages[0].lease_id is not None
    assert [message.slot for message in messages] == [1, 1, 2, 2]
    assert {message.attempt for message in messages} == {1}
    assert {message.group for message in messages} == {"g"}
    assert messages[0].leased_until - datetime.now(UTC) > timedelta(hours=1)


async def test_ack_of_what_read_gave_is_refused(client: AsyncClient) -> None:
    await client.send("orders", 1)
    with pytest.raises(InvalidArgumentError, match="not received under a lease"):
        await client.ack(await client.read("orders"))


# Topics and announcements.


async def test_topic_reaches_the_queues_whose_patterns_match(common: AsyncClient) -> None:
    await common.queues.create("all")
    await common.queues.create("errors")
    await common.topics.bind("logs.#", "all")
    await common.topics.bind("logs.*.error", "errors")
    assert {binding.queue for binding in await common.topics.match("logs.api.error")} == {"all", "errors"}
    assert await common.topics.send("logs.api.error", {"a": 1}, headers={"h": 1}, group="g") == 2
    assert await common.topics.send("logs.api.info", 2, delay=timedelta(seconds=0.5)) == 1
    assert await common.topics.send("nothing", 3) == 0
    routed = await common.topics.send_batch("logs.api.error", [4, 5], headers=[{"n": 4}, {"n": 5}], delay=60)
    assert {entry.queue for entry in routed} == {"all", "errors"}
    assert len(routed) == 4
    assert all(isinstance(entry, Routed) for entry in routed)
    [message] = await common.read("errors", 5)
    assert (message.body, message.headers) == ({"a": 1}, {"h": 1, "x-pgmq-group": "g"})
    [binding] = await common.topics.list("errors")
    assert (binding.pattern, binding.queue, binding.expression) == (
        "logs.*.error",
        "errors",
        r"^logs\.[^.]+\.error$",
    )
    assert len(await common.topics.list()) == 2
    assert await common.topics.unbind("logs.#", "all")
    assert not await common.topics.unbind("logs.#", "all")


async def test_announcements_are_enabled_changed_and_disabled(common: AsyncClient) -> None:
    await common.admin.notifications.enable("orders")
    [throttle] = await common.admin.notifications.list()
    assert (throttle.queue, throttle.throttle_ms) == ("orders", 250)
    await common.admin.notifications.update("orders", throttle=timedelta(seconds=1.5))
    assert (await common.admin.notifications.list())[0].throttle_ms == 1500
    await common.admin.notifications.disable("orders")
    assert await common.admin.notifications.list() == []


# The schema.


async def test_install_fills_an_empty_database_and_may_be_repeated(empty_database: str) -> None:
    async with AsyncClient(empty_database) as client:
        assert await client.admin.flavour() == "none"
        installed = await client.install()
        assert installed.functions_applied
        assert not (await client.install()).functions_applied
        assert await client.admin.flavour() == "spanmq"
        assert await client.admin.version() == installed.version
        await client.queues.create("orders")
        assert await client.send("orders", 1) == 1
    async with await psycopg.AsyncConnection.connect(empty_database) as connection:
        assert not (await AsyncClient(connection=connection).install()).functions_applied


async def test_maintain_works_until_nothing_is_left(client: AsyncClient) -> None:
    await client.send("orders", 1)
    steps = [step for _ in range(50) for step in await client.admin.maintain()]
    assert "orders" in {step.queue for step in steps}
    assert await client.admin.maintain() == []
