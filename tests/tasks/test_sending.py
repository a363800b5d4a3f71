"""Sending tasks: checked arguments, options, and the caller's transaction."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session
from tests.patience import wait_until
from tests.tasks import shop
from tests.tasks.shop import Order, tasks

from spanmq import Client, Message, errors
from spanmq.tasks import GIVEN, Retry, Tasks
from spanmq.testing import assert_sent, drain

ORDER = Order(number=1, day=date(2026, 1, 2))
ship: Any = shop.ship
mail: Any = shop.mail

WRONG: list[tuple[type[Exception], Callable[[], Any]]] = [
    (errors.TaskArgumentsError, ship.send),
    (errors.TaskArgumentsError, lambda: ship.send(ORDER, shop.Speed.FAST, 3)),
    (errors.TaskArgumentsError, lambda: ship.send(ORDER, order=ORDER)),
    (errors.TaskArgumentsError, lambda: mail.send("a", 1.0, 2.0)),
    (errors.TaskArgumentsError, lambda: ship.send(order=ORDER, speed="slow", colour="red")),
    (errors.TaskArgumentsError, lambda: ship.send(ORDER, "quick")),
    (errors.TaskArgumentsError, lambda: ship.send({"number": "1", "day": date(2026, 1, 2)})),
    (errors.TaskArgumentsError, lambda: mail.send(17)),
    (errors.TaskArgumentsError, lambda: mail.send("a", float("nan"))),
    (errors.TaskArgumentsError, lambda: shop.note.send({"ratio": [float("nan"), None]})),
    (errors.TaskArgumentsError, lambda: shop.note.send(object())),
    (errors.TaskArgumentsError, lambda: shop.note.send(b"\xff")),
    (errors.TaskArgumentsError, lambda: mail.send("a", message="x")),
    (errors.InvalidBodyError, lambda: mail.send("\0")),
    (errors.InvalidArgumentError, lambda: mail.using(delay=-1).send("a")),
    (errors.InvalidArgumentError, lambda: mail.using(priority=10).send("a")),
    (errors.InvalidArgumentError, lambda: mail.using(group=5).send("a")),
    (errors.InvalidArgumentError, lambda: mail.using(colour="red").send("a")),
    (errors.InvalidArgumentError, lambda: mail.using(queue=5).send("a")),
    (errors.InvalidArgumentError, lambda: mail.using(queue="nowhere").send("a")),
    (errors.InvalidArgumentError, lambda: mail.using(delay=1, at=datetime.now(UTC)).send("a")),
    (errors.InvalidArgumentError, lambda: mail.using(connection=object()).send("a")),
    (errors.InvalidArgumentError, lambda: tasks.send_many([mail])),
]


@pytest.mark.parametrize(("kind", "send"), WRONG)
def test_wrong_arguments_are_errors_of_the_caller(
    client: Client, kind: type[Exception], send: Callable[[], Any]
) -> None:
    with pytest.raises(kind):
        send()
    assert [queue.length for queue in client.queues.metrics_all()] == [0, 0]


def test_body_is_readable_json(client: Client) -> None:
    sent = ship.send(ORDER, speed=shop.Speed.FAST)
    [message] = client.receive("orders")
    assert (sent.queue, sent.message_id) == ("orders", message.message_id)
    order = {"number": 1, "day": "2026-01-02", "items": []}
    assert message.body == {"task": "ship", "args": {"order": order, "speed": "fast"}}


def test_options_are_those_of_the_message(client: Client) -> None:
    later = datetime.now(UTC) + timedelta(hours=2)
    mail.using(at=later, group="a", headers={"tenant": "x"}).send("later")
    mail.using(priority=9, expires_in=60).send("first")
    by_name = {message.body["args"]["to"]: message for message in client.peek("mail")}
    assert abs(by_name["later"].leased_until - later) < timedelta(seconds=1)
    assert (by_name["later"].group, (by_name["later"].headers or {})["tenant"]) == ("a", "x")
    mail.send("second")
    assert [client.receive("mail")[0].body["args"]["to"] for _ in range(2)] == ["first", "second"]
    elsewhere = mail.using(queue="orders").send("elsewhere")
    assert [message.message_id for message in assert_sent(mail, to="elsewhere")] == [elsewhere.message_id]
    assert drain(tasks) == 1
    with pytest.raises(errors.InvalidArgumentError, match=r"It has .*delay, at, .*queue"):
        mail.using(countdown=60).send("a")


def test_unique_task_is_sent_once(client: Client) -> None:
    first, again, other = shop.count.send(1), shop.count.send(1), shop.count.send(2)
    by_key = shop.count.using(unique="key").send(3), shop.count.using(unique="key").send(4)
    assert first == again != other
    assert by_key[0] == by_key[1] != first
    assert client.queues.metrics("orders").length == 3


def test_task_is_unique_until_its_message_is_settled_or_started(client: Client, own: Tasks) -> None:
    @own.task(unique="until_settled")
    def sweep(room: str) -> None: ...

    @own.task(unique=lambda room, colour: room, unique_until="started", on_duplicate="replace")
    def paint(room: str, colour: str) -> None: ...

    swept = sweep.send("hall")
    red, blue = paint.send("hall", "red"), paint.send("hall", "blue")
    assert client.inspect.state("orders", red.message_id) == "cancelled"
    assert len(client.receive("orders", 5)) == 2
    # Both have been started, and are not settled.
    assert (
        sweep.send("hall") == sweep.using(unique_until="settled", on_duplicate="keep").send("hall") == swept
    )
    assert paint.send("hall", "red") not in (red, blue)
    assert client.inspect.state("orders", blue.message_id) == "processing"
    calls = [sweep.using(on_duplicate="raise").call(room) for room in ("attic", "hall")]
    with pytest.raises(errors.DedupIdInUseError):
        own.send_many(calls)
    client.delete("orders", swept.message_id)
    assert sweep.send("hall").message_id > blue.message_id


def test_key_and_time_of_a_unique_task_are_its_own(client: Client, own: Tasks) -> None:
    @own.task(unique=lambda number, colour: str(number), unique_for=0.01)
    def paint(number: int, colour: str) -> None: ...

    kept = paint.using(unique_for=300)
    assert kept.send(1, "red") == kept.send(1, "blue") != kept.send(2, "red")
    first = paint.send(3, "red")
    with client.transaction() as transaction:
        transaction.connection.execute("select pg_sleep(0.02)")
    assert paint.send(3, "red") != first


async def test_many_are_sent_in_order_or_not_at_all(client: Client) -> None:
    calls = [
        shop.mail.call("a"),
        shop.count.call(1),
        shop.mail.using(priority=1).call("b"),
        shop.mail.call("c"),
    ]
    for sent in (tasks.send_many(calls), await tasks.send_many_async(calls)):
        assert [each.queue for each in sent] == ["mail", "orders", "mail", "mail"]
    assert [message.body["args"]["to"] for message in client.peek("mail")] == [*"acb", *"acb"]
    client.queues.drop("orders")
    with pytest.raises(errors.QueueNotFoundError):
        tasks.send_many(calls)
    assert client.queues.metrics("mail").length == 6
    await tasks.close_async()


@pytest.mark.parametrize("is_result", [False, True])
def test_order_within_each_group_is_kept_whatever_the_options(
    client: Client, database: str, is_result: bool
) -> None:
    own = Tasks("mail", dsn=database)

    stored: dict[int, str] = {}

    @own.task
    def note(name: str, message: Message = GIVEN) -> None:
        stored[message.message_id] = name

    @own.task(unique=lambda name: name)
    def once(name: str, message: Message = GIVEN) -> None:
        stored[message.message_id] = name

    @own.task
    def several() -> list[Any]:
        return calls

    plain, urgent = note.using(group="a"), note.using(group="a", priority=1)
    calls = [
        plain.call("a0"),
        urgent.call("a1"),
        note.using(group="b").call("b0"),
        plain.call("a2"),
        note.using(group="b", priority=1).call("b1"),
        once.using(group="a").call("a3"),
        urgent.call("a4"),
        plain.call("a5"),
    ]
    if is_result:
        several.send()
        drain(own)
    else:
        sent = own.send_many(calls)
        drain(own)
        in_order = [stored[each.message_id] for each in sent]
        assert in_order == ["a0", "a1", "b0", "a2", "b1", "a3", "a4", "a5"]
    names = [stored[message_id] for message_id in sorted(stored)]
    assert [name for name in names if name[0] == "a"] == ["a0", "a1", "a2", "a3", "a4", "a5"]
    assert [name for name in names if name[0] == "b"] == ["b0", "b1"]
    own.close()


async def test_connection_to_another_database_replaces_the_one_before(dsns: dict[str, str]) -> None:
    own = Tasks("orders", dsn=dsns["here"])
    count = own.task(shop.count.function)
    sessions = (
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
    )
    with psycopg.connect(dsns["here"], autocommit=True) as observer:
        own.create_queues()
        await count.send_async(1)
        own.connect(dsns["there"])
        own.create_queues()
        await count.send_async(2)
        await asyncio.to_thread(wait_until, lambda: observer.execute(sessions).fetchone() == (0,))
    own.close()
    await own.close_async()


async def test_sends_go_to_the_database_that_was_connected_last(
    client: Client, own: Tasks, empty_database: str
) -> None:
    count = own.task(shop.count.function)
    await count.send_async(1)
    own.connect(empty_database)
    with Client(empty_database) as other:
        other.install()
        other.queues.create("orders")
        count.send(2)
        await count.send_async(3)
        assert [message.body["args"]["number"] for message in other.peek("orders")] == [2, 3]
    assert [message.body["args"]["number"] for message in client.peek("orders")] == [1]
    await own.close_async()


async def test_send_belongs_to_the_transaction_of_the_caller(
    client: Client, database: str, engines: tuple[Engine, AsyncEngine]
) -> None:
    engine, async_engine = engines
    batch = tasks.batch([shop.note.call(1), shop.mail.call("part")], shop.note.call("end"))
    for commits in (True, False):
        with psycopg.connect(database) as connection:
            shop.mail.using(connection=connection).send("psycopg")
            batch.send(connection=connection)
            end(connection, commits=commits)
        with Session(engine) as session:
            tasks.send_many([shop.mail.call("sqlalchemy"), shop.count.call(3)], session=session)
            batch.send(session=session)
            end(session, commits=commits)
        async with await psycopg.AsyncConnection.connect(database) as asynchronous:
            await shop.mail.using(connection=asynchronous).send_async("async")
            await batch.send_async(connection=asynchronous)
            await end(asynchronous, commits=commits)
        async with AsyncSession(async_engine) as async_session:
            await shop.mail.using(session=async_session).send_async("async sqlalchemy")
            await batch.send_async(session=async_session)
            await end(async_session, commits=commits)
        async with driver_of(database) as driver:
            transaction = driver.transaction()
            await transaction.start()
            await shop.mail.using(connection=driver).send_async("asyncpg")
            await batch.send_async(connection=driver)
            await end(transaction, commits=commits)
    sent = [message.body["args"]["to"] for message in client.peek("mail")]
    first = ["psycopg", "sqlalchemy", "async", "async sqlalchemy", "asyncpg"]
    assert sent == [to for each in first for to in (each, "part")]
    assert [batch.unsettled for batch in client.batches.list()] == [2] * len(first)


async def test_many_are_all_or_none_in_autocommit_too(client: Client, database: str) -> None:
    calls = [shop.mail.call("a"), shop.count.call(1)]
    client.queues.drop("orders")
    async with driver_of(database) as driver:
        with pytest.raises(errors.QueueNotFoundError):
            await tasks.send_many_async(calls, connection=driver)
    with psycopg.connect(database, autocommit=True) as connection:
        for send in (
            tasks.send_many,
            lambda calls, **place: tasks.batch(calls, shop.note.call(1)).send(**place),
        ):
            with pytest.raises(errors.QueueNotFoundError):
                send(calls, connection=connection)
    assert client.queues.metrics("mail").length == 0


def end(transaction: Any, *, commits: bool) -> Any:
    return transaction.commit() if commits else transaction.rollback()


@asynccontextmanager
async def driver_of(dsn: str) -> AsyncIterator[Any]:
    parts = conninfo_to_dict(dsn)
    driver = await asyncpg.connect(
        host=parts["host"], port=int(str(parts["port"])), user=parts["user"], database=parts["dbname"]
    )
    try:
        yield driver
    finally:
        await driver.close()


def test_wrong_tasks_are_refused() -> None:
    def rest(*numbers: int) -> None: ...
    def both(connection: Any = GIVEN, session: Any = GIVEN) -> None: ...
    def strange(value: object = object) -> None: ...
    def given(value: object = GIVEN) -> None: ...
    def session_of_a_visitor(session: str) -> None: ...

    def worker_of(function: Callable[..., Any]) -> None:
        tasks = Tasks("orders")
        tasks.task(function)
        tasks.worker(dsn="host=/nowhere")

    class Unknown:
        pass

    def unreadable(value: Unknown) -> None: ...

    refused = Tasks("orders")
    refused.task(unreadable)
    assert refused.task(session_of_a_visitor).call("x").body.endswith('{"session":"x"}}')
    for make in (
        lambda: refused.task(rest),
        lambda: refused.task(both),
        lambda: worker_of(given),  # no resource has its type
        lambda: refused.task(name="unreadable")(strange),
        lambda: refused.task("strange"),  # type: ignore[call-overload]
        lambda: refused.task(name=5)(strange),  # type: ignore[call-overload]
        lambda: refused.task(queue=5)(strange),  # type: ignore[call-overload]
        lambda: refused.task(aliases="former")(strange),
        lambda: refused.task(timeout=0)(strange),
        lambda: refused.task(timeout="3")(strange),  # type: ignore[call-overload]
        lambda: refused.task(concurrency=0)(strange),
        lambda: refused.task(store_result=-1)(strange),
        lambda: refused.task(unique_for=-1)(strange),
        lambda: refused.task(unique="key")(strange),  # type: ignore[call-overload]
        lambda: refused.task(unique=True, unique_until="done")(strange),  # type: ignore[call-overload]
        lambda: refused.task(unique="until_settled", on_duplicate="drop")(strange),  # type: ignore[call-overload]
        lambda: refused.task(max_attempts="3")(strange),  # type: ignore[call-overload]
        lambda: refused.task(retry=3)(strange),  # type: ignore[call-overload]
        lambda: Retry(max_attempts=0),
        lambda: Retry(backoff="1"),  # type: ignore[arg-type]
        lambda: Retry(give_up=ValueError),  # type: ignore[arg-type]
        lambda: Retry(on={1: "TRANSIENT"}),  # type: ignore[dict-item]
        lambda: Retry(on={ValueError: "transient"}),  # type: ignore[dict-item]
        lambda: Tasks(5),  # type: ignore[arg-type]
        lambda: refused.batch([], then=None),  # type: ignore[arg-type]
        lambda: refused.periodic("* * * * *")(strange),  # type: ignore[type-var]
        lambda: refused.on_handle(strange),  # type: ignore[arg-type]
        lambda: refused.worker(dsn="host=/nowhere"),
    ):
        with pytest.raises(errors.InvalidArgumentError):
            make()


def types() -> None:
    """Hold what a type checker accepts and refuses: an unused comment is an error of mypy."""
    shop.mail.send("a", weight=1.0)
    shop.store.send(1)
    shop.mail.send(1)  # type: ignore[arg-type]
    shop.mail.call(cc="a")  # type: ignore[call-arg]
    shop.mail.using(delay="x").send("a")  # type: ignore[arg-type]
    returned: str = shop.mail("a")
    assert returned


def test_import_without_pydantic_is_a_typed_error(tmp_path: Any) -> None:
    program = """
import sys
sys.modules["pydantic"] = None
import spanmq, spanmq.tasks
try:
    spanmq.tasks.Tasks("orders")
except spanmq.errors.ExtraNotInstalledError as error:
    print(error.extra, error.hint)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "tasks pip install 'spanmq[tasks]'\n"
    assert GIVEN is not None


@dataclass
class Parcel:
    number: int
    city: str


async def send_parcel(parcel: Parcel) -> None: ...


@pytest.mark.parametrize("number", ["x", "5"])
def test_wrong_field_of_an_instance_is_named_and_its_value_is_not(number: Any) -> None:
    task = Tasks("parcels").task(send_parcel)
    with pytest.raises(errors.TaskArgumentsError) as raised:
        task.call(Parcel(number, "Oslo"))
    assert str(raised.value) == "task 'send_parcel': parcel.number: Input should be a valid integer"
