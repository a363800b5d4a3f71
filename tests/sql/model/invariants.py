"""What must hold of the storage between any two transactions; every test here ends by asking it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

# One row for each thing that is wrong: rule, and what breaks it. {span} and {settled} are the tables of
# logged or unlogged queues. A span has the message of each of its ids, unless a note says that it left.
OF_SPANS = """
with
    spans as (
        select s.*, spanmq.ids_of(s.lo, s.n, s.ids) as all_ids from {span} s
    ),
    held as (
        select s.queue_id, s.lo, s.lease_id, s.group_key, e.id as msg_id
        from spans s, unnest(s.all_ids) r, generate_series(lower(r), upper(r) - 1) e (id)
    ),
    members as (
        select h.* from held h
        where not exists (
            select from {settled} x
            where x.queue_id = h.queue_id and x.lease_id = h.lease_id and x.msg_id = h.msg_id)
    )
select 'a message is in one span', format('queue %s message %s', m.queue_id, m.msg_id)
from members m group by m.queue_id, m.msg_id having count(*) > 1
union all
select 'a span belongs to a queue of its kind', format('queue %s span %s', s.queue_id, s.lo)
from spans s
where not exists (
    select from spanmq.queue q where q.queue_id = s.queue_id and q.is_unlogged = {is_unlogged})
union all
select 'n counts the ids', format('queue %s span %s: n %s of %s', s.queue_id, s.lo, s.n, s.all_ids)
from spans s
where s.n <> spanmq.count_ids(s.all_ids) or isempty(s.all_ids)
union all
select 'what metrics counts by an index is n',
    format('queue %s span %s: n %s, counted as %s', s.queue_id, s.lo, s.n, s.joined_n)
from spans s
where s.state = 'r' and s.joined_n <> s.n
union all
select 'lo is the first id, of a leased span not after it',
    format('queue %s span %s lease %s: %s', s.queue_id, s.lo, s.lease_id, s.all_ids)
from spans s
where case when s.lease_id = 0 then s.lo <> lower(s.all_ids) else s.lo > lower(s.all_ids) end
union all
select 'a span lies within a block of 256', format('queue %s span %s: %s', s.queue_id, s.lo, s.all_ids)
from spans s where s.lo / 256 <> (upper(s.all_ids) - 1) / 256
union all
select 'state, lease, vt and attempts agree',
    format('queue %s span %s: state %s lease %s vt %s attempts %s read at %s',
           s.queue_id, s.lo, s.state, s.lease_id, s.vt, s.attempts, s.last_read_at)
from spans s
where not case s.state
    when 'r' then s.lease_id = 0 and (s.vt is null or s.vt <= clock_timestamp())
    when 'w' then s.lease_id = 0 and s.vt is not null
    when 'l' then s.vt is not null and s.attempts > 0 and s.last_read_at is not null
        and (s.lease_id > 0 or s.vt = '9999-12-30 00:00+00' and exists (
            select from spanmq.receiver_batch b where b.lease_id = s.lease_id and b.state = 'claimed'))
    else false end
    or s.attempts < 0
union all
select 'the hash is that of the group', format('queue %s span %s', s.queue_id, s.lo)
from spans s where s.group_hash is distinct from hashtextextended(s.group_key, 0)
union all
select 'a note is of a leased span that holds the id',
    format('queue %s lease %s message %s', x.queue_id, x.lease_id, x.msg_id)
from {settled} x
where not exists (
    select from held h
    where h.queue_id = x.queue_id and h.lease_id = x.lease_id and h.msg_id = x.msg_id and h.lease_id > 0)
union all
select 'no span lies before what its queue has noted as settled',
    format('queue %s span %s: settled to %s', s.queue_id, s.lo, q.settled_to)
from spans s join spanmq.queue q on q.queue_id = s.queue_id and q.settled_to > s.lo
union all
select 'a span lies in one open segment', format('queue %s span %s: %s', s.queue_id, s.lo, s.all_ids)
from spans s
where (
    select count(*) from spanmq.segment g
    where g.queue_id = coalesce(
            (select p.log_id from spanmq.subscription p where p.queue_id = s.queue_id), s.queue_id)
        and g.state = 'open' and g.lo <= s.lo and upper(s.all_ids) - 1 <= g.hi) <> 1
"""
OF_SEGMENTS = """
select 'a queue knows its subscriptions', format('queue %s', q.queue_id)
from spanmq.queue q
where q.is_subscription <> exists (select from spanmq.subscription s where s.queue_id = q.queue_id)
    or q.has_subscriptions <> exists (select from spanmq.subscription s where s.log_id = q.queue_id)
    or q.subscription_changes <> case when q.is_subscription then 0
                                      else (select p.start_value - 1 from pg_sequence_parameters(q.ids) p) end
union all
select 'a failure counts its messages, of one block, and has an outcome',
    format('queue %s: %s', f.queue_id, f.lo)
from spanmq.failure f
where f.n <> spanmq.count_ids(spanmq.ids_of(f.lo, f.n, f.ids)) or f.n not between 1 and 256
    or f.lo / 256 <> (coalesce(upper(f.ids), f.lo + f.n) - 1) / 256
    or f.outcome not in ('retrying', 'expired', 'cancelled')
union all
select 'segments do not overlap', format('queue %s: %s and %s', a.queue_id, a.log_name, b.log_name)
from spanmq.segment a
join spanmq.segment b on b.queue_id = a.queue_id and b.lo > a.lo and b.lo <= a.hi
union all
select 'the table of a segment is part of its log', format('queue %s: %s', g.queue_id, g.log_name)
from spanmq.segment g
where not exists (
    select from pg_inherits i
    where i.inhrelid = to_regclass('spanmq.' || g.log_name)
        and i.inhparent = to_regclass('spanmq.log_' || g.queue_id))
union all
select 'a part of a log is the table of a segment', i.inhrelid::regclass::text
from spanmq.queue q
join pg_inherits i on i.inhparent = to_regclass('spanmq.log_' || q.queue_id)
where not exists (
    select from spanmq.segment g
    where g.queue_id = q.queue_id and to_regclass('spanmq.' || g.log_name) = i.inhrelid)
"""
# {members}: how many messages the spans hold; rows of the log in the wrong table count as not there.
OF_ONE_QUEUE = """
with
    members as (
        select e.id as msg_id, s.group_key
        from {span} s, spanmq.expand(s.lo, s.n, s.ids) e (id)
        where s.queue_id = {queue_id}
            and not exists (
                select from {settled} x
                where x.queue_id = s.queue_id and x.lease_id = s.lease_id and x.msg_id = e.id)
    ),
    found_rows as (
        select m.msg_id, m.group_key, l.headers, g.log_name, l.tableoid::regclass::text as found_in
        from members m
        left join spanmq.segment g on g.queue_id = {log_id} and m.msg_id between g.lo and g.hi
        left join {log} l on l.msg_id = m.msg_id
    )
select 'a message has its row, in the table of its segment',
    format('%s in %s, not %s', f.msg_id, coalesce(f.found_in, 'no table'), f.log_name)
from found_rows f where f.found_in is distinct from 'spanmq.' || f.log_name
union all
select 'a message stands once in the log', format('%s: %s times', f.msg_id, count(*))
from found_rows f group by f.msg_id having count(*) > 1
union all
select 'the span has the group of its messages', format('%s: %s', f.msg_id, f.group_key)
from found_rows f where f.group_key is distinct from spanmq.group_of(f.headers)
union all
select 'the view shows the messages', format('%s, %s', m.msg_id, q.msg_id)
from members m full join {view} q on q.msg_id = m.msg_id
where m.msg_id is null or q.msg_id is null or q.vt is null or q.read_ct is null
union all
select 'an archived message is not in the queue', a.msg_id::text
from {archive} a join members m on m.msg_id = a.msg_id
union all
select 'a dead letter that waits is not in the queue, nor in the archive', d.msg_id::text
from spanmq.dead_letter d
where d.queue_id = {queue_id} and d.redriven_at is null
    and (d.msg_id in (select m.msg_id from members m) or d.msg_id in (select a.msg_id from {archive} a))
union all
select 'what died together is nowhere else, and has its row', e.id::text
from spanmq.dead_run r, spanmq.expand(r.lo, r.n, r.ids) e (id)
where r.queue_id = {queue_id}
    and (e.id in (select m.msg_id from members m) or e.id in (select a.msg_id from {archive} a)
        or exists (
            select from spanmq.dead_letter d
            where d.queue_id = {queue_id} and d.msg_id = e.id and d.redriven_at is null)
        or not exists (select from {log} l where l.msg_id = e.id))
union all
select 'dead letters are counted', format('%s, %s', c.category, c.n)
from (select k.category, sum(k.n) as n from (
        select d.category, 1 as n from spanmq.dead_letter d
        where d.queue_id = {queue_id} and d.redriven_at is null
        union all select r.category, r.n from spanmq.dead_run r where r.queue_id = {queue_id}
        union all
        select c.category, -c.n from spanmq.dead_letter_count c where c.queue_id = {queue_id}) k
    group by k.category) c
where c.n <> 0
union all
select 'ids come from the sequence', format('%s of %s', max(m.msg_id), pg_sequence_last_value({ids}))
from members m
having max(m.msg_id) > coalesce(pg_sequence_last_value({ids}), 0)
"""

Connection = psycopg.Connection[Any]


def broken_invariants(connection: Connection) -> list[str]:
    """Return what is wrong in the storage of all queues, a line each; not within a transaction."""
    found: list[Any] = []
    # One snapshot for all: otherwise a claim between two of the queries would look like a fault.
    with snapshot(connection):
        queues = connection.execute(
            "select q.queue_id, coalesce(s.log_id, q.queue_id), is_unlogged, ids::text, queue_view::text,"
            " archive::text from spanmq.queue q left join spanmq.subscription s on s.queue_id = q.queue_id"
        ).fetchall()
        for suffix in ("", "_unlogged"):
            text = sql.SQL(OF_SPANS).format(**tables_of(suffix), is_unlogged=sql.Literal(bool(suffix)))
            found += connection.execute(text).fetchall()
        found += connection.execute(sql.SQL(OF_SEGMENTS)).fetchall()
        for queue_id, log_id, is_unlogged, ids, view, archive in queues:
            text = sql.SQL(OF_ONE_QUEUE).format(
                **tables_of("_unlogged" if is_unlogged else ""),
                queue_id=sql.Literal(queue_id),
                log_id=sql.Literal(log_id),
                log=sql.Identifier("spanmq", f"log_{log_id}"),
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


def tables_of(suffix: str) -> dict[str, sql.Identifier]:
    """Name the tables of logged (no suffix) or unlogged queues."""
    return {name: sql.Identifier("spanmq", name + suffix) for name in ("span", "settled")}
