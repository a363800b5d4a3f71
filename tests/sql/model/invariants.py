"""What must hold of the storage between any two transactions; every test here ends by asking it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import sql
from psycopg.pq import TransactionStatus
from tests.sql.queue import Connection

# The unsettled messages of all queues. Of a queue that was dropped anything may be left.
MEMBERS = """
    members as (
        select s.*, true as is_in_state from spanmq_core.state s
        where s.queue_id not in (select d.queue_id from spanmq_core.dropped_queue d)
        union all
        select l.*, false from spanmq_core.later l
        where l.queue_id not in (select d.queue_id from spanmq_core.dropped_queue d)
    )"""
# One row for each thing that is wrong: rule, and what breaks it.
OF_MEMBERS = f"""
with {MEMBERS}
select 'a message has one row', format('queue %s message %s', m.queue_id, m.msg_id)
from members m group by m.queue_id, m.msg_id having count(*) > 1
union all
select 'a message belongs to a queue', format('queue %s message %s', m.queue_id, m.msg_id)
from members m where not exists (select from spanmq_core.queue q where q.queue_id = m.queue_id)
union all
select 'lease, vt and attempts agree',
    format('queue %s message %s: lease %s vt %s attempts %s read at %s',
           m.queue_id, m.msg_id, m.lease_id, m.vt, m.attempts, m.last_read_at)
from members m
where not (
    case when m.lease_id = 0 then m.attempts >= 0
    else m.attempts > 0 and m.last_read_at is not null
        and (m.lease_id > 0 or m.vt = '9999-12-30 00:00+00' and exists (
            select from spanmq_core.receiver_batch b where b.lease_id = m.lease_id and b.state = 'claimed')) end)
union all
select 'no more leases were lost than there were attempts; none of a receiver is alone, and none of state',
    format('queue %s message %s: attempts %s lost %s alone %s', m.queue_id, m.msg_id, m.attempts, m.lost, m.alone)
from members m
where m.lost not between 0 and m.attempts or m.alone not in (0, 1, 2)
    or m.alone > 0 and (m.attempts = 0 or m.lease_id < 0 or m.is_in_state) or m.alone = 2 and m.lease_id = 0
union all
select 'the hash is that of the group', format('queue %s message %s', m.queue_id, m.msg_id)
from members m where m.group_hash is distinct from hashtextextended(m.group_key, 0)
union all
select 'no message lies before the bounds of its queue',
    format('queue %s message %s: %s, %s', m.queue_id, m.msg_id, b.from_id, b.due_from)
from members m cross join lateral (
    select * from spanmq_core.bound b where b.queue_id = m.queue_id order by b.number desc limit 1) b
where case when m.is_in_state then m.msg_id < b.from_id else m.vt < b.due_from end
union all
select 'a message lies in one open segment', format('queue %s message %s', m.queue_id, m.msg_id)
from members m
where (
    select count(*) from spanmq_core.segment g
    where g.queue_id = coalesce(
            (select p.log_id from spanmq_core.subscription p where p.queue_id = m.queue_id), m.queue_id)
        and g.state = 'open' and g.lo <= m.msg_id and m.msg_id <= g.hi) <> 1
"""
OF_SEGMENTS = """
select 'a queue knows its subscriptions', format('queue %s', q.queue_id)
from spanmq_core.queue q
where q.is_subscription <> exists (select from spanmq_core.subscription s where s.queue_id = q.queue_id)
    or q.has_subscriptions <> exists (select from spanmq_core.subscription s where s.log_id = q.queue_id)
union all
select 'a failure counts its messages, of one block, and has an outcome',
    format('queue %s: %s', f.queue_id, f.lo)
from spanmq_core.failure f
where f.n <> (select sum(upper(r) - lower(r)) from unnest(spanmq_core.ids_of(f)) r) or f.n not between 1 and 256
    or f.lo / 256 <> (coalesce(upper(f.ids), f.lo + f.n) - 1) / 256
    or f.outcome not in ('retrying', 'expired', 'cancelled')
union all
select 'segments do not overlap', format('queue %s: %s and %s', a.queue_id, a.log_name, b.log_name)
from spanmq_core.segment a
join spanmq_core.segment b on b.queue_id = a.queue_id and b.lo > a.lo and b.lo <= a.hi
union all
select 'the table of a segment is part of its log', format('queue %s: %s', g.queue_id, g.log_name)
from spanmq_core.segment g
where g.queue_id not in (select d.queue_id from spanmq_core.dropped_queue d) and not exists (
    select from pg_inherits i
    where i.inhrelid = to_regclass('spanmq_core.' || g.log_name)
        and i.inhparent = to_regclass('spanmq_core.log_' || g.queue_id))
union all
select 'a part of a log is the table of a segment', i.inhrelid::regclass::text
from spanmq_core.queue q
join pg_inherits i on i.inhparent = to_regclass('spanmq_core.log_' || q.queue_id)
where not exists (
    select from spanmq_core.segment g
    where g.queue_id = q.queue_id and to_regclass('spanmq_core.' || g.log_name) = i.inhrelid)
"""
# Rows of the log in the wrong table count as not there.
OF_ONE_QUEUE = (
    "with"
    + MEMBERS.replace("members as", "all_members as")
    + """,
    members as (select m.msg_id, m.group_key from all_members m where m.queue_id = {queue_id}),
    found_rows as (
        select m.msg_id, m.group_key, l.message, l.headers, g.log_name, l.tableoid::regclass::text as found_in
        from members m
        left join spanmq_core.segment g on g.queue_id = {log_id} and m.msg_id between g.lo and g.hi
        left join {log} l on l.msg_id = m.msg_id
    )
select 'a message has its row, in the table of its segment',
    format('%s in %s, not %s', f.msg_id, coalesce(f.found_in, 'no table'), f.log_name)
from found_rows f where f.found_in is distinct from 'spanmq_core.' || f.log_name
union all
select 'a message stands once in the log', format('%s: %s times', f.msg_id, count(*))
from found_rows f group by f.msg_id having count(*) > 1
union all
select 'the row has the group of its message', format('%s: %s', f.msg_id, f.group_key)
from found_rows f
where f.group_key is distinct from spanmq_core.group_in(
    (select q.group_by from spanmq_core.queue q where q.queue_id = {queue_id}), f.message, f.headers)
union all
select 'the view shows the messages', format('%s, %s', m.msg_id, q.msg_id)
from members m full join {view} q on q.msg_id = m.msg_id
where m.msg_id is null or q.msg_id is null or q.vt is null or q.read_ct is null
union all
select 'an archived message is not in the queue', a.msg_id::text
from {archive} a join members m on m.msg_id = a.msg_id
union all
select 'a dead letter that waits is not in the queue, nor in the archive', d.msg_id::text
from spanmq_core.dead_letter d
where d.queue_id = {queue_id} and d.redriven_at is null
    and (d.msg_id in (select m.msg_id from members m) or d.msg_id in (select a.msg_id from {archive} a))
union all
select 'dead letters are counted', format('%s, %s', c.category, c.n)
from (select k.category, sum(k.n) as n from (
        select d.category, 1 as n from spanmq_core.dead_letter d
        where d.queue_id = {queue_id} and d.redriven_at is null
        union all
        select c.category, -c.n from spanmq_core.dead_letter_count c where c.queue_id = {queue_id}) k
    group by k.category) c
where c.n <> 0
union all
select 'ids come from the sequence', format('%s of %s', max(m.msg_id), pg_sequence_last_value({ids}))
from members m
having max(m.msg_id) > coalesce(pg_sequence_last_value({ids}), 0)
"""
)


def broken_invariants(connection: Connection) -> list[str]:
    """Return what is wrong in the storage of all queues, a line each; not within a transaction."""
    found: list[Any] = []
    # One snapshot for all: otherwise a claim between two of the queries would look like a fault.
    with snapshot(connection):
        queues = connection.execute(
            "select q.queue_id, coalesce(s.log_id, q.queue_id), ids::text, queue_view::text,"
            " archive::text from spanmq_core.queue q left join spanmq_core.subscription s on s.queue_id = q.queue_id"
        ).fetchall()
        found += connection.execute(sql.SQL(OF_MEMBERS)).fetchall()
        found += connection.execute(sql.SQL(OF_SEGMENTS)).fetchall()
        for queue_id, log_id, ids, view, archive in queues:
            text = sql.SQL(OF_ONE_QUEUE).format(
                queue_id=sql.Literal(queue_id),
                log_id=sql.Literal(log_id),
                log=sql.Identifier("spanmq_core", f"log_{log_id}"),
                ids=sql.Literal(ids),
                view=sql.SQL(view),
                archive=sql.SQL(archive),
            )
            found += connection.execute(text).fetchall()
    return [f"{rule}: {detail}" for rule, detail in found]


@contextmanager
def snapshot(connection: Connection) -> Iterator[None]:
    """Look at everything as of one moment."""
    assert connection.info.transaction_status is TransactionStatus.IDLE
    connection.execute("begin isolation level repeatable read read only")
    try:
        yield
    finally:
        connection.execute("rollback")
