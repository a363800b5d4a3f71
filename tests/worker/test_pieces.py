"""Pieces that decide or order, without a database: settings, line, log lines, time limits."""

import asyncio
import inspect
import logging
import threading
from dataclasses import fields
from typing import Any, get_type_hints

import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.patience import WAIT_SECONDS

from spanmq import Worker
from spanmq.cli import work
from spanmq.client.dsn import Timeouts, with_timeouts
from spanmq.errors import InvalidArgumentError
from spanmq.worker.condition import Condition
from spanmq.worker.event import (
    BreakerClosed,
    ConnectionBroken,
    ConnectionRestored,
    Event,
    EventBus,
    MessageSettled,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
    name_of,
)
from spanmq.worker.job import Job, Lease
from spanmq.worker.log import line_of, write
from spanmq.worker.running.limiter import ConcurrencyLimiter
from spanmq.worker.running.threads import Threads
from spanmq.worker.setting import Settings, WorkerOptions, WorkerSettings


def ignore(message: Any) -> None: ...


@pytest.mark.parametrize(
    "setting",
    [
        {"concurrency": 0},
        {"concurrency": True},
        {"concurrency": 10_001},
        {"batch": 0},
        {"batch": 1.5},
        {"lease": 0},
        {"lease": "30"},
        {"lease": float("nan")},
        {"lease": 60, "lease_max": 30},
        {"handler_timeout": 0},
        {"grace": -1},
        {"gather": -1},
        {"poll_interval": 0},
        {"patience": 0},
        {"slow_after": 0},
        {"slow_share": 0},
        {"slow_share": 1.1},
        {"slow_share": True},
        {"categories": {ValueError: "BAD"}},
        {"categories": {"ValueError": "PERMANENT"}},
        {"guaranteed": {"orders": 0}},
        {"guaranteed": {"orders": 6, "mail": 5}},
        {"no_such_setting": 1},
    ],
    ids=str,
)
def test_setting_that_makes_no_sense_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="|".join(("category", *setting))):
        Worker("orders", ignore, dsn="", **setting)


def test_worker_needs_queues_each_once_and_a_handler() -> None:
    for queues in ([], ["orders", "orders"]):
        with pytest.raises(InvalidArgumentError, match="queues"):
            Worker(queues, ignore, dsn="")
    with pytest.raises(InvalidArgumentError):
        Worker("orders", "ignore", dsn="")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="DSN"):
        Worker("orders", ignore, dsn="no dsn at all")


def test_keyword_arguments_of_a_worker_are_its_settings() -> None:
    assert get_type_hints(WorkerSettings) == get_type_hints(Settings)
    parameters = inspect.signature(Worker).parameters.keys() - {"queues", "handler", "settings"}
    assert WorkerOptions.__annotations__.keys() - WorkerSettings.__annotations__.keys() == parameters


def test_defaults_make_sense() -> None:
    assert Settings().patience_seconds == 35


def test_options_of_the_command_have_the_defaults_of_the_worker() -> None:
    options = inspect.signature(work.worker).parameters
    settings = {each.name: each.default for each in fields(Settings)}
    shared = options.keys() & settings.keys()
    assert {"concurrency", "batch", "lease", "lease_max", "handler_timeout", "grace", "pooler"} <= shared
    assert {name: options[name].default for name in shared} == {name: settings[name] for name in shared}


def test_connections_bring_their_time_limits_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGOPTIONS", raising=False)
    made = conninfo_to_dict(with_timeouts("host=a", Timeouts(), application_name="x"))
    isolation = "-c default_transaction_isolation=read\\ committed"
    assert made["options"] == (
        "-c lock_timeout=5000 -c statement_timeout=30000 -c idle_in_transaction_session_timeout=60000"
        f" {isolation}"
    )
    # What the user says comes later, and so counts; what the SQL relies on comes last.
    own = conninfo_to_dict(
        with_timeouts("options='-c lock_timeout=1' application_name=y", Timeouts(), application_name="x")
    )
    assert str(own["options"]).endswith(f" -c lock_timeout=1 {isolation}")
    assert own["application_name"] == "y"
    monkeypatch.setenv("PGOPTIONS", "-c jit=off")
    assert str(conninfo_to_dict(with_timeouts("", Timeouts(), application_name="x"))["options"]).endswith(
        f"jit=off {isolation}"
    )
    monkeypatch.delenv("PGOPTIONS")
    assert conninfo_to_dict(with_timeouts("host=a", None))["options"] == isolation
    assert "options" not in conninfo_to_dict(with_timeouts("host=a", Timeouts(), pooler=True))
    with pytest.raises(InvalidArgumentError, match="lock"):
        Timeouts(lock=-1)


def job(group: str | None, lease: Lease) -> Job:
    return Job([], lease, group)


def test_jobs_of_a_group_go_one_after_the_other() -> None:
    limiter = ConcurrencyLimiter()
    lease = Lease("orders", 1, range(4), 0.0, 30.0)
    first, second, other, free = (job(group, lease) for group in ("a", "a", "b", None))
    assert [limiter.add(each) for each in (first, second, other, free)] == [True, False, True, True]
    assert limiter.done(first, succeeded=True) == (second, [])
    assert limiter.done(second, succeeded=True) == (None, [])
    assert limiter.add(job("a", lease))


def test_failure_drops_what_the_same_lease_holds_of_the_group() -> None:
    limiter = ConcurrencyLimiter()
    lease, later = Lease("orders", 1, range(2), 0.0, 30.0), Lease("orders", 2, range(1), 0.0, 30.0)
    first, second, third = job("a", lease), job("a", lease), job("a", later)
    assert [limiter.add(each) for each in (first, second, third)] == [True, False, False]
    assert limiter.done(first, succeeded=False) == (third, [second])
    assert not limiter.add(fourth := job("a", later))
    assert limiter.drain() == [fourth]


def test_jobs_of_a_kind_go_up_to_its_limit_and_one_that_never_began_frees_no_place() -> None:
    limiter = ConcurrencyLimiter(lambda each: ("kind", 2))
    lease, other = Lease("orders", 1, range(4), 0.0, 30.0), Lease("mail", 2, range(1), 0.0, 30.0)
    first, second, third, fourth = (job(None, lease) for _ in range(4))
    last = job(None, other)
    jobs = (first, second, third, fourth, last)
    assert [limiter.add(each) for each in jobs] == [True, True, False, False, False]
    assert limiter.done(third) == (None, [])
    assert limiter.drain(lambda each: each.lease is other) == [last]
    assert limiter.done(first) == (third, [])
    assert limiter.done(second) == (fourth, [])
    assert limiter.done(third) == (None, [])
    assert limiter.drain() == []


def test_events_are_one_line_each() -> None:
    error, traceback = 'bad "thing"\nhere', "Traceback …\nKeyError"
    settled = MessageSettled("orders", 7, "retrying", 2, 0.25, "charge", None, "KeyError", error, traceback)
    assert line_of(settled) == (
        "message_settled queue=orders message_id=7 outcome=retrying attempt=2 seconds=0.25"
        ' task=charge error_class=KeyError error="bad \\"thing\\"\\nhere"'
    )
    assert line_of(WorkerStarted("host:1", ("a", "b"))) == "worker_started worker=host:1 queues=a,b"
    assert name_of(BreakerClosed("a")) == "breaker_closed"


@pytest.mark.parametrize(
    ("level", "attempt", "outcome", "is_shown"),
    [
        (logging.INFO, 1, "retrying", True),
        (logging.INFO, 2, "retrying", False),
        (logging.INFO, 9, "dead", True),
        (logging.DEBUG, 2, "retrying", True),
    ],
)
def test_first_and_last_failure_of_a_message_are_logged_with_the_traceback(
    caplog: pytest.LogCaptureFixture, level: int, attempt: int, outcome: str, is_shown: bool
) -> None:
    caplog.set_level(level, "spanmq.worker")
    trace = "Traceback …\nKeyError"
    write(MessageSettled("orders", 7, outcome, attempt, 0.25, "charge", None, "KeyError", "'sku'", trace))
    [record] = [each for each in caplog.records if each.name == "spanmq.worker"]
    assert "task=charge" in record.getMessage()
    assert record.getMessage().endswith("\nTraceback …\nKeyError") == is_shown
    assert ("\n" in record.getMessage()) == is_shown


def test_observer_that_fails_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[object] = []

    def fail(event: object) -> None:
        raise RuntimeError("broken observer")

    EventBus([fail, seen.append]).emit(BreakerClosed("orders"))
    assert seen == [BreakerClosed("orders")]
    assert "observer_failed event=breaker_closed" in caplog.text


class Listening:
    """An observer that says whether it looks at the routine."""

    def __init__(self) -> None:
        self.is_curious = False

    def __call__(self, event: Event) -> None: ...

    def hears_routine(self) -> bool:
        return self.is_curious


def test_routine_is_told_while_anybody_looks_at_it() -> None:
    one, other = Listening(), Listening()
    seam = EventBus([one, other])
    assert not seam.hears_routine()
    other.is_curious = True
    assert seam.hears_routine()
    other.is_curious = False
    assert not seam.hears_routine()
    # One that does not say looks at everything.
    assert EventBus([one, lambda _: None]).hears_routine()
    assert not EventBus([]).hears_routine()


def test_log_looks_at_the_routine_at_the_level_of_debugging(caplog: pytest.LogCaptureFixture) -> None:
    for level, is_heard in ((logging.DEBUG, True), (logging.INFO, False)):
        caplog.set_level(level, "spanmq.worker")
        assert write.hears_routine() == is_heard
        assert EventBus([write]).hears_routine() == is_heard


def test_worker_is_ready_while_all_its_servers_answer_and_it_does_not_stop() -> None:
    condition = Condition()
    events: list[tuple[Event, str]] = [
        (WorkerStarted("worker", ("orders_0", "orders_1")), "ready"),
        (ConnectionBroken("gone", 1.0, "here"), "no connection"),
        (ConnectionBroken("gone", 1.0, "there"), "no connection"),
        (ConnectionBroken("gone", 2.0, "there"), "no connection"),
        (ConnectionRestored(3, "there"), "no connection"),
        (ConnectionRestored(2, "here"), "ready"),
        (ConnectionRestored(1, "there"), "ready"),
        (ConnectionBroken("gone", 1.0, "here"), "no connection"),
        (WorkerStopping("worker", "asked"), "stopping"),
        (ConnectionRestored(2, "here"), "stopping"),
        # One that is away as it stops is not away when it works again.
        (ConnectionBroken("gone", 1.0, "here"), "stopping"),
        (WorkerStopped("worker", 0), "stopping"),
        (WorkerStarted("worker", ("orders_0", "orders_1")), "ready"),
    ]

    async def observe() -> None:
        for event, state in events:
            condition(event)
            assert condition.readiness() == (state == "ready", state)

    asyncio.run(observe())


def test_function_that_ends_as_its_caller_is_cancelled_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def call() -> None:
        threads = Threads()
        begun, end, has_ended = asyncio.Event(), threading.Event(), threading.Event()
        loop = asyncio.get_running_loop()
        call_soon_threadsafe = loop.call_soon_threadsafe

        def function() -> None:
            call_soon_threadsafe(begun.set)
            end.wait(WAIT_SECONDS)

        def observed(*arguments: Any) -> asyncio.Handle:
            handle = call_soon_threadsafe(*arguments)
            has_ended.set()
            return handle

        task = asyncio.create_task(threads.call(function))
        await begun.wait()
        monkeypatch.setattr(loop, "call_soon_threadsafe", observed)
        # In one turn of the loop: the function ends first, and then its caller is cancelled.
        end.set()
        assert has_ended.wait(WAIT_SECONDS)
        task.cancel()
        await asyncio.wait([task], timeout=WAIT_SECONDS)
        assert task.cancelled()
        threads.close()

    asyncio.run(call())


def test_cancelled_caller_waits_for_its_function_and_a_caller_cancelled_twice_does_not() -> None:
    async def call() -> None:
        threads = Threads()
        begun, end = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def function() -> None:
            loop.call_soon_threadsafe(begun.set)
            end.wait(WAIT_SECONDS)
            raise ValueError("after its caller was cancelled")

        for is_twice in (True, False):
            begun.clear()
            task = asyncio.create_task(threads.call(function))
            await begun.wait()
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
            if is_twice:
                task.cancel()
            else:
                end.set()
            await asyncio.wait([task], timeout=WAIT_SECONDS)
            assert task.cancelled()
        threads.close()

    asyncio.run(call())
