"""Messages sent again out of lakes that exports wrote, and out of an archive."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from spark.tests.process.lakes import compacted
from typer.testing import CliRunner

from spanmq.cli.app import app
from spanmq.client import Client
from spanmq.errors import InvalidArgumentError, PipelineError
from spanmq_spark.jobs.archived import Archived
from spanmq_spark.jobs.backfill import backfill
from spanmq_spark.jobs.export import export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The headers of three kinds of messages, as PostgreSQL writes them, without those that it adds.
HEADERS = (
    '{"n": 1.10, "id": 12345678901234567890.125, "x-pgmq-group": "gr\u00fc\u00dfe"}',
    '{"list": [1, {"a": null}], "x-pgmq-group": 7}',
    None,
)
# A queue may have any name, and folders, addresses and statements write it in their own ways.
PAST = "gr\u00fcn #1 100%"
BODIES = ('{"amount": %s.00, "text": "\\u2028 \U0001f600"}', "[%s, 1e400]", '"%s"')


def send(dsn: str, queue: str, numbers: range) -> None:
    """Send and archive messages."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for n in numbers:
            text = BODIES[n % 3] % n
            [msg_id] = connection.execute(
                "select spanmq.send_messages(%s, array[%s]::jsonb[], array[%s]::jsonb[],"
                " expires_in => 900, max_attempts => 3)",
                [queue, text, HEADERS[n % 3]],
            ).fetchone() or [0]
            connection.execute("select pgmq.archive(%s, %s::bigint)", [queue, msg_id])


def rows_of(dsn: str, view: str, columns: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(f"select {columns} from pgmq.{view} order by 1".encode()).fetchall()


def expected(dsn: str) -> list[Any]:
    """Return what a replay must have sent: which, when, and bodies and headers as they are in the archive."""
    headers = "coalesce(headers - 'x-spanmq-expires-at', '{}')::text"
    return rows_of(dsn, f'"a_{PAST}"', f"msg_id, enqueued_at, message::text, {headers}")


@pytest.mark.parametrize("source", ["archive", "parquet", "delta", "iceberg", "ducklake", "store"])
def test_archived_messages_are_sent_again_as_they_were(
    client: Client,
    spark: SparkSession,
    database: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    source: Any,
) -> None:
    lake: Any = None if source == "archive" else tmp_path / "lake"
    if source == "store":
        lake = f"{request.getfixturevalue('object_store')}/{uuid.uuid4().hex}"
    kind: Any = "parquet" if source == "store" else source
    client.queues.create(PAST)
    client.queues.create("again")
    client.queues.create("others")
    for numbers in (range(12), range(12, 24)):
        for queue in (PAST, "others"):
            send(database, queue, numbers)
            if lake is not None:
                export(spark, database, queue, lake, format=kind)
    if source == "delta":
        assert compacted(lake) == (4, 2)
    # What a lake has it has when the database has it no longer.
    due = expected(database)
    times = [row[1] for row in due]
    if lake is not None:
        client.queues.drop(PAST)
    chosen = Archived(PAST, lake, since=times[6], until=times[18], where="message_id <> 9")
    run = partial(backfill, spark, database, "again", chosen, job_id="again")
    dry = run(dry_run=True)
    assert (dry.found, dry.sent, dry.oldest_at) == (11, 0, times[0])
    assert client.queues.metrics("again").length == 0
    assert (run().sent, run().sent) == (11, 0)
    was = "headers->'x-spanmq-replay-of'->>"
    columns = f"({was}'msg_id')::int, ({was}'enqueued_at')::timestamptz, message::text"
    sent = rows_of(database, "q_again", f"{columns}, (headers - 'x-spanmq-replay-of')::text")
    assert sent == [row for row in due[6:18] if row[0] != 9]
    groups: dict[str | None, list[int]] = {}
    for message in client.receive("again", 100):
        assert message.headers is not None
        groups.setdefault(message.group, []).append(message.headers["x-spanmq-replay-of"]["msg_id"])
    assert groups["gr\u00fc\u00dfe"] == [7, 10, 13, 16]
    assert groups["7"] == [8, 11, 14, 17]


def test_command_sends_messages_of_a_lake_again(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    client.archive("orders", client.send_batch("orders", [{"amount": n} for n in range(20)], group="a"))
    export(spark, database, "orders", tmp_path)
    client.queues.create("again")

    def spanmq(*arguments: str) -> tuple[int, str]:
        words = ["pipeline", "backfill", *arguments, "--job-id", "one", "--dsn", database]
        done = CliRunner().invoke(app, words)
        return done.exit_code, done.output

    lake = ("again", "--from-lake", str(tmp_path), "--of", "orders")
    where = ("--where", "get_json_object(body, '$.amount') >= 15")
    code, said = spanmq(*lake, *where, "--dry-run")
    oldest = client.inspect.archive("orders")[0].enqueued_at
    assert (code, f"would send 5 messages to queue again, of those since {oldest.isoformat()}" in said) == (
        0,
        True,
    )
    later = (oldest + timedelta(days=1)).isoformat()
    code, said = spanmq(*lake, "--since", later, "--dry-run")
    assert (code, "would send 0 messages" in said) == (0, True)
    assert spanmq(*lake, *where)[0] == 0
    code, said = spanmq("again", "--from-archive", "--of", "orders")
    assert (code, "sent 0 messages" in said) == (0, True)
    assert [each.body["amount"] for each in client.receive("again", 100)] == [15, 16, 17, 18, 19]
    for words, error in (
        (("again",), "pass PATH, --from-lake or --from-archive"),
        (("again", "path", "--from-archive"), "pass PATH, --from-lake or --from-archive"),
        (("again", "path", "--of", "orders"), "--of is for --from-lake and --from-archive"),
        (("again", "--from-archive", "--body", "body"), "--body is for a PATH"),
    ):
        code, said = spanmq(*words)
        assert (code, error in " ".join(said.split())) == (2, True), said


def test_replay_that_can_not_be_says_why(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    client.archive("orders", client.send_batch("orders", range(3)))
    export(spark, database, "orders", tmp_path / "lake")
    lake = tmp_path / "lake"
    run = partial(backfill, spark, database, "orders", job_id="one")
    with pytest.raises(PipelineError, match="holds no archive of queue ordres"):
        run(Archived("ordres", lake))
    with pytest.raises(PipelineError, match="holds no archive of queue orders"):
        run(Archived("orders", tmp_path / "none"))
    for where in ("amount >", "amount > 1"):
        with pytest.raises(InvalidArgumentError, match="the condition 'amount >"):
            run(Archived("orders", lake, where=where))
    with pytest.raises(InvalidArgumentError, match="must have a time zone"):
        run(Archived("orders", lake, since=datetime(2026, 1, 1)))
    with pytest.raises(InvalidArgumentError, match="are sent as they were"):
        run(Archived("orders", lake), body="body")
