"""Tasks in a worker: what is passed to them, what is acked with what, and what becomes of failures."""

import asyncio
import logging
import threading
from contextvars import ContextVar
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker
from tests.patience import WAIT_SECONDS
from tests.recorded import Recorded, context_of
from tests.tasks import shop
from tests.tasks.shop import Item, Order, Speed, done, tasks, working
from tests.worker.running import Record, Running

from spanmq import Client, Message
from spanmq.errors import HandlerStuckError, QueueNotFoundError
from spanmq.tasks import GIVEN, Call, Retry, Tasks
from spanmq.testing import drain_async

Engines = tuple[Engine, AsyncEngine]
ORDER = Order(number=17, day=date(2026, 11, 23), items=(Item("pen", Decimal("1.10")),))


def numbers(client: Client) -> list[int]:
    with client.transaction() as transaction:
        rows = transaction.connection.execute("select number from shipped order by number").fetchall()
    return [number for (number,) in rows]


async def test_arguments_come_back_as_they_were_sent(client: Client) -> None:
    async with working() as outcomes:
        await shop.ship.send_async(ORDER, speed=Speed.FAST)
        shop.mail.send("ada@shop")
        client.send("orders", {"task": "send_out", "args": {"order": {"number": 1, "day": "2026-01-02"}}})
        assert await outcomes.all(3) == ["acked"] * 3
    assert sorted(done, key=str) == [
        ("mail", "ada@shop", 0.5, True),
        ("ship", Order(number=1, day=date(2026, 1, 2)), Speed.SLOW, 1),
        ("ship", ORDER, Speed.FAST, 1),
    ]
    assert shop.mail("bob") == "bob"


async def test_writes_steps_and_ack_are_one_commit(client: Client) -> None:
    async with working() as outcomes:
        shop.begin.send(2)  # then store, which sends two mails
        shop.store_plain.send(3)
        assert await outcomes.all(5) == ["acked"] * 5
        shop.store.send(-1)
        failed = await outcomes.next()
        assert (failed.task, failed.error) == ("store", "a number below 0")
    assert numbers(client) == [2, 3]
    assert sorted(to for _, to, *_ in done) == ["2@shop", "plain"]
    assert client.queues.metrics("mail").length == 1


tenant_of_task = ContextVar("tenant", default="none")
FAILURES = {
    "other": ["retrying", "dead"],
    "mapped": ["dead"],
    "give up": ["dead"],
    "later": ["retrying", "acked"],
    "reject": ["dead"],
}


async def test_calls_beside_other_values_are_refused(client: Client, own: Tasks) -> None:
    @own.task
    async def first() -> list[Any]:
        return [last.call(), None]

    @own.task
    async def last() -> None: ...

    await first.send_async()
    with pytest.raises(TypeError, match="calls and other values"):
        await drain_async(own)
    assert [message.body["task"] for message in client.peek("orders")] == ["first"]
    await own.close_async()


async def test_failures_are_settled_by_the_rules_of_the_task(client: Client) -> None:
    async with working() as outcomes:
        for how, expected in FAILURES.items():
            shop.fail.send(how)
            # A retry at once may be settled before its first attempt is reported.
            assert sorted([(await outcomes.next()).outcome for _ in expected]) == sorted(expected), how
        shop.hang.send()
        assert await outcomes.all(2) == ["dead", "retrying"]
    categories = {letter.error: letter.category for letter in client.dead_letters.list("orders")}
    assert categories["'mapped'"] == "BUSINESS"
    assert categories["never"] == "PERMANENT"
    assert next(text for text in categories if text and "took longer" in text)


@pytest.mark.parametrize("pause", [-1, float("nan"), float("inf"), "soon"])
async def test_task_whose_backoff_is_not_a_duration_is_retried_by_the_policy(
    client: Client, database: str, pause: Any
) -> None:
    client.queues.set_policy("orders", backoff_base=0.01, max_attempts=2)
    broken = Tasks("orders", dsn=database, retry=Retry(backoff=lambda attempt: pause))

    @broken.task
    async def divide() -> None:
        raise ZeroDivisionError

    divide.send()
    async with working(broken) as outcomes:
        assert await outcomes.all(2) == ["dead", "retrying"]
    [letter] = client.dead_letters.list("orders")
    assert "backoff" in (letter.error or "")
    [failure, _] = client.inspect.failures("orders", letter.message_id)
    assert "ZeroDivisionError" in (failure.traceback or "")


@pytest.mark.parametrize(("pattern", "category"), [(None, "UNKNOWN"), ("no such", "BUSINESS")])
async def test_task_whose_attempts_are_used_up_is_not_permanent_unless_a_rule_says_so(
    client: Client, database: str, pattern: str | None, category: str
) -> None:
    if pattern is not None:
        client.dead_letters.categories.set_rule("all", category, error=pattern)
        client.dead_letters.categories.set_policy(category, {"retries": True})
    tired = Tasks("orders", dsn=database, retry=Retry(max_attempts=2, backoff=0.0))

    @tired.task
    async def find() -> None:
        raise LookupError("no such order")

    find.send()
    async with working(tired) as outcomes:
        assert await outcomes.all(2) == ["dead", "retrying"]
    [letter] = client.dead_letters.list("orders")
    assert (letter.category, letter.attempts) == (category, 2)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"task": "ship", "args": {"order": {"number": "x", "day": "2026-01-02"}}}, "order.number: Input sh"),
        ({"task": "ship", "args": {"speed": "slow"}}, "order: Field required"),
        ({"task": "mail", "args": {"to": "a", "cc": "b"}}, "cc: Extra inputs are not permitted"),
        ({"task": "mail", "args": ["a"]}, "arguments: Input should be a valid dictionary"),
        ({"task": "mail"}, "to: Field required"),
        ({"job": 1}, "the message is not for a task"),
        (17, "the message is not for a task"),
    ],
)
async def test_body_that_does_not_fit_is_a_dead_letter(client: Client, body: Any, error: str) -> None:
    client.send("orders", body)
    async with working() as outcomes:
        assert (await outcomes.next()).outcome == "dead"
    [letter] = client.dead_letters.list("orders")
    assert letter.category == "PERMANENT"
    assert error in (letter.error or "")
    assert done == []


async def test_unknown_task_waits_for_a_worker_that_has_it(client: Client, database: str, own: Tasks) -> None:
    client.queues.set_policy("orders", backoff_base=0.01)
    # The limit of a task is not that of a message for a task that nobody knows.
    older = Tasks("orders", dsn=database, retry=Retry(max_attempts=1))
    handled = threading.Event()

    @own.task
    def arrive(place: str, message: Message = GIVEN) -> None:
        handled.set()

    arrive.send("here")
    async with working(older) as outcomes:
        event = await outcomes.next()
    assert (event.outcome, event.error_class) == ("retrying", "spanmq.errors.UnknownTaskError")
    assert "no task 'arrive'" in (event.error or "")
    async with working(own) as outcomes:
        assert (await outcomes.next()).outcome == "acked"
    assert handled.is_set()


async def test_session_of_sqlalchemy_acks(client: Client, database: str, engines: Engines) -> None:
    engine, async_engine = engines
    with_sessions = Tasks(
        "orders",
        dsn=database,
        session=sessionmaker(engine).begin,
        async_session=async_sessionmaker(async_engine).begin,
    )

    @with_sessions.task
    def plain(number: int, session: Session = GIVEN) -> object:
        session.execute(text("insert into shipped values (:number)"), {"number": number})
        return ending.call(number + 1)

    @with_sessions.task
    async def ending(number: int, session: AsyncSession = GIVEN) -> None:
        await session.execute(text("insert into shipped values (:number)"), {"number": number})
        if number < 0:
            raise ValueError("below 0")

    async with working(with_sessions) as outcomes:
        plain.send(5)
        assert await outcomes.all(2) == ["acked"] * 2
        ending.send(-1)
        assert (await outcomes.next()).outcome == "retrying"
    assert numbers(client) == [5, 6]
    with_sessions.close()


async def test_session_whose_end_does_not_commit_is_refused(
    client: Client, database: str, engines: Engines
) -> None:
    engine, async_engine = engines
    mistaken = Tasks(
        "orders", dsn=database, session=sessionmaker(engine), async_session=async_sessionmaker(async_engine)
    )

    @mistaken.task
    def plain(session: Session = GIVEN) -> None:
        done.append("plain")

    @mistaken.task
    async def awaited(session: AsyncSession = GIVEN) -> None:
        done.append("awaited")

    plain.send()
    awaited.send()
    async with working(mistaken) as outcomes:
        errors = [(await outcomes.next()).error or "" for _ in range(2)]
    assert all("session does not commit" in error for error in errors), errors
    assert done == []
    mistaken.close()


async def test_middleware_surrounds_tasks_and_sends(own: Tasks) -> None:
    seen: list[Any] = []

    @own.on_handle
    async def outer(message: Message, call_next: Any) -> Any:
        seen.append(("outer", (message.headers or {}).get("tenant")))
        try:
            return await call_next(message)
        except ZeroDivisionError:
            seen.append("failed")
            raise

    @own.on_handle
    async def inner(message: Message, call_next: Any) -> Any:
        seen.append("inner")
        token = tenant_of_task.set("bob")
        result = await call_next(message)
        tenant_of_task.reset(token)
        seen.append(result)
        return result

    @own.on_send
    def tenant(calls: Any, call_next: Any) -> Any:
        seen.append("send")
        return call_next([replace(call, headers={"tenant": "ada"}) for call in calls])

    @own.task(max_attempts=1)
    def divide(number: int) -> float:
        seen.append(tenant_of_task.get())  # in a thread
        return 1 / number

    divide.send(2)
    async with working(own) as outcomes:
        await outcomes.next()
        await divide.send_async(0)
        assert (await outcomes.next()).outcome == "dead"
    begin = ["send", ("outer", "ada"), "inner", "bob"]
    assert seen == [*begin, 0.5, *begin, "failed"]


async def test_task_and_its_step_are_in_the_trace_of_the_send(client: Client, recorded: Recorded) -> None:
    async with working() as outcomes:
        with recorded.tracer.start_as_current_span("request") as request:
            shop.begin.send(1)  # then store
        assert await outcomes.all(2) == ["acked"] * 2
    spans = recorded.all("process orders")
    assert [context_of(span).trace_id for span in spans] == [request.get_span_context().trace_id] * 2


async def test_step_of_a_plain_task_passes_the_middleware_too(own: Tasks) -> None:
    tenants: list[Any] = []

    @own.on_send
    def tenant(calls: Any, call_next: Any) -> Any:
        return call_next([replace(call, headers={"tenant": "ada"}) for call in calls])

    @own.task
    def last(number: int, message: Message = GIVEN) -> None:
        tenants.append((number, (message.headers or {})["tenant"]))

    @own.task
    def first(number: int) -> Call:
        return last.call(number)

    first.send(1)
    async with working(own) as outcomes:
        assert await outcomes.all(2) == ["acked"] * 2
    assert tenants == [(1, "ada")]


async def test_timeout_of_a_plain_task_frees_its_slot(own: Tasks) -> None:
    release = threading.Event()

    @own.task(timeout=0.05, max_attempts=1)
    def wait() -> None:
        release.wait()

    @own.task
    def other() -> None:
        release.set()

    async with working(own, concurrency=1) as outcomes:
        wait.send()
        assert (await outcomes.next()).outcome == "dead"
        other.send()
        assert (await outcomes.next()).outcome == "acked"


async def test_worker_runs_plain_tasks_beside_async_ones_again(own: Tasks) -> None:
    threads: list[threading.Thread] = []

    @own.task
    def plain() -> None:
        threads.append(threading.current_thread())

    @own.task
    async def awaited() -> None: ...

    record = Record()
    worker = own.worker(observers=[record])
    for run in (1, 2):
        plain.send()
        # In a thread of its own, with another event loop each time.
        running = Running(worker, record)
        try:
            assert record.outcomes(run) == ["acked"] * run
        finally:
            await asyncio.to_thread(running.stop)
    for thread in threads:  # none stays when the worker has ended
        await asyncio.to_thread(thread.join, WAIT_SECONDS)
        assert not thread.is_alive()


async def test_worker_that_crashes_while_an_application_runs_is_told_at_once(own: Tasks) -> None:
    release = threading.Event()
    told = asyncio.Event()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            assert "HandlerStuckError" in self.format(record)
            told.set()

    @own.task(timeout=0.05)
    def wait() -> None:
        release.wait()

    async def application() -> None:
        async with own.running(concurrency=1), asyncio.timeout(WAIT_SECONDS):
            await own.send_many_async([wait.call(), wait.call()])
            await told.wait()

    handler = Told(logging.ERROR)
    logging.getLogger("spanmq").addHandler(handler)
    with pytest.raises(HandlerStuckError):
        await application()
    logging.getLogger("spanmq").removeHandler(handler)
    assert told.is_set()
    release.set()


async def test_worker_that_cannot_start_says_why(database: str) -> None:
    nowhere = Tasks("nowhere", dsn=database)
    with pytest.raises(QueueNotFoundError):
        async with nowhere.running():
            raise AssertionError("it has no queue")
    assert tasks.queues == ("orders", "mail")
