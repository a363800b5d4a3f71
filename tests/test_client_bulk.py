"""Large batches by COPY: what arrives is what calls would send, and nobody can publish what isn't theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege
from tests.patience import WAIT_SECONDS
from tests.sql.test_bulk import near_the_end_of_the_first_segment, one, publish

from spanmq import bulk
from spanmq.body import RawJson
from spanmq.client import Client
from spanmq.client_async import AsyncClient
from spanmq.errors import (
    ConnectionLostError,
    InvalidArgumentError,
    InvalidBodyError,
    MissingPrivilegeError,
    QueueNotFoundError,
)

Connection = psycopg.Connection[Any]
LARGE = 2_500


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database, maintain_interval=None) as client:
        client.create_queue("orders")
        yield client


@pytest.fixture
def observer(database: str) -> Iterator[Connection]:
    """Another session in the same database."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect how many messages each COPY of the client carried; the real one runs."""
    counts: list[int] = []
    copy = bulk._copy

    def counting(connection: Any, runs: Any, batch: Any, call: Any) -> None:
        counts.append(len(batch))
        copy(connection, runs, batch, call)

    monkeypatch.setattr(bulk, "_copy", counting)
    return counts


# What arrives.


BODIES: list[object] = [
    {"a": [1, None, 2.5]},
    'a "text" with \\ and \t and \n and \\N and \\.',
    b"\0\xff",
    None,
    "ü 雪 🜚",
    RawJson('{\n\t"spaced" :\r\n 1}'),
]


@pytest.mark.parametrize("unlogged", [False, True])
def test_content_headers_and_groups_come_back(client: Client, copied: list[int], unlogged: bool) -> None:
    client.create_queue("mixed", unlogged=unlogged)
    bodies = [BODIES[number % len(BODIES)] for number in range(LARGE)]
    headers = [None if number % 3 else {"number": number, "text": '"\\\n'} for number in range(LARGE)]
    groups = [None if number % 5 else f"customer-{number % 7}" for number in range(LARGE)]
    message_ids = client.send_batch("mixed", bodies, headers=headers, group=groups)
    assert copied == [LARGE]
    assert message_ids == sorted(set(message_ids))
    messages = client.receive("mixed", LARGE + 1)
    assert [message.message_id for message in messages] == message_ids
    expected = [{"spaced": 1} if isinstance(body, RawJson) else body for body in bodies]
    assert [message.body for message in messages] == expected
    assert [message.group for message in messages] == groups
    for message, own, group in zip(messages, headers, groups, strict=True):
        whole = {**(own or {}), **({"x-pgmq-group": group} if group else {})}
        assert (message.headers or {}) == whole
        assert message.attempt == 1
        assert abs(message.enqueued_at - datetime.now(UTC)) < timedelta(minutes=1)


def test_groups_are_delivered_in_order(client: Client, copied: list[int]) -> None:
    message_ids = client.send_batch(
        "orders", range(LARGE), group=["a" if n % 2 else "b" for n in range(LARGE)]
    )
    heads = client.read_grouped_head("orders", 9)
    assert sorted(message.message_id for message in heads) == message_ids[:2]
    assert client.read_grouped_head("orders", 9) == []
    assert copied == [LARGE]


def test_copy_and_calls_send_the_same(client: Client, observer: Connection, copied: list[int]) -> None:
    client.create_queue("calls")
    client.create_queue("copies")
    headers = [{"n": n} if n % 2 else None for n in range(LARGE)]
    groups = [f"g{n % 3}" if n % 4 else None for n in range(LARGE)]
    for start in range(0, LARGE, 500):
        end = start + 500
        client.send_batch("calls", range(start, end), headers=headers[start:end], group=groups[start:end])
    assert copied == []
    client.send_batch("copies", range(LARGE), headers=headers, group=groups)
    assert copied == [LARGE]
    log = "select array_agg((l.msg_id, l.message, l.headers) order by l.msg_id)::text from spanmq.log_{} l"
    spans = (
        "select array_agg((id, s.state, s.attempts, s.vt, s.group_hash, s.group_key) order by id)::text"
        " from spanmq.span s, spanmq.expand(s.lo, s.n, s.ids) id where s.queue_id = %s"
    )
    queues = [
        one(observer, "select queue_id from spanmq.queue where name = %s", name)
        for name in ("calls", "copies")
    ]
    for query in (log, spans):
        values = {one(observer, query.format(q), *([q] if "%s" in query else [])) for q in queues}
        assert len(values) == 1


@pytest.mark.parametrize("delay", [60, timedelta(minutes=1), datetime(2063, 4, 5, tzinfo=UTC)])
def test_delayed_batch_is_hidden(client: Client, copied: list[int], delay: Any) -> None:
    client.send_batch("orders", range(LARGE), delay=delay)
    assert copied == [LARGE]
    assert client.receive("orders", 5) == []
    assert client.metrics("orders").length == LARGE
    [message] = client.peek("orders", 1)
    assert message.leased_until > datetime.now(UTC) + timedelta(seconds=30)


def test_moment_in_the_past_is_no_delay(client: Client) -> None:
    client.send_batch("orders", range(LARGE), delay=datetime(2013, 1, 1, tzinfo=UTC))
    assert len(client.receive("orders", LARGE)) == LARGE


@pytest.mark.parametrize("delay", ["soon", -1, datetime(2063, 4, 5)])
def test_impossible_delay_writes_nothing(
    client: Client, observer: Connection, copied: list[int], delay: Any
) -> None:
    with pytest.raises(InvalidArgumentError):
        client.send_batch("orders", range(LARGE), delay=delay)
    assert copied == []
    assert one(observer, "select last_value from pgmq.q_orders_msg_id_seq") == 1


def test_large_text_is_copied_too(client: Client, copied: list[int]) -> None:
    bodies = [character * 3_000_000 for character in "abcdefgh"]
    assert len(client.send_batch("orders", bodies)) == 8
    assert copied == [2, 2, 2, 2]
    assert [message.body for message in client.receive("orders", 9)] == bodies


def test_small_batch_is_not_copied(client: Client, copied: list[int]) -> None:
    client.send_batch("orders", range(1_999))
    assert copied == []


def test_chunks_and_a_small_rest_keep_their_order(client: Client, copied: list[int]) -> None:
    message_ids = client.send_batch("orders", (n for n in range(22_001)))
    assert copied == [10_000, 10_000, 2_001]
    more_ids = client.send_batch("orders", range(10_001))
    assert copied[3:] == [10_000]
    assert [message.body for message in client.receive("orders", 99_999)] == [*range(22_001), *range(10_001)]
    assert message_ids + more_ids == list(range(1, 32_003))


def test_batch_crosses_segments(client: Client, observer: Connection, copied: list[int]) -> None:
    near_the_end_of_the_first_segment(client, observer)
    message_ids = client.send_batch("small", range(LARGE))
    assert copied == [LARGE]
    used = "select count(distinct tableoid) from spanmq.log_2"
    assert one(observer, used) >= LARGE // 256
    assert [message.body for message in client.receive("small", 9_999)] == list(range(LARGE))
    assert message_ids == list(range(16_201, 16_201 + LARGE))


def test_ids_with_gaps_are_runs(client: Client, observer: Connection, copied: list[int]) -> None:
    # Two senders draw at once: every second id of the batch is the other's.
    observer.execute("alter sequence pgmq.q_orders_msg_id_seq increment by 2")
    message_ids = client.send_batch("orders", range(LARGE))
    assert copied == [LARGE]
    assert message_ids == list(range(1, 2 * LARGE, 2))
    messages = client.receive("orders", 9_999)
    assert [(message.message_id, message.body) for message in messages] == list(
        zip(message_ids, range(LARGE), strict=True)
    )


def test_copy_notifies(client: Client, observer: Connection, copied: list[int]) -> None:
    client.enable_notify_insert("orders", throttle=0)
    observer.execute('listen "pgmq.q_orders.INSERT"')
    client.send_batch("orders", range(LARGE))
    assert copied == [LARGE]
    assert len(list(observer.notifies(timeout=WAIT_SECONDS, stop_after=1))) == 1


def test_asynchronous_client_copies(database: str) -> None:
    async def scenario() -> None:
        async with AsyncClient(database, maintain_interval=None) as client:
            await client.create_queue("orders")
            message_ids = await client.send_batch("orders", range(LARGE))
            messages = await client.receive("orders", LARGE)
            assert [message.message_id for message in messages] == message_ids

    asyncio.run(scenario())


# All or nothing.


def test_rollback_leaves_nothing_visible(client: Client, database: str, copied: list[int]) -> None:
    with psycopg.connect(database) as connection:
        Client(connection=connection).send_batch("orders", range(LARGE))
        assert client.metrics("orders").length == 0
        connection.rollback()
    assert client.metrics("orders").length == 0
    assert copied == [LARGE]
    with psycopg.connect(database) as connection:
        Client(connection=connection).send_batch("orders", range(LARGE))
    assert client.metrics("orders").length == LARGE


def test_savepoint_is_rolled_back_alone(client: Client, copied: list[int]) -> None:
    with client.transaction() as outer:
        outer.send_batch("orders", range(LARGE))
        outer.connection.execute("savepoint before")
        outer.send_batch("orders", range(LARGE))
        outer.connection.execute("rollback to savepoint before")
        with outer.transaction() as inner:
            inner.send_batch("orders", range(LARGE, LARGE + LARGE))
    assert copied == [LARGE] * 3
    assert [message.body for message in client.receive("orders", 9_999)] == list(range(LARGE + LARGE))


@pytest.mark.parametrize("autocommit", [True, False])
def test_connection_is_left_as_it_was(client: Client, database: str, autocommit: bool) -> None:
    with psycopg.connect(database, autocommit=autocommit) as connection:
        Client(connection=connection).send_batch("orders", range(LARGE))
        assert client.metrics("orders").length == (LARGE if autocommit else 0)
        assert connection.info.transaction_status == (
            psycopg.pq.TransactionStatus.IDLE if autocommit else psycopg.pq.TransactionStatus.INTRANS
        )


@pytest.mark.parametrize("position", [5, 12_000])
def test_body_that_the_server_refuses_sends_nothing(client: Client, copied: list[int], position: int) -> None:
    bodies: list[object] = [*range(13_000)]
    bodies[position] = RawJson("{no json}")
    with pytest.raises(InvalidBodyError) as caught:
        client.send_batch("orders", bodies)
    assert (caught.value.function, caught.value.queue) == ("send_batch", "orders")
    assert copied
    assert client.metrics("orders").length == 0


@pytest.mark.parametrize("position", [5, 12_000])
def test_body_that_can_not_be_encoded_sends_nothing(client: Client, database: str, position: int) -> None:
    bodies: list[object] = [*range(13_000)]
    bodies[position] = object()
    with pytest.raises(InvalidBodyError):
        client.send_batch("orders", iter(bodies))
    with psycopg.connect(database) as connection:
        with pytest.raises(InvalidBodyError):
            Client(connection=connection).send_batch("orders", iter(bodies))
        # Refused before the transaction knew of it.
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert client.metrics("orders").length == 0


def test_unknown_queue_is_named(client: Client) -> None:
    with pytest.raises(QueueNotFoundError) as caught:
        client.send_batch("nothing", range(LARGE))
    assert (caught.value.function, caught.value.queue) == ("send_batch", "nothing")


def test_connection_killed_in_mid_copy_leaves_nothing(
    client: Client, observer: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = bulk._blocks
    rows_before = "select sum(n_tup_ins) from pg_stat_all_tables where schemaname = 'spanmq'"

    def blocks(*arguments: Any) -> Iterator[bytes]:
        for number, block in enumerate(make(*arguments)):
            if number == 2:
                ended = observer.execute(
                    "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
                    " where datname = current_database() and query like 'copy %%'"
                ).fetchall()
                assert ended == [(True,)]
            yield block

    monkeypatch.setattr(bulk, "_blocks", blocks)
    with pytest.raises(ConnectionLostError):
        client.send_batch("orders", ["x" * 250] * LARGE)
    monkeypatch.undo()
    assert one(observer, rows_before) is not None
    assert one(observer, "select count(*) from spanmq.log_1") == 0
    assert client.metrics("orders").length == 0
    assert len(client.send_batch("orders", range(LARGE))) == LARGE


# Rights, and older schemas.


@pytest.fixture
def producer(database: str, observer: Connection) -> Iterator[str]:
    """The DSN of a role that may do what PGMQ's grants allow, and no more."""
    name = sql.Identifier(f"producer_{one(observer, 'select current_database()')}"[:60])
    observer.execute(sql.SQL("create role {} login").format(name))
    observer.execute(sql.SQL("grant usage on schema pgmq to {}").format(name))
    yield make_conninfo(database, user=name.as_string(None).strip('"'))
    observer.execute(sql.SQL("drop owned by {}; drop role {}").format(name, name))


def role_of(dsn: str) -> sql.Identifier:
    return sql.Identifier(str(psycopg.conninfo.conninfo_to_dict(dsn)["user"]))


def test_role_that_may_not_write_into_the_log_sends_in_calls(
    client: Client, observer: Connection, producer: str, copied: list[int]
) -> None:
    grant = sql.SQL("grant insert, select, update on pgmq.q_orders to {}").format(role_of(producer))
    observer.execute(grant)
    with Client(producer, maintain_interval=None) as other:
        message_ids = other.send_batch("orders", range(LARGE))
        assert [message.message_id for message in other.receive("orders", LARGE)] == message_ids
    assert copied == []
    # The refusal came before any id was drawn.
    assert message_ids == list(range(1, LARGE + 1))


def test_role_needs_schema_and_segment(
    client: Client, observer: Connection, producer: str, copied: list[int]
) -> None:
    role = role_of(producer)
    observer.execute(sql.SQL("grant insert on pgmq.q_orders to {}").format(role))
    client.send("orders", 0)
    log_table = one(observer, "select log_name from spanmq.segment order by lo desc limit 1")
    with psycopg.connect(producer, autocommit=True) as connection:
        own = Client(connection=connection)
        observer.execute(sql.SQL("grant insert on spanmq.{} to {}").format(sql.Identifier(log_table), role))
        assert len(own.send_batch("orders", range(LARGE))) == LARGE
        assert copied == []
        observer.execute(sql.SQL("grant usage on schema spanmq to {}").format(role))
        assert len(own.send_batch("orders", range(LARGE))) == LARGE
        assert copied == [LARGE]
        # It may look, so that it is told what it lacks.
        observer.execute(sql.SQL("grant select on pgmq.q_orders to {}").format(role))
        observer.execute(sql.SQL("revoke insert on pgmq.q_orders from {}").format(role))
        with pytest.raises(MissingPrivilegeError) as caught:
            own.send_batch("orders", range(LARGE))
        assert caught.value.function == "send_batch"
        with pytest.raises(InsufficientPrivilege):
            publish(connection, 1, 1)
    assert client.metrics("orders").length == 1 + 2 * LARGE


def test_rest_goes_in_calls_where_a_segment_is_closed_to_the_role(
    client: Client, observer: Connection, producer: str, copied: list[int]
) -> None:
    role = role_of(producer)
    grant = (
        "grant insert on pgmq.q_orders to {0}; grant usage on schema spanmq to {0};"
        " grant insert on spanmq.{1} to {0}"
    )
    client.send("orders", 0)
    [(newest, first)] = observer.execute(
        "select log_name, lo from spanmq.segment order by lo desc limit 1"
    ).fetchall()
    observer.execute(sql.SQL(grant).format(role, sql.Identifier(newest)))
    size = one(observer, "select segment_size from spanmq.queue")
    client.send_batch("orders", range(first + size - 12_000 - 2))
    copied.clear()
    with Client(producer, maintain_interval=None) as other:
        message_ids = other.send_batch("orders", range(22_000))
    assert copied == [10_000]
    assert len(message_ids) == 22_000
    assert message_ids == sorted(message_ids)


def test_schema_without_copy_gets_calls(
    client: Client, observer: Connection, copied: list[int], database: str
) -> None:
    observer.execute("drop function pgmq.copy_publish(text, bigint[], bigint[], timestamptz)")
    assert len(client.send_batch("orders", range(LARGE))) == LARGE
    with psycopg.connect(database) as connection:
        assert len(Client(connection=connection).send_batch("orders", range(LARGE))) == LARGE
    assert copied == []
    assert client.metrics("orders").length == 2 * LARGE


def test_upstream_gets_calls(upstream_database: str, copied: list[int]) -> None:
    with Client(upstream_database) as client:
        client.create_queue("orders")
        assert len(client.send_batch("orders", range(LARGE))) == LARGE
    assert copied == []


def test_pipeline_and_other_encodings_get_calls(client: Client, database: str, copied: list[int]) -> None:
    with psycopg.connect(database, autocommit=True) as connection, connection.pipeline():
        assert len(Client(connection=connection).send_batch("orders", range(LARGE))) == LARGE
    with psycopg.connect(database, client_encoding="latin1", autocommit=True) as connection:
        Client(connection=connection).send_batch("orders", ["é"] * LARGE)
    assert copied == []
    assert client.receive("orders", 9_999)[-1].body == "é"
