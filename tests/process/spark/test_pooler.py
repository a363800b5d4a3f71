"""The sink into a table through PgBouncer: it needs no session that lasts longer than a transaction."""

import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.process.pooler import pooler
from tests.spark.protocol import SEAMS, Source, Stream, sink_to
from tests.spark.test_table_sink import SCHEMA, TABLE, batch, ids_in, of, sink

from spanmq.client import Client


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_role_without_more_rights_writes_each_epoch_once_through_a_pooler(
    empty_database: str, mode: str
) -> None:
    role = f"pooled_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(empty_database, autocommit=True) as owner:
        owner.execute(TABLE)
        owner.execute(f"create role {role} login".encode())
        try:
            owner.execute(f"create schema stage authorization {role}".encode())
            owner.execute(f"grant select, insert, update on public.orders to {role}".encode())
            with pooler(empty_database, user=role) as dsn:
                write = sink_to(sink(dsn, mode=mode, stageSchema="stage"), of=SCHEMA)
                for epoch in range(10):
                    first = epoch * 6
                    write("query", epoch, [batch(*range(first, first + 4)), batch(first + 4, first + 5)])
                    write("query", epoch, [batch(*range(first, first + 6))])
            assert ids_in(owner) == list(range(60))
            assert owner.execute("select count(*) from stage.ledger").fetchone() == (10,)
        finally:
            owner.execute(f"drop owned by {role} cascade; drop role {role}".encode())


@pytest.mark.parametrize("kill", SEAMS)
def test_killed_stream_writes_each_message_once_through_a_pooler(
    client: Client, database: str, empty_database: str, tmp_path: Path, kill: str
) -> None:
    with psycopg.connect(empty_database, autocommit=True) as owner, pooler(empty_database) as dsn:
        owner.execute("create table bodies (message_id bigint, body jsonb)")
        source: dict[str, Any] = {"dsn": database, "queue": "orders", "columns": "message_id, body"}
        stream = Stream(source, tmp_path / "checkpoint")
        target = Source({"dsn": dsn, "table": "bodies"}).source
        stream.sink = sink_to(target, of=of("message_id long, body string"))
        for first in range(0, 40, 10):
            client.send_batch("orders", range(first, first + 10))
            stream.run(kill=kill if first % 20 else "")
        stream.run()
        stream.stop()
        assert [n for (n,) in owner.execute("select body::int from bodies order by 1")] == list(range(40))
