-- The log: where messages are stored.

-- The segment that holds an id; a subscription's are those of the log that it shares. Its row is missing only for ids
-- that no sender has drawn yet.
create or replace function spanmq_core.segment_of(this_queue int, id bigint) returns spanmq_core.segment
language plpgsql stable :pinned as $$
declare
    this spanmq_core.segment;
begin
    select * into this from spanmq_core.segment s
        where s.queue_id = coalesce((select p.log_id from spanmq_core.subscription p where p.queue_id = this_queue),
                                    this_queue)
          and s.lo <= id order by s.queue_id desc, s.lo desc limit 1;
    if this.hi < id then
        return null;
    end if;
    return this;
end $$;

-- The last id that a queue has drawn, 0 before the first. Read as from a table: pg_sequence_last_value() would hold a
-- sender's lock to the end of the transaction, and the creation of a subscription would wait for every session that has
-- only read it.
create or replace function spanmq_core.drawn_from(ids regclass) returns bigint
language plpgsql stable as $$
declare
    drawn bigint;
begin
    if not exists (select from pg_class c where c.oid = ids) then
        raise exception 'relation with OID % does not exist', ids::oid
            using errcode = '42P01', hint = 'The queue, or its sequence of ids, was dropped.';
    end if;
    execute format('select case when is_called then last_value else 0 end from %s', ids) into drawn;
    return drawn;
end $$;

-- The same for a list of queues; null for one that was dropped meanwhile.
create or replace function spanmq_core.drawn_unless_gone(this spanmq_core.queue) returns bigint
language plpgsql as $$
begin
    return spanmq_core.drawn_from(this.ids);
exception when undefined_table or internal_error then
    if not spanmq_core.is_gone(this) then
        raise;
    end if;
    return null;
end $$;

-- Makes the segment that will hold `id`, of about `size` ids, unless it exists, and returns it. Locks to commit: an
-- inner lock, for which it waits if `patient` (otherwise it returns null); the log's parent table in SHARE UPDATE
-- EXCLUSIVE mode, which disturbs neither readers nor writers.
create or replace function spanmq_core.create_segment(this_queue int, id bigint, size int, patient boolean)
returns spanmq_core.segment
language plpgsql as $$
declare
    this spanmq_core.segment := spanmq_core.segment_of(this_queue, id);
    before spanmq_core.segment;
    after_lo bigint;
begin
    if this.lo is not null then
        return this;
    end if;
    if patient then
        perform spanmq_core.lock(this_queue, 'segment');
    elsif not spanmq_core.try_lock(this_queue, 'segment') then
        return null;
    end if;
    -- A new statement: the last holder of the lock may have created it.
    this := spanmq_core.segment_of(this_queue, id);
    if this.lo is not null then
        return this;
    end if;
    select * into before from spanmq_core.segment s where s.queue_id = this_queue and s.lo <= id order by s.lo desc
        limit 1;
    select s.lo into after_lo from spanmq_core.segment s where s.queue_id = this_queue and s.lo > id order by s.lo
        limit 1;
    this.queue_id := this_queue;
    this.lo := case when id - before.hi <= size then before.hi + 1 else id - id % 256 end;
    this.hi := least(this.lo + size, after_lo) - 1;
    this.log_name := format('log_%s_%s', this_queue, nextval('spanmq_core.segment_number'));
    -- Rows of a log are only added and go all at once with their segment: nothing for autovacuum but its guard against
    -- wrap-around.
    execute format('create %s table spanmq_core.%I (primary key (msg_id)) inherits (spanmq_core.log_%s) with'
                   ' (autovacuum_enabled = off)',
                   case
                   when (select q.is_unlogged from spanmq_core.queue q
                         where q.queue_id = this_queue) then 'unlogged' end, this.log_name, this_queue);
    perform spanmq_core.close_relation(format('spanmq_core.%I', this.log_name)::regclass, '{}'),
        spanmq_core.open_segment(this_queue, this.log_name);
    insert into spanmq_core.segment (queue_id, lo, hi, log_name, n_rows)
        values (this_queue, this.lo, this.hi, this.log_name, this.hi - this.lo + 1);
    return this;
exception
    -- Only a caller with an old snapshot comes here: it can't see the segment that another made.
    when exclusion_violation or unique_violation then
        raise exception 'could not serialize access: the log of queue % has a new segment', this_queue
            using errcode = '40001', hint = 'Run the transaction again.';
end $$;

-- The segment for an id that a sender has drawn. It makes one as the last resort; and the one sender in a segment's
-- life that draws its first id sees to it that there is a next.
create or replace function spanmq_core.enter_segment(this_queue int, id bigint, size int) returns spanmq_core.segment
language plpgsql as $$
declare
    this spanmq_core.segment := spanmq_core.segment_of(this_queue, id);
begin
    if this.lo is null then
        return spanmq_core.create_segment(this_queue, id, size, true);
    end if;
    if id = this.lo then
        perform spanmq_core.create_segment(this_queue, this.hi + 1, size, false);
    end if;
    return this;
end $$;

-- Records the segment of an id in the queue's row, unless the recorded one is newer, or another transaction has locked
-- the row.
create or replace function spanmq_core.remember_segment(this_queue int, id bigint) returns void
language plpgsql as $$
declare
    this spanmq_core.segment := spanmq_core.segment_of(this_queue, id);
begin
    if this.lo is null then
        -- Its segment is still to be committed by another.
        return;
    end if;
    perform from spanmq_core.queue q where q.queue_id = this_queue and q.log_hi < id for no key update skip locked;
    if found then
        update spanmq_core.queue q set log_lo = this.lo, log_hi = this.hi, log_name = this.log_name, lane = null
            where q.queue_id = this_queue;
    end if;
end $$;

-- Whether an array has one dimension and begins at 1.
create or replace function spanmq_core.is_list(given anyarray) returns boolean
language sql immutable as $$ select array_ndims(given) = 1 and array_lower(given, 1) = 1 $$;

-- Appends messages under the ids that were drawn for them. `ids` is null when they are first_id, first_id + 1, ...
create or replace function spanmq_core.append(
    this_queue int, size int, first_id bigint, ids bigint[], sent_at timestamptz, messages jsonb[], headers jsonb[]
) returns void
language plpgsql as $$
declare
    n int := cardinality(messages);
    this spanmq_core.segment;
    done int := 0;
    chunk int;
    next_id bigint;
begin
    -- Parts are taken by place. A caller's array may begin at another place than 1 (a loop in PL/pgSQL made it), or
    -- have two dimensions.
    if not spanmq_core.is_list(messages) or not spanmq_core.is_list(headers) then
        messages := array(select unnest(messages));
        headers := case when headers is not null then array(select unnest(headers)) end;
    end if;
    while done < n loop
        next_id := case when ids is null then first_id + done else ids[done + 1] end;
        this := spanmq_core.enter_segment(this_queue, next_id, size);
        chunk := least(n - done, this.hi + 1 - next_id);
        if ids is not null then
            chunk := (select count(*) from unnest(ids[done + 1:n]) id where id <= this.hi);
        end if;
        -- Functions that return sets in the select list are streamed; in the from list they would be copied first. In
        -- the usual case the arrays are not copied either.
        execute format('insert into spanmq_core.%I (msg_id, enqueued_at, message, headers) select %s, $1,'
                       ' unnest($2), %s',
                       this.log_name, case when ids is null then 'generate_series($4, $4 + $5 - 1)'
                       else 'unnest($6)' end,
                       case when headers is not null then 'unnest($3)' else 'null' end)
            using sent_at, case when chunk = n then messages else messages[done + 1:done + chunk] end,
                  case when chunk = n then headers else headers[done + 1:done + chunk] end, next_id, chunk,
                  ids[done + 1:done + chunk];
        done := done + chunk;
    end loop;
end $$;

-- The name of the table that holds these ids: that of their segment, or of the whole log.
create or replace function spanmq_core.log_of(this_queue int, first_id bigint, last_id bigint) returns text
language plpgsql stable as $$
declare
    this spanmq_core.segment := spanmq_core.segment_of(this_queue, first_id);
begin
    return case when last_id <= this.hi then this.log_name else 'log_' || this_queue end;
end $$;

-- These messages as they are now; vt: as `until` says, unless null. In the order of msg_id if `sorted`, else in that of
-- the ids. Many that follow each other and are alike are a range of the log.
create or replace function spanmq_core.fetch(this spanmq_core.queue, ids bigint[], until timestamptz, sorted boolean)
returns setof pgmq.message_record
language plpgsql rows 100 as $$
declare
    rows record;
    is_newest boolean;
begin
    select array_agg(u.msg_id) as ids, array_agg(u.attempts) as attempts, array_agg(u.last_read_at) as read_ats,
           array_agg(coalesce(until, u.vt)) as vts, min(u.msg_id) as first_id, max(u.msg_id) as last_id,
           min(u.attempts) = max(u.attempts) and min(coalesce(until, u.vt)) = max(coalesce(until, u.vt))
               and min(u.last_read_at) is not distinct from max(u.last_read_at)
               and count(u.last_read_at) in (0, count(*)) as are_alike
        into rows
        from (select u.*
              from unnest(ids) with ordinality w (id, place)
              -- One by one, by force (offset 0): without statistics PostgreSQL 16 would read all rows of the queue.
              cross join lateral (select * from spanmq_core.unsettled u
                                  where u.queue_id = this.queue_id and u.msg_id = w.id offset 0) u
              order by case when sorted then w.id else w.place end) u;
    is_newest := rows.first_id > this.log_lo and rows.last_id <= this.log_hi;
    if sorted and rows.are_alike and cardinality(rows.ids) >= 100
       and rows.last_id - rows.first_id = cardinality(rows.ids) - 1 then
        return query execute format(
            'select msg_id, $3, enqueued_at, $4, $5, message, headers from spanmq_core.%I'
            ' where msg_id >= $1 and msg_id <= $2 order by msg_id',
            spanmq_core.log_of(this.queue_id, rows.first_id, rows.last_id))
            using rows.first_id, rows.last_id, rows.attempts[1], rows.read_ats[1], rows.vts[1];
    elsif rows.ids is not null then
        return query select * from spanmq_core.fetch_some_by_lane(
            case when is_newest then this.lane end,
            case when is_newest then this.log_name
                 else spanmq_core.log_of(this.queue_id, rows.first_id, rows.last_id) end,
            rows.ids, rows.attempts, rows.read_ats, rows.vts);
    end if;
end $$;

-- The same for receive(), of messages that it has leased: with the lease, and the slot in which each is: one of `slots`
-- parts of the ids.
create or replace function spanmq_core.fetch_leased(
    this spanmq_core.queue, ids bigint[], until timestamptz, lease bigint, slots int, sorted boolean
) returns setof spanmq.leased_message
language plpgsql rows 100 as $$
declare
    slot_size int := ceil(cardinality(ids) / slots::numeric);
begin
    return query
        select m.*, lease, ((w.place - 1) / slot_size + 1)::int, m.read_ct, m.headers->>'x-pgmq-group',
               case when m.read_ct > 1 then spanmq_core.last_error(this.queue_id, m.msg_id) end
        from spanmq_core.fetch(this, ids, until, sorted) m
        join unnest(ids) with ordinality w (id, place) on w.id = m.msg_id
        order by case when sorted then m.msg_id else w.place end;
end $$;

create or replace function spanmq_core.enqueued_at(this_queue int, id bigint) returns timestamptz
language plpgsql stable as $$
declare
    segment spanmq_core.segment := spanmq_core.segment_of(this_queue, id);
    found_at timestamptz;
begin
    -- From its segment: a plan for the whole log opens every segment.
    if segment.lo is not null then
        execute format('select enqueued_at from spanmq_core.%I where msg_id = $1', segment.log_name) into found_at
            using id;
    end if;
    return found_at;
end $$;

-- The first `quantity` unsettled messages with first_id <= msg_id <= last_id, which lie in one segment. One by one, by
-- force (offset 0): the view would join and sort whatever the queue holds.
create or replace function spanmq_core.look(this spanmq_core.queue, first_id bigint, last_id bigint, quantity int)
returns setof pgmq.message_record
language plpgsql rows 10 as $$
begin
    return query execute format(
        'select l.msg_id, s.attempts, l.enqueued_at, s.last_read_at, s.vt, l.message, l.headers'
        ' from ((select f.msg_id, f.attempts, f.last_read_at, f.vt from spanmq_core.state f'
        '        where f.queue_id = $1 and f.msg_id between $2 and $3 order by f.queue_id, f.msg_id limit $4)'
        '       union all'
        '       (select h.msg_id, h.attempts, h.last_read_at, h.vt from spanmq_core.later h'
        '        where h.queue_id = $1 and h.msg_id between $2 and $3 order by h.queue_id, h.msg_id limit $4)'
        ' order by msg_id) s'
        ' cross join lateral (select * from spanmq_core.%I l where l.msg_id = s.msg_id offset 0) l limit $4',
        (spanmq_core.segment_of(this.queue_id, first_id)).log_name)
        using this.queue_id, first_id, last_id, quantity;
end $$;

-- Settles those of these messages that have no row in the log, as after a crash in an unlogged queue, and records them:
-- otherwise they would be claimed again indefinitely.
create or replace function spanmq_core.settle_missing(this spanmq_core.queue, ids bigint[]) returns void
language plpgsql as $$
declare
    missing_ids bigint[];
    last_id bigint;
    most int := 10;
    n bigint;
begin
    execute format('select array_agg(id) from unnest($1) id'
                   ' where not exists (select from spanmq_core.log_%s l where l.msg_id = id)', this.queue_id)
        into missing_ids using ids;
    insert into spanmq_core.missing (queue_id, msg_id) select this.queue_id, id from unnest(missing_ids) id;
    perform spanmq_core.take_out(this.queue_id, missing_ids, null::bigint);
    last_id := (select max(id) from unnest(missing_ids) id);
    -- If all messages of a claim are missing, those behind may be, too, up to the first existing row: a claim that met
    -- them one by one would never end. Some 400,000 messages at most.
    for step in 1 .. case when cardinality(missing_ids) = cardinality(ids) then 15 else 0 end loop
        execute format(
                'select max(s.msg_id), count(*), array_agg(s.msg_id) filter (where l.msg_id is null)'
                ' from (select f.msg_id from spanmq_core.state f where f.queue_id = $1 and f.msg_id > $2'
                '  and f.vt <= clock_timestamp() order by f.queue_id, f.msg_id limit $3) s'
                ' left join lateral (select l.msg_id from spanmq_core.log_%s l where l.msg_id = s.msg_id offset'
                ' 0) l on true', this.queue_id)
            into last_id, n, missing_ids using this.queue_id, last_id, most;
        -- Those that no other transaction has taken meanwhile.
        insert into spanmq_core.missing (queue_id, msg_id)
            select this.queue_id, id
            from spanmq_core.take_out(this.queue_id, missing_ids, 0::bigint) gone cross join unnest(gone.ids) id
            where missing_ids is not null;
        exit when cardinality(missing_ids) < n or missing_ids is null;
        most := least(most * 4, 40000);
    end loop;
end $$;

-- Locks a table of the log for this transaction.
create or replace function spanmq_core.lock_log(log_name text, mode text) returns void
language plpgsql as $$
begin
    execute format('lock table spanmq_core.%I in %s mode', log_name, mode);
end $$;
