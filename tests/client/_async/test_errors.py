"""Misuse and trouble: each gives its own error, and changes nothing."""

import pickle
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from math import inf, nan
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.client.concurrency import AsyncTasks
from tests.patience import WAIT_SECONDS, wait_until

import spanmq
from spanmq import errors
from spanmq.client import AsyncClient
from spanmq.client.concurrency import AsyncEvent, in_thread
from spanmq.model import Leased
from spanmq.testing import wait_until_waiting

Call = Callable[[Any], Awaitable[object]]
BAD_TOPICS = ["", "a..b", ".a", "a.", "a**", "a b", "x" * 256]
NAIVE = datetime(2063, 4, 5)


@pytest.fixture(scope="module")
async def native(module_database: str) -> AsyncIterator[AsyncClient]:
    """A client for calls that are refused and change nothing."""
    async with AsyncClient(module_database, timeouts=None) as client:
        await client.queues.create("orders")
        yield client


@pytest.fixture(scope="module")
async def foreign(module_upstream_database: str) -> AsyncIterator[AsyncClient]:
    """The same on upstream PGMQ."""
    async with AsyncClient(module_upstream_database) as client:
        await client.queues.create("orders")
        yield client


@pytest.fixture
def refusing(request: pytest.FixtureRequest) -> AsyncClient:
    client: AsyncClient = request.getfixturevalue(request.param)
    return client


both = pytest.mark.parametrize("refusing", ["native", "foreign"], indirect=True)


def on_both(common: list[Call], own: list[Call]) -> pytest.MarkDecorator:
    """Run a test with calls of PGMQ's interface on both schemas, and with our own on ours."""
    cases = [(schema, call) for schema in ("native", "foreign") for call in common]
    return pytest.mark.parametrize(
        ("refusing", "call"), [*cases, *(("native", call) for call in own)], indirect=["refusing"]
    )


def with_settings(dsn: str, **settings: str) -> str:
    """Return a DSN whose sessions begin with these settings."""
    return make_conninfo(dsn, options=" ".join(f"-c {name}={value}" for name, value in settings.items()))


# Names of queues.


@both
@pytest.mark.parametrize(
    "name", ["a" * 48, "a;drop", "it's", "a--b", "$a", 'x"); drop table pgmq.q_orders; --'], ids=repr
)
async def test_bad_name_is_refused(refusing: AsyncClient, name: str) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        await refusing.queues.create(name)
    assert caught.value.queue == name
    with pytest.raises(errors.SpanmqError):
        await refusing.send(name, 1)
    assert len(await refusing.queues.list()) == 1


@both
@pytest.mark.parametrize("name", ["a\0b", None, 5, b"orders"], ids=repr)
async def test_name_that_is_no_text_is_refused(refusing: AsyncClient, name: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        await refusing.queues.create(name)
    with pytest.raises(errors.InvalidArgumentError):
        await refusing.send(name, 1)


@on_both(
    [
        lambda client: client.send("nothing", 1),
        lambda client: client.send_batch("nothing", [1]),
        lambda client: client.send_batch("nothing", range(2_500)),
        lambda client: client.read("nothing"),
        lambda client: client.read("nothing", grouped="fill"),
        lambda client: client.pop("nothing"),
        lambda client: client.delete("nothing", 1),
        lambda client: client.archive("nothing", [1]),
        lambda client: client.set_vt("nothing", 1, 1),
        lambda client: client.queues.purge("nothing"),
        lambda client: client.queues.metrics("nothing"),
        lambda client: client.topics.bind("a.b", "nothing"),
        lambda client: client.admin.notifications.enable("nothing"),
    ],
    [
        lambda client: client.receive("nothing"),
        lambda client: client.peek("nothing"),
        lambda client: client.ack(Leased("nothing", 1, [1])),
        lambda client: client.cancel("nothing", [1]),
    ],
)
async def test_unknown_queue_is_named(refusing: AsyncClient, call: Call) -> None:
    with pytest.raises(errors.QueueNotFoundError) as caught:
        await call(refusing)
    assert (caught.value.queue, caught.value.message) == ("nothing", "queue 'nothing' does not exist")
    assert caught.value.function is not None


@pytest.mark.parametrize(
    ("message", "called", "queue", "missing"),
    [
        *(
            (f'relation "pgmq.q_{name}" does not exist', None, name, name)
            for name in ('a"b', 'a" b', "", "a b")
        ),
        # In any language of the server.
        ("Relation »pgmq.q_nothing« existiert nicht", None, "nothing", "nothing"),
        # Without its relations, also where the call was about another queue than the one that is missing.
        ('relation "pgmq.a_parent" does not exist', "orders", "orders", "parent"),
        ('relation "pgmq.q_orders_msg_id_seq" does not exist', "Orders", "Orders", "Orders"),
    ],
)
def test_unknown_queue_is_named_out_of_the_message_of_the_server(
    message: str, called: str | None, queue: str, missing: str
) -> None:
    error = errors.from_server("42P01", message, queue=called)
    assert isinstance(error, errors.QueueNotFoundError)
    assert (error.queue, error.message) == (queue, f"queue {missing!r} does not exist")


# Numbers and times.


@on_both(
    [
        *(lambda client, n=n: client.read("orders", n) for n in (-1, 2**31, None, 1.5, True, "1")),
        *(lambda client, t=t: client.read("orders", lease=t) for t in (-1, 2**31, nan, inf, "30")),
        lambda client: client.read("orders", wait=-1),
        *(lambda client, t=t: client.send("orders", 1, delay=t) for t in (-1, 1e300, 8e13, NAIVE, True)),
        lambda client: client.send_batch("orders", [1], delay=-1),
        lambda client: client.topics.send("orders", 1, delay=-1),
        *(lambda client, id_=id_: client.delete("orders", id_) for id_ in (2**63, None, "12", ["1"], [None])),
        lambda client: client.set_vt("orders", 1, -5),
        lambda client: client.admin.notifications.enable("orders", throttle=-1),
        *(lambda client, topic=topic: client.topics.bind(topic, "orders") for topic in (5, *BAD_TOPICS)),
        *(lambda client, topic=topic: client.topics.send(topic, 1) for topic in BAD_TOPICS),
    ],
    [
        lambda client: client.receive("orders", -1),
        lambda client: client.receive("orders", slots=0),
        lambda client: client.receive("orders", lease=1e12),
        lambda client: client.peek("orders", -1),
        lambda client: client.ack(Leased("orders", 2**63, [1])),
        lambda client: client.ack(Leased("orders", "1", [1])),  # type: ignore[arg-type]
        *(lambda client, id_=id_: client.results.wait("orders", id_) for id_ in (None, "12", 1.5, [None])),
        lambda client: client.queues.create("parts", partition_interval="every day"),
        lambda client: client.queues.create("parts", retention_interval=-1),
    ],
)
async def test_argument_that_means_nothing_is_refused(refusing: AsyncClient, call: Call) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        await call(refusing)
    assert (await refusing.queues.metrics("orders")).total_messages == 0


async def test_group_of_any_length_is_accepted(common: AsyncClient) -> None:
    long = "é" * 100_000
    await common.send("orders", 1, group=long)
    assert (await common.read("orders", grouped="fill"))[0].group == long


# The role and the server.


@pytest.mark.parametrize("setting", ["lock_timeout", "statement_timeout"])
async def test_timeout_of_the_server_is_a_cancelled_statement(
    client: AsyncClient, database: str, setting: str
) -> None:
    with psycopg.connect(database) as blocker:
        async with AsyncClient(with_settings(database, **{setting: "50ms"})) as hurried:
            blocker.execute("lock table spanmq_core.queue in access exclusive mode")
            with pytest.raises(errors.StatementCancelledError):
                await hurried.send("orders", 1)
    assert (await client.queues.metrics("orders")).length == 0


async def test_deadlock_is_a_conflict(client: AsyncClient, observer: psycopg.Connection[Any]) -> None:
    ready = AsyncEvent()

    async def lose(winner: int) -> None:
        async with client.transaction() as loser:
            await loser.connection.execute("set local deadlock_timeout = '10ms'")
            await loser.connection.execute("select pg_advisory_xact_lock(2)")
            ready.set()
            # Who waits looks for a deadlock once: by then the other one must be waiting.
            await in_thread(lambda: wait_until_waiting(observer, winner, timeout=WAIT_SECONDS))
            await loser.send("orders", 1)

    async with AsyncTasks() as tasks, client.transaction() as winner:
        # Only the other one looks for deadlocks in time.
        await winner.connection.execute("set local deadlock_timeout = '1h'")
        await winner.connection.execute("lock table spanmq_core.queue in access exclusive mode")
        losing = tasks.start(lose, winner.connection.info.backend_pid)
        assert await ready.wait(WAIT_SECONDS)
        await winner.connection.execute("select pg_advisory_xact_lock(2)")
        with pytest.raises(errors.TransactionConflictError, match="deadlock"):
            await losing()


@pytest.mark.parametrize("n_before", [0, 1])
async def test_send_that_waited_for_the_drop_of_its_queue_says_that_it_does_not_exist(
    client: AsyncClient, observer: psycopg.Connection[Any], n_before: int
) -> None:
    await client.queues.create("brief")
    for _ in range(n_before):
        await client.send("brief", 0)
    ready = AsyncEvent()
    sender_pids: list[int] = []

    async def send() -> None:
        async with client.transaction() as sender:
            sender_pids.append(sender.connection.info.backend_pid)
            ready.set()
            await sender.send("brief", 1)

    async with AsyncTasks() as tasks:
        async with client.transaction() as dropping:
            await dropping.queues.drop("brief")
            sending = tasks.start(send)
            assert await ready.wait(WAIT_SECONDS)
            await in_thread(lambda: wait_until_waiting(observer, sender_pids[0], timeout=WAIT_SECONDS))
        with pytest.raises(errors.QueueNotFoundError, match="queue 'brief' does not exist"):
            await sending()


async def test_every_sqlstate_of_ours_has_its_error(client: AsyncClient, database: str) -> None:
    expected = {
        "MQ001": errors.InvalidArgumentError,
        "MQ002": errors.InvalidArgumentError,
        "MQ003": errors.InvalidTransactionError,
        "MQ004": errors.NotPossibleError,
        "MQ005": errors.InvalidArgumentError,
        "MQ006": errors.SchemaVersionError,
        "MQ999": errors.ServerError,
        "40001": errors.TransactionConflictError,
        "40P01": errors.TransactionConflictError,
        "53100": errors.ServerExhaustedError,
        "53200": errors.ServerExhaustedError,
        "55P03": errors.StatementCancelledError,
        "42501": errors.MissingPrivilegeError,
        "22P02": errors.InvalidArgumentError,
        "XX000": errors.ServerError,
        "P0001": errors.ServerError,
    }
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(
            "create or replace function spanmq.version() returns text language plpgsql as $$ begin "
            "raise exception 'something is %', 'wrong' using errcode = current_setting('test.errcode'), "
            "hint = 'do this', detail = 'because of that'; end $$"
        )
    for sqlstate, kind in expected.items():
        async with AsyncClient(with_settings(database, **{"test.errcode": sqlstate})) as client:
            with pytest.raises(kind) as caught:
                await client.admin.version()
            assert type(caught.value) is kind
            assert caught.value.sqlstate == sqlstate
            assert sqlstate != "MQ005" or caught.value.code == "invalid_topic"
            # The server's own hint at a deadlock is about its log.
            hint = "Nothing was changed: call again. In your own transaction, roll back and run it all again."
            hint = hint if sqlstate == "40P01" else "do this"
            assert str(caught.value) == f"something is wrong\ndetail: because of that\nhint: {hint}"


@pytest.mark.parametrize(
    ("sqlstate", "message", "kind"),
    [
        (
            "54000",
            "total size of jsonb array elements exceeds the maximum of 2684 bytes",
            errors.BodyTooLargeError,
        ),
        ("XX000", "invalid memory alloc request size 1073741824", errors.BodyTooLargeError),
        ("54000", "index row size 3000 exceeds btree version 4 maximum 2704", errors.ServerError),
        ("22P02", "invalid input syntax for type json", errors.InvalidBodyError),
        ("42P01", 'relation "business" does not exist', errors.ServerError),
    ],
)
def test_sqlstates_that_stand_for_several_things_are_told_apart(
    sqlstate: str, message: str, kind: type[errors.SpanmqError]
) -> None:
    assert type(errors.from_server(sqlstate, message)) is kind


def test_refusal_of_postgresql_itself_says_who_can_help() -> None:
    refused = errors.from_server("42501", "permission denied for function create")
    assert "spanmq grant" in str(refused)
    assert errors.from_server("42501", "no", hint="of the server").hint == "of the server"


def test_hints_name_calls_of_the_interface_that_was_called() -> None:
    refused = errors.from_server(
        "42501", "no", hint="select spanmq.grant_queue('it''s me', 'orders', 'send')"
    )
    assert refused.hint == """client.admin.grants.create("it's me", 'orders', 'send')"""
    assert refused.command_hint == """spanmq grant create 'it'"'"'s me' orders send"""
    hints = [
        hint.replace("''", "'").replace("%L", "'x'")
        for path in (Path(spanmq.__file__).parent / "sql/functions").rglob("*.sql")
        for hint in re.findall(r"hint = (?:\S*format\()?'((?:[^']|'')*)'", path.read_text("utf-8"))
    ]
    assert len(hints) > 50
    in_sql = [
        hint for hint in hints if "select " in (errors.from_server("MQ002", "no", hint=hint).hint or "")
    ]
    assert in_sql == []


async def test_errors_survive_pickling(client: AsyncClient) -> None:
    with pytest.raises(errors.QueueNotFoundError) as caught:
        await client.send("nothing", 1)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.queue, copy.sqlstate) == (str(caught.value), "nothing", "42P01")


def test_every_error_is_a_spanmq_error() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 20
    assert all(issubclass(kind, errors.SpanmqError) for kind in kinds)


WAITING = (
    "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
)


async def test_call_that_is_the_victim_of_a_deadlock_runs_again(
    client: AsyncClient, observer: psycopg.Connection[Any]
) -> None:
    hide = "select pgmq.set_vt('orders', %s::bigint, 60)"
    # A run has ten messages: these are in three.
    first, second, third = (await client.send_batch("orders", list(range(30))))[::10]

    async def until_waiting(n: int) -> None:
        await in_thread(lambda: wait_until(lambda: observer.execute(WAITING).fetchone() == (n,)))

    async with AsyncTasks() as tasks:
        async with client.transaction() as other:
            # Only the client's own call looks for deadlocks in time.
            await other.connection.execute("set local deadlock_timeout = '1h'")
            await other.connection.execute(hide, [third])
            async with client.transaction() as blocker:
                await blocker.connection.execute(hide, [second])
                deleting = tasks.start(client.delete, "orders", [first, second, third])
                await until_waiting(1)
                hiding = tasks.start(other.connection.execute, hide, [first])
                await until_waiting(2)
            await hiding()
        assert await deleting() == [first, second, third]


def test_errors_of_a_pooler_in_transaction_mode_say_what_to_set(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("prepare twice as select 1")
        with pytest.raises(psycopg.Error) as raised:
            connection.execute("prepare twice as select 1")
    error = errors.from_driver(raised.value)
    assert error is not None
    assert "pooler=True" in (error.hint or "")
    refused = errors.refused("connection failed: FATAL: unsupported startup parameter: options")
    assert "pooler=True" in (refused.hint or "")
    assert errors.refused("connection refused").hint is None
