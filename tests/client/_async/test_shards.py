"""Shards: where messages go, and that a change of the shards under load reorders nothing."""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from tests.client.concurrency import SOMEBODY_WAITS, AsyncTasks, until_async
from tests.patience import WAIT_SECONDS

from spanmq import errors
from spanmq.client import AsyncClient, AsyncShardedQueue, functions
from spanmq.client.concurrency import AsyncEvent
from spanmq.model import Message
from spanmq.model.shard_map import Routing, ShardMap

GROUPS = [f"order-{number}" for number in range(40)]


@pytest.fixture
async def clients(dsns: dict[str, str]) -> AsyncIterator[dict[str, AsyncClient]]:
    async with both(dsns) as clients:
        yield clients


@asynccontextmanager
async def both(dsns: dict[str, str]) -> AsyncIterator[dict[str, AsyncClient]]:
    here, there = dsns.values()
    async with AsyncClient(here, timeouts=None) as one, AsyncClient(there, timeouts=None) as other:
        yield {"here": one, "there": other}


@pytest.fixture
async def orders(clients: dict[str, AsyncClient]) -> AsyncShardedQueue:
    sharded = AsyncShardedQueue("orders", clients)
    await sharded.create({"orders_0": "here", "orders_1": "there"}, policy={"ordered": True})
    return sharded


async def drain(sharded: AsyncShardedQueue) -> list[Message]:
    messages: list[Message] = []
    while taken := await sharded.receive(10):
        messages += taken
        assert {each.outcome for each in await sharded.ack(taken)} == {"acked"}
    return messages


async def test_receive_leases_for_as_long_as_the_policy_says(orders: AsyncShardedQueue) -> None:
    await orders.set_policy(lease=90)
    await orders.send(1, group="a")
    [message] = await orders.receive()
    assert message.last_read_at is not None
    assert (message.leased_until - message.last_read_at).total_seconds() == 90


async def test_error_of_a_shard_does_not_keep_the_messages_of_the_others(
    clients: dict[str, AsyncClient],
) -> None:
    sharded = AsyncShardedQueue("jobs", clients)
    await sharded.create({"jobs_0": "here", "jobs_1": "there"}, routing="turn")
    for number in range(4):
        await sharded.send(number)
    await clients["there"].queues.drop("jobs_1")
    received: list[int] = []
    failed = 0
    while failed < 2:  # a receive begins with each shard in turn
        try:
            received += [message.body for message in await sharded.receive(10)]
        except errors.QueueNotFoundError:
            failed += 1
    assert len(received) == 2


async def test_group_stays_in_one_shard_and_all_shards_are_used(orders: AsyncShardedQueue) -> None:
    shards = {group: {(await orders.send(n, group=group))[0] for n in range(3)} for group in GROUPS}
    assert {len(each) for each in shards.values()} == {1}
    assert set.union(*shards.values()) == {"orders_0", "orders_1"}
    assert (await orders.metrics()).length == 3 * len(GROUPS)
    assert len(await drain(orders)) == 3 * len(GROUPS)


def test_a_change_moves_only_the_groups_of_the_new_shard() -> None:
    before = ShardMap(queue="q", epoch=1, routing="group", shards=dict.fromkeys(["a", "b", "c"], ""))
    after = ShardMap(queue="q", epoch=2, routing="group", shards=dict.fromkeys(["a", "b", "c", "d"], ""))
    groups = [f"group-{number}" for number in range(4000)]
    moved = [
        group
        for group in groups
        if before.shard_of(group, None, iter(())) != after.shard_of(group, None, iter(()))
    ]
    assert {after.shard_of(group, None, iter(())) for group in moved} == {"d"}
    assert 800 < len(moved) < 1200


async def test_a_key_goes_to_the_shard_of_its_number(clients: dict[str, AsyncClient]) -> None:
    sharded = AsyncShardedQueue("jobs", clients["here"])
    await sharded.create(["jobs_0", "jobs_1", "jobs_2"], routing="key")
    assert [(await sharded.send(n, key=n))[0] for n in range(4)] == ["jobs_0", "jobs_1", "jobs_2", "jobs_0"]
    assert (await sharded.send(1, key="a text"))[0] == (await sharded.send(2, key="a text"))[0]
    with pytest.raises(errors.InvalidArgumentError):
        await sharded.send(1)


async def test_by_turn_the_shards_get_the_same(clients: dict[str, AsyncClient]) -> None:
    sharded = AsyncShardedQueue("jobs", clients["here"])
    await sharded.create(["jobs_0", "jobs_1"], routing="turn")
    assert sorted([(await sharded.send(n))[0] for n in range(10)]) == ["jobs_0"] * 5 + ["jobs_1"] * 5
    assert sorted(message.body for message in await drain(sharded)) == list(range(10))


async def test_shards_are_one_to_policies_and_creation(
    orders: AsyncShardedQueue, clients: dict[str, AsyncClient]
) -> None:
    assert (await clients["there"].queues.policy("orders_1")).ordered is True
    await orders.set_policy(max_attempts=7)
    assert (await clients["here"].queues.policy("orders_0")).max_attempts == 7
    assert (await clients["there"].queues.policy("orders_1")).max_attempts == 7
    again = await AsyncShardedQueue("orders", clients).create(
        ["ignored"] if len(clients) == 1 else {"ignored": "here"}
    )
    assert again.shards == {"orders_0": "here", "orders_1": "there"}


async def test_bad_shards_are_refused(clients: dict[str, AsyncClient]) -> None:
    sharded = AsyncShardedQueue("orders", clients)
    with pytest.raises(errors.QueueNotFoundError):
        await sharded.send(1)
    for shards in ([], ["a"], "a", {"a": "nowhere"}):
        with pytest.raises(errors.InvalidArgumentError):
            await sharded.create(shards)
    with pytest.raises(errors.InvalidArgumentError):
        await sharded.create({"a": "here"}, routing="random")  # type: ignore[arg-type]
    assert await clients["here"].queues.list() == []


async def test_group_stays_where_it_has_messages_and_then_moves(orders: AsyncShardedQueue) -> None:
    for group in GROUPS:
        await orders.send(0, group=group)
    await orders.change({"orders_0": "here", "orders_1": "there", "orders_2": "here"})
    with pytest.raises(errors.ShardsChangedError):
        await orders.change({"orders_0": "here"})
    assert {(await orders.send(1, group=group))[0] for group in GROUPS} == {"orders_0", "orders_1"}
    assert not await orders.finish()
    await drain(orders)
    assert {(await orders.send(2, group=group))[0] for group in GROUPS} == {
        "orders_0",
        "orders_1",
        "orders_2",
    }
    assert await orders.finish()
    assert (await orders.shards()).former is None


@pytest.mark.parametrize("routing", ["group", "key", "turn"])
async def test_change_is_open_while_a_removed_shard_holds_messages(
    clients: dict[str, AsyncClient], routing: Routing
) -> None:
    sharded = AsyncShardedQueue("jobs", clients["here"])
    await sharded.create(["jobs_0", "jobs_1"], routing=routing)
    for number in range(4):
        await sharded.send(number, key=number if routing == "key" else None)
    await sharded.change(["jobs_1"])
    assert not await sharded.finish()
    assert sorted(message.body for message in await drain(sharded)) == [0, 1, 2, 3]
    assert await sharded.finish()


async def test_sender_with_an_older_map_takes_the_new_one(
    orders: AsyncShardedQueue, clients: dict[str, AsyncClient]
) -> None:
    other = AsyncShardedQueue("orders", clients)
    await orders.send(1, group="a")
    await other.change({"orders_1": "there"})
    assert await drain(orders)
    assert {(await orders.send(n, group=group))[0] for n, group in enumerate(GROUPS)} == {"orders_1"}


async def test_change_that_stopped_half_way_is_completed_by_the_next_sender(
    orders: AsyncShardedQueue, clients: dict[str, AsyncClient]
) -> None:
    before = await orders.shards()
    half = ShardMap(
        queue="orders", epoch=2, routing="group", shards={"orders_1": "there"}, former=dict(before.shards)
    )
    await clients["there"].admin.run(functions.set_shards(half))
    for group in GROUPS:
        await orders.send(1, group=group)
    known = await clients["here"].admin.run(functions.get_shards("orders"))
    assert known is not None
    assert known.epoch == 2


async def test_change_waits_for_a_sender(
    orders: AsyncShardedQueue, clients: dict[str, AsyncClient], dsns: dict[str, str]
) -> None:
    with psycopg.connect(dsns["here"], autocommit=True) as observer:
        async with AsyncTasks() as tasks:
            async with clients["here"].transaction() as sender:
                await sender.admin.run(functions.enter_shards("orders", 1))
                changing = tasks.start(AsyncShardedQueue("orders", clients).change, {"orders_1": "there"})
                await until_async(observer, SOMEBODY_WAITS)
                await sender.send("orders_0", 1, group="a")
            assert (await changing()).epoch == 2


async def test_shard_added_under_load_reorders_nothing(
    orders: AsyncShardedQueue, dsns: dict[str, str]
) -> None:
    """Producers and consumers with clients of their own; each producer numbers its messages in each group."""
    each = 20
    # The first change finds a backlog, and producers that are sending.
    begun, changed, stop = [AsyncEvent(), AsyncEvent()], AsyncEvent(), AsyncEvent()
    handled: list[tuple[str, int, int]] = []

    async def produce(number: int) -> None:
        async with both(dsns) as own:
            sharded = AsyncShardedQueue("orders", own)
            for serial in range(each):
                if serial == each // 4:
                    begun[number].set()
                for group in GROUPS[number * 10 : number * 10 + 20]:
                    await sharded.send([number, serial], group=group)

    async def consume() -> None:
        assert await changed.wait(WAIT_SECONDS)
        async with both(dsns) as own:
            sharded = AsyncShardedQueue("orders", own)
            while True:
                over = stop.is_set()
                taken = await sharded.receive(20)
                handled.extend((str(message.group), *message.body) for message in taken)
                await sharded.ack(taken)
                if not taken and over:
                    return

    async with AsyncTasks() as tasks:
        producers = [tasks.start(produce, number) for number in range(2)]
        consumers = [tasks.start(consume) for _ in range(2)]
        for event in begun:
            assert await event.wait(WAIT_SECONDS)
        for shards in ({"orders_2": "here"}, {"orders_3": "there"}):
            await orders.change({**(await orders.shards()).shards, **shards})
            changed.set()
            while not await orders.finish():
                pass
        for producer in producers:
            await producer()
        stop.set()
        for consumer in consumers:
            await consumer()
    serials: dict[tuple[str, int], list[int]] = defaultdict(list)
    for group, producing, serial in handled:
        serials[group, producing].append(serial)
    assert len(serials) == 2 * 20
    assert [key for key, found in serials.items() if found != list(range(each))] == []
