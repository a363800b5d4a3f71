"""copy_begin and copy_publish: what they refuse, and that they keep to what every sender does."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.sql.queue import Connection, one

from spanmq.client import Client


def begin(connection: Connection, queue: str, n: int) -> list[tuple[str, int, int, datetime]]:
    return connection.execute("select * from spanmq.copy_begin(%s, %s)", [queue, n]).fetchall()


def write(connection: Connection, log_table: str, first: int, last: int) -> None:
    statement = sql.SQL(
        "insert into spanmq_core.{} select id, now(), '1' from generate_series(%s::bigint, %s) id"
    )
    connection.execute(statement.format(sql.Identifier(log_table)), [first, last])


def publish(
    connection: Connection, first: int | list[int], last: int | list[int], queue: str = "orders"
) -> list[int]:
    firsts = [first] if isinstance(first, int) else first
    lasts = [last] if isinstance(last, int) else last
    rows = connection.execute(
        "select * from spanmq.copy_publish(%s, %s::bigint[], %s::bigint[])", [queue, firsts, lasts]
    )
    return [row[0] for row in rows]


def near_the_end_of_the_first_segment(client: Client, observer: Connection) -> None:
    """Make a queue whose segments but the first hold 256 messages, and whose next id is 16,201 of 16,383."""
    client.queues.create("small", partition_interval=256)
    observer.execute("select setval('pgmq.q_small_msg_id_seq', 16200)")


# What copy_publish refuses.


def refused(observer: Connection, act: Callable[[], object], match: str) -> None:
    with pytest.raises(psycopg.Error, match=match) as caught, observer.transaction():
        act()
    assert caught.value.sqlstate == "MQ002"


@pytest.mark.parametrize(
    ("firsts", "lasts"),
    [
        (None, None),
        ([], []),
        ([1], []),
        ([1], [None]),
        ([1, 2], [1]),
        ([2], [1]),
        ([1, 1], [1, 1]),
        ([2, 1], [2, 1]),
    ],
    ids=repr,
)
def test_impossible_runs_are_refused(client: Client, observer: Connection, firsts: Any, lasts: Any) -> None:
    def act() -> None:
        [(log_table, first, last, _)] = begin(observer, "orders", 2)
        write(observer, log_table, first, last)
        publish(observer, firsts, lasts)

    refused(observer, act, "first_ids and last_ids")


def test_second_publish_is_refused(client: Client, observer: Connection) -> None:
    def act(again_first: int, again_last: int, *, leased: bool = False) -> None:
        [(log_table, first, last, _)] = begin(observer, "orders", 600)
        write(observer, log_table, first, last)
        publish(observer, first, last)
        if leased:
            observer.execute("select from spanmq.receive('orders', 600)")
        publish(observer, first + again_first, first + again_last)

    for leased in (False, True):
        for run in ((0, 599), (0, 0), (599, 599), (300, 310)):
            refused(observer, lambda run=run, leased=leased: act(*run, leased=leased), "published already")  # type: ignore[misc]
    assert client.queues.metrics("orders").length == 0


def test_missing_rows_are_refused(client: Client, observer: Connection) -> None:
    def act(skip_first: int, skip_last: int) -> None:
        [(log_table, first, last, _)] = begin(observer, "orders", 10)
        write(observer, log_table, first + skip_first, last - skip_last)
        publish(observer, first, last)

    refused(observer, lambda: act(1, 0), "has 9 of the 10")
    refused(observer, lambda: act(0, 1), "has 9 of the 10")
    refused(observer, lambda: act(10, 0), "has 0 of the 10")
    refused(observer, lambda: publish(observer, 10**15, 10**15), "open segment")
    refused(observer, lambda: publish(observer, -5, -5), "open segment")


def test_rows_of_others_are_refused(client: Client, observer: Connection, database: str) -> None:
    # Settled ones, whose rows still lie in the log; and those that a transaction forgot to publish.
    settled = client.send_batch("orders", range(3))
    client.pop("orders", 3)
    refused(observer, lambda: publish(observer, settled[0], settled[-1]), "not written by this transaction")
    with psycopg.connect(database) as connection:
        [(log_table, first, last, _)] = begin(connection, "orders", 3)
        write(connection, log_table, first, last)
    refused(observer, lambda: publish(observer, first, last), "not written by this transaction")

    def mixed() -> None:
        [(log_table, first, last, _)] = begin(observer, "orders", 3)
        write(observer, log_table, first, last)
        publish(observer, first - 1, last)

    refused(observer, mixed, "not written by this transaction")
    assert client.queues.metrics("orders").length == 0


def test_rows_that_a_savepoint_took_back_are_refused(client: Client, observer: Connection) -> None:
    def act() -> None:
        [(log_table, first, last, _)] = begin(observer, "orders", 4)
        with observer.transaction():
            write(observer, log_table, first, first + 1)
        with observer.transaction(force_rollback=True):
            write(observer, log_table, first + 2, last)
        assert publish(observer, first, first + 1)
        publish(observer, first + 2, last)

    refused(observer, act, "has 0 of the 2")


# What every sender keeps to.


def test_sender_has_its_transaction_id_before_its_ids(client: Client, observer: Connection) -> None:
    # A sequence logs 32 values at a time, and only that would bring a transaction id along.
    client.send("orders", 1)
    with observer.transaction():
        begin(observer, "orders", 1)
        assert one(observer, "select pg_current_xact_id_if_assigned()") is not None


def test_segment_is_locked_before_the_first_row(client: Client, observer: Connection) -> None:
    with observer.transaction():
        [(log_table, *_)] = begin(observer, "orders", 1)
        mode = "select mode from pg_locks where pid = pg_backend_pid() and relation = %s::regclass"
        assert one(observer, mode, f"spanmq_core.{log_table}") == "RowExclusiveLock"


def test_segment_outlives_a_sender_that_is_still_copying(
    client: Client, observer: Connection, database: str
) -> None:
    near_the_end_of_the_first_segment(client, observer)
    # Segments ahead: else others would have to wait for the one that this transaction made.
    while client.admin.maintain():
        pass
    with psycopg.connect(database) as connection:
        runs = begin(connection, "small", 300)
        assert len(runs) == 2
        # Everything else passes these segments and is settled meanwhile.
        client.send_batch("small", range(1_000))
        client.pop("small", 1_000)
        for _ in range(30):
            client.admin.maintain()
        for log_table, first, last, _ in runs:
            write(connection, log_table, first, last)
        publish(connection, [run[1] for run in runs], [run[2] for run in runs], "small")
    for _ in range(30):
        client.admin.maintain()
    assert [message.message_id for message in client.receive("small", 999)] == list(range(16_201, 16_501))
