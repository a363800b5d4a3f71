-- Failing messages: those that have failed and wait for another attempt. What they fail of, and what an operator does
-- about it.

-- The first line of an error, with placeholders for what differs from message to message: as pattern_of() of the Python
-- package, which groups dead letters.
create or replace function spanmq_core.error_pattern(error text) returns text
language plpgsql immutable as $$
declare
    line text := substring(left(error, 2000) from E'^\\s*([^\\r\\n]*)');
begin
    if line ~ '[0-9]' then
        line := regexp_replace(line, E'[\'"]([1-5]\\d\\d [A-Z][A-Za-z ]{1,40})[\'"]', E'\x02\\1\x02', 'g');
    end if;
    line := regexp_replace(line, E'(?<!\\w)\'[^\'\\n]*\'(?!\\w)|"[^"\\n]*"', '<text>', 'g');
    -- Ids have digits, and most errors have none: each of these patterns costs more than all else.
    if line ~ '[0-9]' then
        line := regexp_replace(line, E'\\y[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}\\y', '<id>', 'gi');
        line := regexp_replace(line, E'\\y0x[0-9a-f]+\\y', '<id>', 'gi');
        line := regexp_replace(line, E'\\y(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\\y', '<id>', 'gi');
        -- Numbers of status stay, which have a mark until all others are gone.
        line := regexp_replace(line, E'(status|code|http|error|response)((/\\d\\.\\d)?[ :=(]{1,3})([1-5]\\d\\d)'
                               || E'(?![\\d.]*\\d)', E'\\1\\2\x01\\4', 'gi');
        line := regexp_replace(line, E'(^\\W?|\x02)([1-5]\\d\\d)(?=[\\s:,-])', E'\\1\x01\\2', 'g');
        line := regexp_replace(line, E'\x01(\\d\\d\\d)([ -]|, b?[\'"])([245]\\.\\d{1,3}\\.\\d{1,3})'
                               || E'(?![\\d.]*\\d)', E'\x01\\1\\2\x01\\3', 'g');
        line := regexp_replace(line, E'(?<![\\d\x01])(?<!\\d\\.)\\d+(\\.\\d+)*', '<number>', 'g');
        line := replace(replace(line, E'\x01', ''), E'\x02', '''');
    end if;
    return btrim(regexp_replace(coalesce(line, ''), E'\\s+', ' ', 'g'));
end $$;

-- The tasks that these messages are for. A long body is not read: it may be of another program, and all of it would
-- have to be.
create or replace function spanmq_core.tasks_of(this_queue int, ids bigint[]) returns table (msg_id bigint, task text)
language plpgsql stable as $$
begin
    return query execute format(
        'select l.msg_id, left(l.message->>''task'', 500) from spanmq_core.%I l where l.msg_id = any ($1)'
        ' and case when pg_column_size(l.message) <= 100000 then jsonb_typeof(l.message->''task'') = ''string'' end',
        (select spanmq_core.log_of(this_queue, min(id), max(id)) from unnest(ids) id)) using ids;
end $$;

-- These messages, which have these attempts and are hidden until these times, with their last failure, the time of
-- their first one, and the task that they are for. A message whose failure is not recorded, as after PGMQ's set_vt, has
-- none.
create or replace function spanmq_core.last_failures(this_queue int, ids bigint[], reads int[], vts timestamptz[])
returns setof spanmq.failing_message
language plpgsql stable :pinned as $$
begin
    if ids = '{}' then
        return;
    end if;
    return query
        select m.id, t.task, m.attempts, f.first_at, f.failed_at, m.vt, f.category, f.error, f.error_class, f.traceback,
        f.worker
        from unnest(ids, reads, vts) m (id, attempts, vt)
        left join spanmq_core.tasks_of(this_queue, ids) t on t.msg_id = m.id
        left join lateral (
            select a.*, min(a.failed_at) over () as first_at from (
                select f.* from spanmq_core.failure f where f.queue_id = this_queue and f.lo = m.id and f.n = 1
                    and f.outcome <> 'cancelled'
                union all
                select f.* from spanmq_core.failure f where f.queue_id = this_queue and f.lo / 256 = m.id / 256
                and f.n > 1 and f.lo <= m.id
                  and f.outcome <> 'cancelled' and spanmq_core.ids_of(f) @> m.id) a
            order by a.failed_at desc, a.attempt desc limit 1) f on true;
end $$;

-- The causes of the messages that wait for another attempt, in a queue, or in all (queue null; only for a role that
-- may look into all). A cause is a task, a category, and the class and text of the last error without numbers, ids and
-- quoted text. Returns at most qty causes, those with the most messages first. n: the number of messages. attempts:
-- the highest number of attempts of one of them. first_failed_at and last_failed_at: the times of the first and of the
-- latest failure. retry_at: the time of the next attempt. first_id: one of the messages. example: its last error with
-- numbers and ids, up to 2,000 characters. With queue null, only the qty queues with the most failing messages are
-- read. Reads the errors of about 500 messages, a sample by their ids, and counts up to 100,000 messages. If there are
-- more, is_exact is false, n is an estimate, and the cost does not grow further.
create or replace function spanmq_call.failing(queue text default null, qty integer default 100)
returns table (queue_name text, task text, category text, error_class text, error text, n bigint, is_exact boolean,
               attempts integer,
               first_failed_at timestamptz, last_failed_at timestamptz, retry_at timestamptz, first_id bigint,
               example text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := case when queue is not null then spanmq_core.find_queue(queue) end;
    these int[];
    most int;
    sample int;
begin
    perform spanmq_core.check_quantity(qty);
    these := array(
        select q.queue_id from spanmq_core.queue q
        where (q.queue_id = this.queue_id or queue is null)
          and exists (select from spanmq_core.later h where h.queue_id * 1 = q.queue_id and h.lease_id = 0
                      and h.attempts > 0));
    most := greatest(100000 / greatest(cardinality(these), 1), 100);
    sample := greatest(500 / greatest(least(cardinality(these), qty), 1), 10);
    return query
        select q.name::text, c.task, c.category, c.error_class, c.error, c.n, c.is_exact, c.attempts, c.first_failed_at,
        c.last_failed_at, c.retry_at, c.first_id, c.example
        from (select t.queue_id, r.n, r.has_more
              from unnest(these) t (queue_id)
              cross join lateral (
                  select count(*) as n, count(*) > most as has_more
                  from (select from spanmq_core.later h
                        where h.queue_id * 1 = t.queue_id and h.lease_id = 0 and h.attempts > 0 order by h.queue_id * 1,
                        h.msg_id limit most + 1) h) r
              order by r.n desc, t.queue_id limit qty) m
        join spanmq_core.queue q on q.queue_id = m.queue_id
        cross join lateral spanmq_core.failing_causes(m.queue_id, m.n, m.has_more, sample) c
        order by c.n desc, q.name, c.first_id limit qty;
end $$;

-- The same for one queue, which has n_failing of these messages (has_more: or more), from `sample` of them.
create or replace function spanmq_core.failing_causes(this_queue int, n_failing numeric, has_more boolean, sample int)
returns table (task text, category text, error_class text, error text, n bigint, is_exact boolean, attempts int,
               first_failed_at timestamptz,
               last_failed_at timestamptz, retry_at timestamptz, first_id bigint, example text)
language plpgsql stable :pinned as $$
declare
    drawn record;
    n_drawn numeric;
    step int;
begin
    -- By a hash of the id: a sample of all of them, and the same one at the next look. All of a few may have other
    -- hashes: then the first.
    foreach step in array array[ceil(n_failing / sample), 1] loop
        select array_agg(h.msg_id) as ids, array_agg(h.attempts) as attempts, array_agg(h.vt) as vts into drawn
            from (select h.msg_id, h.attempts, h.vt from spanmq_core.later h
                  where h.queue_id * 1 = this_queue and h.lease_id = 0 and h.attempts > 0
                  and hashint8(h.msg_id) % step = 0
                  order by h.queue_id * 1, h.msg_id limit sample) h;
        exit when drawn.ids is not null;
    end loop;
    if drawn.ids is null then
        return;
    end if;
    n_drawn := cardinality(drawn.ids);
    return query
        select f.task, f.category, f.error_class, spanmq_core.error_pattern(f.error),
        greatest(round(sum(f.n) * n_failing / n_drawn), 1)::bigint,
               n_drawn = n_failing and not has_more, max(f.attempts), min(f.first_failed_at), max(f.last_failed_at),
               min(f.retry_at), min(f.first_id), (array_agg(f.error order by f.first_id))[1]
        -- First by their full text: most errors are alike, and a pattern costs more than a comparison.
        from (select l.task, l.category, l.error_class, left(l.error, 2000) as error, count(*) as n,
              max(l.attempts) as attempts,
                     min(l.first_failed_at) as first_failed_at, max(l.last_failed_at) as last_failed_at,
                     min(l.retry_at) as retry_at, min(l.msg_id) as first_id
              from spanmq_core.last_failures(this_queue, drawn.ids, drawn.attempts, drawn.vts) l group by 1, 2, 3, 4) f
        group by 1, 2, 3, 4;
end $$;

-- The messages that wait for another attempt, of one cause, with their last failure: those with ids above `after`, at
-- most qty, in order, or with newest_first those with ids below `after` (0: all), the newest one first. Each filter is
-- as failing() returns it (null: any; an empty string: none). Reads all failing messages behind `after` until it has
-- enough.
create or replace function spanmq_call.failing_messages(
    queue text, task text default null, category text default null, error_class text default null,
    error text default null, after bigint default 0,
    qty integer default 100, newest_first boolean default false
) returns setof spanmq.failing_message
language plpgsql stable security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    perform spanmq_core.check_quantity(qty);
    perform spanmq_core.raise_if(newest_first is null, 'newest_first cannot be NULL', 'Pass true or false.');
    return query
        select f.* from spanmq_core.failing_of(this.queue_id, array[task, category, error_class, error], null, after,
                                               null, qty, newest_first) f;
end $$;

-- Failing messages that fit the filters task, category, class and error, with ids above `after`, hidden at `hidden_at`
-- (null: or not), at most qty, in order; msg_ids: only of these; newest_first: as in failing_messages().
create or replace function spanmq_core.failing_of(
    this_queue int, filters text[], msg_ids bigint[], after bigint, hidden_at timestamptz, qty int,
    newest_first boolean default false
) returns setof spanmq.failing_message
language plpgsql stable :pinned as $$
declare
    from_id bigint := greatest(after, 0) + 1;
    to_id bigint := case when after > 0 then after - 1 else 9223372036854775807 end;
    read record;
    n bigint;
begin
    while qty > 0 loop
        select min(r.msg_id) as first_id, max(r.msg_id) as last_id,
               coalesce(array_agg(r.msg_id order by r.msg_id) filter (where w.it), '{}') as ids,
               coalesce(array_agg(r.attempts order by r.msg_id) filter (where w.it), '{}') as attempts,
               coalesce(array_agg(r.vt order by r.msg_id) filter (where w.it), '{}') as vts
            into read
            from ((select h.msg_id, h.attempts, h.vt from spanmq_core.later h
                   where h.queue_id * 1 = this_queue and h.lease_id = 0 and h.attempts > 0 and h.msg_id >= from_id
                       and not newest_first
                   order by h.queue_id * 1, h.msg_id limit 1000)
                  union all
                  (select h.msg_id, h.attempts, h.vt from spanmq_core.later h
                   where h.queue_id * 1 = this_queue and h.lease_id = 0 and h.attempts > 0 and h.msg_id <= to_id
                       and newest_first
                   order by h.queue_id * 1 desc, h.msg_id desc limit 1000)) r
            cross join lateral (select (msg_ids is null or r.msg_id = any (msg_ids))
                                and (hidden_at is null or r.vt > hidden_at) as it) w;
        exit when read.last_id is null;
        return query
            select f.* from spanmq_core.last_failures(this_queue, read.ids, read.attempts, read.vts) f
            where spanmq_core.is_of_cause(filters, f.task, f.category, f.error_class, f.error)
            order by case when newest_first then -f.msg_id else f.msg_id end limit qty;
        get diagnostics n = row_count;
        qty := qty - n;
        from_id := read.last_id + 1;
        to_id := read.first_id - 1;
    end loop;
end $$;

-- Whether a failure is one that the filters mean: task, category, class and error.
create or replace function spanmq_core.is_of_cause(
    filters text[], task text, category text, error_class text, error text
) returns boolean
language sql immutable as $$
    select (filters[1] is null or filters[1] = coalesce(task, ''))
        and (filters[2] is null or filters[2] = coalesce(category, ''))
       and (filters[3] is null or filters[3] = coalesce(error_class, ''))
       and case when filters[4] is null then true else filters[4] = spanmq_core.error_pattern(error) end
$$;

-- Locks those of these messages that still fail of this and no lease holds, and returns their ids.
create or replace function spanmq_core.lock_failing(
    this spanmq_core.queue, filters text[], msg_ids bigint[]
) returns bigint[]
language plpgsql as $$
declare
    -- Fence 0: only those that no lease holds.
    ids bigint[] := spanmq_core.lock_ids(this.queue_id, msg_ids, 0::bigint, '{}'::bigint[]);
begin
    -- A new statement, under their locks: a message may have been tried again meanwhile, or redriven.
    return array(
        select f.msg_id from spanmq_core.last_failures_of(this.queue_id, ids) f
        where spanmq_core.is_of_cause(filters, f.task, f.category, f.error_class, f.error) order by f.msg_id);
end $$;

-- The last failures of those of these messages that have attempts: see last_failures().
create or replace function spanmq_core.last_failures_of(this_queue int, ids bigint[])
returns setof spanmq.failing_message
language plpgsql stable :pinned as $$
declare
    these record;
begin
    select coalesce(array_agg(l.msg_id), '{}') as ids, array_agg(l.attempts) as attempts, array_agg(l.vt) as vts
        into these from spanmq_core.later l
        where l.queue_id = this_queue and l.msg_id = any (last_failures_of.ids) and l.attempts > 0;
    return query select * from spanmq_core.last_failures(this_queue, these.ids, these.attempts, these.vts);
end $$;

-- Makes failing messages visible at once: those of one cause, as failing_messages() selects them, only msg_ids if they
-- are passed, at most qty. Returns their number: call it again until it returns 0. Leased messages are not changed. The
-- attempts stay.
create or replace function spanmq_call.retry_failing(
    queue text, task text default null, category text default null, error_class text default null,
    error text default null,
    msg_ids bigint[] default null, qty integer default 1000
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    at_ timestamptz := clock_timestamp();
    filters text[] := array[task, category, error_class, error];
    ids bigint[];
begin
    perform spanmq_core.check_quantity(qty);
    ids := spanmq_core.lock_failing(this, filters, array(
        select f.msg_id from spanmq_core.failing_of(this.queue_id, filters, msg_ids, 0::bigint, at_, qty, false) f));
    if ids <> '{}' then
        perform spanmq_core.show(this, ids, false);
    end if;
    return cardinality(ids);
end $$;

-- Makes dead letters of failing messages, with their last failure as the reason: those that failing_messages() selects,
-- only msg_ids if they are passed, at most qty. Returns their number: call it again until it returns 0. Leased messages
-- are not changed.
create or replace function spanmq_call.reject_failing(
    queue text, task text default null, category text default null, error_class text default null,
    error text default null,
    msg_ids bigint[] default null, qty integer default 1000
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    filters text[] := array[task, category, error_class, error];
    ids bigint[];
    alike record;
begin
    perform spanmq_core.check_quantity(qty);
    ids := spanmq_core.lock_failing(this, filters, array(
        select f.msg_id from spanmq_core.failing_of(this.queue_id, filters, msg_ids, 0::bigint, null::timestamptz, qty,
                                                    false) f));
    for alike in
        select (coalesce(f.category, 'UNKNOWN'), f.error, f.error_class, f.traceback, f.worker)::spanmq_core.reason
               as reason, array_agg(f.msg_id) as ids
        from spanmq_core.last_failures_of(this.queue_id, ids) f group by 1 order by min(f.msg_id)
    loop
        perform spanmq_core.bury(this, alike.ids, clock_timestamp(), alike.reason, null::bigint);
    end loop;
    return cardinality(ids);
end $$;
