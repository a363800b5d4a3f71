# Generated from tests/client/_async/test_shards.py by tools/generate_sync.py: change that file.

"""Shards: where messages go, and that a change of the shards under load reorders nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest
from tests.client.concurrency import SOMEBODY_WAITS, Tasks, until
from tests.patience import WAIT_SECONDS

from spanmq import errors
from spanmq.client import Client, ShardedQueue
from spanmq.client._sync.shard_maps import ShardMaps
from spanmq.client.concurrency import Event
from spanmq.model import Message
from spanmq.model.shard_map import Routing, ShardMap
from spanmq.testing import new_database, with_database

GROUPS = [f"order-{number}" for number in range(40)]


@pytest.fixture
def dsns(spanmq_server: str, spanmq_template: str) -> Iterator[list[str]]:
    """Two databases, which have as little of each other as two servers."""
    with ExitStack() as stack:
        names = [stack.enter_context(new_database(spanmq_server, template=spanmq_template)) for _ in range(2)]
        yield [with_database(spanmq_server, name) for name in names]


@pytest.fixture
def clients(dsns: list[str]) -> Iterator[dict[str, Client]]:
    with both(dsns) as clients:
        yield clients


@contextmanager
def both(dsns: list[str]) -> Iterator[dict[str, Client]]:
    """Open a client of each database."""
    here, there = dsns
    with (
        Client(here, timeouts=None) as one,
        Client(there, timeouts=None) as other,
    ):
        yield {"here": one, "there": other}


@pytest.fixture
def orders(clients: dict[str, Client]) -> ShardedQueue:
    sharded = ShardedQueue("orders", clients)
    sharded.create({"orders_0": "here", "orders_1": "there"}, policy={"ordered": True})
    return sharded


def drain(sharded: ShardedQueue) -> list[Message]:
    messages: list[Message] = []
    while taken := sharded.receive(10):
        messages += taken
        assert {each.outcome for each in sharded.ack(taken)} == {"acked"}
    return messages


def test_receive_leases_for_as_long_as_the_policy_says(orders: ShardedQueue) -> None:
    orders.set_policy(lease=90)
    orders.send(1, group="a")
    [message] = orders.receive()
    assert message.last_read_at is not None
    assert (message.leased_until - message.last_read_at).total_seconds() == 90


def test_group_stays_in_one_shard_and_all_shards_are_used(orders: ShardedQueue) -> None:
    shards = {group: {(orders.send(n, group=group))[0] for n in range(3)} for group in GROUPS}
    assert {len(each) for each in shards.values()} == {1}
    assert set.union(*shards.values()) == {"orders_0", "orders_1"}
    assert (orders.metrics()).length == 3 * len(GROUPS)
    assert len(drain(orders)) == 3 * len(GROUPS)


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


def test_a_key_goes_to_the_shard_of_its_number(clients: dict[str, Client]) -> None:
    sharded = ShardedQueue("jobs", clients["here"])
    sharded.create(["jobs_0", "jobs_1", "jobs_2"], routing="key")
    assert [(sharded.send(n, key=n))[0] for n in range(4)] == ["jobs_0", "jobs_1", "jobs_2", "jobs_0"]
    assert (sharded.send(1, key="a text"))[0] == (sharded.send(2, key="a text"))[0]
    with pytest.raises(errors.InvalidArgumentError):
        sharded.send(1)


def test_by_turn_the_shards_get_the_same(clients: dict[str, Client]) -> None:
    sharded = ShardedQueue("jobs", clients["here"])
    sharded.create(["jobs_0", "jobs_1"], routing="turn")
    assert sorted([(sharded.send(n))[0] for n in range(10)]) == ["jobs_0"] * 5 + ["jobs_1"] * 5
    assert sorted(message.body for message in drain(sharded)) == list(range(10))


def test_shards_are_one_to_policies_and_creation(orders: ShardedQueue, clients: dict[str, Client]) -> None:
    assert (clients["there"].queues.policy("orders_1")).ordered is True
    orders.set_policy(max_attempts=7)
    assert (clients["here"].queues.policy("orders_0")).max_attempts == 7
    assert (clients["there"].queues.policy("orders_1")).max_attempts == 7
    again = ShardedQueue("orders", clients).create(["ignored"] if len(clients) == 1 else {"ignored": "here"})
    assert again.shards == {"orders_0": "here", "orders_1": "there"}


def test_bad_shards_are_refused(clients: dict[str, Client]) -> None:
    sharded = ShardedQueue("orders", clients)
    with pytest.raises(errors.QueueNotFoundError):
        sharded.send(1)
    for shards in ([], ["a"], "a", {"a": "nowhere"}):
        with pytest.raises(errors.InvalidArgumentError):
            sharded.create(shards)
    with pytest.raises(errors.InvalidArgumentError):
        sharded.create({"a": "here"}, routing="random")  # type: ignore[arg-type]
    assert clients["here"].queues.list() == []


def test_group_stays_where_it_has_messages_and_then_moves(orders: ShardedQueue) -> None:
    for group in GROUPS:
        orders.send(0, group=group)
    orders.change({"orders_0": "here", "orders_1": "there", "orders_2": "here"})
    with pytest.raises(errors.ShardsChangedError):
        orders.change({"orders_0": "here"})
    assert {(orders.send(1, group=group))[0] for group in GROUPS} == {"orders_0", "orders_1"}
    assert not orders.finish()
    drain(orders)
    assert {(orders.send(2, group=group))[0] for group in GROUPS} == {
        "orders_0",
        "orders_1",
        "orders_2",
    }
    assert orders.finish()
    assert (orders.shards()).former is None


@pytest.mark.parametrize("routing", ["group", "key", "turn"])
def test_change_is_open_while_a_removed_shard_holds_messages(
    clients: dict[str, Client], routing: Routing
) -> None:
    sharded = ShardedQueue("jobs", clients["here"])
    sharded.create(["jobs_0", "jobs_1"], routing=routing)
    for number in range(4):
        sharded.send(number, key=number if routing == "key" else None)
    sharded.change(["jobs_1"])
    assert not sharded.finish()
    assert sorted(message.body for message in drain(sharded)) == [0, 1, 2, 3]
    assert sharded.finish()


def test_sender_with_an_older_map_takes_the_new_one(orders: ShardedQueue, clients: dict[str, Client]) -> None:
    other = ShardedQueue("orders", clients)
    orders.send(1, group="a")
    other.change({"orders_1": "there"})
    assert drain(orders)
    assert {(orders.send(n, group=group))[0] for n, group in enumerate(GROUPS)} == {"orders_1"}


def test_change_that_stopped_half_way_is_completed_by_the_next_sender(
    orders: ShardedQueue, clients: dict[str, Client]
) -> None:
    before = orders.shards()
    half = ShardMap(
        queue="orders", epoch=2, routing="group", shards={"orders_1": "there"}, former=dict(before.shards)
    )
    ShardMaps(clients["there"]).set(half)
    for group in GROUPS:
        orders.send(1, group=group)
    known = ShardMaps(clients["here"]).get("orders")
    assert known is not None
    assert known.epoch == 2


def test_change_waits_for_a_sender(orders: ShardedQueue, clients: dict[str, Client], dsns: list[str]) -> None:
    with psycopg.connect(dsns[0], autocommit=True) as observer:
        with Tasks() as tasks:
            with clients["here"].transaction() as sender:
                ShardMaps(sender).enter("orders", 1)
                changing = tasks.start(ShardedQueue("orders", clients).change, {"orders_1": "there"})
                until(observer, SOMEBODY_WAITS)
                sender.send("orders_0", 1, group="a")
            assert (changing()).epoch == 2


def test_shard_added_under_load_reorders_nothing(orders: ShardedQueue, dsns: list[str]) -> None:
    """Producers and consumers with clients of their own; each producer numbers its messages in each group."""
    each = 20
    # The first change finds a backlog, and producers that are sending.
    begun, changed, stop = [Event(), Event()], Event(), Event()
    handled: list[tuple[str, int, int]] = []

    def produce(number: int) -> None:
        with both(dsns) as own:
            sharded = ShardedQueue("orders", own)
            for serial in range(each):
                if serial == each // 4:
                    begun[number].set()
                for group in GROUPS[number * 10 : number * 10 + 20]:
                    sharded.send([number, serial], group=group)

    def consume() -> None:
        assert changed.wait(WAIT_SECONDS)
        with both(dsns) as own:
            sharded = ShardedQueue("orders", own)
            while True:
                over = stop.is_set()
                taken = sharded.receive(20)
                handled.extend((str(message.group), *message.body) for message in taken)
                sharded.ack(taken)
                if not taken and over:
                    return

    with Tasks() as tasks:
        producers = [tasks.start(produce, number) for number in range(2)]
        consumers = [tasks.start(consume) for _ in range(2)]
        for event in begun:
            assert event.wait(WAIT_SECONDS)
        for shards in ({"orders_2": "here"}, {"orders_3": "there"}):
            orders.change({**(orders.shards()).shards, **shards})
            changed.set()
            while not orders.finish():
                pass
        for producer in producers:
            producer()
        stop.set()
        for consumer in consumers:
            consumer()
    serials: dict[tuple[str, int], list[int]] = defaultdict(list)
    for group, producing, serial in handled:
        serials[group, producing].append(serial)
    assert len(serials) == 2 * 20
    assert [key for key, found in serials.items() if found != list(range(each))] == []
