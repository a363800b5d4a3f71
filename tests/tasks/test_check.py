"""What a program would make of the messages that another version of it has sent, before it is deployed."""

import asyncio
import base64
import logging
import secrets
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from tests.patience import WAIT_SECONDS
from tests.tasks import shop
from tests.tasks.shop import Order

from spanmq import AsyncClient, Client, Leased, errors
from spanmq.tasks import QueuedCalls, Tasks
from spanmq.tasks.handling import Handling
from spanmq.worker.event import MessageSettled
from spanmq.worker.job import Released
from spanmq.worker.settling.settler import settlement


class Address(BaseModel):
    street: str


def old_and_new(database: str) -> tuple[Tasks, Tasks]:
    """Two versions of a program."""
    old, new = Tasks("orders", dsn=database), Tasks("orders", dsn=database)

    @old.task(name="ship")
    async def ship_before(adress: str) -> None: ...

    @new.task(name="ship")
    async def ship(address: str) -> None: ...

    @old.task(name="invoice")
    async def invoice_before(number: int) -> None: ...

    @new.task(name="invoice")
    async def invoice(number: int, currency: str = "EUR") -> None: ...

    @old.task
    async def retired() -> None: ...

    @old.task(name="move")
    async def move_before(to: str) -> None: ...

    @new.task(name="move")
    async def move(to: Address) -> None: ...

    return old, new


def said(checked: list[QueuedCalls], *, breaking: bool | None = None) -> list[str]:
    return [each.sentence for each in checked if breaking in (None, each.is_breaking)]


@pytest.mark.parametrize("unknown_task", ["fail", "defer"])
def test_sentences_say_what_would_fail_and_what_is_fine(
    client: Client, database: str, unknown_task: Any
) -> None:
    old, new = old_and_new(database)
    tasks = old.catalog.tasks
    new.catalog.unknown_task = unknown_task
    for number in range(41):
        tasks["invoice"].send(number)
    old.send_many([tasks["ship"].call("here")] * 3)
    tasks["ship"].using(delay=3600).send("there")
    tasks["retired"].send()
    tasks["move"].send("there")
    client.send("orders", "no task")
    client.send("orders", {"task": "ship", "args": {"address": secrets.token_hex(20_000)}})
    client.schedules.create("nightly", "orders", "0 3 * * *", {"task": "invoice", "args": {}})
    client.signals.park("orders", "x", {"task": "ship", "args": {"adress": "here"}}, wait_for=60)
    client.signals.park(
        "orders", "y", {"task": "ship", "args": {"address": secrets.token_hex(20_000)}}, wait_for=60
    )
    client.signals.send("orders", "z", "no message")
    checked = new.check()
    end = "would fail" if unknown_task == "fail" else "would wait for a worker that has it"
    assert sorted(said(checked)) == [
        "1 delayed `ship` message has `adress` and no `address`: would fail",
        "1 parked `ship` message has `adress` and no `address`: would fail",
        "1 parked message was not read (larger than 16,384 bytes, or encrypted)",
        "1 scheduled `invoice` message has no `number`: would fail",
        "1 waiting `move` message has arguments that do not fit (to: Input should be an object): would fail",
        f"1 waiting message is for task `retired`, which this program does not have: {end}",
        "1 waiting message is not for a task: would fail",
        "1 waiting message was not read (larger than 16,384 bytes, or encrypted)",
        "3 waiting `ship` messages have `adress` and no `address`: would fail",
        "41 waiting `invoice` messages have no `currency`; it has a default: fine",
    ]
    assert len(said(checked, breaking=True)) == 7
    assert {each.verdict for each in old.check()} == {"fits", "fails", "unread"}
    old.close()


def test_first_messages_that_wait_for_a_signal_are_read(client: Client, database: str) -> None:
    _, new = old_and_new(database)
    for number in range(1_001):
        client.signals.park(
            "orders", f"{number:04}", {"task": "retired" if number == 1_000 else "ship"}, wait_for=60
        )
    assert said(new.check()) == [
        "1,000 parked `ship` messages have no `address`: would fail",
        "more than 1,000 messages for orders are parked for a signal: the first ones by name were read",
    ]


def test_dead_letters_would_fail_again_and_break_nothing(client: Client, database: str) -> None:
    old, new = old_and_new(database)
    old.catalog.tasks["ship"].send("here")
    client.reject(client.receive("orders"), error="no")
    [found] = new.check()
    assert (
        found.sentence
        == "1 dead `ship` message has `adress` and no `address`: would fail again after a redrive"
    )
    assert not found.is_breaking
    old.close()


def test_what_senders_noted_tells_what_the_messages_read_do_not_show(client: Client, database: str) -> None:
    old, new = old_and_new(database)
    tasks = old.catalog.tasks
    old.send_many([tasks["invoice"].call(0) for _ in range(15)])
    old.send_many([tasks["ship"].call("here"), tasks["move"].call("x"), tasks["retired"].call()])
    old.send_many([tasks["invoice"].call(0) for _ in range(60)])
    shown = [each.partition(",")[0] for each in said(new.check(limit=20))]
    assert shown[0] == "20 waiting `invoice` messages have no `currency`; it has a default: fine"
    assert shown[1].startswith("20 of 78 messages of orders were read")
    assert sorted(shown[2:]) == [
        "`move` was sent with `to` as string",
        "`ship` was sent with `adress` and no `address`",
        "task `retired`",
    ]
    assert len(said(new.check(limit=20), breaking=True)) == 3
    # All messages that are left were sent long after these shapes.
    with client.transaction() as transaction:
        transaction.connection.execute(
            "update spanmq_core.task_shape set noted_at = now() - interval '1 hour'"
        )
    assert said(new.check(limit=20), breaking=True) == []
    old.close()


def test_task_that_encrypts_notes_no_names_of_arguments(
    client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = old_and_new(database)
    old.catalog.tasks["ship"].send("plain")
    assert [each.task for each in client.inspect.task_shapes("orders")] == ["ship"]
    monkeypatch.setenv("SPANMQ_ENCRYPTION_KEYS", f"k1 {base64.b64encode(bytes(32)).decode()}")
    sealed, _ = old_and_new(database)
    sealed.catalog.tasks["move"].send("sealed")
    assert [each.task for each in client.inspect.task_shapes("orders")] == ["ship"]
    sealed.close()
    old.close()


async def test_send_notes_each_shape_once_and_fails_for_no_note(client: Client, database: str) -> None:
    for _ in range(3):
        shop.mail.send("ada@shop")
        await shop.mail.send_async("ada@shop")
        await shop.ship.send_async(Order(number=1, day=date(2026, 1, 2)))
    found = [(each.task, each.shape, each.may_wait) for each in client.inspect.task_shapes("mail")]
    assert found == [("mail", {"to": "string"}, True)]
    [noted] = client.inspect.task_shapes("orders")
    assert noted.shape == {"order": "object"}
    with client.transaction() as transaction:
        transaction.connection.execute("alter table spanmq_core.task_shape rename to gone")
    with client.transaction() as transaction:
        shop.mail.using(connection=transaction.connection).send("ada@shop", 2)
        # The error of the note has not ended the caller's transaction.
        shop.mail.using(connection=transaction.connection).send("ada@shop", weight=2)
    assert len(client.peek("mail", 100)) == 8


async def test_worker_says_once_what_is_queued_and_would_fail(
    client: Client, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = old_and_new(database)
    old.catalog.tasks["ship"].using(delay=3600).send("here")
    found = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Found(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("queued_calls_fail queue=orders task=ship"):
                loop.call_soon_threadsafe(found.set)

    handler = Found()
    logging.getLogger("spanmq.tasks").addHandler(handler)
    try:
        async with new.running():
            async with asyncio.timeout(WAIT_SECONDS):
                await found.wait()
    finally:
        logging.getLogger("spanmq.tasks").removeHandler(handler)
    assert caplog.text.count("queued_calls_fail") == 1
    assert "1 delayed `ship` message has `adress` and no `address`: would fail" in caplog.text
    old.close()


@pytest.mark.parametrize("ordered", [False, True])
async def test_unknown_task_is_left_for_a_worker_that_has_it(
    client: Client, database: str, caplog: pytest.LogCaptureFixture, ordered: bool
) -> None:
    client.queues.set_policy("orders", ordered=ordered)
    done: list[str] = []
    ahead = Tasks("orders", dsn=database)

    @ahead.task(name="known")
    async def known_there(name: str) -> None:
        done.append(name)

    @ahead.task(name="new")
    async def new_there(name: str) -> None:
        done.append(name)

    behind = Tasks("orders", dsn=database, unknown_task="defer")
    seen: list[str] = []

    @behind.on_handle
    async def watch(message: Any, call_next: Any) -> Any:
        seen.append(message.body["args"]["name"])
        return await call_next(message)

    @behind.task
    async def known(name: str) -> None:
        done.append(name)

    settled: asyncio.Queue[MessageSettled] = asyncio.Queue()

    def observe(event: object) -> None:
        if isinstance(event, MessageSettled):
            settled.put_nowait(event)

    send = ahead.catalog.tasks
    first = send["new"].using(group="a").send("first").message_id
    send["known"].using(group="a").send("second")
    send["known"].using(group="b").send("other")
    async with behind.running(observers=[observe], concurrency=1):
        outcomes: dict[int, set[str]] = {}
        async with asyncio.timeout(WAIT_SECONDS):
            while not (outcomes.get(first) and "other" in done and (ordered or "second" in done)):
                event = await settled.get()
                outcomes.setdefault(event.message_id, set()).add(event.outcome)
    assert outcomes[first] == {"released"}
    # Its group waits for it where groups are ordered.
    assert "first" not in seen
    assert ("second" in done) is not ordered
    [waiting] = [each for each in client.peek("orders") if each.message_id == first]
    assert waiting.attempt == 0
    assert caplog.text.count("task_unknown queue=orders task=new deferred=True") == 1
    async with ahead.running(observers=[observe]):
        async with asyncio.timeout(WAIT_SECONDS):
            while len(done) < 3:
                await settled.get()
    assert done.index("first") < done.index("second") if ordered else "first" in done
    ahead.close()


def test_deferred_message_is_claimed_seldom(client: Client, database: str) -> None:
    behind = Tasks("orders", dsn=database, unknown_task="defer")

    @behind.task
    async def known() -> None: ...

    client.send("orders", {"task": "new"})
    [message] = client.receive("orders")
    handling, error = Handling(behind.catalog), errors.UnknownTaskError("no task")
    delays = [
        handling.judge(error, replace(message, enqueued_at=message.enqueued_at - timedelta(seconds=age)))
        for age in (0, 10, 3600)
    ]
    assert delays == [Released(1.0), Released(8.0), Released(64.0)]


async def test_deferred_message_is_hidden_without_an_attempt_unless_its_lease_is_lost(
    client: Client, database: str
) -> None:
    client.send("orders", {"task": "new"})
    [message] = client.receive("orders")
    defer = settlement(Leased("orders", message.lease_id or 0, message.message_id), Released(3600.0))
    async with AsyncClient(database) as other:
        assert [each.outcome for each in await defer(other)] == ["released"]
        [waiting] = client.peek("orders")
        assert waiting.attempt == 0
        assert client.inspect.explain("orders", waiting.message_id)[0].code == "delayed"
        client.set_vt("orders", waiting.message_id, 0)
        [taken] = client.receive("orders", lease=3600)
        assert [each.outcome for each in await defer(other)] == ["stale"]
    assert [each.outcome for each in client.ack(taken)] == ["acked"]
