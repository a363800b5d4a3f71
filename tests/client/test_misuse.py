"""Each misuse by SQL, both clients and the command line: the same typed error, and nothing is changed."""

import asyncio
import inspect
import math
import shlex
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from spanmq import errors
from spanmq.cli.app import app
from spanmq.client import AsyncClient, Client
from spanmq.model import Leased

OVER_LONG = "é" * 24
NOTHING_RAISED = "nothing was raised"
UNKNOWN_QUEUE, BAD_BODY = errors.QueueNotFoundError, errors.InvalidBodyError
WITH_SQL = 'x"); drop table pgmq.a_orders; --'
TABLES = (
    "select c.oid::regclass::text from pg_class c where c.relkind in ('r', 'v', 'p')"
    " and c.relnamespace in ('pgmq'::regnamespace, 'spanmq'::regnamespace, 'spanmq_core'::regnamespace) order by 1"
)


@dataclass(frozen=True, slots=True)
class Misuse:
    """One misuse as an SQL expression, a call and a command; None where it can't even be said there."""

    sql: str | None
    call: Callable[[Any], Any] | None
    command: str | None = None
    error: type[errors.SpanmqError] = errors.InvalidArgumentError
    # Where the command line does not come so far as to ask the client.
    is_usage: bool = False


def named(name: str) -> Misuse:
    return Misuse(
        f"pgmq.create({sql.Literal(name).as_string(None)})",
        lambda c: c.queues.create(name),
        shlex.join(["queue", "create", "--", name]),
    )


MISUSES = {
    "empty name": named(""),
    "name over 47 bytes": named(OVER_LONG),
    "name over 47 letters": named("a" * 48),
    "name with a semicolon": named("a;b"),
    "name with a quote": named("a'b"),
    "name with a comment": named("a--b"),
    "name with a dollar": named("$a"),
    "name with SQL": named(WITH_SQL),
    "unknown queue, sent to": Misuse(
        "pgmq.send('nope', '1')", lambda c: c.send("nope", 1), "send nope 1", error=UNKNOWN_QUEUE
    ),
    "unknown queue with SQL": Misuse(
        "pgmq.read('x\" where true) or (true', 1, 1)",
        lambda c: c.read('x" where true) or (true'),
        "message read 'x\" where true) or (true'",
        error=UNKNOWN_QUEUE,
    ),
    "unknown queue, received from": Misuse(
        "spanmq.receive('nope')", lambda c: c.receive("nope"), "receive nope", error=UNKNOWN_QUEUE
    ),
    "unknown queue, purged": Misuse(
        "pgmq.purge_queue('nope')",
        lambda c: c.queues.purge("nope"),
        "queue purge nope --yes",
        error=UNKNOWN_QUEUE,
    ),
    "no batch": Misuse("pgmq.send_batch('orders', null::jsonb[])", lambda c: c.send_batch("orders", None)),
    "empty batch": Misuse("pgmq.send_batch('orders', '{}'::jsonb[])", None),
    "fewer headers than bodies": Misuse(
        "pgmq.send_batch('orders', array['1', '2']::jsonb[], array['{}']::jsonb[])",
        lambda c: c.send_batch("orders", [1, 2], headers=[{}]),
    ),
    "more headers than bodies": Misuse(
        "pgmq.send_batch('orders', array['1']::jsonb[], array['{}', '{}']::jsonb[])",
        lambda c: c.send_batch("orders", [1], headers=[{}, {}]),
    ),
    "fewer dedup ids than bodies": Misuse(
        "spanmq.send_messages('orders', array['1', '2']::jsonb[], dedup_ids => array['a'])",
        lambda c: c.send_batch("orders", [1, 2], dedup_ids=["a"]),
    ),
    "negative quantity, read": Misuse(
        "pgmq.read('orders', 30, -1)", lambda c: c.read("orders", -1), "message read orders -n -1"
    ),
    "negative quantity, received": Misuse(
        "spanmq.receive('orders', -1)", lambda c: c.receive("orders", -1), "receive orders -n -1"
    ),
    "negative quantity, popped": Misuse(
        "pgmq.pop('orders', -1)", lambda c: c.pop("orders", -1), "message pop orders -n -1"
    ),
    "quantity of 2³¹": Misuse(
        "spanmq.receive('orders', (2::bigint ^ 31)::bigint::int)",
        lambda c: c.receive("orders", 2**31),
        f"receive orders -n {2**31!s}",
    ),
    "no quantity": Misuse("spanmq.receive('orders', null)", lambda c: c.receive("orders", None)),
    "no slots": Misuse(
        "spanmq.receive('orders', 1, 30, 0)",
        lambda c: c.receive("orders", slots=0),
        "receive orders --slots 0",
    ),
    "endless lease": Misuse(
        "spanmq.receive('orders', 1, 'infinity')",
        lambda c: c.receive("orders", lease=math.inf),
        "receive orders --lease inf",
    ),
    "lease that is not a number": Misuse(
        "spanmq.receive('orders', 2, 'nan')",
        lambda c: c.receive("orders", lease=math.nan),
        "receive orders --lease nan",
    ),
    "negative delay": Misuse(
        "pgmq.send('orders', '1', -1)", lambda c: c.send("orders", 1, delay=-1), "send orders 1 --delay -1"
    ),
    "delay of a lifetime of the sun": Misuse(
        "pgmq.send('orders', '1', '300000-01-01'::timestamptz)",
        lambda c: c.send("orders", 1, delay=1e17),
        "send orders 1 --delay 1e17",
    ),
    "endless delay": Misuse(
        "pgmq.send('orders', '1', 'infinity'::timestamptz)",
        lambda c: c.send("orders", 1, delay=math.inf),
        "send orders 1 --delay inf",
    ),
    "delay until a time of no zone": Misuse(
        None, lambda c: c.send("orders", 1, delay=datetime(2099, 1, 1)), "send orders 1 --delay 2099-01-01"
    ),
    "visibility of no time": Misuse(
        "pgmq.set_vt('orders', 1, null::int)", lambda c: c.set_vt("orders", 1, None)
    ),
    "priority of 1000": Misuse(
        "spanmq.send_messages('orders', array['1']::jsonb[], priority => 1000)",
        lambda c: c.send("orders", 1, priority=1000),
        "send orders 1 --priority 1000",
    ),
    "body that is no JSON": Misuse(
        "pgmq.send('orders', '{')",
        lambda c: c.send("orders", math.nan),
        "send orders '{'",
        is_usage=True,
        error=BAD_BODY,
    ),
    "body that no JSON can hold": Misuse(
        "pgmq.send('orders', '\"\\u0000\"')",
        lambda c: c.send("orders", "\0"),
        "send orders '\"\\u0000\"'",
        error=BAD_BODY,
    ),
    "body of no known type": Misuse(None, lambda c: c.send("orders", object()), error=BAD_BODY),
    "bad body last in a batch": Misuse(
        "pgmq.send_batch('orders', array['1', '{']::jsonb[])",
        lambda c: c.send_batch("orders", [*range(3000), object()]),
    ),
    "headers that are no object": Misuse(
        None,  # PGMQ takes any JSON there, and so do we
        lambda c: c.send("orders", 1, headers=[]),
        "send orders 1 --headers '[]'",
        is_usage=True,
    ),
    "lease of no id": Misuse(
        "spanmq.ack('orders', 0, array[1])", lambda c: c.ack(Leased("orders", 0, [1])), "ack orders 0 1"
    ),
    "id of 2⁶⁴": Misuse(
        f"pgmq.delete('orders', ({2**64})::bigint)",
        lambda c: c.delete("orders", 2**64),
        f"message delete orders {2**64!s}",
    ),
    "bad pattern": Misuse(
        "pgmq.bind_topic('a..b', 'orders')",
        lambda c: c.topics.bind("a..b", "orders"),
        "topic bind a..b orders",
    ),
    "bad routing key": Misuse(
        "pgmq.send_topic('a.*', '1')", lambda c: c.topics.send("a.*", 1), "topic send 'a.*' 1"
    ),
    "policy of no such name": Misuse(
        "spanmq.set_policy('orders', '{\"nope\": 1}')",
        lambda c: c.queues.set_policy("orders", nope=1),
        "policy set orders nope=1",
    ),
    "schema of no such type": Misuse(
        "spanmq.set_schema('orders', '{\"type\": \"objekt\"}')",
        lambda c: c.queues.set_schema("orders", {"type": "objekt"}),
    ),
    "cron of no time": Misuse(
        None,
        lambda c: c.schedules.create("daily", "orders", "every day", 1),
        "schedule create daily orders 'every day' 1",
    ),
}
ORDINARY = {
    "sent": Misuse("pgmq.send('orders', '1')", lambda c: c.send("orders", 1), "send orders 1"),
    "received": Misuse("spanmq.receive('orders', 1)", lambda c: c.receive("orders"), "receive orders"),
    "deleted": Misuse("pgmq.delete('orders', 1)", lambda c: c.delete("orders", 1), "message delete orders 1"),
    "made": Misuse("pgmq.create('more')", lambda c: c.queues.create("more"), "queue create more"),
}


@pytest.fixture(scope="module")
def orders(module_database: str) -> str:
    with Client(module_database) as client:
        client.queues.create("orders")
        client.send_batch("orders", range(5))
        client.receive("orders", 2, lease=3600)
        client.archive("orders", 5)
    return module_database


def contents(dsn: str) -> dict[str, str]:
    """Return what each table and view holds."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        tables = [name for (name,) in connection.execute(TABLES).fetchall()]
        return {
            name: str(
                connection.execute(
                    f"select array_agg(t::text order by t::text) from {name} t".encode()
                ).fetchone()
            )
            for name in tables
        }


def by_sql(dsn: str, misuse: Misuse) -> type[Exception] | str | None:
    if misuse.sql is None:
        return None
    with psycopg.connect(dsn, autocommit=True) as connection:
        try:
            connection.execute(f"select {misuse.sql}".encode())
        except psycopg.Error as error:
            found = errors.from_driver(error)
            return type(found) if found is not None else type(error)
    return NOTHING_RAISED


def by_client(dsn: str, misuse: Misuse) -> type[Exception] | str | None:
    if misuse.call is None:
        return None
    with Client(dsn) as client:
        try:
            misuse.call(client)
        except errors.SpanmqError as error:
            return type(error)
    return NOTHING_RAISED


def by_async_client(dsn: str, misuse: Misuse) -> type[Exception] | str | None:
    call = misuse.call
    if call is None:
        return None

    async def scenario() -> type[Exception] | str:
        async with AsyncClient(dsn) as client:
            try:
                awaited = call(client)
                assert inspect.isawaitable(awaited)
                await awaited
            except errors.SpanmqError as error:
                return type(error)
        return NOTHING_RAISED

    return asyncio.run(scenario())


def by_command(dsn: str, misuse: Misuse) -> tuple[int, str] | None:
    if misuse.command is None:
        return None
    done = CliRunner().invoke(app, shlex.split(misuse.command), env={"SPANMQ_DSN": dsn})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.stdout == ""
    return done.exit_code, done.stderr


def labels(error: type[errors.SpanmqError]) -> tuple[str, ...]:
    """Return how the command line names such an error, or a kind of it."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, error)]
    codes = [code for kind in kinds for code in (errors.code_of(kind), *vars(kind).get("codes", ()))]
    return tuple(f"spanmq: {code.replace('_', ' ')}: " for code in codes)


def check(dsn: str, misuse: Misuse, error: type[errors.SpanmqError]) -> None:
    found = {each.__name__: each(dsn, misuse) for each in (by_sql, by_client, by_async_client)}
    wrong = {
        name: kind
        for name, kind in found.items()
        if kind is not None and (isinstance(kind, str) or not issubclass(kind, error))
    }
    assert wrong == {}
    assert found["by_client"] == found["by_async_client"]
    if (done := by_command(dsn, misuse)) is None:
        return
    code, said = done
    if misuse.is_usage:
        assert code == 2, said
    else:
        assert (code, said.startswith(labels(error))) == (1, True), said


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_a_typed_error_everywhere_and_changes_nothing(orders: str, name: str) -> None:
    misuse = MISUSES[name]
    before = contents(orders)
    check(orders, misuse, misuse.error)
    assert contents(orders) == before


@pytest.mark.parametrize("name", ORDINARY)
def test_read_only_server_is_a_typed_error_everywhere_and_changes_nothing(orders: str, name: str) -> None:
    before = contents(orders)
    check(
        make_conninfo(orders, options="-c default_transaction_read_only=on"),
        ORDINARY[name],
        errors.ServerReadOnlyError,
    )
    assert contents(orders) == before


@pytest.mark.parametrize("name", ORDINARY)
def test_role_without_rights_is_a_typed_error_everywhere_and_changes_nothing(orders: str, name: str) -> None:
    role = f"spanmq_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(orders, autocommit=True) as owner:
        owner.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
        # With a right to look it is told what it lacks.
        owner.execute("select spanmq.grant_queue(%s, 'orders', 'look')", [role])
        before = contents(orders)
        try:
            check(
                make_conninfo(orders, options=f"-c role={role}"), ORDINARY[name], errors.MissingPrivilegeError
            )
        finally:
            owner.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
            owner.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))
    assert contents(orders) == before
