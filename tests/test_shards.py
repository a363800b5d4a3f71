"""Shards: where messages go, and that a change of the shards under load reorders nothing."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.patience import WAIT_SECONDS

from spanmq import errors
from spanmq.client import Client
from spanmq.message import Message
from spanmq.shard_map import Routing, ShardMap
from spanmq.shards import ShardedQueue
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
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(Client(dsn, maintain_interval=None))
            for name, dsn in zip(("here", "there"), dsns, strict=True)
        }


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


def test_group_stays_in_one_shard_and_all_shards_are_used(orders: ShardedQueue) -> None:
    shards = {group: {orders.send(n, group=group)[0] for n in range(3)} for group in GROUPS}
    assert {len(each) for each in shards.values()} == {1}
    assert set.union(*shards.values()) == {"orders_0", "orders_1"}
    assert orders.metrics().length == 3 * len(GROUPS)
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
    assert [sharded.send(n, key=n)[0] for n in range(4)] == ["jobs_0", "jobs_1", "jobs_2", "jobs_0"]
    assert sharded.send(1, key="a text")[0] == sharded.send(2, key="a text")[0]
    with pytest.raises(errors.InvalidArgumentError):
        sharded.send(1)


def test_by_turn_the_shards_get_the_same(clients: dict[str, Client]) -> None:
    sharded = ShardedQueue("jobs", clients["here"])
    sharded.create(["jobs_0", "jobs_1"], routing="turn")
    assert sorted(sharded.send(n)[0] for n in range(10)) == ["jobs_0"] * 5 + ["jobs_1"] * 5
    assert sorted(message.body for message in drain(sharded)) == list(range(10))


def test_shards_are_one_to_policies_and_creation(orders: ShardedQueue, clients: dict[str, Client]) -> None:
    assert clients["there"].get_policy("orders_1")["ordered"] is True
    orders.set_policy({"max_attempts": 7})
    assert clients["here"].get_policy("orders_0")["max_attempts"] == 7
    assert clients["there"].get_policy("orders_1")["max_attempts"] == 7
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
    assert clients["here"].list_queues() == []


def test_group_stays_where_it_has_messages_and_then_moves(orders: ShardedQueue) -> None:
    for group in GROUPS:
        orders.send(0, group=group)
    orders.change({"orders_0": "here", "orders_1": "there", "orders_2": "here"})
    with pytest.raises(errors.ShardsChangedError):
        orders.change({"orders_0": "here"})
    assert {orders.send(1, group=group)[0] for group in GROUPS} == {"orders_0", "orders_1"}
    assert not orders.finish()
    drain(orders)
    assert {orders.send(2, group=group)[0] for group in GROUPS} == {"orders_0", "orders_1", "orders_2"}
    assert orders.finish()
    assert orders.shards().former is None


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
    assert {orders.send(n, group=group)[0] for n, group in enumerate(GROUPS)} == {"orders_1"}


def test_change_that_stopped_half_way_is_completed_by_the_next_sender(
    orders: ShardedQueue, clients: dict[str, Client]
) -> None:
    before = orders.shards()
    half = ShardMap(
        queue="orders", epoch=2, routing="group", shards={"orders_1": "there"}, former=dict(before.shards)
    )
    clients["there"].set_shards(half)
    for group in GROUPS:
        orders.send(1, group=group)
    known = clients["here"].get_shards("orders")
    assert known is not None
    assert known.epoch == 2


def test_change_waits_for_who_is_sending(orders: ShardedQueue, clients: dict[str, Client]) -> None:
    done = threading.Event()
    changed: list[ShardMap] = []

    def change() -> None:
        changed.append(ShardedQueue("orders", clients).change({"orders_1": "there"}))
        done.set()

    with clients["here"].transaction() as sender:
        sender.enter_shards("orders", 1)
        thread = threading.Thread(target=change)
        thread.start()
        assert not done.wait(0.2)
        sender.send("orders_0", 1, group="a")
    assert done.wait(WAIT_SECONDS)
    thread.join()
    assert changed[0].epoch == 2


@pytest.mark.slow
def test_shard_added_under_load_reorders_nothing(orders: ShardedQueue, dsns: list[str]) -> None:
    """Producers and consumers with clients of their own; each producer numbers its messages in each group."""
    each = 40
    # The first change finds a backlog, and producers at work.
    begun, changed = threading.Barrier(3, timeout=WAIT_SECONDS), threading.Event()
    stop = threading.Event()
    handled: list[tuple[str, int, int]] = []
    problems: list[BaseException] = []

    def with_own_clients(work: object, number: int) -> None:
        try:
            with ExitStack() as stack:
                own = {
                    name: stack.enter_context(Client(dsn, maintain_interval=None, pool_size=3))
                    for name, dsn in zip(("here", "there"), dsns, strict=True)
                }
                work(ShardedQueue("orders", own), number)  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001 - raised in the test's own thread
            problems.append(error)
            stop.set()

    def produce(sharded: ShardedQueue, number: int) -> None:
        for serial in range(each):
            if serial == each // 4:
                begun.wait()
            for group in GROUPS[number * 10 : number * 10 + 20]:
                sharded.send([number, serial], group=group)

    def consume(sharded: ShardedQueue, _: int) -> None:
        changed.wait(WAIT_SECONDS)
        while True:
            over = stop.is_set()
            taken = sharded.receive(20)
            handled.extend((str(message.group), *message.body) for message in taken)
            sharded.ack(taken)
            if not taken and over:
                return

    producers = [threading.Thread(target=with_own_clients, args=(produce, number)) for number in range(2)]
    consumers = [threading.Thread(target=with_own_clients, args=(consume, number)) for number in range(2)]
    for thread in producers + consumers:
        thread.start()
    begun.wait()
    for shards in ({"orders_2": "here"}, {"orders_3": "there"}):
        orders.change({**orders.shards().shards, **shards})
        changed.set()
        while not orders.finish() and not problems:
            pass
    for thread in producers:
        thread.join()
    stop.set()
    for thread in consumers:
        thread.join()
    assert problems == []
    serials: dict[tuple[str, int], list[int]] = defaultdict(list)
    for group, producer, serial in handled:
        serials[group, producer].append(serial)
    assert len(serials) == 2 * 20
    assert [key for key, found in serials.items() if found != list(range(each))] == []


def test_first_example_of_the_docs_runs(database: str) -> None:
    text = (Path(__file__).parent.parent / "docs" / "shards.md").read_text("utf-8")
    program = text.split("```python\n")[1].split("```")[0]
    assert "postgresql://localhost/shop" in program
    scope: dict[str, Any] = {}
    exec(program.replace("postgresql://localhost/shop", database), scope)
    assert scope["orders"].metrics().length == 0
    scope["client"].close()
