"""maintain() with two queues: everything is due in one, and the other stays as it is."""

from tests.sql.queue import Connection, column, one, rows

# Puts into a queue whatever ends with time.
LIFE = (
    "select pgmq.create('{queue}')",
    "select pgmq.send_batch('{queue}', array_fill('1'::jsonb, array[7]))",
    "select pgmq.archive('{queue}', array[1, 2, 3])",
    "select spanmq.nack('{queue}', lease_id, array[msg_id], 'x', retry_in => 600) from spanmq.receive('{queue}', 2)",
    "select pgmq.delete('{queue}', array[4, 5])",
    "select spanmq.reject('{queue}', lease_id, array[msg_id]) from spanmq.receive('{queue}', 2)",
    "select spanmq.store_result('{queue}', 4, '1')",
    """select spanmq.report_worker('{{{queue}}}', 'a', 5, 1, jsonb_build_object(lower('{queue}'),
        '{{"times": [{{"kind": "b", "failed": true, "bucket": 1, "n":1}}]}}'::jsonb))""",
    "select spanmq.bulk_reserve('{queue}', 'w', 0, 5)",
    "select pgmq.send_batch('{queue}', array_fill('1'::jsonb, array[60]))",
    "select spanmq.receive('{queue}', 30, 600)",
    "select spanmq.receive('{queue}', 30, 600)",
    """select spanmq.send_messages('{queue}', array['1', '2']::jsonb[], dedup_ids => '{{a,b}}', expires_in => 600,
        delay => 600)""",
)
ACTIONS = {
    "closed abandoned writes",
    "deleted from archive",
    "forgot deduplication ids",
    "expired messages",
    "dead-lettered messages without attempts",
    "deleted old failures",
    "deleted dead letters",
    "folded counts of dead letters",
}
GONE = "q a state later expiry deduplication bulk_write bulk_block result task_time"
# What every call may write of every queue.
NOTES = "bound upkeep sample statistics archive_gone"
TABLES = (
    "select c.relname, array(select t.attname::text from pg_attribute t"
    "                        where t.attrelid = c.oid and t.atttypid = 'timestamptz'::regtype)"
    " from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'queue_id'"
    " where c.relkind = 'r' and c.relnamespace = 'spanmq_core'::regnamespace"
    " and c.relname <> all (string_to_array(%s, ' '))"
)


def maintain(connection: Connection) -> set[tuple[str, str]]:
    done: set[tuple[str, str]] = set()
    while found := rows(connection, "select action, queue from spanmq.maintain(1000)"):
        done.update(found)
    return done


def content(connection: Connection, queue: str) -> dict[str, list[str]]:
    """Return all rows that there are of a queue, by table."""
    queue_id = one(connection, "select queue_id from spanmq_core.queue where name = %s", queue)
    texts = {
        name: f"select t::text from spanmq_core.{name} t where queue_id = {queue_id} order by 1"
        for name, _ in rows(connection, TABLES, NOTES)
    }
    texts |= {kind: f"select t::text from pgmq.{kind}_{queue} t order by 1" for kind in "qa"}
    return {table: kept for table, text in texts.items() if (kept := column(connection, text))}


def test_what_is_due_in_one_queue_changes_nothing_in_another(connection: Connection) -> None:
    for queue in ("jobs", "others"):
        for statement in LIFE:
            rows(connection, statement.format(queue=queue))
    maintain(connection)
    # By policy: both have what is two months old, and one of them keeps it.
    for table, time in (("pgmq.a_{}", "archived_at"), ("spanmq_core.dead_letter", "dead_at")):
        for queue in ("jobs", "others"):
            rows(connection, f"update {table.format(queue)} set {time} = now() - interval '60 days'")
    policy = '{{"archive_retention": "{0}", "dead_letter_retention": "{0}", "max_attempts": {1}}}'
    for queue, keeps, attempts in (("jobs", "1 day", 1), ("others", "1 year", 9)):
        rows(connection, "select spanmq.set_policy(%s, %s)", queue, policy.format(keeps, attempts))
    # By its own times, and at once: in one alone.
    mine = one(connection, "select queue_id from spanmq_core.queue where name = 'jobs'")
    rows(connection, f"update spanmq_core.upkeep set failures_at = '-infinity' where queue_id = {mine}")
    rows(
        connection,
        f"insert into spanmq_core.dead_letter_count select {mine}, 'UNKNOWN', 0 from generate_series(1, 100)",
    )
    for table, times in rows(connection, TABLES, NOTES + " segment"):
        for time in times:
            earlier = (
                f"update spanmq_core.{table} set {time} = {time} - interval '60 days' where queue_id = {mine}"
            )
            rows(connection, earlier)
    others = content(connection, "others")
    assert others.keys() <= content(connection, "jobs").keys()
    assert maintain(connection) == {(action, "jobs") for action in ACTIONS}
    assert content(connection, "others") == others
    assert others.keys() - content(connection, "jobs").keys() == set(GONE.split())
