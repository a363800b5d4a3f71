"""Bulk writes: rows first, published by one transaction; what is not published never was."""

import threading

import psycopg
import pytest
from psycopg import sql
from tests.sql.queue import Connection, one, sqlstate_of

from spanmq.client import Client
from spanmq.testing import wait_until_waiting


@pytest.fixture
def client(connection: Connection) -> Client:
    client = Client(connection=connection)
    client.queues.create("orders")
    return client


def write(
    connection: Connection, n: int, epoch: int = 0, headers: str | None = None, skip: int = 0
) -> tuple[int | None, list[int]]:
    """Do what a task does; returns the write and its blocks."""
    blocks = connection.execute(
        "select * from spanmq.bulk_reserve('orders', 'w', %s, %s)", [epoch, n]
    ).fetchall()
    for _, _, log_table, first, last, at in blocks:
        statement = sql.SQL(
            "insert into spanmq_core.{} select id, %s, to_jsonb(id), cast(%s as jsonb)"
            " from generate_series(%s::bigint, %s) id"
        )
        connection.execute(statement.format(sql.Identifier(log_table)), [at, headers, first + skip, last])
    ids = [block[1] for block in blocks]
    assert one(connection, "select spanmq.bulk_seal('orders', %s)", ids) == (n - skip if blocks else 0)
    return (blocks[0][0] if blocks else None), ids


def publish(connection: Connection, write_id: int | None, blocks: list[int], epoch: int = 0) -> int:
    return int(
        one(connection, "select spanmq.bulk_publish('orders', 'w', %s, %s, %s)", epoch, write_id, blocks)
    )


def test_sealing_again_changes_nothing(client: Client, connection: Connection) -> None:
    write_id, blocks = write(connection, 10, headers='{"x-pgmq-group": "g"}')
    assert one(connection, "select spanmq.bulk_seal('orders', %s)", blocks) == 10
    assert publish(connection, write_id, blocks) == 10
    assert client.queues.metrics("orders").length == 10


def test_closed_write_is_not_published(client: Client, connection: Connection) -> None:
    write_id, blocks = write(connection, 10)
    assert one(connection, "select spanmq.bulk_close('orders', 'w', 0)") is None
    assert sqlstate_of(connection, lambda: publish(connection, write_id, blocks)) == "MQ050"
    # The epoch runs again, under another write: the late publish of the first still fails.
    again, more = write(connection, 4)
    assert sqlstate_of(connection, lambda: publish(connection, write_id, blocks)) == "MQ050"
    assert publish(connection, again, more) == 4


def test_abort_of_what_is_published_changes_nothing(client: Client, connection: Connection) -> None:
    write_id, blocks = write(connection, 10)
    assert publish(connection, write_id, blocks) == 10
    assert one(connection, "select spanmq.bulk_close('orders', 'w', 0)") == 10
    assert client.queues.metrics("orders").length == 10


def test_missing_rows_are_noticed(client: Client, connection: Connection) -> None:
    write_id, blocks = write(connection, 10, skip=1)
    assert sqlstate_of(connection, lambda: publish(connection, write_id, blocks)) == "MQ002"
    assert client.queues.metrics("orders").length == 0


def test_groups_come_with_their_spans(client: Client, connection: Connection) -> None:
    write_id, blocks = write(connection, 300, headers='{"x-pgmq-group": "a"}')
    _, more = write(connection, 3)
    assert publish(connection, write_id, blocks + more) == 303
    received = client.read("orders", 10, lease=30, grouped="head")
    assert [(message.message_id, message.group) for message in received] == [(1, "a"), (301, None)]


def test_abandoned_write_is_swept(database: str) -> None:
    with Client(database) as client, psycopg.connect(database, autocommit=True) as own:
        client.queues.create("orders")
        write_id, blocks = write(own, 10)
        while client.admin.maintain():
            pass
        assert one(own, "select count(*) from spanmq_core.bulk_block") == 1
        own.execute("update spanmq_core.bulk_write set opened_at = now() - interval '2 days'")
        own.execute("update spanmq_core.bulk_block set reserved_at = now() - interval '2 days'")
        while client.admin.maintain():
            pass
        assert one(own, "select count(*) from spanmq_core.bulk_block") == 0
        assert sqlstate_of(own, lambda: publish(own, write_id, blocks)) == "MQ050"


def test_two_who_publish_one_epoch_send_it_once(database: str) -> None:
    with (
        Client(database) as client,
        psycopg.connect(database) as first,
        psycopg.connect(database, autocommit=True) as second,
        psycopg.connect(database, autocommit=True) as observer,
    ):
        client.queues.create("orders")
        write_id, blocks = write(second, 10)
        assert publish(first, write_id, blocks) == 10
        results: list[int] = []
        thread = threading.Thread(target=lambda: results.append(publish(second, write_id, blocks)))
        thread.start()
        wait_until_waiting(observer, second.info.backend_pid)
        first.commit()
        thread.join()
        assert results == [-1]
        assert client.queues.metrics("orders").length == 10


def test_segment_with_a_reserved_block_stays(database: str) -> None:
    with Client(database) as client, psycopg.connect(database, autocommit=True) as own:
        client.queues.create("orders", partition_interval=256)
        own.execute("select setval('pgmq.q_orders_msg_id_seq', 16100)")
        write_id, blocks = write(own, 50)
        client.delete("orders", client.send_batch("orders", range(2000)))
        for _ in range(40):
            client.admin.maintain()
        assert publish(own, write_id, blocks) == 50
        assert len(client.receive("orders", 100)) == 50


@pytest.mark.parametrize("headers", ["[]", "3", "null"])
def test_headers_that_are_not_an_object_are_refused(
    client: Client, connection: Connection, headers: str
) -> None:
    assert sqlstate_of(connection, lambda: write(connection, 3, headers=headers)) == "MQ002"
    copied = connection.execute("select * from spanmq.copy_begin('orders', 1)").fetchall()
    [(log_table, first, last, _)] = copied
    statement = sql.SQL("insert into spanmq_core.{} values (%s, now(), '1', %s)")
    connection.execute(statement.format(sql.Identifier(log_table)), [first, headers])
    publish = f"select spanmq.copy_publish('orders', '{{{first}}}', '{{{last}}}')"
    assert sqlstate_of(connection, publish) == "MQ002"


def test_maintenance_forgets_writes_without_a_name_after_a_day(
    client: Client, connection: Connection
) -> None:
    for writer in ("write:1", "write:2", "job:1"):
        connection.execute("select spanmq.bulk_publish('orders', %s, 0)", [writer])
    connection.execute(
        "update spanmq_core.bulk_ledger set published_at = now() - interval '25 hours' where writer <> 'write:2'"
    )
    connection.execute("select * from spanmq.maintain()")
    found = connection.execute("select writer from spanmq_core.bulk_ledger order by 1").fetchall()
    assert found == [("job:1",), ("write:2",)]


def test_writer_of_an_earlier_release_did_not_record_all_epochs(
    client: Client, connection: Connection
) -> None:
    def publish(epoch: int, *, records_all: bool = True) -> int:
        return int(
            one(
                connection,
                "select spanmq.bulk_publish('orders', 'query:1', %s, records_all => %s)",
                epoch,
                records_all,
            )
        )

    assert [publish(epoch, records_all=False) for epoch in (1, 5)] == [0, 0]
    # Epochs 6 to 8 had no rows.
    assert [publish(epoch) for epoch in (9, 9, 10)] == [0, -1, 0]
    assert sqlstate_of(connection, lambda: publish(12)) == "MQ055"
    assert sqlstate_of(connection, lambda: publish(9)) == "MQ055"
    assert one(connection, "select array_agg(e) from spanmq.published_epochs('orders', 'query:1') e") == [
        1,
        5,
        9,
        10,
    ]
