-- Listing and deleting dead letters. They are created in bury.sql and redriven in redrive.sql.

-- Filters as they were given to a call. Raises MQ002 and MQ020 for what no filter can be.
create or replace function spanmq_core.letter_filter(
    category text, error text, error_class text, since timestamptz, until timestamptz, payload jsonb, match text,
    dead_letter_ids bigint[], redriven boolean
) returns spanmq_core.letter_filter
language plpgsql volatile as $$
begin
    perform spanmq_core.check_pattern(error, 'error');
    perform spanmq_core.raise_if(cardinality(dead_letter_ids) > 10000,
        format('there can be at most 10000 dead letters in a call, got: %s', cardinality(dead_letter_ids)),
        'Call it again for the rest.');
    return (category, error, error_class, since, until, payload, spanmq_core.as_path(match), dead_letter_ids,
            redriven)::spanmq_core.letter_filter;
end $$;

-- The dead letters of one queue that fit all filters, at most qty, by dead_letter_id over `after` (`by` is that), or
-- with newest_first below it, or, to act on them, by msg_id: those beyond the limit are then also later in their group.
-- `locking` is put behind the statement. Planned for what is given: a filter that is null costs nothing. Each but those
-- on the text of the error and on the body has an index.
create or replace function spanmq_core.find_dead_letters(
    this_queue int, given spanmq_core.letter_filter, after bigint, qty int, by text, locking text default '',
    newest_first boolean default false
) returns setof spanmq_core.dead_letter
language plpgsql volatile as $$
begin
    return query execute format(
        'select d.* from spanmq_core.dead_letter d where d.queue_id = $1 and (%s)'
        ' and (($2).category is null or d.category = ($2).category) and (($2).error_class is null or d.error_class ='
        ' ($2).error_class)'
        ' and (($2).payload is null or d.message @> ($2).payload) and (($2).path is null or'
        ' spanmq_core.meets(d.message, ($2).path))'
        ' and (($2).dead_letter_ids is null or d.dead_letter_id = any (($2).dead_letter_ids))'
        ' and (($2).error is null or left(d.error, 2000) ~* ($2).error) and %s'
        ' and ($3 is null or d.dead_letter_id %s $3) order by d.%I %s limit $4 %s',
        case given.redriven when true then 'd.redriven_at is not null' when false then 'd.redriven_at is null'
        else 'true' end,
        -- By themselves: the planner takes what died in a time to be spread evenly, and walks through all others.
        case when given.since is null and given.until is null then 'true' else
            'd.dead_letter_id = any (array(select w.dead_letter_id from spanmq_core.dead_letter w where w.queue_id = $1'
            ' and w.dead_at >= coalesce(($2).since, ''-infinity'') and w.dead_at < coalesce(($2).until,'
            ' ''infinity'')))' end,
        -- Otherwise the planner takes the primary key, and scans all that were ever redriven.
        case when newest_first then '<' else '>' end, by,
        case when newest_first then 'desc nulls last' when not given.redriven and by = 'dead_letter_id'
        then 'nulls first' else '' end, locking)
        using this_queue, given, after, qty;
end $$;

-- All dead letters that the messages first_id to last_id have become. Redriven and waiting ones have an index each, and
-- no index has both.
create or replace function spanmq_core.letters_of_messages(this_queue int, first_id bigint, last_id bigint)
returns setof spanmq_core.dead_letter
language sql stable as $$
    select * from spanmq_core.dead_letter w where w.queue_id = this_queue and w.msg_id between first_id and last_id
        and w.redriven_at is null
    union all
    select * from spanmq_core.dead_letter r where r.queue_id = this_queue and r.msg_id between first_id and last_id
    and r.redriven_at is not null
$$;

create or replace function spanmq_core.as_dead_letter(
    this spanmq_core.dead_letter, queue_name text, body_bytes_max integer
) returns spanmq.dead_letter
language sql stable as $$
    select (this.dead_letter_id, queue_name, this.msg_id, spanmq_core.cut(this.message, body_bytes_max),
            spanmq_core.cut(this.headers, body_bytes_max), this.group_key, this.attempts, this.enqueued_at,
            this.first_failed_at, this.last_failed_at, this.dead_at, this.category, this.error, this.error_class,
            this.traceback,
            this.worker, this.history, this.redriven_at, this.redriven_as)::spanmq.dead_letter
$$;

-- The dead letters of a queue, or of all queues (queue null; only for a role that may look into all), that match all
-- filters (null: any): category; error, a regular expression without regard to case, as in a rule of categories;
-- error_class; since and until, times at which they died; payload, JSON that the message contains; match, a JSON path,
-- whose first result in the message is neither false nor null; dead_letter_ids. redriven false: those that were not
-- redriven; true: those that were, as history; null: both. The order is that of dead_letter_id, in which they died;
-- with newest_first the last one comes first. Returns at most qty with ids after `after` in this order (0: from the
-- first): for the next page pass the last id of the previous one. Bodies and headers of more than body_bytes_max bytes
-- are left out (see cut()). The cost depends only on the number of returned rows. With `error`, payload or match, all
-- dead letters that fit the other filters are read. Raises MQ020 for a bad pattern, MQ002 for a bad path.
create or replace function spanmq_call.dead_letters(
    queue text default null, category text default null, error text default null, error_class text default null,
    since timestamptz default null, until timestamptz default null, payload jsonb default null, match text default null,
    dead_letter_ids bigint[] default null, redriven boolean default false,
    after bigint default 0, qty integer default 100, body_bytes_max integer default null,
    newest_first boolean default false
) returns setof spanmq.dead_letter
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := case when queue is not null then spanmq_core.find_queue(queue) end;
    given spanmq_core.letter_filter := spanmq_core.letter_filter(category, error, error_class, since, until, payload,
                                                                 match, dead_letter_ids, redriven);
begin
    perform spanmq_core.check_quantity(qty);
    perform spanmq_core.check_body_bytes(body_bytes_max);
    perform spanmq_core.raise_if(newest_first is null, 'newest_first cannot be NULL', 'Pass true or false.');
    return query
        select (spanmq_core.as_dead_letter(d, q.name, body_bytes_max)).*
        from spanmq_core.queue q
        cross join lateral spanmq_core.find_dead_letters(
            q.queue_id, given, case when newest_first then nullif(after, 0) else after end, qty, 'dead_letter_id', '',
            newest_first) d
        where q.queue_id = this.queue_id or queue is null
        order by case when newest_first then -d.dead_letter_id else d.dead_letter_id end limit qty;
end $$;

-- The number of pending dead letters by category, in a queue or in each (queue null; only for a role with look on all
-- queues). It is read from counters, so its cost does not depend on the number.
create or replace function spanmq_call.count_dead_letters(queue text default null)
returns table (queue_name text, category text, n bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := case when queue is not null then spanmq_core.find_queue(queue) end;
begin
    return query
        select q.name::text, c.category, sum(c.n)::bigint
        from spanmq_core.dead_letter_count c join spanmq_core.queue q on q.queue_id = c.queue_id
        where q.queue_id = this.queue_id or queue is null
        group by q.name, c.category having sum(c.n) <> 0
        order by q.name, c.category;
end $$;

-- Deletes these dead letters, which the caller has locked, and returns their number. Groups that waited for one of them
-- continue.
create or replace function spanmq_core.discard(this spanmq_core.queue, dead_letter_ids bigint[]) returns bigint
language plpgsql as $$
declare
    n bigint;
begin
    delete from spanmq_core.blocked_group b using spanmq_core.dead_letter d
        where d.dead_letter_id = any (dead_letter_ids) and d.redriven_at is null and d.group_key is not null
          and b.queue_id = this.queue_id and b.group_hash = hashtextextended(d.group_key, 0) and b.msg_id = d.msg_id;
    if found then
        perform spanmq_core.wake(this.queue_id, this.bells);
    end if;
    insert into spanmq_core.dead_letter_count (queue_id, category, n)
        select this.queue_id, d.category, -count(*) from spanmq_core.dead_letter d
        where d.dead_letter_id = any (dead_letter_ids) and d.redriven_at is null group by d.category;
    -- For state(): these are not completed.
    insert into spanmq_core.failure (queue_id, lo, n, ids, attempt, failed_at, outcome, category)
        select this.queue_id, lower(b.ids), b.n, case when upper(b.ids) - lower(b.ids) > b.n then b.ids end, 0,
               clock_timestamp(), 'cancelled', 'DISCARDED'
        from (select range_agg(int8range(d.msg_id, d.msg_id, '[]')) as ids, count(*) as n from spanmq_core.dead_letter d
              where d.dead_letter_id = any (dead_letter_ids) and d.redriven_at is null group by d.msg_id / 256) b;
    delete from spanmq_core.dead_letter d where d.dead_letter_id = any (dead_letter_ids);
    get diagnostics n = row_count;
    return n;
end $$;

-- Deletes dead letters that match all filters (as dead_letters()), at most qty, and returns their number: call it again
-- until it returns 0. dry_run only counts them. By default it deletes pending dead letters, and their messages are
-- lost; with redriven true, it deletes the history of redriven ones. Groups that waited for one continue. Raises MQ020
-- for a bad pattern, MQ002 for a bad path.
create or replace function spanmq_call.purge_dead_letters(
    queue text, category text default null, error text default null, error_class text default null,
    since timestamptz default null,
    until timestamptz default null, payload jsonb default null, match text default null,
    dead_letter_ids bigint[] default null,
    redriven boolean default false, qty integer default 1000, dry_run boolean default false
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    given spanmq_core.letter_filter := spanmq_core.letter_filter(category, error, error_class, since, until, payload,
                                                                 match, dead_letter_ids, redriven);
begin
    perform spanmq_core.check_quantity(qty);
    perform spanmq_core.raise_if(dry_run is null, 'dry_run cannot be NULL', 'Pass true or false.');
    if dry_run then
        return (select count(*) from spanmq_core.find_dead_letters(this.queue_id, given, null, qty, 'msg_id'));
    end if;
    return spanmq_core.discard(this, array(
        select d.dead_letter_id
            from spanmq_core.find_dead_letters(this.queue_id, given, null, qty, 'msg_id', 'for update skip locked') d));
end $$;

-- Deletes dead letters that are past the retention of the queue's policy, at most 1,000, redriven ones included. Those
-- that a lake is to export are kept until it has them.
create or replace function spanmq_core.retire_dead_letters(this spanmq_core.queue) returns bigint
language plpgsql as $$
declare
    before timestamptz := spanmq_core.before(now(), (spanmq_core.policy_of(this.queue_id)).dead_letter_retention);
begin
    if before is null then
        return 0;
    end if;
    return spanmq_core.discard(this, array(
        select d.dead_letter_id from spanmq_core.dead_letter d where d.queue_id = this.queue_id and d.dead_at < before
            and not exists (select from spanmq_core.archive_export e
                            where e.queue_id = this.queue_id and e.of_table = 'dead_letters' and not exists (
                                select from spanmq_core.archive_export_ids i
                                where i.queue_id = e.queue_id and i.of_table = e.of_table and i.lake = e.lake
                                    and i.block = d.dead_letter_id >> 15 and i.ids @> d.dead_letter_id))
        order by d.queue_id, d.dead_at limit 1000 for update skip locked));
end $$;
