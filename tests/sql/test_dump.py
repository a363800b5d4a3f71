"""pg_dump and restore into another server: the queues go on there."""

import subprocess
from functools import partial
from pathlib import Path

import psycopg
from tests.sql.model.invariants import broken_invariants

from spanmq import embedded, schema

# What users have set and what is dead: theirs, and kept.
GOVERNANCE = (
    b"select * from pgmq.list_category_rules('jobs')",
    b"select * from pgmq.list_category_policies('jobs')",
    b"select * from pgmq.dead_letters()",
    b"select * from pgmq.count_dead_letters()",
)


def test_queues_go_on_after_dump_and_restore(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as source:
        source.execute("select pgmq.create('jobs'), pgmq.create('MyQ'), pgmq.enable_notify_insert('jobs')")
        source.execute("select pgmq.send_batch('jobs', array_fill('{\"a\": 1}'::jsonb, array[600]))")
        source.execute("select pgmq.send('jobs', '{}', '{\"x-pgmq-group\": \"g\"}'::jsonb, 3600)")
        leased = source.execute("select msg_id, lease_id from pgmq.receive('jobs', 300, 600)").fetchall()
        source.execute(
            "select pgmq.delete('jobs', 7), pgmq.archive('jobs', 8), pgmq.bind_topic('a.#', 'MyQ')"
        )
        source.execute("select pgmq.set_category_rule('mine', 'BUSINESS', error => 'boom', queue => 'jobs')")
        source.execute("select pgmq.drop_category_rule('timeout')")
        source.execute("select pgmq.reject('jobs', %s, %s, 'boom')", [leased[0][1], [9]])
        before = source.execute("select * from pgmq.q_jobs order by msg_id").fetchall()
        governed = [source.execute(query).fetchall() for query in GOVERNANCE]
    # The newest tools read every older server.
    programs = embedded.find_binaries(18)
    dump = tmp_path / "dump.sql"
    run = partial(subprocess.run, check=True, capture_output=True)
    run([programs / "pg_dump", "--no-owner", "--file", dump, database])
    with embedded.temporary(version=18) as target:
        run([programs / "psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", dump, target.dsn])
        with psycopg.connect(target.dsn, autocommit=True) as there:
            assert there.execute("select * from pgmq.q_jobs order by msg_id").fetchall() == before
            assert [there.execute(query).fetchall() for query in GOVERNANCE] == governed
            assert there.execute("select msg_id from pgmq.redrive('jobs', delay => 3600)").fetchone() == (9,)
            assert broken_invariants(there) == []
            assert schema.verify(there) == []
            # The lease that was taken before still settles, new ids go on where the old ones ended.
            ids = [message_id for message_id, _ in leased if message_id not in (7, 8, 9)]
            acked = there.execute("select * from pgmq.ack('jobs', %s, %s)", (leased[0][1], ids)).fetchall()
            assert {outcome for _, outcome in acked} == {"acked"}
            assert there.execute("select * from pgmq.send('jobs', '{}')").fetchone() == (602,)
            assert there.execute("select pgmq.send_topic('a.b', '{}')").fetchone() == (1,)
            assert len(there.execute("select * from pgmq.read('jobs', 30, 1000)").fetchall()) == 301
            assert there.execute("select count(*) from pgmq.a_jobs").fetchone() == (1,)
            while there.execute("select * from pgmq.maintain()").fetchall():
                pass
            assert broken_invariants(there) == []
