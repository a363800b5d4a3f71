"""Large batches by COPY: what arrives is what calls would send, and nobody can publish what isn't theirs."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege
from tests.client.concurrency import AsyncTasks, until_async
from tests.patience import WAIT_SECONDS

from spanmq.client import AsyncClient
from spanmq.codec.body import RawJson
from spanmq.errors import (
    ConnectionLostError,
    InvalidArgumentError,
    InvalidBodyError,
    MissingPrivilegeError,
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
async def test_content_headers_and_groups_come_back(
    client: AsyncClient, copied: Counts, unlogged: bool
) -> None:
    await client.queues.create("mixed", unlogged=unlogged)
    bodies = [BODIES[number % len(BODIES)] for number in range(LARGE)]
    headers = [None if number % 3 else {"number": number, "text": '"\\\n'} for number in range(LARGE)]
    groups = [None if number % 5 else f"customer-{number % 7}" for number in range(LARGE)]
    message_ids = await client.send_batch("mixed", bodies, headers=headers, group=groups)
    assert copied() == (1, LARGE)
    assert message_ids == sorted(set(message_ids))
    messages = await client.receive("mixed", LARGE + 1)
    assert [message.message_id for message in messages] == message_ids
    expected = [{"spaced": 1} if isinstance(body, RawJson) else body for body in bodies]
    assert [message.body for message in messages] == expected
    assert [message.group for message in messages] == groups
    for message, own, group in zip(messages, headers, groups, strict=True):
        whole = {**(own or {}), **({"x-pgmq-group": group} if group else {})}
        assert (message.headers or {}) == whole
        assert message.attempt == 1
        assert abs(message.enqueued_at - datetime.now(UTC)) < timedelta(minutes=1)


async def test_copy_and_calls_send_the_same(
    client: AsyncClient, observer: Connection, copied: Counts
) -> None:
    await client.queues.create("calls")
    await client.queues.create("copies")
    headers = [{"n": n} if n % 2 else None for n in range(LARGE)]
    groups = [f"g{n % 3}" if n % 4 else None for n in range(LARGE)]
    for start in range(0, LARGE, 500):
        end = start + 500
        await client.send_batch(
            "calls", range(start, end), headers=headers[start:end], group=groups[start:end]
        )
    assert copied() == (0, 0)
    await client.send_batch("copies", range(LARGE), headers=headers, group=groups)
    assert copied() == (1, LARGE)
    log = (
        "select array_agg((l.msg_id, l.message, l.headers) order by l.msg_id)::text from spanmq_core.log_{} l"
    )
    rows = (
        "select array_agg((s.msg_id, s.group_hash, s.group_key) order by s.msg_id)::text"
        " from spanmq_core.state s where s.queue_id = %s"
    )
    queues = [
        one(observer, "select queue_id from spanmq_core.queue where name = %s", name)
        for name in ("calls", "copies")
    ]
    for query in (log, rows):
        values = {one(observer, query.format(q), *([q] if "%s" in query else [])) for q in queues}
        assert len(values) == 1


PAST, FUTURE = datetime(2013, 1, 1, tzinfo=UTC), datetime(2063, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize("delay", [3600, timedelta(hours=1), FUTURE, PAST])
async def test_delayed_batch_is_hidden(client: AsyncClient, copied: Counts, delay: Any) -> None:
    await client.send_batch("orders", range(LARGE), delay=delay)
    assert copied() == (1, LARGE)
    assert (await client.queues.metrics("orders")).length == LARGE
    [message] = await client.peek("orders", 1)
    is_hidden = message.leased_until > datetime.now(UTC) + timedelta(seconds=1800)
    assert is_hidden == (delay != PAST)
    assert len(await client.receive("orders", LARGE)) == (0 if is_hidden else LARGE)


@pytest.mark.parametrize("delay", ["soon", -1, datetime(2063, 4, 5)])
async def test_impossible_delay_writes_nothing(
    client: AsyncClient, observer: Connection, copied: Counts, delay: Any
) -> None:
    with pytest.raises(InvalidArgumentError):
        await client.send_batch("orders", range(LARGE), delay=delay)
    assert copied() == (0, 0)
    assert one(observer, "select last_value from pgmq.q_orders_msg_id_seq") == 1


async def test_large_text_is_copied_too(client: AsyncClient, copied: Counts) -> None:
    bodies = [character * 3_000_000 for character in "abcdefgh"]
    assert len(await client.send_batch("orders", bodies)) == 8
    assert copied() == (4, 8)
    assert [message.body for message in await client.receive("orders", 9)] == bodies


async def test_small_batch_is_not_copied(client: AsyncClient, copied: Counts) -> None:
    await client.send_batch("orders", range(1_999))
    assert copied() == (0, 0)


async def test_chunks_and_a_small_rest_keep_their_order(client: AsyncClient, copied: Counts) -> None:
    message_ids = await client.send_batch("orders", (n for n in range(22_001)))
    assert copied() == (3, 22_001)
    more_ids = await client.send_batch("orders", range(10_001))
    assert copied() == (4, 32_001)
    assert [message.body for message in await client.receive("orders", 99_999)] == [
        *range(22_001),
        *range(10_001),
    ]
    assert message_ids + more_ids == list(range(1, 32_003))


async def test_batch_crosses_segments(client: AsyncClient, observer: Connection, copied: Counts) -> None:
    # The segments but the first hold 256 messages; the next id is 16,201 of 16,383.
    await client.queues.create("small", partition_interval=256)
    observer.execute("select setval('pgmq.q_small_msg_id_seq', 16200)")
    message_ids = await client.send_batch("small", range(LARGE))
    assert copied() == (1, LARGE)
    used = "select count(distinct tableoid) from spanmq_core.log_2"
    assert one(observer, used) >= LARGE // 256
    assert [message.body for message in await client.receive("small", 9_999)] == list(range(LARGE))
    assert message_ids == list(range(16_201, 16_201 + LARGE))


async def test_ids_with_gaps_are_runs(client: AsyncClient, observer: Connection, copied: Counts) -> None:
    # Two senders draw at the same time: every second id of the batch is the other's.
    observer.execute("alter sequence pgmq.q_orders_msg_id_seq increment by 2")
    bodies = [f"{n}" * 10_000 for n in range(100, 150)]
    message_ids = await client.send_batch("orders", bodies)
    assert copied() == (1, 50)
    assert message_ids == list(range(1, 100, 2))
    messages = await client.receive("orders", 99)
    assert [(each.message_id, each.body) for each in messages] == list(zip(message_ids, bodies, strict=True))


async def test_copy_notifies(client: AsyncClient, observer: Connection, copied: Counts) -> None:
    await client.admin.notifications.enable("orders", throttle=0)
    observer.execute('listen "pgmq.q_orders.INSERT"')
    await client.send_batch("orders", range(LARGE))
    assert copied() == (1, LARGE)
    assert len(list(observer.notifies(timeout=WAIT_SECONDS, stop_after=1))) == 1


# All or nothing.


async def test_savepoint_is_rolled_back_alone(client: AsyncClient, copied: Counts) -> None:
    async with client.transaction() as outer:
        await outer.send_batch("orders", range(LARGE))
        await outer.connection.execute("savepoint before")
        await outer.send_batch("orders", range(LARGE))
        await outer.connection.execute("rollback to savepoint before")
        async with outer.transaction() as inner:
            await inner.send_batch("orders", range(LARGE, LARGE + LARGE))
    assert copied() == (3, 3 * LARGE)
    assert [message.body for message in await client.receive("orders", 9_999)] == list(range(LARGE + LARGE))


@pytest.mark.parametrize("autocommit", [True, False])
async def test_connection_is_left_as_it_was(
    client: AsyncClient, database: str, copied: Counts, autocommit: bool
) -> None:
    left = psycopg.pq.TransactionStatus.IDLE if autocommit else psycopg.pq.TransactionStatus.INTRANS
    async with await psycopg.AsyncConnection.connect(database, autocommit=autocommit) as connection:
        await AsyncClient(connection=connection).send_batch("orders", range(LARGE))
        assert copied() == (1, LARGE)
        assert connection.info.transaction_status == left
        for _ in range(2):
            assert (await client.queues.metrics("orders")).length == (LARGE if autocommit else 0)
            await connection.rollback()
        await AsyncClient(connection=connection).send_batch("orders", range(LARGE))
    assert (await client.queues.metrics("orders")).length == (2 * LARGE if autocommit else LARGE)


@pytest.mark.parametrize("position", [5, 12_000])
async def test_body_that_the_server_refuses_sends_nothing(
    client: AsyncClient, copied: Counts, position: int
) -> None:
    bodies: list[object] = [*range(13_000)]
    bodies[position] = RawJson("{no json}")
    with pytest.raises(InvalidBodyError) as caught:
        await client.send_batch("orders", bodies)
    assert (caught.value.function, caught.value.queue) == ("send_batch", "orders")
    assert copied() > (0, 0)
    assert (await client.queues.metrics("orders")).length == 0


@pytest.mark.parametrize("position", [5, 12_000])
async def test_body_that_can_not_be_encoded_sends_nothing(
    client: AsyncClient, database: str, position: int
) -> None:
    bodies: list[object] = [*range(13_000)]
    bodies[position] = object()
    with pytest.raises(InvalidBodyError):
        await client.send_batch("orders", iter(bodies))
    async with await psycopg.AsyncConnection.connect(database) as connection:
        with pytest.raises(InvalidBodyError):
            await AsyncClient(connection=connection).send_batch("orders", iter(bodies))
        # Refused before the transaction knew of it.
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert (await client.queues.metrics("orders")).length == 0


COPY_WAITS = (
    "select count(*) > 0 from pg_stat_activity where datname = current_database()"
    " and query like 'copy %' and wait_event = 'advisory'"
)


async def test_connection_killed_in_mid_copy_leaves_nothing(
    client: AsyncClient, observer: Connection
) -> None:
    await client.send("orders", 0)
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
    async with AsyncTasks() as tasks:
        sending = tasks.start(client.send_batch, "orders", ["x" * 250] * LARGE)
        await until_async(observer, COPY_WAITS)
        ended = observer.execute(
            f"select pg_terminate_backend(pid, {1000 * WAIT_SECONDS:.0f}) from pg_stat_activity"
            " where datname = current_database() and query like 'copy %'"
        ).fetchall()
        assert ended == [(True,)]
        with pytest.raises(ConnectionLostError):
            await sending()
    observer.execute("select pg_advisory_unlock(1)")
    assert (await client.queues.metrics("orders")).length == 1
    assert one(observer, "select count(*) from spanmq_core.log_1") == 1
    assert len(await client.send_batch("orders", range(LARGE))) == LARGE


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


async def test_role_that_may_not_write_into_the_log_sends_in_calls(
    client: AsyncClient, observer: Connection, producer: str, copied: Counts
) -> None:
    for verb in ("send", "receive"):
        grant(observer, producer, verb)
    async with AsyncClient(producer) as other:
        message_ids = await other.send_batch("orders", range(LARGE))
        assert [message.message_id for message in await other.receive("orders", LARGE)] == message_ids
    assert copied() == (0, 0)
    # The refusal came before any id was drawn.
    assert message_ids == list(range(1, LARGE + 1))


async def test_role_needs_the_verb(
    client: AsyncClient, observer: Connection, producer: str, copied: Counts
) -> None:
    grant(observer, producer, "send")
    await client.send("orders", 0)
    async with await psycopg.AsyncConnection.connect(producer, autocommit=True) as connection:
        own = AsyncClient(connection=connection)
        assert len(await own.send_batch("orders", range(LARGE))) == LARGE
        assert copied() == (0, 0)
        grant(observer, producer, "bulk")
        assert len(await own.send_batch("orders", range(LARGE))) == LARGE
        assert copied() == (1, LARGE)
        # It may look, so that it is told what it lacks.
        grant(observer, producer, "look")
        role = role_of(producer).as_string().strip('"')
        observer.execute("select spanmq.revoke_queue(%s, 'orders', 'send')", [role])
        with pytest.raises(MissingPrivilegeError) as caught:
            await own.send_batch("orders", range(LARGE))
        assert caught.value.function == "send_batch"
        with pytest.raises(InsufficientPrivilege):
            await connection.execute("select spanmq.copy_publish('orders', array[1], array[1])")
    assert (await client.queues.metrics("orders")).length == 1 + 2 * LARGE


async def test_bulk_writer_may_write_into_segments_to_come(
    client: AsyncClient, observer: Connection, producer: str, copied: Counts
) -> None:
    grant(observer, producer, "bulk")
    await client.send("orders", 0)
    first = one(observer, "select max(lo) from spanmq_core.segment")
    size = one(observer, "select segment_size from spanmq_core.queue")
    await client.send_batch("orders", range(first + size - 12_000 - 2))
    before = copied()
    async with AsyncClient(producer) as other:
        message_ids = await other.send_batch("orders", range(22_000))
    assert copied()[1] == before[1] + 22_000
    assert one(observer, "select max(lo) from spanmq_core.segment") > first
    assert len(message_ids) == 22_000
    assert message_ids == sorted(message_ids)


async def test_schema_without_copy_gets_calls(
    client: AsyncClient, observer: Connection, copied: Counts, database: str
) -> None:
    observer.execute("drop function spanmq.copy_publish(text, bigint[], bigint[], timestamptz)")
    assert len(await client.send_batch("orders", range(LARGE))) == LARGE
    async with await psycopg.AsyncConnection.connect(database) as connection:
        assert len(await AsyncClient(connection=connection).send_batch("orders", range(LARGE))) == LARGE
    assert copied() == (0, 0)
    assert (await client.queues.metrics("orders")).length == 2 * LARGE


async def test_pipeline_and_other_encodings_get_calls(
    client: AsyncClient, database: str, copied: Counts
) -> None:
    async with (
        await psycopg.AsyncConnection.connect(database, autocommit=True) as connection,
        connection.pipeline(),
    ):
        assert len(await AsyncClient(connection=connection).send_batch("orders", range(LARGE))) == LARGE
    async with await psycopg.AsyncConnection.connect(
        database, client_encoding="latin1", autocommit=True
    ) as connection:
        await AsyncClient(connection=connection).send_batch("orders", ["é"] * LARGE)
    assert copied() == (0, 0)
    assert (await client.receive("orders", 9_999))[-1].body == "é"
