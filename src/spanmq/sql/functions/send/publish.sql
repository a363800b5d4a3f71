-- Publishing: messages whose rows are in the log become messages of their queue, and of its subscriptions.

-- Draws n ids, ascending. They follow each other unless another sender came between; then their runs are short. So a
-- large batch tries to draw alone, about as long as the draw itself takes: any session may hold an advisory lock, and
-- no sender waits for one. The lock goes with the rollback of the inner block, and the ids stay drawn.
create or replace function spanmq_core.draw_ids(this_queue int, ids regclass, n int) returns bigint[]
language plpgsql as $$
declare
    drawn bigint[];
begin
    -- The transaction id and the lock of a sender, before the first id: see send.sql and bound.sql.
    perform pg_current_xact_id();
    insert into spanmq_core.sending (queue_id, lo, n) select 0, 0, 0 where false;
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

-- The runs of ten messages at most into which the ids first_id to last_id are cut. None crosses a multiple of 256.
create or replace function spanmq_core.tens(
    first_id bigint, last_id bigint, out lo bigint, out n int
) returns setof record
language sql immutable rows 10 as $$
    select lo, (least(lo + 9, lo | 255, last_id) - lo + 1)::int
    from generate_series(first_id / 256, last_id / 256) block
    cross join lateral generate_series(greatest(first_id, block * 256), least(last_id, block * 256 + 255), 10) lo
$$;

-- The groups of rows of a log, for publish().
create or replace function spanmq_core.groups_of(log_name text, first_id bigint, last_id bigint) returns text[]
language plpgsql as $$
declare
    groups text[];
begin
    execute format('select array_agg(spanmq_core.group_of(l.headers) order by l.msg_id) from spanmq_core.%I l where'
                   ' l.msg_id between $1 and $2', log_name)
        into groups using first_id, last_id;
    return groups;
end $$;

-- Makes messages of ids that this transaction has drawn, of a queue and its subscriptions: first_id to last_id, or
-- `ids` where those have gaps. groups: null, or a group key (or null) for each message. They are visible at once, or
-- from visible_at on. PostgreSQL takes the number of rows of tens() for a million, and would compile the plan.
create or replace function spanmq_core.publish(
    this_queue int, first_id bigint, last_id bigint, ids bigint[], groups text[], visible_at timestamptz,
    priority int default null
) returns void
language plpgsql set jit = off as $$
declare
    runs spanmq_core.run[];
begin
    priority := nullif(priority, 0);
    groups := case when array_remove(groups, null) <> '{}' then groups end;
    visible_at := case when visible_at > clock_timestamp() then visible_at end;
    if ids is null and groups is null and visible_at is null then
        insert into spanmq_core.fresh (queue_id, lo, n, priority)
            select q.queue_id, t.lo, t.n, publish.priority from spanmq_core.queues_of(this_queue) q,
            spanmq_core.tens(first_id, last_id) t;
        return;
    elsif groups is null and ids is null then
        runs := array[(first_id, last_id - first_id + 1, 0, 0, visible_at, null, null, null, priority, 0,
                       0)::spanmq_core.run];
    else
        runs := array(
            select (min(m.id), count(*), 0, 0, visible_at, null, hashtextextended(m.group_key, 0), m.group_key,
                    publish.priority, 0, 0)::spanmq_core.run
            from (select u.*, u.id - row_number() over (partition by u.group_key order by u.id) as island
                  from (select coalesce(ids[g.position], first_id + g.position - 1) as id, g.group_key
                        from unnest(coalesce(groups, array_fill(null::text, array[cardinality(ids)]))) with ordinality g
                        (group_key, position)) u) m
            group by m.group_key, m.island);
    end if;
    perform spanmq_core.publish_runs(q.queue_id, runs) from spanmq_core.queues_of(this_queue) q;
end $$;

-- Makes messages of runs that were never delivered: fresh where vt is null, else held until then, though that may be
-- past by now: a sender of delayed messages need not have locked spanmq_core.sending. The runs may be of any length.
create or replace function spanmq_core.publish_runs(this_queue int, runs spanmq_core.run[]) returns void
language plpgsql set jit = off as $$
begin
    insert into spanmq_core.fresh (queue_id, lo, n, priority, group_hash, group_key)
        select this_queue, t.lo, t.n, r.priority, r.group_hash, r.group_key
        from unnest(runs) r, spanmq_core.tens(r.lo, r.lo + r.n - 1) t where r.vt is null;
    if not exists (select from unnest(runs) r where r.vt is not null) then
        return;
    end if;
    perform spanmq_core.heed_clock(this_queue);
    insert into spanmq_core.held (queue_id, lo, n, attempts, vt, priority, group_hash, group_key)
        select this_queue, t.lo, t.n, 0, greatest(r.vt, clock_timestamp()), r.priority, r.group_hash, r.group_key
        from unnest(runs) r, spanmq_core.tens(r.lo, r.lo + r.n - 1) t where r.vt is not null;
end $$;
