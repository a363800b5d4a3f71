"""The options of send and send_batch."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest

from spanmq import errors
from spanmq.client import AsyncClient
from spanmq.codec.body import RawJson

pytestmark = pytest.mark.reused


async def test_options_reach_the_server(client: AsyncClient) -> None:
    message_id = await client.send("orders", 1, priority=3, expires_in=timedelta(hours=1), max_attempts=2)
    [message] = await client.peek("orders")
    assert message.message_id == message_id
    assert message.headers is not None
    assert message.headers["x-spanmq-max-attempts"] == 2
    expires_at = datetime.fromisoformat(message.headers["x-spanmq-expires-at"])
    assert timedelta(minutes=59) < expires_at - message.enqueued_at < timedelta(minutes=61)


async def test_duplicate_gives_the_first_id(client: AsyncClient) -> None:
    first = await client.send("orders", 1, dedup_id='a "quoted", \\ and é')
    assert await client.send("orders", 2, dedup_id='a "quoted", \\ and é') == first
    assert await client.send("orders", 2, dedup_id="NULL") == first + 1
    assert await client.send_batch("orders", [3, 4, 5], dedup_ids=["b", None, "NULL"]) == [3, 4, 2]


async def test_id_that_is_reused_for_something_else_is_refused(client: AsyncClient) -> None:
    first = await client.send("orders", 1, dedup_id="a", fingerprint="x")
    assert await client.send_batch("orders", [1], dedup_ids=["a"], fingerprint="x") == [first]
    for send in (
        lambda: client.send("orders", 2, dedup_id="a", fingerprint="y"),
        lambda: client.send_batch("orders", [3, 4], dedup_ids=["b", "a"], fingerprint="y"),
    ):
        with pytest.raises(errors.DedupIdReusedError):
            await send()
    assert [message.body for message in await client.peek("orders")] == [1]


async def test_id_of_a_message_in_the_queue_is_kept_replaced_or_refused(client: AsyncClient) -> None:
    first = await client.send("orders", 1, delay=60, dedup_id="a", dedup_until="settled")
    assert await client.send("orders", 2, dedup_id="a", dedup_until="started") == first
    for send in (
        lambda: client.send("orders", 3, dedup_id="a", dedup_until="settled", on_duplicate="raise"),
        lambda: client.send_batch(
            "orders", [3], dedup_ids=["a"], dedup_until="started", on_duplicate="raise"
        ),
    ):
        with pytest.raises(
            errors.DedupIdInUseError, match=f"message {first} is in the queue with dedup_id 'a'"
        ):
            await send()
    second = await client.send("orders", 4, dedup_id="a", dedup_until="settled", on_duplicate="replace")
    assert await client.inspect.state("orders", first) == "cancelled"
    # Dead, it comes back only when no other message has its id.
    [message] = await client.receive("orders")
    await client.reject(message)
    [third] = await client.send_batch("orders", [5], dedup_ids=["a"], dedup_until="settled")
    [planned] = await client.dead_letters.redrive("orders", dry_run=True)
    [left] = await client.dead_letters.redrive("orders")
    assert planned == left
    assert (left.message_id, left.visible_at, left.beside) == (second, None, third)
    with pytest.raises(errors.DedupIdInUseError):
        await client.dead_letters.edit("orders", second, body=6)
    await client.delete("orders", third)
    assert await client.dead_letters.edit("orders", second, body=6) == second
    assert [message.body for message in await client.peek("orders")] == [6]


async def test_batch_of_many_calls_is_deduplicated_as_one(client: AsyncClient) -> None:
    ids = await client.send_batch("orders", range(2_500), dedup_ids=(f"n{i % 1_200}" for i in range(2_500)))
    assert len(ids) == 2_500
    assert len(set(ids)) == 1_200
    assert ids[:1_200] == ids[1_200:2_400]
    assert (await client.queues.metrics("orders")).length == 1_200


@pytest.mark.parametrize("count", [1, 3, 1_001])
async def test_ids_that_don_t_match_the_bodies_are_refused(client: AsyncClient, count: int) -> None:
    for bodies in (range(2), range(1_000)):
        with pytest.raises(errors.InvalidArgumentError):
            await client.send_batch("orders", bodies, dedup_ids=["a"] * count)
    assert await client.peek("orders") == []


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 1.5},
        {"expires_in": 0.0},
        {"dedup_id": "a\0"},
        {"dedup_until": "settled"},
        {"dedup_id": "a", "dedup_until": "done"},
        {"dedup_id": "a", "dedup_until": "settled", "on_duplicate": "drop"},
        {"dedup_id": "a", "dedup_until": "settled", "fingerprint": "a"},
        {"fingerprint": "a"},
        {"ordered": 1},
        # In UTC these are beyond the years that Python knows.
        {"delay": datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))},
        {"delay": datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))},
    ],
    ids=str,
)
async def test_what_no_message_can_have_is_refused(client: AsyncClient, options: dict[str, Any]) -> None:
    with pytest.raises(
        errors.InvalidArgumentError, match="delay is out of range" if "delay" in options else None
    ):
        await client.send("orders", 1, **options)
    assert await client.peek("orders") == []


async def test_delay_may_be_a_moment(client: AsyncClient) -> None:
    at = datetime.now(UTC) + timedelta(minutes=5)
    await client.send("orders", 1, delay=at, priority=1)
    await client.send("orders", 2, delay=datetime.now(UTC) - timedelta(minutes=5), priority=1)
    late, soon = await client.peek("orders")
    assert abs(late.leased_until - at) < timedelta(minutes=1)
    assert soon.leased_until == soon.enqueued_at


async def test_ordered_sends_within_one_transaction(client: AsyncClient) -> None:
    async with client.transaction() as transaction:
        ids = [await transaction.send("orders", i, group="a", ordered=True) for i in range(3)]
        ids += await transaction.send_batch("orders", [3, 4], group=["a", "b"], ordered=True)
    assert ids == [1, 2, 3, 4, 5]


# More than a call carries, and too few for COPY, which knows no options. The last is refused by the server, or by
# the client.
@pytest.mark.parametrize(("count", "options"), [(1_500, {}), (2_500, {"priority": 1})])
@pytest.mark.parametrize("last", [RawJson("{no json}"), object()], ids=["server", "client"])
async def test_batch_of_several_calls_of_which_the_last_is_refused_sends_nothing(
    client: AsyncClient, database: str, last: object, count: int, options: dict[str, Any]
) -> None:
    bodies = [*range(count), last]
    with pytest.raises(errors.InvalidBodyError):
        await client.send_batch("orders", bodies, **options)
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        with pytest.raises(errors.InvalidBodyError):
            await AsyncClient(connection=connection).send_batch("orders", bodies, **options)
        assert (await client.queues.metrics("orders")).length == 0
        await AsyncClient(connection=connection).send_batch("orders", range(count), **options)
    assert (await client.queues.metrics("orders")).length == count
