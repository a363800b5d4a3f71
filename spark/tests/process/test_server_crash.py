"""A PostgreSQL that crashes while a stream reads: with fsync, what was committed must be there."""

import json
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from lab.bench.history import Recorder, read
from spark.tests.protocol import Batches, Stream
from tests.histories import checked

from spanmq import embedded, schema
from spanmq.client import Client
from spanmq.errors import ConnectionFailedError, ConnectionLostError, ServerError
from spanmq.testing.databases import FAST_AND_FORGETFUL

SETTINGS = {**FAST_AND_FORGETFUL, "fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}


def test_server_that_crashes_in_mid_batch_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with embedded.temporary(settings=SETTINGS) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            schema.install(connection)
        with Client(server.dsn) as client:
            client.queues.create("orders")
        history = tmp_path / "history"
        with checked(server.dsn, history), Client(server.dsn) as client:
            # More than what fits into the buffers between server and Arrow.
            bodies = [{"n": i, "pad": "x" * 2000} for i in range(10_000)]
            with (
                Recorder(history, "sender") as recorder,
                recorder.call("send", groups=[None] * 10_000) as call,
            ):
                call.got = client.send_batch("orders", bodies)
            lake = Stream({"dsn": server.dsn, "queue": "orders", "minPartitions": 3}, tmp_path)
            keep = lake.sink

            def crash(query: str, epoch: int, tasks: list[Batches]) -> None:
                keep(query, epoch, tasks)
                server.kill()

            driver = lake.start()
            assert driver.step() == 0
            # A task that is under way when the server goes.
            start = driver.offsets[0]
            end = driver.reader.latestOffset(start, driver.reader.getDefaultReadLimit())
            reading = driver.reader.read(driver.reader.partitions(start, end)[0])
            next(reading)
            server.kill()
            with pytest.raises(ServerError, match="reading queue orders"):
                list(reading)
            with pytest.raises((ConnectionFailedError, ConnectionLostError)):
                driver.step()
            server.restart()
            # The driver's own connection is gone; the next driver finds the claim that is in no checkpoint.
            driver.stop()
            lake.sink = crash
            assert lake.run(kill="written") == []
            server.restart()
            lake.sink = keep
            assert lake.run() == [10_000]
            assert Counter(json.loads(row["body"])["n"] for row in lake.lake[1]) == Counter(range(10_000))
        assert {call.verb for call in read(history)} >= {"send", "claim", "confirm"}
        with Client(server.dsn) as client:
            assert client.queues.metrics("orders").length == 0
