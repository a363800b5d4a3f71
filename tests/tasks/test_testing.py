"""What `spanmq.testing` has for the tests of programs, as such a test uses it."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from tests.tasks import shop
from tests.tasks.shop import Order, tasks

from spanmq import Client, Message, errors
from spanmq.push import Endpoint, push_worker
from spanmq.tasks import GIVEN, Retry, RetryAfter, Signal, Tasks, Wait
from spanmq.testing import (
    Clock,
    assert_runs,
    assert_sent,
    assert_visible,
    assert_waits,
    drain,
    drain_async,
    perform,
    perform_async,
    sent,
    webhook,
)

ORDER = Order(number=1, day=date(2026, 1, 2))


def test_drain_runs_everything_that_is_due(client: Client) -> None:
    shop.begin.send(2)
    shop.store_plain.send(3)
    shop.mail.using(delay=60).send("tomorrow")
    assert drain(tasks) == 5
    assert [message.body["args"]["to"] for message in sent(shop.mail)] == ["tomorrow", "later"]
    assert_sent(shop.mail, to="later")
    with pytest.raises(AssertionError, match="was not sent"):
        assert_sent(shop.mail, to="2@shop")
    shop.ship.send(ORDER)
    assert assert_sent(shop.ship, order=ORDER)[0].attempt == 0


async def test_drain_raises_what_failed(client: Client) -> None:
    shop.store.send(-1)
    with pytest.raises(ValueError, match="below 0"):
        await drain_async(tasks)
    client.queues.purge("orders")
    shop.fail.send("other")  # its retry is due at once
    for _ in range(2):
        with pytest.raises(OSError, match="broken"):
            await drain_async(tasks)
    shop.fail.send("give up")
    shop.fail.send("mapped")
    with pytest.raises(ExceptionGroup) as raised:
        await drain_async(tasks)
    assert {type(each) for each in raised.value.exceptions} == {ZeroDivisionError, KeyError}
    client.send("orders", {"task": "ship", "args": {}})
    assert await drain_async(tasks, raises=False) == 1
    assert len(client.dead_letters.list("orders")) == 4
    shop.count.send(1)
    shop.begin.send(1)
    with pytest.raises(AssertionError, match="more than 2"):
        await drain_async(tasks, limit=2)
    await tasks.close_async()


def test_perform_runs_the_middleware_too(own: Tasks) -> None:
    seen: list[Any] = []

    @own.on_send
    def tenant(calls: Any, call_next: Any) -> Any:
        from dataclasses import replace

        return call_next([replace(call, headers={"tenant": "ada"}) for call in calls])

    @own.on_handle
    async def note(message: Message, call_next: Any) -> Any:
        seen.append((message.headers or {})["tenant"])
        return await call_next(message)

    @own.task
    def double(number: int, *, connection: Any = GIVEN) -> int:
        connection.execute("insert into shipped values (%s)", [number])
        return number * 2

    @own.task
    async def half(number: int) -> float:
        return number / 2

    doubled: int = perform(double, 4)
    halved: float = perform(half, 4)
    assert (doubled, halved, seen) == (8, 2.0, ["ada", "ada"])
    with pytest.raises(errors.TaskArgumentsError):
        perform(double, "x")  # type: ignore[call-overload]


@pytest.mark.parametrize("error", [StopIteration, KeyboardInterrupt, ValueError])
def test_whatever_a_plain_task_raises_ends_the_test(own: Tasks, error: type[BaseException]) -> None:
    @own.task
    def stop() -> None:
        raise error

    expected = RuntimeError if error is StopIteration else error
    with pytest.raises(expected):
        perform(stop)


async def test_perform_in_async_code(client: Client) -> None:
    await perform_async(shop.ship, ORDER)
    assert shop.done == [("ship", ORDER, shop.Speed.SLOW, 1)]


def test_time_moves_for_delays_retries_and_periods(
    spanmq_client: Client, spanmq_tasks: Callable[[Tasks], Tasks]
) -> None:
    own = spanmq_tasks(Tasks("orders"))
    ran: list[Any] = []

    # Half an hour from now: none falls due while the test runs.
    minute = (datetime.now(UTC).minute + 30) % 60

    @own.periodic(f"{minute} * * * *", arguments={"kind": "hourly"})
    @own.task
    def report(kind: str) -> None:
        ran.append(kind)

    clock = Clock(own)
    report.using(delay=timedelta(hours=5)).send("delayed")
    assert drain(own) == 0
    clock.advance(timedelta(hours=3))
    assert drain(own) == 3
    clock.advance(timedelta(hours=2))
    assert drain(own) == 3
    assert sorted(ran) == ["delayed", *["hourly"] * 5]
    retried = spanmq_tasks(Tasks("orders"))

    @retried.task(retry=Retry(backoff=30))
    def stumble(*, message: Message = GIVEN) -> None:
        if message.attempt < 3:
            raise ValueError("not yet")

    stumble.send()
    for _ in range(2):
        assert drain(retried, raises=False) == 1
        assert drain(retried) == 0
        Clock(retried).advance(timedelta(minutes=1))
    assert drain(retried) == 1
    assert spanmq_client.queues.metrics("orders").length == 0


def test_message_that_no_receive_returns_is_named_with_its_reasons(client: Client) -> None:
    visible = client.send("orders", 1)
    assert_visible(client, "orders", visible)
    delayed = client.send("orders", 2, delay=60)
    with pytest.raises(
        AssertionError, match=f"message {delayed} of orders is not delivered: It is delayed. No worker"
    ):
        assert_visible(client, "orders", delayed)


def test_body_of_an_earlier_version_runs_or_is_named() -> None:
    assert_runs(tasks, {"task": "send_out", "args": {"order": {"number": 1, "day": "2026-01-02"}}})
    assert_runs(tasks, {"task": "mail", "args": {"to": "ada"}}, queue="mail")
    for body, reason in (
        ({"task": "mail", "args": {"too": "ada"}}, "`too` and no `to`"),
        ({"task": "none"}, "this program does not have"),
        ([1], "not for a task"),
    ):
        with pytest.raises(AssertionError, match=reason):
            assert_runs(tasks, body)


def test_time_moves_for_waits(spanmq_tasks: Callable[[Tasks], Tasks]) -> None:
    own = spanmq_tasks(Tasks("orders"))
    decided: list[Any] = []

    @own.task
    def ask(name: str, hours: int) -> Wait:
        return Wait(name, timeout=timedelta(hours=hours), then=decide.call(name))

    @own.task
    def decide(name: str, *, signal: Signal = GIVEN) -> None:
        decided.append((name, signal.body, signal.timed_out))

    clock = Clock(own)
    ask.send("short", 2)
    ask.send("long", 3)
    drain(own)
    clock.advance(timedelta(hours=1))
    ask.send("late", 2)
    assert drain(own) == 1
    assert assert_waits(own, "short").body == {"task": "decide", "args": {"name": "short"}}
    clock.advance(timedelta(hours=1))
    assert drain(own) == 1
    with pytest.raises(AssertionError, match="no task waits for the signal 'short' in orders"):
        assert_waits(own, "short")
    own.signal("long", 17)
    assert own.signal("late", timed_out=True) == "released"
    assert own.signal("late", timed_out=True) == "unknown"
    assert drain(own) == 2
    assert sorted(decided) == [("late", None, True), ("long", 17, False), ("short", None, True)]


def test_task_that_asks_for_a_pause_runs_when_the_time_was_moved(
    spanmq_client: Client, spanmq_tasks: Callable[[Tasks], Tasks]
) -> None:
    own = spanmq_tasks(Tasks("orders"))
    answers = [429, 200]

    @own.task
    def charge() -> None:
        if answers.pop(0) == 429:
            raise RetryAfter(60)

    charge.send()
    with pytest.raises(RetryAfter):
        drain(own)
    assert drain(own) == 0
    Clock(own).advance(timedelta(seconds=60))
    assert drain(own) == 1
    assert (answers, spanmq_client.queues.metrics("orders").length) == ([], 0)


def test_webhook_takes_signed_requests_only(spanmq_client: Client, spanmq_database: str) -> None:
    spanmq_client.queues.create("orders")
    spanmq_client.send_batch("orders", [{"n": n} for n in range(2)])
    with webhook() as hook:

        def push(endpoint: Endpoint) -> None:
            options: Any = {"until_empty": True, "concurrency": 1, "allow": ["127.0.0.0/8"]}
            push_worker("orders", endpoint, dsn=spanmq_database, **options).run()

        hook.answers = [200, 410]
        push(hook.endpoint)
        assert [(each.body, each.status) for each in hook.received] == [({"n": 0}, 200), ({"n": 1}, 410)]
        assert len(spanmq_client.dead_letters.list("orders")) == 1
        spanmq_client.send("orders", 3)
        with webhook() as other:
            push(Endpoint(hook.url, ["whsec_" + "A" * 44]))
            assert (hook.refused, len(hook.received), other.received) == (1, 2, [])
