"""The programs and queries of the page about reports, over a lake of two queues."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from spark.tests.test_goes_back import SESSION
from tests.documented import programs

from spanmq.client import Client
from spanmq_spark.jobs.export import export

duck = pytest.importorskip("spark.tests.duck")

PAGE = "guides/lake-reports"
# In the order of their programs on the page.
FORMATS = ("ducklake", "delta", "iceberg", "parquet")


@pytest.mark.parametrize("kind", FORMATS)
def test_reports_of_the_page_are_right(client: Client, database: str, tmp_path: Path, kind: Any) -> None:
    folder = tmp_path / "lake"
    client.queues.create("7")
    client.send_batch("7", [1, 2], group="a")
    client.send_batch("orders", range(6), group="a")
    client.nack(client.receive("orders", 6), "first", category="TRANSIENT", retry_in=0)
    client.reject(client.receive("orders", 4), "bad", category="PERMANENT")
    write: Callable[..., Any] = partial(export, SESSION, database, to=folder, format=kind)
    write("orders", table="dead_letters")
    client.dead_letters.redrive("orders", limit=1, delay=0)
    client.reject(client.receive("orders", 2), "again", category="PERMANENT")
    for queue in ("orders", "7"):
        client.archive(queue, [each.message_id for each in client.receive(queue, 10)])
        with psycopg.connect(database) as connection:
            times = "enqueued_at = archived_at - interval '10 s', last_read_at = archived_at - interval '4 s'"
            connection.execute(f'update pgmq."a_{queue}" set {times}')
        write(queue)
    write("orders", table="dead_letters")
    if kind == "parquet":
        # What a killed export leaves is not read.
        [file, *_] = sorted(folder.glob("archive/**/*.parquet"))
        file.with_name("left.parquet").write_bytes(file.read_bytes())
    program = programs(PAGE)[FORMATS.index(kind)].replace("/data/lake", str(folder))
    uri = database.replace("postgresql", "postgresql+psycopg", 1)
    scope: dict[str, Any] = {"dsn": database, "connected": duck.connected, "uri": uri}
    exec(program.replace("duckdb.connect()", "connected()"), scope)
    lake = scope["lake"]

    by_queue, by_time, slowest, failures = programs(PAGE, "sql")
    rows = lake.execute(by_queue).fetchall()
    took = [6.0, 6.0], [4.0, 4.0]
    assert [(row[:2], *row[4:]) for row in rows] == [
        (("7", 2), *took, 1.0, 0),
        (("orders", 1), *took, 2.0, 1),
    ]
    assert sum(row[2] for row in lake.execute(by_time).fetchall()) == 3
    found = lake.execute(slowest).fetchall()
    assert sorted((row[0], row[1], row[2], row[4]) for row in found) == [
        ("7", "a", 2, 1),
        ("orders", "a", 1, 2),
    ]
    assert [row[:4] for row in lake.execute(failures).fetchall()] == [
        ("orders", "PERMANENT", "dead", 6),
        ("orders", "TRANSIENT", "retrying", 5),
    ]
    lake.close()
