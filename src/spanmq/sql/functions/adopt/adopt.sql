-- Bulk import: messages that come with their ids, read counts and times from a table of PGMQ's shape. Used by spanmq
-- schema adopt.

-- Appends all messages of `source` to the log of an empty queue and publishes them: visible ones ready, others waiting
-- for their vt. Returns how many. `source` has msg_id, read_ct, enqueued_at, vt and message, and may have last_read_at
-- and headers. A visible message that was never read and never delayed is visible since it was sent, as if it
-- had been sent here; every other keeps its vt to the microsecond. The caller keeps writers off the
-- source and sets the sequence of ids. Raises 23505 for an id that occurs twice.
create or replace function spanmq_core.import_messages(this_queue int, source regclass) returns bigint
language plpgsql as $$
declare
    last_read_at text := spanmq_core.column_or_null(source, 'last_read_at', 'timestamptz');
    headers text := spanmq_core.column_or_null(source, 'headers', 'jsonb');
    at_ timestamptz := clock_timestamp();
    size int;
    next_id bigint;
    this spanmq_core.segment;
    n bigint;
    total bigint := 0;
begin
    execute format('select min(msg_id), least(greatest(count(*) / 16, 16384), 1048576) / 256 * 256 from %s', source)
        into next_id, size;
    while next_id is not null loop
        this := spanmq_core.create_segment(this_queue, next_id, size, true);
        execute format('insert into spanmq_core.%I (msg_id, enqueued_at, message, headers)'
                       ' select msg_id, enqueued_at, message, %s from %s where msg_id between $1 and $2'
                       ' order by msg_id',
                       this.log_name, headers, source)
            using next_id, this.hi;
        get diagnostics n = row_count;
        total := total + n;
        execute format($insert$
            with message as materialized (
                select s.msg_id as id, s.read_ct as attempts, s.enqueued_at, spanmq_core.group_of(%2$s) as group_key,
                       -- PGMQ takes enqueued_at from the start of the transaction and vt from the clock: they are never
                       -- equal.
                       case when v.vt > $2 or s.read_ct > 0 or v.vt - s.enqueued_at not between interval '-1 s'
                       and interval '1 s' then v.vt end
                           as vt,
                       %1$s as last_read_at
                from %3$s s
                -- Before PostgreSQL 17 nothing can be subtracted from infinity.
                cross join lateral (select case s.vt when 'infinity' then '9999-12-31 00:00:00+00'
                                    when '-infinity' then s.enqueued_at else s.vt end as vt) v
                where s.msg_id between $3 and $4),
            unread as (
                insert into spanmq_core.state (queue_id, msg_id, vt, group_hash, group_key)
                    select $1, m.id, m.enqueued_at, hashtextextended(m.group_key, 0), m.group_key
                    from message m where m.vt is null order by m.id)
            insert into spanmq_core.later (queue_id, msg_id, attempts, vt, last_read_at, group_hash, group_key)
                select $1, m.id, m.attempts, m.vt, m.last_read_at, hashtextextended(m.group_key, 0), m.group_key
                from message m where m.vt is not null order by m.id
            $insert$, last_read_at, headers, source)
            using this_queue, at_, next_id, this.hi;
        execute format('select min(msg_id) from %s where msg_id > $1', source) into next_id using this.hi;
    end loop;
    return total;
end $$;
