-- Failing messages: those that have failed and wait for another attempt. What they fail of, and what an operator does
-- about it.

-- The first line of an error, with placeholders for what differs from message to message: as pattern_of() of the Python
-- package, which groups dead letters.
create or replace function spanmq_core.error_pattern(error text) returns text
language plpgsql immutable as $$
declare
    line text := substring(left(error, 2000) from E'^\\s*([^\\r\\n]*)');
begin
    line := regexp_replace(line, E'(?<!\\w)\'[^\'\\n]*\'(?!\\w)|"[^"\\n]*"', '<text>', 'g');
    -- Ids have digits, and most errors have none: each of these patterns costs more than all else.
    if line ~ '[0-9]' then
        line := regexp_replace(line, E'\\y[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}\\y', '<id>', 'gi');
        line := regexp_replace(line, E'\\y0x[0-9a-f]+\\y', '<id>', 'gi');
        line := regexp_replace(line, E'\\y(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\\y', '<id>', 'gi');
        line := regexp_replace(line, E'\\d+(\\.\\d+)*', '<number>', 'g');
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

-- The causes of the messages that wait for another attempt, in a queue, or in all (queue null; only for a role that may
-- look into all): a row for each task, category, class and text of the last error, without numbers, ids and quoted
-- text; those with the most messages first, at most qty. n messages have `attempts` at most; the first of them failed
-- at first_failed_at for the first time, the latest at last_failed_at; the next attempt is at retry_at; first_id is one
-- of them. Of all queues, only the qty with the most failing messages are read. Reads the errors of about 500 messages,
-- which are drawn by their ids, and counts up to 100,000 runs; where there are more, is_exact is false, and n is an
-- estimate. Costs the same for any number beyond that.
create or replace function spanmq_call.failing(queue text default null, qty integer default 100)
returns table (queue_name text, task text, category text, error_class text, error text, n bigint, is_exact boolean,
               attempts integer,
               first_failed_at timestamptz, last_failed_at timestamptz, retry_at timestamptz, first_id bigint)
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
          and exists (select from spanmq_core.held h where h.queue_id * 1 = q.queue_id and h.lease_id = 0
                      and h.attempts > 0));
    most := greatest(100000 / greatest(cardinality(these), 1), 100);
    sample := greatest(500 / greatest(least(cardinality(these), qty), 1), 10);
    return query
        select q.name::text, c.task, c.category, c.error_class, c.error, c.n, c.is_exact, c.attempts, c.first_failed_at,
        c.last_failed_at, c.retry_at, c.first_id
        from (select t.queue_id, r.n, r.has_more
              from unnest(these) t (queue_id)
              cross join lateral (
                  select sum(h.n) as n, count(*) > most as has_more
                  from (select h.n from spanmq_core.held h
                        where h.queue_id * 1 = t.queue_id and h.lease_id = 0 and h.attempts > 0 order by h.queue_id * 1,
                        h.lo limit most + 1) h) r
              order by r.n desc, t.queue_id limit qty) m
        join spanmq_core.queue q on q.queue_id = m.queue_id
        cross join lateral spanmq_core.failing_causes(m.queue_id, m.n, m.has_more, sample) c
        order by c.n desc, q.name, c.first_id limit qty;
end $$;

-- The same for one queue, which has n_failing of these messages (has_more: or more), from `sample` of them.
create or replace function spanmq_core.failing_causes(this_queue int, n_failing numeric, has_more boolean, sample int)
returns table (task text, category text, error_class text, error text, n bigint, is_exact boolean, attempts int,
               first_failed_at timestamptz,
               last_failed_at timestamptz, retry_at timestamptz, first_id bigint)
language plpgsql stable :pinned as $$
declare
    drawn record;
    n_drawn numeric;
    step int;
begin
    -- By a hash of the id: a sample of all of them, and the same one at the next look. All of a few runs may have other
    -- hashes: then the first.
    foreach step in array array[ceil(n_failing / sample), 1] loop
        select array_agg(d.id) as ids, array_agg(d.attempts) as attempts, array_agg(d.vt) as vts into drawn
            from (select e.id, r.attempts, r.vt
                  from (select h.lo, h.n, h.attempts, h.vt from spanmq_core.held h
                        where h.queue_id * 1 = this_queue and h.lease_id = 0 and h.attempts > 0
                        and hashint8(h.lo) % step = 0
                        order by h.queue_id * 1, h.lo limit sample) r
                  cross join generate_series(r.lo, r.lo + r.n - 1) e (id) limit sample) d;
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
               min(f.retry_at), min(f.first_id)
        -- First by their full text: most errors are alike, and a pattern costs more than a comparison.
        from (select l.task, l.category, l.error_class, left(l.error, 2000) as error, count(*) as n,
              max(l.attempts) as attempts,
                     min(l.first_failed_at) as first_failed_at, max(l.last_failed_at) as last_failed_at,
                     min(l.retry_at) as retry_at, min(l.msg_id) as first_id
              from spanmq_core.last_failures(this_queue, drawn.ids, drawn.attempts, drawn.vts) l group by 1, 2, 3, 4) f
        group by 1, 2, 3, 4;
end $$;

-- The messages that wait for another attempt, of one cause, with their last failure: those with ids above `after`, at
-- most qty, in order. Each filter is as failing() returns it (null: any; an empty string: none). Reads all failing
-- messages above `after` until it has enough.
create or replace function spanmq_call.failing_messages(
    queue text, task text default null, category text default null, error_class text default null,
    error text default null, after bigint default 0,
    qty integer default 100
) returns setof spanmq.failing_message
language plpgsql stable security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    perform spanmq_core.check_quantity(qty);
    return query
        select f.* from spanmq_core.failing_of(this.queue_id, array[task, category, error_class, error], null, after,
                                               null, qty) f;
end $$;

-- Failing messages that fit the filters task, category, class and error, with ids above `after`, hidden at `hidden_at`
-- (null: or not), at most qty, in order; msg_ids: only of these.
create or replace function spanmq_core.failing_of(
    this_queue int, filters text[], msg_ids bigint[], after bigint, hidden_at timestamptz, qty int
) returns setof spanmq.failing_message
language plpgsql stable :pinned as $$
declare
    -- The run that holds the first of them may begin before it.
    from_id bigint := greatest(after, 0) / 256 * 256;
    read record;
    n bigint;
begin
    while qty > 0 loop
        select max(r.last_id) as last_id, coalesce(array_agg(e.id order by e.id) filter (where w.it), '{}') as ids,
               coalesce(array_agg(r.attempts order by e.id) filter (where w.it), '{}') as attempts,
               coalesce(array_agg(r.vt order by e.id) filter (where w.it), '{}') as vts
            into read
            from (select h.lo, h.lo + h.n - 1 as last_id, h.attempts, h.vt from spanmq_core.held h
                  where h.queue_id * 1 = this_queue and h.lease_id = 0 and h.attempts > 0 and h.lo >= from_id
                  order by h.queue_id * 1, h.lo limit 1000) r
            cross join generate_series(r.lo, r.last_id) e (id)
            cross join lateral (select e.id > after and (msg_ids is null or e.id = any (msg_ids))
                                and (hidden_at is null or r.vt > hidden_at) as it) w;
        exit when read.last_id is null;
        return query
            select f.* from spanmq_core.last_failures(this_queue, read.ids, read.attempts, read.vts) f
            where spanmq_core.is_of_cause(filters, f.task, f.category, f.error_class, f.error) order by f.msg_id
            limit qty;
        get diagnostics n = row_count;
        qty := qty - n;
        from_id := read.last_id + 1;
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

-- Takes these messages out of the queue, if they still fail of this and no lease holds them; the others stay as they
-- are.
create or replace function spanmq_core.take_failing(
    this spanmq_core.queue, filters text[], msg_ids bigint[]
) returns spanmq_core.run[]
language plpgsql as $$
declare
    -- Fence 0: only from runs that no lease holds.
    runs spanmq_core.run[] := spanmq_core.take_out(this.queue_id, msg_ids, 0);
    meant int8multirange;
    rest spanmq_core.run[];
begin
    if runs = '{}' then
        return runs;
    end if;
    -- A new statement, under their locks: a message may have been tried again meanwhile, or redriven.
    select coalesce(range_agg(int8range(f.msg_id, f.msg_id, '[]')), '{}') into meant
        from (select array_agg(e.id) as ids, array_agg(r.attempts) as attempts, array_agg(r.vt) as vts
              from unnest(runs) r, generate_series(r.lo, r.lo + r.n - 1) e (id) where r.attempts > 0) m
        cross join lateral spanmq_core.last_failures(this.queue_id, coalesce(m.ids, '{}'), m.attempts, m.vts) f
        where spanmq_core.is_of_cause(filters, f.task, f.category, f.error_class, f.error);
    rest := spanmq_core.runs_not_among(runs, meant);
    if rest <> '{}' then
        perform spanmq_core.return_to(this, rest);
    end if;
    return spanmq_core.runs_among(runs, meant);
end $$;

-- Makes failing messages visible at once that wait for a later attempt: those of one cause, as failing_messages()
-- selects them, of msg_ids if they are given, at most qty. Returns how many: call it again until it returns 0. Leased
-- ones are left alone. Their attempts stay.
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
    runs spanmq_core.run[];
begin
    perform spanmq_core.check_quantity(qty);
    runs := spanmq_core.take_failing(this, filters, array(
        select f.msg_id from spanmq_core.failing_of(this.queue_id, filters, msg_ids, 0, at_, qty) f));
    if runs <> '{}' then
        perform spanmq_core.return_to(this, array(
            select (r.lo, r.n, r.attempts, 0, at_, r.last_read_at, r.group_hash, r.group_key, r.priority, r.lost,
                    r.alone)::spanmq_core.run from unnest(runs) r));
    end if;
    return spanmq_core.count_runs(runs);
end $$;

-- Makes dead letters of failing messages, with their last failure as the reason: of those that failing_messages()
-- selects, of msg_ids if they are given, at most qty. Returns how many: call it again until it returns 0. Leased ones
-- are left alone.
create or replace function spanmq_call.reject_failing(
    queue text, task text default null, category text default null, error_class text default null,
    error text default null,
    msg_ids bigint[] default null, qty integer default 1000
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    filters text[] := array[task, category, error_class, error];
    runs spanmq_core.run[];
    alike record;
begin
    perform spanmq_core.check_quantity(qty);
    runs := spanmq_core.take_failing(this, filters, array(
        select f.msg_id from spanmq_core.failing_of(this.queue_id, filters, msg_ids, 0, null, qty) f));
    if runs = '{}' then
        return 0;
    end if;
    for alike in
        select (coalesce(f.category, 'UNKNOWN'), f.error, f.error_class, f.traceback, f.worker)::spanmq_core.reason
        as reason,
               range_agg(int8range(f.msg_id, f.msg_id, '[]')) as ids
        from (select array_agg(e.id) as ids, array_agg(r.attempts) as attempts, array_agg(r.vt) as vts
              from unnest(runs) r, generate_series(r.lo, r.lo + r.n - 1) e (id)) m
        cross join lateral spanmq_core.last_failures(this.queue_id, m.ids, m.attempts, m.vts) f group by 1
        order by min(f.msg_id)
    loop
        perform spanmq_core.bury(this, spanmq_core.runs_among(runs, alike.ids), clock_timestamp(), alike.reason);
    end loop;
    perform spanmq_core.tell_settled(this, runs);
    return spanmq_core.count_runs(runs);
end $$;
