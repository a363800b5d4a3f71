"""Each misuse by SQL, both clients and the command line: the same typed error, and nothing is changed."""

from __future__ import annotations

import asyncio
import inspect
import math
import uuid
from collections.abc import Callable, Iterator
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
WITH_SQL = 'x"); drop table pgmq.a_orders; --'
TABLES = (
    "select c.oid::regclass::text from pg_class c where c.relkind in ('r', 'v', 'p')"
    " and c.relnamespace in ('pgmq'::regnamespace, 'spanmq'::regnamespace, 'spanmq_core'::regnamespace) order by 1"
)


@dataclass(frozen=True, slots=True)
class Misuse:
    """One misuse in the words of each; None where it can't even be said there."""

    sql: str | None
    call: Callable[[Any], Any] | None
    command: tuple[str, ...] | None = None
    error: type[errors.SpanmqError] = errors.InvalidArgumentError
    # Where the command line does not come so far as to ask the client.
    is_usage: bool = False


def named(name: str) -> Misuse:
    return Misuse(
        f"select pgmq.create({sql.Literal(name).as_string(None)})",
        lambda client: client.queues.create(name),
        ("queue", "create", "--", name),
        errors.InvalidArgumentError,
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
        "select pgmq.send('nope', '1')",
        lambda client: client.send("nope", 1),
        ("send", "nope", "1"),
        error=errors.QueueNotFoundError,
    ),
    "unknown queue with SQL": Misuse(
        "select pgmq.read('x\" where true) or (true', 1, 1)",
        lambda client: client.read('x" where true) or (true'),
        ("message", "read", 'x" where true) or (true'),
        error=errors.QueueNotFoundError,
    ),
    "unknown queue, received from": Misuse(
        "select spanmq.receive('nope')",
        lambda client: client.receive("nope"),
        ("receive", "nope"),
        error=errors.QueueNotFoundError,
    ),
    "unknown queue, purged": Misuse(
        "select pgmq.purge_queue('nope')",
        lambda client: client.queues.purge("nope"),
        ("queue", "purge", "nope", "--yes"),
        error=errors.QueueNotFoundError,
    ),
    "no batch": Misuse(
        "select pgmq.send_batch('orders', null::jsonb[])", lambda client: client.send_batch("orders", None)
    ),
    "empty batch": Misuse("select pgmq.send_batch('orders', '{}'::jsonb[])", None),
    "fewer headers than bodies": Misuse(
        "select pgmq.send_batch('orders', array['1', '2']::jsonb[], array['{}']::jsonb[])",
        lambda client: client.send_batch("orders", [1, 2], headers=[{}]),
    ),
    "more headers than bodies": Misuse(
        "select pgmq.send_batch('orders', array['1']::jsonb[], array['{}', '{}']::jsonb[])",
        lambda client: client.send_batch("orders", [1], headers=[{}, {}]),
    ),
    "fewer dedup ids than bodies": Misuse(
        "select spanmq.send_messages('orders', array['1', '2']::jsonb[], dedup_ids => array['a'])",
        lambda client: client.send_batch("orders", [1, 2], dedup_ids=["a"]),
    ),
    "negative quantity, read": Misuse(
        "select pgmq.read('orders', 30, -1)",
        lambda client: client.read("orders", -1),
        ("message", "read", "orders", "-n", "-1"),
    ),
    "negative quantity, received": Misuse(
        "select spanmq.receive('orders', -1)",
        lambda client: client.receive("orders", -1),
        ("receive", "orders", "-n", "-1"),
    ),
    "negative quantity, popped": Misuse(
        "select pgmq.pop('orders', -1)",
        lambda client: client.pop("orders", -1),
        ("message", "pop", "orders", "-n", "-1"),
    ),
    "quantity of 2³¹": Misuse(
        "select spanmq.receive('orders', (2::bigint ^ 31)::bigint::int)",
        lambda client: client.receive("orders", 2**31),
        ("receive", "orders", "-n", str(2**31)),
    ),
    "no quantity": Misuse(
        "select spanmq.receive('orders', null)", lambda client: client.receive("orders", None)
    ),
    "no slots": Misuse(
        "select spanmq.receive('orders', 1, 30, 0)",
        lambda client: client.receive("orders", slots=0),
        ("receive", "orders", "--slots", "0"),
    ),
    "endless lease": Misuse(
        "select spanmq.receive('orders', 1, 'infinity')",
        lambda client: client.receive("orders", lease=math.inf),
        ("receive", "orders", "--lease", "inf"),
    ),
    "lease that is no number": Misuse(
        "select spanmq.receive('orders', 2, 'nan')",
        lambda client: client.receive("orders", lease=math.nan),
        ("receive", "orders", "--lease", "nan"),
    ),
    "negative delay": Misuse(
        "select pgmq.send('orders', '1', -1)",
        lambda client: client.send("orders", 1, delay=-1),
        ("send", "orders", "1", "--delay", "-1"),
    ),
    "delay of a lifetime of the sun": Misuse(
        "select pgmq.send('orders', '1', '300000-01-01'::timestamptz)",
        lambda client: client.send("orders", 1, delay=1e17),
        ("send", "orders", "1", "--delay", "1e17"),
    ),
    "endless delay": Misuse(
        "select pgmq.send('orders', '1', 'infinity'::timestamptz)",
        lambda client: client.send("orders", 1, delay=math.inf),
        ("send", "orders", "1", "--delay", "inf"),
    ),
    "delay until a time of no zone": Misuse(
        None,
        lambda client: client.send("orders", 1, delay=datetime(2099, 1, 1)),
        ("send", "orders", "1", "--delay", "2099-01-01"),
    ),
    "visibility of no time": Misuse(
        "select pgmq.set_vt('orders', 1, null::int)", lambda client: client.set_vt("orders", 1, None)
    ),
    "priority of 1000": Misuse(
        "select spanmq.send_messages('orders', array['1']::jsonb[], priority => 1000)",
        lambda client: client.send("orders", 1, priority=1000),
        ("send", "orders", "1", "--priority", "1000"),
    ),
    "body that is no JSON": Misuse(
        "select pgmq.send('orders', '{')",
        lambda client: client.send("orders", math.nan),
        ("send", "orders", "{"),
        is_usage=True,
        error=errors.InvalidBodyError,
    ),
    "body that no JSON can hold": Misuse(
        "select pgmq.send('orders', '\"\\u0000\"')",
        lambda client: client.send("orders", "\0"),
        ("send", "orders", '"\\u0000"'),
        error=errors.InvalidBodyError,
    ),
    "body of no known type": Misuse(
        None, lambda client: client.send("orders", object()), error=errors.InvalidBodyError
    ),
    "bad body last in a batch": Misuse(
        "select pgmq.send_batch('orders', array['1', '{']::jsonb[])",
        lambda client: client.send_batch("orders", [*range(3000), object()]),
    ),
    "headers that are no object": Misuse(
        None,  # PGMQ takes any JSON there, and so do we
        lambda client: client.send("orders", 1, headers=[]),
        ("send", "orders", "1", "--headers", "[]"),
        is_usage=True,
    ),
    "lease of no id": Misuse(
        "select spanmq.ack('orders', 0, array[1])",
        lambda client: client.ack(Leased("orders", 0, [1])),
        ("ack", "orders", "0", "1"),
    ),
    "id of 2⁶⁴": Misuse(
        f"select pgmq.delete('orders', ({2**64})::bigint)",
        lambda client: client.delete("orders", 2**64),
        ("message", "delete", "orders", str(2**64)),
    ),
    "bad pattern": Misuse(
        "select pgmq.bind_topic('a..b', 'orders')",
        lambda client: client.topics.bind("a..b", "orders"),
        ("topic", "bind", "a..b", "orders"),
        error=errors.InvalidArgumentError,
    ),
    "bad routing key": Misuse(
        "select pgmq.send_topic('a.*', '1')",
        lambda client: client.topics.send("a.*", 1),
        ("topic", "send", "a.*", "1"),
        error=errors.InvalidArgumentError,
    ),
    "policy of no such name": Misuse(
        "select spanmq.set_policy('orders', '{\"nope\": 1}')",
        lambda client: client.queues.set_policy("orders", nope=1),
        ("policy", "set", "orders", "nope=1"),
    ),
    "cron of no time": Misuse(
        None,
        lambda client: client.schedules.create("daily", "orders", "every day", 1),
        ("schedule", "create", "daily", "orders", "every day", "1"),
    ),
}
ORDINARY = {
    "sent": Misuse(
        "select pgmq.send('orders', '1')", lambda client: client.send("orders", 1), ("send", "orders", "1")
    ),
    "received": Misuse(
        "select spanmq.receive('orders', 1)", lambda client: client.receive("orders"), ("receive", "orders")
    ),
    "deleted": Misuse(
        "select pgmq.delete('orders', 1)",
        lambda client: client.delete("orders", 1),
        ("message", "delete", "orders", "1"),
    ),
    "made": Misuse(
        "select pgmq.create('more')", lambda client: client.queues.create("more"), ("queue", "create", "more")
    ),
}


@pytest.fixture(scope="module")
def orders(spanmq_server: str, spanmq_template: str) -> Iterator[str]:
    from spanmq.testing import new_database, with_database

    with new_database(spanmq_server, template=spanmq_template) as name:
        dsn = with_database(spanmq_server, name)
        with Client(dsn) as client:
            client.queues.create("orders")
            client.send_batch("orders", range(5))
            client.receive("orders", 2, lease=3600)
            client.archive("orders", 5)
        yield dsn


def contents(dsn: str) -> dict[str, str]:
    """Give what each table and view holds."""
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
            connection.execute(misuse.sql.encode())
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
    done = CliRunner().invoke(app, list(misuse.command), env={"SPANMQ_DSN": dsn})
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
