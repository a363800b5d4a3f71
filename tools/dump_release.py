"""Dump a database of this version into tests/sql/schema/released, from where tests upgrade it.

Does nothing if the file of this version has this schema. Each release adds its own compressed file, which is never
edited: a later schema must take over what a released one wrote. The database has something of everything, in every
state that a queue, a message and a program can be in.
"""

import json
import lzma
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from spanmq import Client, embedded, schema
from spanmq.codec.encryption import Encryption
from spanmq.schema.release import load_release

FOLDER = Path(__file__).resolve().parents[1] / "tests/sql/schema/released"
# The oldest server that the package for tests has: its dump can be read by every later one, and by 15.
POSTGRES = 16
# A role that has rights. Tests put another name in its place, since roles belong to the whole server.
ROLE = "released_role"
KEYS = {"released": b"r" * 32}
ARN = "arn:aws:sqs:eu-central-1:000000000000:failed"
DAY = 86_400.0
# Rows of sessions that wait: they end with their transactions.
EMPTY = {"settle_wait"}
TABLES = (
    "select relname from pg_class where relkind in ('r', 'p') and relnamespace = 'spanmq_core'::regnamespace"
    " and relname !~ '[0-9]$' order by 1"
)


def main() -> int:
    """Write the dump of this version, unless it exists; return 1 where a table would be empty."""
    release = load_release()
    file = FOLDER / f"{release.version}.sql.xz"
    checksums = [release.functions_checksum, *(migration.checksum for migration in release.migrations)]
    if file.exists():
        text = lzma.decompress(file.read_bytes()).decode()
        if all(checksum in text for checksum in checksums):
            return 0
    with embedded.temporary(version=POSTGRES, settings={"fsync": "off"}) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("create role {}").format(sql.Identifier(ROLE)))
            schema.install(connection)
        lose(server)
        with psycopg.connect(server.dsn, autocommit=True) as connection, Client(server.dsn) as client:
            fill(client, connection, server.dsn)
            empty = empty_tables(connection)
        if empty:
            print("nothing is in " + ", ".join(sorted(empty)), file=sys.stderr)
            return 1
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(lzma.compress(dump(server.dsn).encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{file.name}: {file.stat().st_size / 1024:.0f} KiB")
    return 0


def dump(dsn: str) -> str:
    """Return the database as SQL statements alone, which any driver can execute."""
    program = embedded.find_binaries(POSTGRES) / "pg_dump"
    command = [str(program), "--no-owner", "--inserts", "--rows-per-insert=1000", dsn]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # Without commands of psql, which have another key each time, and without headings: a sixth of the file.
    text = re.sub(r"^\\(un)?restrict .*\n", "", text, flags=re.MULTILINE)
    # The role that restores it is the owner.
    text = text.replace("ALTER DEFAULT PRIVILEGES FOR ROLE postgres ", "ALTER DEFAULT PRIVILEGES ")
    return re.sub(r"^--\n-- (Name|Data for Name): .*\n--\n\n+", "", text, flags=re.MULTILINE)


def empty_tables(connection: psycopg.Connection[Any]) -> set[str]:
    """Return the tables of schema spanmq_core that have no rows, and should have some."""
    query = sql.SQL("select from {} limit 1")
    names = {name for (name,) in connection.execute(TABLES).fetchall()} - EMPTY
    return {
        name
        for name in names
        if connection.execute(query.format(sql.Identifier("spanmq_core", name))).fetchone() is None
    }


def lose(server: embedded.TemporaryServer) -> None:
    """Make an unlogged queue that has lost messages in a crash, and got others since."""
    with Client(server.dsn) as client:
        client.queues.create("fast", unlogged=True)
        client.send_batch("fast", range(5))
    server.kill()
    server.restart()
    with Client(server.dsn) as client:
        client.receive("fast", 5)
        client.send_batch("fast", [{"number": number} for number in range(5)])
        # One of a lease that goes on.
        client.delete("fast", client.receive("fast", 3, lease=1000 * DAY)[1].message_id)


def fill(client: Client, connection: psycopg.Connection[Any], dsn: str) -> None:
    """Put something of everything into the database."""
    for part in (plain, ordered, limited, partitioned, copies, programs, rights, services):
        part(client, connection)
    with Client(dsn, encryption=Encryption(KEYS)) as sealing:
        sealing.queues.create("sealed")
        sealing.send_batch("sealed", ["secret", {"secret": 2}], headers={"kind": "secret"})
    maintain(client)
    connection.execute("update spanmq_core.sample set sampled_at = sampled_at - interval '2 minutes'")
    maintain(client)
    connection.execute("select pgmq.create('dropped'), pgmq.send('dropped', '1')")
    connection.execute("select pgmq.drop_queue('dropped')")


def maintain(client: Client) -> None:
    """Run maintenance until there is nothing to do."""
    while client.admin.maintain():
        pass


def plain(client: Client, _: psycopg.Connection[Any]) -> None:
    """Have messages in every state, in a queue that keeps them and archives them."""
    client.queues.create("Orders")
    client.queues.set_policy("Orders", max_attempts=2, keep="100 years", archive_on_ack=True)
    client.queues.set_schema("Orders", {"type": "object"}, checked=True)
    client.dead_letters.categories.set_rule("bank", "TRANSIENT", error="refused", queue="Orders")
    client.dead_letters.categories.set_policy("BUSINESS", {"max_attempts": 1}, queue="Orders")
    client.admin.notifications.enable("Orders")
    send = partial(client.send, "Orders")
    client.send_batch("Orders", [{"order": number, "text": "ü\n'\\"} for number in range(60)])
    taken = client.receive("Orders", 20, lease=1000 * DAY, slots=2)
    client.ack(taken[:4])
    client.results.ack(taken[4], {"shipped": True}, keep_for=30 * DAY)
    client.reject(taken[5:7], "no such customer", category="BUSINESS", error_class="LookupError", worker="w")
    client.nack(taken[7:9], "connection refused", retry_in=1000 * DAY, traceback="line 1\nline 2")
    client.nack(taken[9], "connection refused", retry_in=0)
    client.delete("Orders", taken[10].message_id)
    client.archive("Orders", taken[11].message_id)
    client.cancel("Orders", taken[12].message_id)
    # Leases that were lost, so that the message comes by itself.
    for _lost in range(2):
        client.set_vt("Orders", taken[13].message_id, 0)
        client.receive("Orders", 1, lease=0)
    client.send_batch("Orders", [{"n": 1}] * 3, delay=1000 * DAY)
    send({"urgent": True}, priority=9)
    send({"late": True}, expires_in=0.001)
    send({"late": False}, expires_in=1000 * DAY, max_attempts=5)
    send({"once": True}, dedup_id="once", dedup_for=14 * DAY, fingerprint="f")
    send({"pending": True}, dedup_id="pending", dedup_until="settled")
    client.delete("Orders", client.send_batch("Orders", [{"n": 2}] * 2)[0])


def ordered(client: Client, _: psycopg.Connection[Any]) -> None:
    """Have groups: ready, leased, waiting behind a failure, and blocked by a dead letter."""
    client.queues.create("groups")
    client.queues.set_policy("groups", ordered=True, dead_letter_blocks_group=True, max_in_flight_per_group=1)
    for group in ("ready", "leased", "failing", "blocked"):
        client.send_batch("groups", [{"group": group, "number": number} for number in range(3)], group=group)
    taken = {message.group: message for message in client.receive("groups", 12, lease=1000 * DAY)}
    client.release(taken["ready"])
    client.nack(taken["failing"], "again", retry_in=1000 * DAY)
    client.reject(taken["blocked"], "never")


def limited(client: Client, connection: psycopg.Connection[Any]) -> None:
    """Have queues that are paused, limited in every way, and stopped by a breaker."""
    client.queues.create("limited")
    client.queues.set_policy(
        "limited", rate_limit=0.001, rate_burst=2, max_in_flight=5, max_backlog=1000, priority_aging=60
    )
    client.send_batch("limited", range(5))
    client.receive("limited", 1, lease=1000 * DAY)
    breaker = '{"limited": {"breaker": {"open_for": 86400, "opening": 1}}}'
    connection.execute("select spanmq.report_worker('{limited}', 'worker', 1, 1, %s)", (breaker,))
    client.admin.stop_worker("worker")
    client.queues.create("keyed")
    client.queues.set_policy("keyed", rate_limit_per_group=0.001, rate_burst_per_group=2)
    client.send_batch("keyed", range(6), group=["open", "closed"] * 3)
    held = client.receive("keyed", 2, lease=1000 * DAY)
    client.close_bucket([message for message in held if message.group == "closed"], 1000 * DAY)
    client.queues.create("paused")
    client.send("paused", None)
    client.queues.pause("paused")


def partitioned(client: Client, connection: psycopg.Connection[Any]) -> None:
    """Have a queue of several segments, some of them emptied, and an archive in partitions."""
    client.queues.create("parts", partition_interval=256)
    connection.execute("select setval('pgmq.q_parts_msg_id_seq', 16383)")
    client.admin.maintain()
    ids = client.send_batch("parts", range(1000))
    client.archive("parts", ids[:3])
    client.delete("parts", ids[3:-5])


def copies(client: Client, connection: psycopg.Connection[Any]) -> None:
    """Have topics, subscriptions, shards, and streams that read and write."""
    client.topics.bind("order.#", "groups")
    client.subscriptions.create("copies", "Orders", waiting=True)
    client.ack(client.receive("copies", 10))
    client.queues.create("stream")
    client.send_batch("stream", range(30))
    call = "select batch, token from spanmq.receiver_claim('stream', %s, 1, %s, 5, settled_token => %s)"
    opened = connection.execute(
        "select receiver_id from spanmq.receiver_open('stream', label => 'spark')"
    ).fetchone()
    assert opened is not None
    settled, token = 0, None
    for _ in range(3):
        row = connection.execute(call, [opened[0], settled, token]).fetchone()
        assert row is not None
        settled, token = row[0], row[1]
    # One write is published, one is closed, one is open.
    for epoch in range(3):
        blocks = connection.execute(
            "select * from spanmq.bulk_reserve('stream', 'writer', %s, 10)", [epoch]
        ).fetchall()
        for _, _, log, first_id, last_id, at in blocks:
            rows = sql.SQL(
                "insert into {} select id, %s, to_jsonb(id) from generate_series(%s::bigint, %s) id"
            )
            connection.execute(rows.format(sql.Identifier("spanmq_core", log)), [at, first_id, last_id])
        ids = [block[1] for block in blocks]
        connection.execute("select spanmq.bulk_seal('stream', %s)", [ids])
        if epoch == 0:
            connection.execute(
                "select spanmq.bulk_publish('stream', 'writer', 0, %s, %s)", [blocks[0][0], ids]
            )
        elif epoch == 1:
            connection.execute("select spanmq.bulk_close('stream', 'writer', 1)")
    connection.execute("select spanmq.note_position('Orders')")
    connection.execute("select spanmq.note_export('Orders', '/lake', '{[1,5)}')")
    connection.execute("select spanmq.hold_export('Orders', '/lake', 'archive')")
    connection.execute("select spanmq.set_shards('sharded', 1, 'group', %s)", [Jsonb({"jobs": "here"})])
    done = client.admin.pipeline_runs.begin("export", "Orders", target="/lake")
    client.admin.pipeline_runs.end(done, report={"exported": 5})
    client.admin.pipeline_runs.begin("backfill", "Orders", target="/lake")


def programs(client: Client, connection: psycopg.Connection[Any]) -> None:
    """Have schedules, signals, batches that wait and that have ended, reports of workers, and notices."""
    client.queues.create("jobs")
    # A queue that has had a thousand messages gets a lane.
    connection.execute("select setval('pgmq.q_jobs_msg_id_seq', 1000)")
    client.schedules.create("yearly", "jobs", "0 0 1 1 *", {"task": "report"}, time_zone="Europe/Berlin")
    client.schedules.create("paused", "jobs", "0 0 1 1 *", None, catch_up=True)
    client.schedules.pause("paused")
    client.schedules.run("yearly")
    first, second = client.send_batch("jobs", [{"task": "a"}, {"task": "b"}])
    client.batches.create("jobs", {"task": "then"}, {"jobs": [first, second]})
    client.batches.create("jobs", {"task": "at once"}, {"jobs": []})
    client.results.store("jobs", first, [1, None], keep_for=30 * DAY)
    client.signals.park("jobs", "approved", {"task": "then"}, wait_for=30 * DAY)
    client.signals.send("jobs", "early", {"by": "ann"}, keep_for=30 * DAY)
    shape = Jsonb({"number": "number"})
    connection.execute("select spanmq.note_task_shapes('jobs', '{a}', array[%s])", [shape])
    notices = client.admin.begin_notices("a target")
    assert notices is not None
    client.admin.end_notices("a target", notices, [{"queue": "jobs"}])
    times = [{"kind": "a", "failed": False, "bucket": 16, "n": 9}]
    connection.execute(
        "select spanmq.report_worker(array['jobs'], 'worker', 60, 4, %s)",
        [Jsonb({"jobs": {"held": 1, "times": times}})],
    )
    connection.execute("select spanmq.await_messages(array['jobs'], gen_random_uuid())")


def rights(client: Client, connection: psycopg.Connection[Any]) -> None:
    """Give a role a verb on one queue and a verb on all, and follow what is granted on a view."""
    client.admin.grants.create(ROLE, "jobs", "receive")
    client.admin.grants.all(ROLE, "send")
    client.admin.grants.follow_tables()
    connection.execute(sql.SQL("grant select on pgmq.q_stream to {}").format(sql.Identifier(ROLE)))
    client.admin.grants.follow_tables()


def services(client: Client, connection: psycopg.Connection[Any]) -> None:
    """Have callers of the service: a token that was rotated, a session, a key of SQS; and what SQS stores."""
    client.admin.tokens.create("shop", queues=["*"], verbs=["send", "look"])
    client.admin.tokens.rotate("shop", overlap=1000 * DAY)
    connection.execute(
        "select spanmq.open_session(t.secret_hash, repeat('a', 64), 86400) from spanmq_core.token t"
    )
    client.admin.keys.create(queues=["jobs"], verbs=["send"])
    for queue in ("sqs", "failed"):
        client.queues.create(queue)
    attributes = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": "3"})}
    connection.execute(
        "select spanmq.set_sqs_queue('sqs', %s, %s)", [Jsonb(attributes), Jsonb({"team": "shop"})]
    )
    client.send("sqs", {"n": 1})
    [message] = client.receive("sqs", 1)
    moved = "select spanmq.move_sqs_messages('sqs', 'failed', %s, %s, %s, '{3}', 86400)"
    connection.execute(moved, [message.lease_id, [message.message_id], [Jsonb({"n": 1})]])
    connection.execute("select spanmq.start_sqs_move('failed', null, %s, null, 1)", [ARN])


if __name__ == "__main__":
    sys.exit(main())
