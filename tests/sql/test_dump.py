"""pg_dump and restore into another server: the queues go on there."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from tests.sql.conformance.listening import listening
from tests.sql.model.invariants import broken_invariants
from tests.sql.queue import Connection, column, sqlstate_of

from spanmq import embedded, schema

# What users have set and what is dead: theirs, and kept.
GOVERNANCE = (
    b"select * from spanmq.list_category_rules('jobs')",
    b"select * from spanmq.list_category_policies('jobs')",
    b"select * from spanmq.dead_letters()",
    b"select * from spanmq.count_dead_letters()",
    b"select * from spanmq.get_schema('jobs')",
)


@contextmanager
def restored(database: str, folder: Path) -> Iterator[str]:
    """Dump a database and restore it into another server; give the DSN of that."""
    # The newest tools read every older server.
    programs = embedded.find_binaries(18)
    dump = folder / "dump.sql"
    run = partial(subprocess.run, check=True, capture_output=True)
    run([programs / "pg_dump", "--no-owner", "--file", dump, database])
    # The snapshots of autovacuum would hold back what maintain() is to truncate there.
    with embedded.temporary(version=18, settings={"autovacuum": "off"}) as target:
        run([programs / "psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", dump, target.dsn])
        yield target.dsn


def test_queues_go_on_after_dump_and_restore(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as source:
        source.execute("select pgmq.create('jobs'), pgmq.create('MyQ'), pgmq.enable_notify_insert('jobs')")
        source.execute("select pgmq.send_batch('jobs', array_fill('{\"a\": 1}'::jsonb, array[600]))")
        source.execute("select pgmq.send('jobs', '{}', '{\"x-pgmq-group\": \"g\"}'::jsonb, 3600)")
        leased = source.execute("select msg_id, lease_id from spanmq.receive('jobs', 300, 600)").fetchall()
        source.execute(
            "select pgmq.delete('jobs', 7), pgmq.archive('jobs', 8), pgmq.bind_topic('a.#', 'MyQ')"
        )
        source.execute(
            "select spanmq.set_category_rule('mine', 'BUSINESS', error => 'boom', queue => 'jobs')"
        )
        source.execute("select spanmq.drop_category_rule('timeout')")
        source.execute("""select spanmq.set_schema('jobs', '{"type": "object"}', checked => true)""")
        source.execute("select spanmq.reject('jobs', %s, %s, 'boom')", [leased[0][1], [9]])
        before = source.execute("select * from pgmq.q_jobs order by msg_id").fetchall()
        governed = [source.execute(query).fetchall() for query in GOVERNANCE]
    with restored(database, tmp_path) as target, psycopg.connect(target, autocommit=True) as there:
        assert there.execute("select * from pgmq.q_jobs order by msg_id").fetchall() == before
        assert [there.execute(query).fetchall() for query in GOVERNANCE] == governed
        assert there.execute("select msg_id from spanmq.redrive('jobs', delay => 3600)").fetchone() == (9,)
        assert broken_invariants(there) == []
        assert schema.verify(there) == []
        # The lease that was taken before still settles, new ids go on where the old ones ended.
        ids = [message_id for message_id, _ in leased if message_id not in (7, 8, 9)]
        acked = there.execute("select * from spanmq.ack('jobs', %s, %s)", (leased[0][1], ids)).fetchall()
        assert {outcome for _, outcome in acked} == {"acked"}
        assert sqlstate_of(there, "select pgmq.send('jobs', '1')") == "MQ065"
        assert there.execute("select * from pgmq.send('jobs', '{}')").fetchone() == (602,)
        assert there.execute("select pgmq.send_topic('a.b', '{}')").fetchone() == (1,)
        assert len(there.execute("select * from pgmq.read('jobs', 30, 1000)").fetchall()) == 301
        assert there.execute("select count(*) from pgmq.a_jobs").fetchone() == (1,)
        while there.execute("select * from spanmq.maintain()").fetchall():
            pass
        assert broken_invariants(there) == []


GROUP = '{"x-pgmq-group": "g"}'
SENDS = (
    "spanmq.send_messages('once', array['1'::jsonb], dedup_ids => array['a'])",
    f"pgmq.send_batch('ordered', array['1', '2']::jsonb[], array_fill('{GROUP}'::jsonb, array[2]))",
    "pgmq.send_batch('slow', array['1', '2', '3']::jsonb[])",
    "pgmq.send_batch('fast', array['1', '2', '3']::jsonb[])",
)
POLICIES = {
    "ordered": '{"ordered": true, "dead_letter_blocks_group": true}',
    "slow": '{"rate_limit": 0.001, "rate_burst": 2}',
}


def maintain(connection: Connection) -> list[Any]:
    """Keep house until there is nothing to do; a first call may only note what a later one waits for."""
    done: list[Any] = []
    while rows := [
        row for _ in range(2) for row in column(connection, "select action from spanmq.maintain()")
    ]:
        done += rows
    return done


def test_whatever_a_queue_has_is_kept(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as source:
        for name in ("once", "ordered", "slow"):
            source.execute("select pgmq.create(%s)", [name])
        source.execute("select pgmq.create_unlogged('fast'), pgmq.enable_notify_insert('once', 0)")
        for name, policy in POLICIES.items():
            source.execute("select spanmq.set_policy(%s, %s)", [name, policy])
        for send in SENDS:
            source.execute(f"select * from {send}".encode())
        source.execute("select spanmq.schedule('yearly', 'once', '0 0 1 1 *', '{\"new\": \"year\"}')")
        ((lease, first),) = source.execute(
            "select lease_id, msg_id from spanmq.receive('ordered')"
        ).fetchall()
        source.execute("select spanmq.reject('ordered', %s, %s)", [lease, [first]])
        assert column(source, "select msg_id from spanmq.receive('slow', 1, 3600)") == [1]
        schedules = source.execute("select * from spanmq.list_schedules()").fetchall()
    with (
        restored(database, tmp_path) as target,
        psycopg.connect(target, autocommit=True) as there,
        listening(target, "pgmq.q_once.INSERT") as listener,
    ):
        assert broken_invariants(there) == []
        assert there.execute("select * from spanmq.list_schedules()").fetchall() == schedules
        assert column(there, "select msg_id from spanmq.receive('ordered', 9)") == [], "the group waits"
        there.execute("select spanmq.redrive('ordered', delay => 0)")
        assert column(there, "select msg_id from spanmq.receive('ordered', 9)") == [1, 2]
        assert column(there, "select msg_id from spanmq.receive('slow', 9)") == [2], "the bucket has one left"
        assert column(there, f"select * from {SENDS[0]}") == [1], "it was sent before"
        assert column(there, "select pgmq.send('once', '2')") == [2]
        assert listener.heard(there) == [("pgmq.q_once.INSERT", "")]
        # The view has its triggers.
        there.execute("update pgmq.q_fast set vt = now() + interval '1 hour' where msg_id = 1")
        there.execute("delete from pgmq.q_fast where msg_id = 2")
        assert column(there, "select msg_id from pgmq.pop('fast', 9)") == [3]
        assert broken_invariants(there) == []


def test_subscription_and_stream_are_kept(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as source:
        source.execute("select pgmq.create('jobs'), spanmq.create_subscription('lake', 'jobs')")
        source.execute("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[600]))")
        source.execute("select pgmq.pop('jobs', 500)")
        ((receiver,),) = source.execute(
            "select receiver_id from spanmq.receiver_open('lake', label => 'spark')"
        ).fetchall()
        claim = "select batch, token from spanmq.receiver_claim('lake', %s, 1, %s, 200, settled_token => %s)"
        [(_, token)] = source.execute(claim, [receiver, 0, None]).fetchall()
        [(batch, token)] = source.execute(claim, [receiver, 1, token]).fetchall()
        assert batch == 2
        before = source.execute("select * from pgmq.q_lake order by msg_id").fetchall()
        ranges = (
            f"select first_id, last_id from spanmq.receiver_ranges('lake', '{receiver}', %s, 0, 2, true, %s)"
        )
        held = source.execute(ranges.encode(), [1, token]).fetchall()
    with restored(database, tmp_path) as target, psycopg.connect(target, autocommit=True) as there:
        assert broken_invariants(there) == []
        assert there.execute("select * from pgmq.q_lake order by msg_id").fetchall() == before
        assert column(there, "select count(*) from pgmq.q_jobs") == [100]
        # A batch that was settled may be read again, one that is held is nobody else's.
        there.execute("select spanmq.receiver_open('lake', %s)", [receiver])
        assert there.execute(ranges.encode(), [2, token]).fetchall() == held
        assert len(column(there, "select msg_id from spanmq.receive('lake', 999)")) == 200
        assert column(there, "select spanmq.release_receiver('lake', 'spark')") == [200]
        # What is sent from now on comes to both, also into segments that are made here.
        assert column(there, "select pgmq.send('jobs', '2')") == [601]
        there.execute("select pgmq.purge_queue('jobs')")
        maintain(there)
        assert column(there, "select max(msg_id) from pgmq.q_lake") == [601]
        assert column(there, "select count(*) from pgmq.q_lake") == [401]
        assert broken_invariants(there) == []


def test_segments_go_on_to_their_end_on_a_server_that_counts_transactions_anew(
    database: str, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as source:
        source.execute("select pgmq.create_partitioned('parts', '256')")
        # Behind the first segment, which is larger.
        source.execute("select setval('pgmq.q_parts_msg_id_seq', 16383)")
        maintain(source)
        source.execute("select pgmq.send_batch('parts', array_fill('1'::jsonb, array[1280]))")
        (newest,) = column(source, "select max(msg_id) from pgmq.q_parts")
        source.execute(
            "select pgmq.delete('parts', array(select msg_id from pgmq.q_parts where msg_id < %s))", [newest]
        )
        # The server is ahead of the other by more transactions than that will have.
        source.execute(
            "do $$ begin for i in 1 .. 20000 loop perform pg_current_xact_id(); commit; end loop; end $$"
        )
        while "truncated segment" not in column(source, "select action from spanmq.maintain()"):
            pass
        assert len(column(source, "select lo from spanmq_core.segment where queue_id = 1")) > 4
    with restored(database, tmp_path) as target, psycopg.connect(target, autocommit=True) as there:
        done = maintain(there)
        assert done.count("dropped segment") >= 4
        assert done.count("truncated segment") >= 3
        assert column(there, "select msg_id from pgmq.q_parts") == [newest]
        assert broken_invariants(there) == []
