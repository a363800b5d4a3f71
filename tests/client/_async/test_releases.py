"""A client and a schema of different releases, or upstream PGMQ: what both know works, the rest is named."""

from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from spanmq import errors
from spanmq.client import AsyncClient
from spanmq.model import Leased


@pytest.fixture
async def client(client: AsyncClient) -> AsyncClient:
    """The client, with a message in its queue."""
    await client.send("orders", {"a": 1}, headers={"h": 1}, group="g")
    return client


# A newer schema.


async def test_columns_of_a_newer_schema_may_stand_anywhere(
    client: AsyncClient, observer: psycopg.Connection[Any]
) -> None:
    before = await client.peek("orders")
    observer.execute("alter function spanmq.peek rename to peek_before")
    observer.execute(
        "create function spanmq.peek(queue text, qty int default 10, after bigint default 0) returns table ("
        " priority int, headers jsonb, vt timestamptz, message jsonb, msg_id bigint, deadline timestamptz,"
        " last_read_at timestamptz, enqueued_at timestamptz, read_ct int) language sql as $$"
        " select 7, headers, vt, message, msg_id, now(), last_read_at, enqueued_at, read_ct"
        " from spanmq.peek_before(queue, qty, after) $$"
    )
    assert await client.peek("orders") == before


WIDER_PEEK = (
    "alter function spanmq.peek rename to peek_before",
    """create function spanmq.peek(queue text, qty int default 10, after bigint default 0) returns table (
        msg_id bigint, read_ct int, enqueued_at timestamptz, last_read_at timestamptz, vt timestamptz,
        message jsonb, headers jsonb, deadline timestamptz) language sql as $$
        select p.*, now() from spanmq.peek_before(queue, qty, after) p $$""",
)


async def test_connections_that_have_prepared_their_statements_go_on_after_an_upgrade(
    client: AsyncClient, database: str, observer: psycopg.Connection[Any]
) -> None:
    before = await client.peek("orders")
    async with (
        AsyncClient(database, pool_size=1) as one,
        AsyncClient(database, pool_size=1) as two,
        await psycopg.AsyncConnection.connect(database, autocommit=True) as connection,
    ):
        mine = AsyncClient(connection=connection)
        for each in (one, two, mine) * 8:
            assert await each.peek("orders") == before
        for statement in WIDER_PEEK:
            observer.execute(statement.encode())
        for each in (one, mine) * 8:
            assert await each.peek("orders") == before
        # Within a transaction the server has ended it already: to be run again, as after any conflict.
        with pytest.raises(errors.TransactionConflictError, match="roll back and run it all again"):
            async with two.transaction() as transaction:
                await transaction.peek("orders")
        async with two.transaction() as transaction:
            assert await transaction.peek("orders") == before


async def test_arguments_of_a_newer_schema_may_stand_anywhere(
    client: AsyncClient, observer: psycopg.Connection[Any]
) -> None:
    observer.execute("alter function spanmq.receive rename to receive_before")
    observer.execute(
        "create function spanmq.receive(queue text, worker text default 'nobody', slots int default 1,"
        " lease double precision default 30, qty int default 1) returns setof spanmq.leased_message"
        " language sql as $$ select * from spanmq.receive_before(queue, qty, lease, slots) $$"
    )
    [message] = await client.receive("orders", 5, slots=2)
    assert message.body == {"a": 1}
    assert (await client.ack(message))[0].outcome == "acked"


# An older one.


async def test_columns_that_an_older_schema_lacks_are_none(
    client: AsyncClient, observer: psycopg.Connection[Any]
) -> None:
    observer.execute("alter function spanmq.receive rename to receive_after")
    observer.execute(
        "create function spanmq.receive(queue text, qty int, slots int, lease double precision default 30)"
        " returns setof pgmq.message_record language sql as $$"
        " select msg_id, read_ct, enqueued_at, last_read_at, vt, message, headers"
        " from spanmq.receive_after(queue, qty, lease, slots) $$"
    )
    [message] = await client.receive("orders")
    assert (message.body, message.group, message.attempt) == ({"a": 1}, "g", 1)
    assert (message.lease_id, message.slot, message.last_error) == (None, None, None)


async def test_attempt_is_the_schema_s_word(client: AsyncClient, observer: psycopg.Connection[Any]) -> None:
    observer.execute("alter function spanmq.receive rename to receive_before")
    observer.execute(
        "create function spanmq.receive(queue text, qty int, slots int, lease double precision default 30)"
        " returns setof spanmq.leased_message language plpgsql as $$ declare result spanmq.leased_message; begin"
        " for result in select * from spanmq.receive_before(queue, qty, lease, slots) loop"
        " result.attempt := 5; result.last_error := 'timeout'; return next result; end loop; end $$"
    )
    [message] = await client.receive("orders")
    assert (message.attempt, message.last_error) == (5, "timeout")


async def test_function_that_an_older_schema_lacks_is_named(
    client: AsyncClient, observer: psycopg.Connection[Any]
) -> None:
    observer.execute("drop function spanmq.cancel")
    with pytest.raises(
        errors.SchemaVersionError, match=r"no spanmq\.cancel .*\n.*spanmq schema upgrade"
    ) as caught:
        await client.cancel("orders", 1)
    assert caught.value.function == "cancel"
    assert await client.peek("orders")
    with pytest.raises(errors.SchemaVersionError):
        async with client.transaction() as transaction:
            await transaction.cancel("orders", 1)


async def test_schema_that_went_away_is_noticed(
    client: AsyncClient, observer: psycopg.Connection[Any]
) -> None:
    observer.execute("drop schema pgmq, spanmq, spanmq_call, spanmq_core cascade")
    with pytest.raises(errors.SchemaMissingError):
        await client.receive("orders")
    with pytest.raises(errors.SchemaMissingError):
        await client.send("orders", 1)


async def test_function_missing_further_down_is_not_taken_for_the_one_called(
    client: AsyncClient, observer: psycopg.Connection[Any]
) -> None:
    observer.execute(
        "create or replace function spanmq.version() returns text language plpgsql as"
        " $$ begin return spanmq.cancel('nothing'); end $$"
    )
    with pytest.raises(errors.ServerError, match=r"function spanmq\.cancel"):
        await client.admin.version()


# Upstream PGMQ, and nothing at all.


NATIVE: list[tuple[str, Callable[[AsyncClient], Awaitable[object]]]] = [
    ("receive", lambda client: client.receive("orders")),
    ("receive", lambda client: client.receive("orders", wait=5)),
    ("peek", lambda client: client.peek("orders")),
    ("ack", lambda client: client.ack(Leased("orders", 1, [1]))),
    ("nack", lambda client: client.nack(Leased("orders", 5, 1))),
    ("send_messages", lambda client: client.send("orders", 1, priority=1)),
    ("cancel", lambda client: client.cancel("orders", [1])),
    ("maintain", lambda client: client.admin.maintain()),
    ("version", lambda client: client.admin.version()),
    # These return nothing.
    ("pause", lambda client: client.queues.pause("orders")),
    ("resume", lambda client: client.queues.resume("orders")),
    ("create_subscription", lambda client: client.subscriptions.create("copy", "orders")),
    ("adopt_receiver", lambda client: client.admin.receivers.adopt("orders", "reader")),
    (
        "set_category_rule",
        lambda client: client.dead_letters.categories.set_rule("rule", "TRANSIENT", error="x"),
    ),
    ("pause_schedule", lambda client: client.schedules.pause("daily")),
]


async def test_what_upstream_lacks_is_named_and_the_transaction_survives(
    upstream: AsyncClient, upstream_database: str
) -> None:
    async with await psycopg.AsyncConnection.connect(upstream_database) as connection:
        inside = AsyncClient(connection=connection)
        for missing, call in NATIVE:
            for client in (upstream, inside):
                expected = rf"upstream PGMQ, .* {missing}\(\)"
                with pytest.raises(errors.NotSupportedByUpstreamError, match=expected) as caught:
                    await call(client)
                assert caught.value.missing == missing
            await inside.send("orders", 1)
    assert await upstream.admin.flavour() == "upstream"
    assert (await upstream.queues.metrics("orders")).length == len(NATIVE)


async def test_upstream_that_is_adopted_meanwhile_is_noticed(
    upstream: AsyncClient, upstream_database: str
) -> None:
    with pytest.raises(errors.NotSupportedByUpstreamError):
        await upstream.admin.version()
    with psycopg.connect(upstream_database) as owner:
        owner.execute(
            "create schema spanmq; create function spanmq.version() returns text language sql as $$ select '9.9' $$"
        )
    assert await upstream.admin.version() == "9.9"


async def test_database_that_holds_nothing_says_how_to_fill_it(empty_database: str) -> None:
    calls: list[Callable[[AsyncClient], Awaitable[object]]] = [
        lambda client: client.send("orders", 1),
        lambda client: client.receive("orders"),
        lambda client: client.admin.version(),
    ]
    for call in calls:
        async with AsyncClient(empty_database) as client:
            with pytest.raises(errors.SchemaMissingError, match=r"client\.install"):
                await call(client)
        async with await psycopg.AsyncConnection.connect(empty_database) as connection:
            with pytest.raises(errors.SchemaMissingError, match=r"client\.install"):
                await call(AsyncClient(connection=connection))
