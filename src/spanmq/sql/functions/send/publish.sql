-- Publishing: messages whose rows are in the log become messages of their queue, and of its subscriptions.

-- Draws n ids, ascending. They follow each other unless another sender came between; then the batch costs more. So a
-- large one tries to draw alone, about as long as the draw itself takes: any session may hold an advisory lock, and
-- no sender waits for one. The lock goes with the rollback of the inner block, and the ids stay drawn.
create or replace function spanmq_core.draw_ids(ids regclass, n int) returns bigint[]
language plpgsql as $$
declare
    drawn bigint[];
begin
    -- The transaction id and the lock of a sender, before the first id: see send.sql and bound.sql.
    perform pg_current_xact_id();
    insert into spanmq_core.sending (queue_id, msg_id, vt) select 0, 0, now() where false;
    if n <= 20 then
        return array(select nextval(ids) from (select generate_series(1, n)) each);
    end if;
    begin
        for attempt in 1 .. n loop
            exit when pg_try_advisory_xact_lock(ids::oid::bigint);
        end loop;
        drawn := array(select nextval(ids) from (select generate_series(1, n)) each);
        raise exception using errcode = 'MQ000';
    exception when sqlstate 'MQ000' then null;
    end;
    return drawn;
end $$;

-- The groups of rows of a log, for publish().
create or replace function spanmq_core.groups_of(log_name text, first_id bigint, last_id bigint, group_by text)
returns text[]
language plpgsql as $$
declare
    groups text[];
begin
    execute format('select array_agg(spanmq_core.group_in($3, l.message, l.headers) order by l.msg_id)'
                   ' from spanmq_core.%I l where l.msg_id between $1 and $2', log_name)
        into groups using first_id, last_id, group_by;
    return groups;
end $$;

-- Makes messages of ids that this transaction has drawn, of a queue and its subscriptions: first_id to last_id, or
-- `ids` where those have gaps. groups: null, or a group key (or null) for each message. They are visible at once, or
-- from visible_at on.
create or replace function spanmq_core.publish(
    this_queue int, first_id bigint, last_id bigint, ids bigint[], groups text[], visible_at timestamptz,
    priority int default null, sent_at timestamptz default clock_timestamp()
) returns void
language plpgsql set jit = off as $$
begin
    priority := nullif(priority, 0);
    if visible_at > sent_at then
        perform spanmq_core.heed_clock(q.queue_id) from spanmq_core.queues_of(this_queue) q;
        insert into spanmq_core.later (queue_id, msg_id, vt, priority, group_hash, group_key)
            select q.queue_id, m.id, greatest(visible_at, clock_timestamp()), publish.priority,
                   hashtextextended(m.key, 0), m.key
            from spanmq_core.queues_of(this_queue) q
            cross join rows from (
                unnest(coalesce(ids, array(select generate_series(first_id, last_id)))), unnest(groups)) m (id, key);
    elsif ids is null and groups is null then
        insert into spanmq_core.state (queue_id, msg_id, vt, priority)
            select q.queue_id, generate_series(first_id, last_id), sent_at, publish.priority
            from spanmq_core.queues_of(this_queue) q;
    else
        insert into spanmq_core.state (queue_id, msg_id, vt, priority, group_hash, group_key)
            select q.queue_id, m.id, sent_at, publish.priority, hashtextextended(m.key, 0), m.key
            from spanmq_core.queues_of(this_queue) q
            cross join rows from (
                unnest(coalesce(ids, array(select generate_series(first_id, last_id)))), unnest(groups)) m (id, key);
    end if;
end $$;
