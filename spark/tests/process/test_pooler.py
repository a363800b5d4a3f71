"""The sink into a table through PgBouncer: it needs no session that lasts longer than a transaction."""

from pathlib import Path

import psycopg
import pytest
from spark.tests.conftest import new_role
from spark.tests.protocol import SEAMS, sink_to
from spark.tests.test_table_sink import SCHEMA, TABLE, batch, drain, ids_in, sink
from tests.process.pooler import pooler

from spanmq.client import Client


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_role_without_more_rights_writes_each_epoch_once_through_a_pooler(
    empty_database: str, mode: str
) -> None:
    with psycopg.connect(empty_database, autocommit=True) as owner, new_role(empty_database) as role:
        owner.execute(TABLE)
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


@pytest.mark.parametrize("kill", SEAMS)
def test_killed_stream_writes_each_message_once_through_a_pooler(
    client: Client, database: str, empty_database: str, tmp_path: Path, kill: str
) -> None:
    with psycopg.connect(empty_database, autocommit=True) as owner, pooler(empty_database) as dsn:
        drain(client, database, owner, dsn, tmp_path / "checkpoint", kill)
