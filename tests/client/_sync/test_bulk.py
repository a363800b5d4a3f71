# Generated from tests/client/_async/test_bulk.py by tools/generate_sync.py: change that file.

"""Large batches by COPY: what arrives is what calls would send, and nobody can publish what isn't theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege
from tests.client.concurrency import Tasks, until
from tests.patience import WAIT_SECONDS

from spanmq.client import Client
from spanmq.codec.body import RawJson
from spanmq.errors import (
    ConnectionLostError,
    InvalidArgumentError,
    InvalidBodyError,
    MissingPrivilegeError,
    QueueNotFoundError,
)

Connection = psycopg.Connection[Any]
Counts = Callable[[], tuple[int, int]]
LARGE = 2_500


def one(connection: Connection, query: str, *parameters: object) -> Any:
    row = connection.execute(query.encode(), parameters).fetchone()
    return None if row is None else row[0]


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
def test_content_headers_and_groups_come_back(client: Client, copied: Counts, unlogged: bool) -> None:
    client.queues.create("mixed", unlogged=unlogged)
    bodies = [BODIES[number % len(BODIES)] for number in range(LARGE)]
    headers = [None if number % 3 else {"number": number, "text": '"\\\n'} for number in range(LARGE)]
    groups = [None if number % 5 else f"customer-{number % 7}" for number in range(LARGE)]
    message_ids = client.send_batch("mixed", bodies, headers=headers, group=groups)
    assert copied() == (1, LARGE)
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


def test_groups_are_delivered_in_order(client: Client, copied: Counts) -> None:
    message_ids = client.send_batch(
        "orders", range(LARGE), group=["a" if n % 2 else "b" for n in range(LARGE)]
    )
    heads = client.read("orders", 9, grouped="head")
    assert sorted(message.message_id for message in heads) == message_ids[:2]
    assert client.read("orders", 9, grouped="head") == []
    assert copied() == (1, LARGE)


def test_copy_and_calls_send_the_same(client: Client, observer: Connection, copied: Counts) -> None:
    client.queues.create("calls")
    client.queues.create("copies")
    headers = [{"n": n} if n % 2 else None for n in range(LARGE)]
    groups = [f"g{n % 3}" if n % 4 else None for n in range(LARGE)]
    for start in range(0, LARGE, 500):
        end = start + 500
        client.send_batch("calls", range(start, end), headers=headers[start:end], group=groups[start:end])
    assert copied() == (0, 0)
    client.send_batch("copies", range(LARGE), headers=headers, group=groups)
    assert copied() == (1, LARGE)
    log = (
        "select array_agg((l.msg_id, l.message, l.headers) order by l.msg_id)::text from spanmq_core.log_{} l"
    )
    runs = (
        "select array_agg((id, f.group_hash, f.group_key) order by id)::text"
        " from spanmq_core.fresh f, generate_series(f.lo, f.lo + f.n - 1) id where f.queue_id = %s"
    )
    queues = [
        one(observer, "select queue_id from spanmq_core.queue where name = %s", name)
        for name in ("calls", "copies")
    ]
    for query in (log, runs):
        values = {one(observer, query.format(q), *([q] if "%s" in query else [])) for q in queues}
        assert len(values) == 1


@pytest.mark.parametrize("delay", [60, timedelta(minutes=1), datetime(2063, 4, 5, tzinfo=UTC)])
def test_delayed_batch_is_hidden(client: Client, copied: Counts, delay: Any) -> None:
    client.send_batch("orders", range(LARGE), delay=delay)
    assert copied() == (1, LARGE)
    assert client.receive("orders", 5) == []
    assert (client.queues.metrics("orders")).length == LARGE
    [message] = client.peek("orders", 1)
    assert message.leased_until > datetime.now(UTC) + timedelta(seconds=30)


def test_moment_in_the_past_is_no_delay(client: Client) -> None:
    client.send_batch("orders", range(LARGE), delay=datetime(2013, 1, 1, tzinfo=UTC))
    assert len(client.receive("orders", LARGE)) == LARGE


@pytest.mark.parametrize("delay", ["soon", -1, datetime(2063, 4, 5)])
def test_impossible_delay_writes_nothing(
    client: Client, observer: Connection, copied: Counts, delay: Any
) -> None:
    with pytest.raises(InvalidArgumentError):
        client.send_batch("orders", range(LARGE), delay=delay)
    assert copied() == (0, 0)
    assert one(observer, "select last_value from pgmq.q_orders_msg_id_seq") == 1


def test_large_text_is_copied_too(client: Client, copied: Counts) -> None:
    bodies = [character * 3_000_000 for character in "abcdefgh"]
    assert len(client.send_batch("orders", bodies)) == 8
    assert copied() == (4, 8)
    assert [message.body for message in client.receive("orders", 9)] == bodies


def test_small_batch_is_not_copied(client: Client, copied: Counts) -> None:
    client.send_batch("orders", range(1_999))
    assert copied() == (0, 0)


def test_chunks_and_a_small_rest_keep_their_order(client: Client, copied: Counts) -> None:
    message_ids = client.send_batch("orders", (n for n in range(22_001)))
    assert copied() == (3, 22_001)
    more_ids = client.send_batch("orders", range(10_001))
    assert copied() == (4, 32_001)
    assert [message.body for message in client.receive("orders", 99_999)] == [
        *range(22_001),
        *range(10_001),
    ]
    assert message_ids + more_ids == list(range(1, 32_003))


def test_batch_crosses_segments(client: Client, observer: Connection, copied: Counts) -> None:
    # The segments but the first hold 256 messages; the next id is 16,201 of 16,383.
    client.queues.create("small", partition_interval=256)
    observer.execute("select setval('pgmq.q_small_msg_id_seq', 16200)")
    message_ids = client.send_batch("small", range(LARGE))
    assert copied() == (1, LARGE)
    used = "select count(distinct tableoid) from spanmq_core.log_2"
    assert one(observer, used) >= LARGE // 256
    assert [message.body for message in client.receive("small", 9_999)] == list(range(LARGE))
    assert message_ids == list(range(16_201, 16_201 + LARGE))


def test_ids_with_gaps_are_runs(client: Client, observer: Connection, copied: Counts) -> None:
    # Two senders draw at the same time: every second id of the batch is the other's.
    observer.execute("alter sequence pgmq.q_orders_msg_id_seq increment by 2")
    bodies = [f"{n}" * 10_000 for n in range(100, 150)]
    message_ids = client.send_batch("orders", bodies)
    assert copied() == (1, 50)
    assert message_ids == list(range(1, 100, 2))
    messages = client.receive("orders", 99)
    assert [(each.message_id, each.body) for each in messages] == list(zip(message_ids, bodies, strict=True))


def test_copy_notifies(client: Client, observer: Connection, copied: Counts) -> None:
    client.admin.notifications.enable("orders", throttle=0)
    observer.execute('listen "pgmq.q_orders.INSERT"')
    client.send_batch("orders", range(LARGE))
    assert copied() == (1, LARGE)
    assert len(list(observer.notifies(timeout=WAIT_SECONDS, stop_after=1))) == 1


# All or nothing.


def test_rollback_leaves_nothing_visible(client: Client, database: str, copied: Counts) -> None:
    with psycopg.Connection.connect(database) as connection:
        Client(connection=connection).send_batch("orders", range(LARGE))
        assert (client.queues.metrics("orders")).length == 0
        connection.rollback()
    assert (client.queues.metrics("orders")).length == 0
    assert copied() == (1, LARGE)
    with psycopg.Connection.connect(database) as connection:
        Client(connection=connection).send_batch("orders", range(LARGE))
    assert (client.queues.metrics("orders")).length == LARGE


def test_savepoint_is_rolled_back_alone(client: Client, copied: Counts) -> None:
    with client.transaction() as outer:
        outer.send_batch("orders", range(LARGE))
        outer.connection.execute("savepoint before")
        outer.send_batch("orders", range(LARGE))
        outer.connection.execute("rollback to savepoint before")
        with outer.transaction() as inner:
            inner.send_batch("orders", range(LARGE, LARGE + LARGE))
    assert copied() == (3, 3 * LARGE)
    assert [message.body for message in client.receive("orders", 9_999)] == list(range(LARGE + LARGE))


@pytest.mark.parametrize("autocommit", [True, False])
def test_connection_is_left_as_it_was(client: Client, database: str, autocommit: bool) -> None:
    with psycopg.Connection.connect(database, autocommit=autocommit) as connection:
        Client(connection=connection).send_batch("orders", range(LARGE))
        assert (client.queues.metrics("orders")).length == (LARGE if autocommit else 0)
        assert connection.info.transaction_status == (
            psycopg.pq.TransactionStatus.IDLE if autocommit else psycopg.pq.TransactionStatus.INTRANS
        )


@pytest.mark.parametrize("position", [5, 12_000])
def test_body_that_the_server_refuses_sends_nothing(client: Client, copied: Counts, position: int) -> None:
    bodies: list[object] = [*range(13_000)]
    bodies[position] = RawJson("{no json}")
    with pytest.raises(InvalidBodyError) as caught:
        client.send_batch("orders", bodies)
    assert (caught.value.function, caught.value.queue) == ("send_batch", "orders")
    assert copied() > (0, 0)
    assert (client.queues.metrics("orders")).length == 0


@pytest.mark.parametrize("position", [5, 12_000])
def test_body_that_can_not_be_encoded_sends_nothing(client: Client, database: str, position: int) -> None:
    bodies: list[object] = [*range(13_000)]
    bodies[position] = object()
    with pytest.raises(InvalidBodyError):
        client.send_batch("orders", iter(bodies))
    with psycopg.Connection.connect(database) as connection:
        with pytest.raises(InvalidBodyError):
            Client(connection=connection).send_batch("orders", iter(bodies))
        # Refused before the transaction knew of it.
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert (client.queues.metrics("orders")).length == 0


def test_unknown_queue_is_named(client: Client) -> None:
    with pytest.raises(QueueNotFoundError) as caught:
        client.send_batch("nothing", range(LARGE))
    assert (caught.value.function, caught.value.queue) == ("send_batch", "nothing")


COPY_WAITS = (
    "select count(*) > 0 from pg_stat_activity where datname = current_database()"
    " and query like 'copy %' and wait_event = 'advisory'"
)


def test_connection_killed_in_mid_copy_leaves_nothing(client: Client, observer: Connection) -> None:
    client.send("orders", 0)
    observer.execute(
        "create function public.stop() returns trigger language plpgsql as"
        " $$ begin perform pg_advisory_xact_lock(1); return new; end $$"
    )
    segment = sql.Identifier("spanmq_core", one(observer, "select log_name from spanmq_core.segment"))
    observer.execute(
        sql.SQL(
            "create trigger stop before insert on {} for each row when (new.msg_id = 1000)"
            " execute function public.stop()"
        ).format(segment)
    )
    observer.execute("select pg_advisory_lock(1)")
    with Tasks() as tasks:
        sending = tasks.start(client.send_batch, "orders", ["x" * 250] * LARGE)
        until(observer, COPY_WAITS)
        ended = observer.execute(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
            " where datname = current_database() and query like 'copy %'"
        ).fetchall()
        assert ended == [(True,)]
        with pytest.raises(ConnectionLostError):
            sending()
    observer.execute("select pg_advisory_unlock(1)")
    assert (client.queues.metrics("orders")).length == 1
    assert one(observer, "select count(*) from spanmq_core.log_1") == 1
    assert len(client.send_batch("orders", range(LARGE))) == LARGE


# Rights, and older schemas.


@pytest.fixture
def producer(database: str, observer: Connection) -> Iterator[str]:
    """The DSN of a role without any right."""
    name = sql.Identifier(f"producer_{one(observer, 'select current_database()')}"[:60])
    observer.execute(sql.SQL("create role {} login").format(name))
    yield make_conninfo(database, user=name.as_string(None).strip('"'))
    observer.execute(sql.SQL("drop owned by {}; drop role {}").format(name, name))


def role_of(dsn: str) -> sql.Identifier:
    return sql.Identifier(str(psycopg.conninfo.conninfo_to_dict(dsn)["user"]))


def grant(observer: Connection, dsn: str, verb: str) -> None:
    role = psycopg.conninfo.conninfo_to_dict(dsn)["user"]
    observer.execute("select spanmq.grant_queue(%s, 'orders', %s)", [role, verb])


def test_role_that_may_not_write_into_the_log_sends_in_calls(
    client: Client, observer: Connection, producer: str, copied: Counts
) -> None:
    for verb in ("send", "receive"):
        grant(observer, producer, verb)
    with Client(producer) as other:
        message_ids = other.send_batch("orders", range(LARGE))
        assert [message.message_id for message in other.receive("orders", LARGE)] == message_ids
    assert copied() == (0, 0)
    # The refusal came before any id was drawn.
    assert message_ids == list(range(1, LARGE + 1))


def test_role_needs_schema_and_segment(
    client: Client, observer: Connection, producer: str, copied: Counts
) -> None:
    role = role_of(producer)
    grant(observer, producer, "send")
    client.send("orders", 0)
    log_table = one(observer, "select log_name from spanmq_core.segment order by lo desc limit 1")
    with psycopg.Connection.connect(producer, autocommit=True) as connection:
        own = Client(connection=connection)
        observer.execute(
            sql.SQL("grant insert on spanmq_core.{} to {}").format(sql.Identifier(log_table), role)
        )
        assert len(own.send_batch("orders", range(LARGE))) == LARGE
        assert copied() == (0, 0)
        observer.execute(sql.SQL("grant usage on schema spanmq_core to {}").format(role))
        assert len(own.send_batch("orders", range(LARGE))) == LARGE
        assert copied() == (1, LARGE)
        # It may look, so that it is told what it lacks.
        grant(observer, producer, "look")
        observer.execute("select spanmq.revoke_queue(%s, 'orders', 'send')", [role.as_string().strip('"')])
        with pytest.raises(MissingPrivilegeError) as caught:
            own.send_batch("orders", range(LARGE))
        assert caught.value.function == "send_batch"
        with pytest.raises(InsufficientPrivilege):
            connection.execute("select spanmq.copy_publish('orders', array[1], array[1])")
    assert (client.queues.metrics("orders")).length == 1 + 2 * LARGE


def test_rest_goes_in_calls_where_a_segment_is_closed_to_the_role(
    client: Client, observer: Connection, producer: str, copied: Counts
) -> None:
    role = role_of(producer)
    grant(observer, producer, "send")
    statements = "grant usage on schema spanmq_core to {0}; grant insert on spanmq_core.{1} to {0}"
    client.send("orders", 0)
    [(newest, first)] = observer.execute(
        "select log_name, lo from spanmq_core.segment order by lo desc limit 1"
    ).fetchall()
    observer.execute(sql.SQL(statements).format(role, sql.Identifier(newest)))
    size = one(observer, "select segment_size from spanmq_core.queue")
    client.send_batch("orders", range(first + size - 12_000 - 2))
    before = copied()
    with Client(producer) as other:
        message_ids = other.send_batch("orders", range(22_000))
    assert copied() == (before[0] + 1, before[1] + 10_000)
    assert len(message_ids) == 22_000
    assert message_ids == sorted(message_ids)


def test_schema_without_copy_gets_calls(
    client: Client, observer: Connection, copied: Counts, database: str
) -> None:
    observer.execute("drop function spanmq.copy_publish(text, bigint[], bigint[], timestamptz)")
    assert len(client.send_batch("orders", range(LARGE))) == LARGE
    with psycopg.Connection.connect(database) as connection:
        assert len(Client(connection=connection).send_batch("orders", range(LARGE))) == LARGE
    assert copied() == (0, 0)
    assert (client.queues.metrics("orders")).length == 2 * LARGE


def test_upstream_gets_calls(upstream: Client) -> None:
    assert len(upstream.send_batch("orders", range(LARGE))) == LARGE


def test_pipeline_and_other_encodings_get_calls(client: Client, database: str, copied: Counts) -> None:
    with (
        psycopg.Connection.connect(database, autocommit=True) as connection,
        connection.pipeline(),
    ):
        assert len(Client(connection=connection).send_batch("orders", range(LARGE))) == LARGE
    with psycopg.Connection.connect(database, client_encoding="latin1", autocommit=True) as connection:
        Client(connection=connection).send_batch("orders", ["é"] * LARGE)
    assert copied() == (0, 0)
    assert (client.receive("orders", 9_999))[-1].body == "é"
