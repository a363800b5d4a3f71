-- The log: where messages are stored.

-- The segment that holds an id; a subscription's are those of the log that it shares. Its row is missing only for ids
-- that no sender has drawn yet.
create or replace function spanmq_core.segment_of(this_queue int, id bigint) returns spanmq_core.segment
language plpgsql stable as $$
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

-- The statement that fetches the messages $1 <= msg_id < $2 (first_id to last_id), in order, as pgmq.message_record
-- with read_ct $3, last_read_at $4 and vt $5 (null: when it was sent). `more` is put behind the columns.
create or replace function spanmq_core.fetch_range(
    this_queue int, first_id bigint, last_id bigint, more text default ''
) returns text
language plpgsql stable as $$
begin
    return format('select msg_id, $3, enqueued_at, $4, coalesce($5, enqueued_at), message, headers%s from'
                  ' spanmq_core.%I'
                  ' where msg_id >= $1 and msg_id < $2 order by msg_id', more,
                  spanmq_core.log_of(this_queue, first_id, last_id));
end $$;

-- The same for listed messages: ids $1 with read_ct $2, last_read_at $3 and vt $4, in the order given. `more` may use
-- $5 and, as u.slot, $6. A loop over the ids by force (offset 0): a join to unnest() may scan the whole log.
create or replace function spanmq_core.fetch_ids(this_queue int, listed spanmq_core.listed, more text default '')
returns text
language plpgsql stable as $$
begin
    return format('select l.msg_id, u.read_ct, l.enqueued_at, u.read_at, coalesce(u.vt, l.enqueued_at), l.message,'
                  ' l.headers%s'
                  ' from unnest($1, $2, $3, $4%s) with ordinality u (id, read_ct, read_at, vt%s, position)'
                  ' cross join lateral (select * from spanmq_core.%I l where l.msg_id = u.id offset 0) l order by'
                  ' u.position',
                  more, case when more <> '' then ', $6' end, case when more <> '' then ', slot' end,
                  (select spanmq_core.log_of(this_queue, min(id), max(id)) from unnest(listed.ids) id));
end $$;

-- The messages of runs, in the order of the runs, or of msg_id if `sorted`. read_ct is `more_reads` over the run's
-- attempts; read_at and hidden_until replace the run's own last_read_at and vt unless null.
create or replace function spanmq_core.fetch(
    this_queue int, runs spanmq_core.run[], more_reads int, read_at timestamptz, hidden_until timestamptz,
    sorted boolean
) returns setof pgmq.message_record
language plpgsql rows 100 as $$
declare
    range spanmq_core.run := spanmq_core.as_range(runs, hidden_until is null);
    listed spanmq_core.listed;
begin
    if range.lo is not null then
        return query execute spanmq_core.fetch_range(this_queue, range.lo, range.lo + range.n - 1)
            using range.lo, range.lo + range.n, range.attempts + more_reads, coalesce(read_at, range.last_read_at),
                  coalesce(hidden_until, range.vt);
    elsif runs <> '{}' then
        listed := spanmq_core.list_messages(runs, more_reads, read_at, hidden_until, 1000000000, sorted);
        return query execute spanmq_core.fetch_ids(this_queue, listed) using listed.ids, listed.read_cts,
            listed.read_ats, listed.vts;
    end if;
end $$;

-- The same for receive(): with the lease, and the slot in which each message is. In the order of msg_id if `sorted`,
-- else in that of the runs.
create or replace function spanmq_core.fetch_leased(
    this_queue int, runs spanmq_core.run[], read_at timestamptz, hidden_until timestamptz, lease bigint, slots int,
    sorted boolean
) returns setof spanmq.leased_message
language plpgsql rows 100 as $$
declare
    range spanmq_core.run;
    listed spanmq_core.listed;
begin
    if slots = 1 then
        range := spanmq_core.as_range(runs, false);
    end if;
    if range.lo is not null then
        return query execute spanmq_core.fetch_range(
                this_queue, range.lo, range.lo + range.n - 1, ', $6, 1, $3, headers->>''x-pgmq-group'', '
                || case when range.attempts > 0 then format('spanmq_core.last_error(%s, msg_id)', this_queue)
                else 'null::text' end)
            using range.lo, range.lo + range.n, range.attempts + 1, read_at, hidden_until, lease;
    elsif runs <> '{}' then
        listed := spanmq_core.list_messages(runs, 1, read_at, hidden_until,
                                            (select ceil(sum(r.n) / slots::numeric)::int from unnest(runs) r), sorted);
        return query execute spanmq_core.fetch_ids(
                this_queue, listed, format(', $5, u.slot, u.read_ct, l.headers->>''x-pgmq-group'','
                                           ' case when u.read_ct > 1 then spanmq_core.last_error(%s, l.msg_id) end',
                                           this_queue))
            using listed.ids, listed.read_cts, listed.read_ats, listed.vts, lease, listed.slots;
    end if;
end $$;

-- Runs that follow each other without gaps and are alike, as one; else null. `own_vt`: their vt and last_read_at must
-- be alike too.
create or replace function spanmq_core.as_range(runs spanmq_core.run[], own_vt boolean) returns spanmq_core.run
language plpgsql immutable as $$
declare
    range spanmq_core.run := runs[1];
    next spanmq_core.run;
begin
    for i in 2 .. cardinality(runs) loop
        next := runs[i];
        if next.lo <> range.lo + range.n or next.attempts <> range.attempts
           or own_vt
           and (next.vt is distinct from range.vt or next.last_read_at is distinct from range.last_read_at) then
            return null;
        end if;
        range.n := range.n + next.n;
    end loop;
    return range;
end $$;

create or replace function spanmq_core.list_messages(
    runs spanmq_core.run[], more_reads int, read_at timestamptz, hidden_until timestamptz, slot_size int, sorted boolean
) returns spanmq_core.listed
language plpgsql immutable as $$
begin
    return (
        select (array_agg(m.id), array_agg(m.attempts + more_reads), array_agg(coalesce(read_at, m.last_read_at)),
                array_agg(coalesce(hidden_until, m.vt)),
                array_agg(((m.position - 1) / slot_size + 1)::int))::spanmq_core.listed
        from (select n.* from (
                  select e.id, r.attempts, r.last_read_at, r.vt, row_number() over (order by r.ordinality, e.id)
                      as position
                  from unnest(runs) with ordinality r
                  -- In the select list: in the from list the ids of each run would be stored first.
                  cross join lateral (select generate_series(r.lo, r.lo + r.n - 1) as id) e) n
              order by case when sorted then n.id else n.position end) m);
end $$;

-- Copies the messages of runs into the archive. Their ids are kept.
create or replace function spanmq_core.copy_to_archive(this spanmq_core.queue, runs spanmq_core.run[]) returns void
language plpgsql as $$
declare
    place regclass := spanmq_core.archive_of(this);
    range spanmq_core.run := spanmq_core.as_range(runs, true);
begin
    if place is distinct from this.archive then
        if place is null then
            perform spanmq_core.raise_no_archive(this);
        end if;
        perform spanmq_core.check_archive(place);
        update spanmq_core.queue q set archive = place where q.queue_id = this.queue_id;
    end if;
    if range.lo > this.log_lo and range.lo + range.n - 1 <= this.log_hi then
        perform spanmq_core.archive_range(this.folded_name, place, this.log_name, range);
    else
        execute format('insert into pgmq.%I (msg_id, read_ct, enqueued_at, last_read_at, vt, message, headers)'
                       ' select msg_id, read_ct, enqueued_at, last_read_at, vt, message, headers'
                       ' from spanmq_core.fetch($1, $2, 0, null, null, true)'
                       ' where to_regclass($3) = $4', 'a_' || this.folded_name)
            using this.queue_id, runs, spanmq_core.archive_name(this.folded_name), place;
    end if;
    perform spanmq_core.raise_if_dropped(this.queue_id, this.folded_name, place);
end $$;

-- The same for messages that follow each other and are alike, in one segment. By its name: the number of an archive
-- that is dropped meanwhile would be an error of syntax. Nothing goes into an archive of that name that is not `place`.
create or replace function spanmq_core.archive_range(
    folded_name text, place regclass, log_name text, range spanmq_core.run
) returns void
language plpgsql as $$
begin
    execute format('insert into pgmq.%I (msg_id, read_ct, enqueued_at, last_read_at, vt, message, headers)'
                   ' select msg_id, $3, enqueued_at, $4, coalesce($5, enqueued_at), message, headers from'
                   ' spanmq_core.%I where msg_id >= $1 and msg_id < $2 and to_regclass($6) = $7 order by msg_id',
                   'a_' || folded_name, log_name)
        using range.lo, range.lo + range.n, range.attempts, range.last_read_at, range.vt,
              spanmq_core.archive_name(folded_name), place;
end $$;

-- Raises 42P01 if the archive of that name is not `place`, the queue's own: the queue may have been dropped and created
-- again while the caller waited for its messages. After an insert, which has locked what it found.
create or replace function spanmq_core.raise_if_dropped(
    this_queue int, folded_name text, place regclass
) returns void
language plpgsql as $$
begin
    if to_regclass(spanmq_core.archive_name(folded_name)) is distinct from place
       or not exists (select from spanmq_core.queue q where q.queue_id = this_queue) then
        raise exception 'relation "pgmq.a_%" does not exist', folded_name
            using errcode = '42P01', hint = 'The queue was dropped meanwhile.';
    end if;
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

-- The first `quantity` unsettled messages with first_id <= msg_id <= last_id, which lie in one segment. Run by run, by
-- force (offset 0): the view would join and sort whatever the queue holds.
create or replace function spanmq_core.look(this spanmq_core.queue, first_id bigint, last_id bigint, quantity int)
returns setof pgmq.message_record
language plpgsql rows 10 as $$
begin
    return query execute format(
        'select l.msg_id, s.attempts, l.enqueued_at, s.last_read_at, coalesce(s.vt, l.enqueued_at),'
        ' l.message, l.headers'
        ' from ((select f.lo, f.n, 0 as attempts, 0 as lease_id, null::timestamptz as last_read_at, null::timestamptz'
        ' as vt from spanmq_core.fresh f'
        '        where f.queue_id = $1 and f.lo >= $2 / 256 * 256 and f.lo <= $3 order by f.queue_id, f.lo)'
        '       union all'
        '       (select h.lo, h.n, h.attempts, h.lease_id, h.last_read_at, h.vt from spanmq_core.held h'
        '        where h.queue_id = $1 and h.lo >= $2 / 256 * 256 and h.lo <= $3 order by h.queue_id, h.lo)'
        ' order by lo) s'
        ' cross join lateral (select * from spanmq_core.%I l where l.msg_id >= s.lo and l.msg_id < s.lo + s.n order by'
        ' l.msg_id offset 0) l'
        ' where l.msg_id between $2 and $3'
        '  and (s.n = 1 or s.lease_id = 0 or not exists (select from spanmq_core.done d where d.queue_id = $1 and'
        ' d.msg_id = l.msg_id)) limit $4',
        (spanmq_core.segment_of(this.queue_id, first_id)).log_name)
        using this.queue_id, first_id, last_id, quantity;
end $$;

-- Settles messages of runs that have no row in the log, as after a crash in an unlogged queue, and records them:
-- otherwise they would be claimed again indefinitely.
create or replace function spanmq_core.settle_missing(this spanmq_core.queue, runs spanmq_core.run[]) returns void
language plpgsql as $$
declare
    missing_ids bigint[];
begin
    execute format('select array_agg(e.id) from unnest($1) r, generate_series(r.lo, r.lo + r.n - 1) e (id)'
                   ' where not exists (select from spanmq_core.log_%s l where l.msg_id = e.id)', this.queue_id)
        into missing_ids using runs;
    insert into spanmq_core.missing (queue_id, msg_id) select this.queue_id, id from unnest(missing_ids) id;
    perform spanmq_core.take_out(this.queue_id, missing_ids, null, true);
    if cardinality(missing_ids) = spanmq_core.count_runs(runs) then
        perform spanmq_core.settle_missing_behind(this, (select max(id) from unnest(missing_ids) id));
    end if;
end $$;

-- If all messages of a claim are missing, those behind may be, too: a claim that met them one by one would never end.
create or replace function spanmq_core.settle_missing_behind(this spanmq_core.queue, last_id bigint) returns void
language plpgsql as $$
declare
    runs int := 1;
    n bigint;
    missing_ids bigint[];
begin
    -- Up to the first existing row; some 40,000 runs at most.
    for step in 1 .. 15 loop
        execute format(
                'select max(e.id), count(*), array_agg(e.id) filter (where l.msg_id is null)'
                ' from (select f.lo, f.n from spanmq_core.fresh f where f.queue_id = $1 and f.lo > $2 order by'
                ' f.queue_id, f.lo limit $3) s'
                ' cross join lateral generate_series(s.lo, s.lo + s.n - 1) e (id)'
                ' left join lateral (select l.msg_id from spanmq_core.log_%s l where l.msg_id = e.id offset'
                ' 0) l on true', this.queue_id)
            into last_id, n, missing_ids using this.queue_id, last_id, runs;
        -- Those that no other transaction has taken meanwhile.
        insert into spanmq_core.missing (queue_id, msg_id)
            select this.queue_id, id
            from spanmq_core.expand_runs(spanmq_core.take_out(this.queue_id, missing_ids, 0, true)) id
            where missing_ids is not null;
        exit when cardinality(missing_ids) < n or missing_ids is null;
        runs := least(runs * 4, 4096);
    end loop;
end $$;

-- Since when messages are visible: `known` where it is not null, else since they were sent.
create or replace function spanmq_core.visible_since(this_queue int, ids bigint[], known timestamptz[])
returns timestamptz[]
language plpgsql stable as $$
begin
    execute format('select array_agg(coalesce(u.at, l.enqueued_at) order by u.position)'
                   ' from unnest($1, $2) with ordinality u (id, at, position)'
                   ' left join lateral (select * from spanmq_core.log_%s l where u.at is null and l.msg_id = u.id'
                   ' offset 0) l on true', this_queue)
        into known using ids, known;
    return known;
end $$;

-- Locks a table of the log for this transaction.
create or replace function spanmq_core.lock_log(log_name text, mode text) returns void
language plpgsql as $$
begin
    execute format('lock table spanmq_core.%I in %s mode', log_name, mode);
end $$;
