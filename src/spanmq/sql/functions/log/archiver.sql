-- Moving messages into archives. A statement that is put together at run time costs as much as all the rest, so a queue
-- that has a lane (lane.sql) has a function for it, too.

-- Moves these messages into the archive, with their ids, and returns the ids of those that were in the queue. fence: as
-- in lock_ids(). Wakes whom remove() wakes.
create or replace function spanmq_core.move_to_archive(
    this spanmq_core.queue, msg_ids bigint[], fence bigint
) returns bigint[]
language plpgsql as $$
declare
    place regclass := spanmq_core.archive_of(this);
    gone record;
begin
    perform spanmq_core.wake_behind(this, msg_ids, fence);
    gone := spanmq_core.take_out(this.queue_id, msg_ids, fence);
    if gone.ids <> '{}' then
        perform spanmq_core.fill_archive(this, place, gone.ids, gone.attempts, gone.read_ats, gone.vts);
        if this.is_watched then
            perform spanmq_core.note_settled(this, gone.ids);
        end if;
    end if;
    return gone.ids;
end $$;

-- Inserts messages that were deleted into the archive, and returns true. It is `place`: another table than was known,
-- if its owner has renamed that. Raises 42P01 if there is none, or it is not there any more.
create or replace function spanmq_core.fill_archive(
    this spanmq_core.queue, place regclass, ids bigint[], attempts int[], read_ats timestamptz[], vts timestamptz[]
) returns boolean
language plpgsql as $$
begin
    if place is distinct from this.archive then
        if place is null then
            perform spanmq_core.raise_no_archive(this);
        end if;
        perform spanmq_core.check_archive(place);
        update spanmq_core.queue q set archive = place where q.queue_id = this.queue_id;
    end if;
    if this.lane is not null and this.log_lo < all (ids) and this.log_hi >= all (ids) then
        return spanmq_core.archive_by_lane(this.lane, place, ids, attempts, read_ats, vts);
    end if;
    perform spanmq_core.hold_archive(this.folded_name, place, '{trigger}');
    execute spanmq_core.archive_statement(
        this.folded_name, spanmq_core.log_of(this.queue_id, (select min(id) from unnest(ids) id),
                                             (select max(id) from unnest(ids) id)), cardinality(ids) = 1)
        using ids, attempts, read_ats, vts;
    return true;
end $$;

-- The statement that inserts messages whose ids, attempts, times of reads and vts are $1 to $4 into an archive. Those
-- that are alike, as a batch that was read at once, are not looked up one by one.
create or replace function spanmq_core.archive_statement(folded_name text, log_name text, are_alike boolean)
returns text
language sql immutable as $$
    select format(
        'insert into pgmq.%I (msg_id, read_ct, enqueued_at, last_read_at, vt, message, headers) select l.msg_id, '
        || case when are_alike then '$2[1], l.enqueued_at, $3[1], $4[1], l.message, l.headers'
                                    ' from spanmq_core.%I l where l.msg_id = any ($1)'
                else 'u.attempts, l.enqueued_at, u.read_at, u.vt, l.message, l.headers'
                     ' from unnest($1, $2, $3, $4) u (id, attempts, read_at, vt)'
                     ' cross join lateral (select * from spanmq_core.%I l where l.msg_id = u.id offset 0) l' end,
        'a_' || folded_name, log_name)
$$;

-- Makes the function that inserts messages of this lane into the archive of their queue. Not a view: its owner could
-- not drop the archive then.
create or replace function spanmq_core.make_archiver(this spanmq_core.queue, this_lane int) returns void
language plpgsql as $$
declare
    heading text := format('spanmq_core.archive_by_lane_%s(bigint[], int[], timestamptz[], timestamptz[], regclass)',
                           this_lane);
    log_name text := format('lane_%s', this_lane);
begin
    execute format('create or replace function %s returns boolean language plpgsql as %L', heading, format(
        $body$begin
    lock table pgmq.%I in row exclusive mode;
    -- A new statement: it sees what was committed before the lock.
    if (select c.relhastriggers or c.relhassubclass or not spanmq_core.sees_now() from pg_class c
        where c.oid = $5 and c.oid = to_regclass(%L)) is not false then
        perform spanmq_core.check_held_archive(%L, $5, '{trigger}');
    end if;
    if cardinality($1) = 1 or $2 = array_fill($2[1], array[cardinality($1)])
            and $3 = array_fill($3[1], array[cardinality($1)]) and $4 = array_fill($4[1], array[cardinality($1)]) then
        %s;
    else
        %s;
    end if;
    return true;
end$body$, 'a_' || this.folded_name, spanmq_core.archive_name(this.folded_name), this.folded_name,
        spanmq_core.archive_statement(this.folded_name, log_name, true),
        spanmq_core.archive_statement(this.folded_name, log_name, false)));
    perform spanmq_core.close_functions(array[heading::regprocedure]);
end $$;

-- For the lanes that there are already: the last release may have had no such functions.
do $$
begin
    perform spanmq_core.make_archiver(q, q.lane) from spanmq_core.queue q where q.lane is not null;
end $$;
