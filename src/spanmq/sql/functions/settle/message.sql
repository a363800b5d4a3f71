-- Functions on messages by their ids: delete, archive, set_vt, ack, cancel, purge; and peek, which changes nothing.

-- The ids of runs, ascending.
create or replace function spanmq_core.expand_runs(runs spanmq_core.run[]) returns setof bigint
language plpgsql immutable rows 100 as $$
declare
    range spanmq_core.run := spanmq_core.as_range(runs, false);
begin
    if range.lo is not null then
        return query select generate_series(range.lo, range.lo + range.n - 1);
    else
        -- Runs of different groups lie between each other.
        return query select e.id from unnest(runs) r, generate_series(r.lo, r.lo + r.n - 1) e (id) order by e.id;
    end if;
end $$;

-- Takes messages out of the queue (see take_out), and wakes receivers that wait for messages they blocked, and clients
-- that wait for their end. first_id, next_id: see take_rest().
create or replace function spanmq_core.remove(
    this spanmq_core.queue, msg_ids bigint[], fence bigint, first_id bigint default null, next_id bigint default null
) returns spanmq_core.run[]
language plpgsql as $$
declare
    runs spanmq_core.run[] := spanmq_core.take_rest(this.queue_id, msg_ids, fence, first_id, next_id);
begin
    perform spanmq_core.tell_settled(this, runs);
    return runs;
end $$;

-- Wakes and ends what waits for these messages, which have left the queue.
create or replace function spanmq_core.tell_settled(this spanmq_core.queue, runs spanmq_core.run[]) returns void
language plpgsql as $$
begin
    if not this.has_plain_policy and this.bells <> 0 then
        perform spanmq_core.wake_behind(this, runs);
    end if;
    if this.is_watched then
        perform spanmq_core.note_settled(this, runs);
    end if;
end $$;

-- Deletes a message, whichever receiver has read it (PGMQ's interface has no token: ack has). False if it isn't in the
-- queue.
create or replace function spanmq_call.delete(queue_name text, msg_id bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this_queue int;
begin
    select q.queue_id into this_queue from spanmq_core.queue q
        where q.folded_name = lower(queue_name) and q.settles_quietly and has_table_privilege(q.queue_view, 'select');
    if found then
        -- The usual cases: the message is a run of its own, or in a leased run of several.
        delete from spanmq_core.held h where h.queue_id = this_queue and h.lo = delete.msg_id and h.n = 1
            and h.lease_id >= 0;
        if found then
            return true;
        elsif (spanmq_core.note_one(this_queue, delete.msg_id, null)).lo is not null then
            return true;
        end if;
    end if;
    return spanmq_core.remove(spanmq_core.find_queue(queue_name), array[msg_id], null) <> '{}';
end $$;

-- Deletes messages and returns the ids of those that were in the queue.
create or replace function spanmq_call.delete(queue_name text, msg_ids bigint[]) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this_queue int;
    n int := cardinality(msg_ids);
    first_id bigint := msg_ids[1];
    last_id bigint := msg_ids[n];
    is_series boolean := n = 1;
    next_id bigint := first_id;
    n_gone int;
    lease bigint;
    has_leased boolean := false;
begin
    select q.queue_id into this_queue from spanmq_core.queue q
        where q.folded_name = lower(queue_name) and q.settles_quietly and has_table_privilege(q.queue_view, 'select');
    -- The distance first: the series may be of any length.
    if n > 1 and greatest(last_id, 0) - greatest(first_id, 0) = n - 1 then
        is_series := msg_ids = array(select generate_series(first_id, last_id));
    end if;
    if is_series and this_queue is not null then
        -- The usual case: ids that follow each other, and whole runs of them.
        while next_id <= last_id loop
            delete from spanmq_core.held h
                where h.queue_id = this_queue and h.lo = next_id and h.lo + h.n - 1 <= last_id and h.lease_id >= 0
                returning h.n, h.lease_id into n_gone, lease;
            exit when not found;
            has_leased := has_leased or n_gone > 1 and lease > 0;
            next_id := next_id + n_gone;
        end loop;
        if n = 1 and (next_id > last_id or (spanmq_core.note_one(this_queue, first_id, null)).lo is not null) then
            return next first_id;
            return;
        -- A new statement, under the locks: messages may have been deleted from these runs one by one.
        elsif next_id > last_id and not (has_leased and (not spanmq_core.sees_now() or exists (
                select from spanmq_core.done d
                where d.queue_id = this_queue and d.msg_id >= first_id and d.msg_id < next_id))) then
            return query select generate_series(first_id, last_id);
            return;
        end if;
    end if;
    return query select spanmq_core.expand_runs(
        spanmq_core.remove(spanmq_core.find_queue(queue_name), msg_ids, null, first_id, next_id));
end $$;

create or replace function spanmq_core.archive_messages(queue_name text, msg_ids bigint[]) returns spanmq_core.run[]
language plpgsql as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue_name);
    runs spanmq_core.run[] := spanmq_core.take_out(this.queue_id, msg_ids, null, true);
begin
    if runs <> '{}' then
        perform spanmq_core.copy_to_archive(this, runs);
    end if;
    if not this.settles_quietly then
        perform spanmq_core.tell_settled(this, runs);
    end if;
    return runs;
end $$;

-- Moves a message from the queue to its archive. False if it isn't in the queue.
create or replace function spanmq_call.archive(queue_name text, msg_id bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this record;
    run spanmq_core.run;
begin
    select q.queue_id, q.log_name, q.folded_name, q.archive into this from spanmq_core.queue q
        where q.folded_name = lower(queue_name) and q.settles_quietly and has_table_privilege(q.queue_view, 'select')
          and archive.msg_id > q.log_lo and archive.msg_id <= q.log_hi
          and q.archive = to_regclass(spanmq_core.archive_name(q.folded_name));
    if found then
        -- As in delete().
        delete from spanmq_core.held h
            where h.queue_id = this.queue_id and h.lo = archive.msg_id and h.n = 1 and h.lease_id >= 0
            returning h.lo, h.n, h.attempts, h.lease_id, h.vt, h.last_read_at into run;
        if not found then
            run := spanmq_core.note_one(this.queue_id, archive.msg_id, null);
        end if;
        if run.lo is not null then
            perform spanmq_core.archive_range(this.folded_name, this.archive, this.log_name, run);
            perform spanmq_core.raise_if_dropped(this.queue_id, this.folded_name, this.archive);
            return true;
        end if;
    end if;
    return spanmq_core.archive_messages(queue_name, array[msg_id]) <> '{}';
end $$;

-- Moves messages from the queue to its archive and returns the ids of those that were in the queue.
create or replace function spanmq_call.archive(queue_name text, msg_ids bigint[]) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    if cardinality(msg_ids) = 1 then
        if spanmq_call.archive(queue_name, msg_ids[1]) then
            return next msg_ids[1];
        end if;
        return;
    end if;
    return query select spanmq_core.expand_runs(spanmq_core.archive_messages(queue_name, msg_ids));
end $$;

-- Hides messages until a time (or shows them at once). They leave the lease that they were in. read_ct stays.
create or replace function spanmq_core.hide(
    this spanmq_core.queue, msg_ids bigint[], until timestamptz
) returns setof pgmq.message_record
language plpgsql rows 10 as $$
declare
    runs spanmq_core.run[];
begin
    perform spanmq_core.raise_if(until is null or not isfinite(until),
        'vt cannot be NULL or infinite', 'Pass a time; a past time makes the messages visible at once.');
    runs := spanmq_core.take_out(this.queue_id, msg_ids, null);
    if runs = '{}' then
        return;
    end if;
    perform spanmq_core.give_back(this.queue_id, array(
        select (r.lo, r.n, r.attempts, 0, until, r.last_read_at, r.group_hash, r.group_key, r.priority, r.lost,
                r.alone)::spanmq_core.run from unnest(runs) r));
    if this.bells <> 0 and not spanmq_core.is_foreseen(until) then
        perform spanmq_core.wake(this);
    end if;
    return query select * from spanmq_core.fetch(this.queue_id, runs, 0, null, until, true);
end $$;

-- Hides messages for vt seconds, or until vt, or shows them at once. They leave the lease that they were in; read_ct
-- stays.
create or replace function spanmq_call.set_vt(
    queue_name text, msg_id bigint, vt integer
) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    return query select *
        from spanmq_core.hide(spanmq_core.find_queue(queue_name), array[msg_id], spanmq_core.after(vt, 'vt'));
end $$;

create or replace function spanmq_call.set_vt(
    queue_name text, msg_id bigint, vt timestamptz
) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    return query select * from spanmq_core.hide(spanmq_core.find_queue(queue_name), array[msg_id], vt);
end $$;

create or replace function spanmq_call.set_vt(
    queue_name text, msg_ids bigint[], vt integer
) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    return query select *
        from spanmq_core.hide(spanmq_core.find_queue(queue_name), msg_ids, spanmq_core.after(vt, 'vt'));
end $$;

create or replace function spanmq_call.set_vt(
    queue_name text, msg_ids bigint[], vt timestamptz
) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    return query select * from spanmq_core.hide(spanmq_core.find_queue(queue_name), msg_ids, vt);
end $$;

-- Settles messages of a lease: they are done and leave the queue. One row for each distinct id, ascending: acked, or
-- stale if this lease doesn't hold it any more; a stale message is left alone. An expired lease still holds the
-- messages that no other receiver has taken.
create or replace function spanmq_call.ack(
    queue text, lease_id bigint, msg_ids bigint[]
) returns table (msg_id bigint, outcome text)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this_queue int;
    n int := cardinality(msg_ids);
    first_id bigint := msg_ids[1];
    last_id bigint := msg_ids[n];
    is_series boolean := n = 1;
    next_id bigint := first_id;
    n_gone int;
    has_several boolean := false;
begin
    if lease_id > 0 then
        select q.queue_id into this_queue from spanmq_core.queue q
            where q.folded_name = lower(queue) and q.settles_quietly and not q.archive_on_ack
              and has_table_privilege(q.queue_view, 'select');
    end if;
    -- As in delete().
    if n > 1 and greatest(last_id, 0) - greatest(first_id, 0) = n - 1 then
        is_series := msg_ids = array(select generate_series(first_id, last_id));
    end if;
    if is_series and this_queue is not null then
        while next_id <= last_id loop
            delete from spanmq_core.held h
                where h.queue_id = this_queue and h.lo = next_id and h.lo + h.n - 1 <= last_id
                  and h.lease_id = ack.lease_id
                returning h.n into n_gone;
            exit when not found;
            has_several := has_several or n_gone > 1;
            next_id := next_id + n_gone;
        end loop;
        if n = 1
            and (next_id > last_id or (spanmq_core.note_one(this_queue, first_id, ack.lease_id)).lo is not null) then
            msg_id := first_id;
            outcome := 'acked';
            return next;
            return;
        elsif next_id > last_id and not (has_several and (not spanmq_core.sees_now() or exists (
                select from spanmq_core.done d
                where d.queue_id = this_queue and d.msg_id >= first_id and d.msg_id < next_id))) then
            return query select generate_series(first_id, last_id), 'acked';
            return;
        end if;
    end if;
    return query select * from spanmq_core.ack_any(queue, lease_id, msg_ids, first_id, next_id);
end $$;

-- Goes on with ack() in every case but the usual one. first_id, next_id: see take_rest().
create or replace function spanmq_core.ack_any(queue text, lease_id bigint, msg_ids bigint[], first_id bigint,
                                               next_id bigint)
returns table (msg_id bigint, outcome text)
language plpgsql as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    runs spanmq_core.run[];
begin
    perform spanmq_core.check_lease(lease_id, msg_ids);
    runs := spanmq_core.take_rest(this.queue_id, msg_ids, lease_id, first_id, next_id);
    if this.archive_on_ack and runs <> '{}' then
        perform spanmq_core.copy_to_archive(this, runs);
    end if;
    perform spanmq_core.tell_settled(this, runs);
    return query select * from spanmq_core.outcomes(msg_ids, runs, '{}', 'acked');
end $$;

-- Cancels messages. One row for each distinct id: cancelled; cancelling (a receiver holds it: its worker ends the
-- handler, and the message ends when the handler has, or when its lease ends; an ack that comes before counts); or
-- unknown.
create or replace function spanmq_call.cancel(queue text, msg_ids bigint[]) returns table (msg_id bigint, outcome text)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    runs spanmq_core.run[];
    cancelled int8multirange;
    known int8multirange := '{}';
begin
    -- Fence 0: only from runs that no lease holds.
    runs := spanmq_core.remove(this, msg_ids, 0);
    cancelled := coalesce(spanmq_core.ids_of_runs(runs), '{}');
    -- For state(): these are not completed.
    perform spanmq_core.note_failure(this.queue_id, runs, clock_timestamp(), 'cancelled',
                                     ('UNKNOWN', null, null, null, null)::spanmq_core.reason);
    -- Finding out where a message is costs more than taking it: only for those that could not be taken.
    if spanmq_core.count_runs(runs) < cardinality(msg_ids) then
        -- Raises if the queue was dropped meanwhile.
        this := spanmq_core.find_queue(queue);
        known := coalesce((
            select range_agg(int8range(id, id, '[]')) from unnest(msg_ids) id
            where not id <@ cancelled and exists (select from spanmq_core.find_run(this.queue_id, id))), '{}');
        perform spanmq_core.cancel_held(this, array(select distinct id from unnest(msg_ids) id where id <@ known
                                                    order by id));
    end if;
    return query
        select distinct id, case when id <@ cancelled then 'cancelled' when id <@ known then 'cancelling'
        else 'unknown' end
        from unnest(msg_ids) id where id is not null order by id;
end $$;

-- Notes that these messages are to end when their receivers return them, and notifies the workers of the queue: with
-- its id, negative.
create or replace function spanmq_core.cancel_held(this spanmq_core.queue, msg_ids bigint[]) returns void
language plpgsql as $$
begin
    if msg_ids = '{}' then
        return;
    end if;
    perform spanmq_core.note_use(this, false, true);
    insert into spanmq_core.expiry as e (queue_id, msg_id, expires_at, is_cancelled)
        select this.queue_id, id, clock_timestamp(), true from unnest(msg_ids) id
        on conflict on constraint expiry_pkey do update set expires_at = least(e.expires_at, excluded.expires_at),
        is_cancelled = true;
    perform spanmq_core.notify_channel(l.channel, (-this.queue_id)::text)
        from spanmq_core.listener l where l.channel is not null and l.expires_at > clock_timestamp()
        and this.queue_id = any (l.queue_ids);
end $$;

-- Those of these messages that the holder of the lease is not to go on with: they were cancelled or have ended, or they
-- are taken, which says that they are there still and the lease no longer holds them.
create or replace function spanmq_call.cancelled(
    queue text, lease_id bigint, msg_ids bigint[]
) returns table (msg_id bigint, is_taken boolean)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    perform spanmq_core.check_lease(lease_id, msg_ids);
    return query
        select id, r.lo is not null and r.lease_id is distinct from cancelled.lease_id
        from (select distinct unnest(msg_ids)) m (id) left join lateral spanmq_core.find_run(this.queue_id, id) r
        on true
        where r.lease_id is distinct from cancelled.lease_id
           or exists (select from spanmq_core.expiry e where e.queue_id = this.queue_id and e.msg_id = id
                      and e.is_cancelled) order by id;
end $$;

-- Deletes all messages of a queue, in flight or not, and returns their number. The archive and the dead letters are
-- kept, and ids continue. A message that was sent with a deduplication id can be sent again.
create or replace function spanmq_call.purge_queue(queue_name text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue_name);
    drawn bigint;
    purged bigint;
begin
    -- A purge takes what batches hold, too: their streams shall hear of it.
    perform spanmq_core.hold_receivers(this.queue_id);
    drawn := spanmq_core.drawn_from(this.ids);
    update spanmq_core.receiver_batch b set state = 'lost' where b.queue_id = this.queue_id and b.state = 'claimed';
    purged := spanmq_core.purge(this.queue_id);
    if purged > 0 then
        perform spanmq_core.forget_failures(this.queue_id, drawn);
    end if;
    -- Last, because senders wait for these rows: this waits for nothing any more.
    perform spanmq_core.forget_dedup_ids(this.queue_id);
    return purged;
end $$;

-- The first qty messages with an id over `after`, in any state, without taking them. Walks along the runs: what it
-- costs grows with qty and not with the queue. Bodies and headers of more than body_bytes_max bytes are left out (see
-- cut()).
create or replace function spanmq_call.peek(queue text, qty integer default 10, after bigint default 0,
                                            body_bytes_max integer default null)
returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    from_id bigint := least(greatest(after, 0), 9223372036854775550) + 1;
    to_id bigint;
    n int;
begin
    perform spanmq_core.check_quantity(qty);
    perform spanmq_core.check_body_bytes(body_bytes_max);
    while qty > 0 loop
        select r.from_id, r.to_id into from_id, to_id from spanmq_core.reach(this.queue_id, from_id, qty) r;
        exit when from_id is null;
        -- One segment at a time.
        to_id := least(to_id, (spanmq_core.segment_of(this.queue_id, from_id)).hi);
        if body_bytes_max is null then
            return query select * from spanmq_core.look(this, from_id, to_id, qty);
        else
            return query
                select l.msg_id, l.read_ct, l.enqueued_at, l.last_read_at, l.vt,
                spanmq_core.cut(l.message, body_bytes_max),
                       spanmq_core.cut(l.headers, body_bytes_max)
                from spanmq_core.look(this, from_id, to_id, qty) l;
        end if;
        get diagnostics n = row_count;
        qty := qty - n;
        from_id := to_id + 1;
    end loop;
end $$;
