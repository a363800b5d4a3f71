-- Functions on messages by their ids: delete, archive, set_vt, ack, cancel, purge; and peek, which changes nothing.

-- Deletes a message, whichever receiver has read it, because PGMQ's interface has no token of a lease; ack() has one.
-- False if it is not in the queue.
create or replace function spanmq_call.delete(queue_name text, msg_id bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this_queue int;
begin
    select q.queue_id into this_queue from spanmq_core.queue q
        where q.folded_name = lower(queue_name collate "C")
          and q.settles_quietly and has_table_privilege(q.queue_view, 'select');
    if found then
        delete from spanmq_core.state s
            where s.queue_id = this_queue and s.msg_id = delete.msg_id and s.lease_id >= 0;
        if found then
            return true;
        end if;
        delete from spanmq_core.later s
            where s.queue_id = this_queue and s.msg_id = delete.msg_id and s.lease_id >= 0;
        if found then
            return true;
        end if;
        -- Raises if the queue was dropped meanwhile.
        perform spanmq_core.find_queue(queue_name);
        return false;
    end if;
    return spanmq_core.remove(spanmq_core.find_queue(queue_name), array[msg_id], null::bigint) <> '{}';
end $$;

-- Deletes messages and returns the ids of those that were in the queue.
create or replace function spanmq_call.delete(queue_name text, msg_ids bigint[]) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this_queue int;
    n int;
begin
    select q.queue_id into this_queue from spanmq_core.queue q
        where q.folded_name = lower(queue_name collate "C")
          and q.settles_quietly and has_table_privilege(q.queue_view, 'select');
    if found then
        return query
            delete from spanmq_core.state s
                where s.queue_id = this_queue and s.msg_id = any (msg_ids) and s.lease_id >= 0 returning s.msg_id;
        get diagnostics n = row_count;
        if n < cardinality(msg_ids) then
            return query
                delete from spanmq_core.later s
                    where s.queue_id = this_queue and s.msg_id = any (msg_ids) and s.lease_id >= 0 returning s.msg_id;
            -- Raises if the queue was dropped meanwhile.
            perform spanmq_core.find_queue(queue_name);
        end if;
    else
        return query select unnest(spanmq_core.remove(spanmq_core.find_queue(queue_name), msg_ids, null::bigint));
    end if;
end $$;

-- Moves a message from the queue to its archive. False if it isn't in the queue.
create or replace function spanmq_call.archive(queue_name text, msg_id bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    return spanmq_core.archive_one(queue_name, array[msg_id], null::bigint);
end $$;

-- The same, for an array of one id. fence: as in lock_ids().
create or replace function spanmq_core.archive_one(queue_name text, msg_ids bigint[], fence bigint) returns boolean
language plpgsql as $$
declare
    this record;
    gone record;
begin
    select q.queue_id, q.archive,
           case when q.log_lo < all (msg_ids) and q.log_hi >= all (msg_ids) then q.lane end as lane
        into this
        from spanmq_core.queue q
        where q.folded_name = lower(queue_name collate "C")
          and q.settles_quietly and has_table_privilege(q.queue_view, 'select')
          and q.archive = to_regclass(spanmq_core.archive_name(q.folded_name));
    if found then
        delete from spanmq_core.state s
            where s.queue_id = this.queue_id and s.msg_id = any (msg_ids)
              and (s.lease_id = fence or fence is null and s.lease_id >= 0)
            returning s.attempts, s.last_read_at, s.vt into gone;
        if found then
            if this.lane is not null then
                return spanmq_core.archive_by_lane(this.lane, this.archive, msg_ids, array[gone.attempts],
                                                   array[gone.last_read_at], array[gone.vt]);
            end if;
            return spanmq_core.fill_archive(spanmq_core.find_queue(queue_name), this.archive, msg_ids,
                                            array[gone.attempts], array[gone.last_read_at], array[gone.vt]);
        end if;
    end if;
    return spanmq_core.move_to_archive(spanmq_core.find_queue(queue_name), msg_ids, fence) <> '{}';
end $$;

-- Moves messages from the queue to its archive and returns the ids of those that were in the queue.
create or replace function spanmq_call.archive(queue_name text, msg_ids bigint[]) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    return query
        select unnest(spanmq_core.move_to_archive(spanmq_core.find_queue(queue_name), msg_ids, null::bigint));
end $$;

-- Hides messages until a time (or shows them at once), where they are; in a queue whose claims lease nothing in place,
-- hidden ones go to later. They leave the lease that they were in. read_ct stays.
create or replace function spanmq_core.hide_until(
    this spanmq_core.queue, msg_ids bigint[], until timestamptz
) returns bigint[]
language plpgsql as $$
declare
    ids bigint[];
    ids_later bigint[];
    from_state bigint[];           -- those that go to later
begin
    perform spanmq_core.raise_if(until is null or not isfinite(until),
        'vt cannot be NULL or infinite', 'Pass a time; a past time makes the messages visible at once.');
    with hidden as (
        update spanmq_core.state s set vt = until, lease_id = 0
            where s.queue_id = this.queue_id and s.msg_id = any (msg_ids) and s.lease_id >= 0
            returning s.msg_id)
    select coalesce(array_agg(h.msg_id), '{}') into ids from hidden h;
    if until > clock_timestamp() and not this.is_plain then
        from_state := ids;
    end if;
    if cardinality(ids) < cardinality(msg_ids) then
        perform spanmq_core.heed_clock(this.queue_id);
        with hidden as (
            update spanmq_core.later l
                set vt = greatest(until, clock_timestamp()), lease_id = 0, alone = l.alone & 1
                where l.queue_id = this.queue_id and l.msg_id = any (msg_ids) and l.lease_id >= 0
                returning l.msg_id)
        select array_agg(h.msg_id) into ids_later from hidden h;
        ids := ids || ids_later;
    end if;
    if from_state <> '{}' then
        perform spanmq_core.move_to_later(this.queue_id, from_state);
    end if;
    if ids <> '{}' and this.bells <> 0 and not spanmq_core.is_foreseen(until) then
        perform spanmq_core.wake(this.queue_id, this.bells);
    end if;
    return ids;
end $$;

create or replace function spanmq_core.hide(
    this spanmq_core.queue, msg_ids bigint[], until timestamptz
) returns setof pgmq.message_record
language plpgsql rows 10 as $$
begin
    return query select * from spanmq_core.fetch(
        this, spanmq_core.hide_until(this, msg_ids, until), until, true);
end $$;

-- The same for one message in the usual case, else nothing: it is in state and stays there, and its segment is the one
-- that the queue's row names.
create or replace function spanmq_core.hide_one(queue_name text, id bigint, until timestamptz)
returns pgmq.message_record
language plpgsql as $$
declare
    this record;
    hidden record;
begin
    select q.queue_id, q.lane, q.log_name into this from spanmq_core.queue q
        where q.folded_name = lower(queue_name collate "C") and q.bells = 0 and q.is_plain
          and id > q.log_lo and id <= q.log_hi and isfinite(until)
          and has_table_privilege(q.queue_view, 'select');
    if found then
        update spanmq_core.state s set vt = until, lease_id = 0
            where s.queue_id = this.queue_id and s.msg_id = id and s.lease_id >= 0
            returning s.attempts, s.last_read_at into hidden;
        if found then
            return spanmq_core.fetch_one_by_lane(this.lane, this.log_name, id, hidden.attempts, hidden.last_read_at,
                                                 until);
        end if;
    end if;
    return null;
end $$;

-- Hides messages for vt seconds or until the time vt; with 0 or a time in the past they are visible at once. The
-- messages leave their lease. read_ct does not change.
create or replace function spanmq_call.set_vt(
    queue_name text, msg_id bigint, vt integer
) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    hidden pgmq.message_record
        := spanmq_core.hide_one(queue_name, msg_id, clock_timestamp() + make_interval(secs => vt));
begin
    if hidden.msg_id is not null then
        return next hidden;
        return;
    end if;
    return query select *
        from spanmq_core.hide(spanmq_core.find_queue(queue_name), array[msg_id], spanmq_core.after(vt, 'vt'));
end $$;

create or replace function spanmq_call.set_vt(
    queue_name text, msg_id bigint, vt timestamptz
) returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    hidden pgmq.message_record := spanmq_core.hide_one(queue_name, msg_id, vt);
begin
    if hidden.msg_id is not null then
        return next hidden;
        return;
    end if;
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

-- Settles messages of a lease: they are done and leave the queue. Returns one row for each distinct id, ascending. Its
-- outcome is acked, or stale if the lease no longer holds the message. A stale message is not changed. An expired
-- lease still holds the messages that no other receiver has taken.
create or replace function spanmq_call.ack(
    queue text, lease_id bigint, msg_ids bigint[]
) returns table (msg_id bigint, outcome text)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this_queue int;
    archives boolean;
    gone bigint[];
    this spanmq_core.queue;
begin
    if lease_id > 0 and msg_ids is not null then
        select q.queue_id, q.archive_on_ack into this_queue, archives from spanmq_core.queue q
            where q.folded_name = lower(queue collate "C") and q.settles_quietly
              and has_table_privilege(q.queue_view, 'select');
    end if;
    if archives then
        if cardinality(msg_ids) = 1 then
            gone := case when spanmq_core.archive_one(queue, msg_ids, lease_id) then msg_ids else '{}' end;
        end if;
    elsif cardinality(msg_ids) = 1 and this_queue is not null then
        delete from spanmq_core.state s
            where s.queue_id = this_queue and s.msg_id = any (msg_ids) and s.lease_id = ack.lease_id
            returning s.msg_id, 'acked' into msg_id, outcome;
        if not found then
            delete from spanmq_core.later s
                where s.queue_id = this_queue and s.msg_id = any (msg_ids) and s.lease_id = ack.lease_id
                returning s.msg_id, 'acked' into msg_id, outcome;
        end if;
        if found then
            return next;
            return;
        end if;
        gone := '{}';
    elsif this_queue is not null then
        -- The ids alone: take_out() returns more, which costs.
        with d as (
            delete from spanmq_core.state s
                where s.queue_id = this_queue and s.msg_id = any (msg_ids) and s.lease_id = ack.lease_id
                returning s.msg_id)
        select coalesce(array_agg(d.msg_id), '{}') into gone from d;
        if cardinality(gone) < cardinality(msg_ids) then
            gone := gone || (spanmq_core.take_out(this_queue, msg_ids, lease_id)).ids;
        end if;
    end if;
    if gone is null then
        this := spanmq_core.find_queue(queue);
        perform spanmq_core.check_lease(lease_id, msg_ids);
        gone := case when this.archive_on_ack then spanmq_core.move_to_archive(this, msg_ids, lease_id)
                     else spanmq_core.remove(this, msg_ids, lease_id) end;
        perform spanmq_core.end_batches_of(this, gone);
    end if;
    if cardinality(gone) < cardinality(msg_ids) then
        perform spanmq_core.check_unfound(coalesce(this_queue, this.queue_id), msg_ids, lease_id);
    end if;
    return query select * from spanmq_core.outcomes(msg_ids, gone, '{}'::bigint[], 'acked');
end $$;

-- Cancels messages. Returns one row for each distinct id: cancelled, cancelling or unknown. cancelling: a receiver
-- holds the message. Its worker ends the handler, and the message ends with the handler or with the lease. If an ack
-- comes before, the message is acked.
create or replace function spanmq_call.cancel(queue text, msg_ids bigint[]) returns table (msg_id bigint, outcome text)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    -- Fence 0: only those that no lease holds.
    cancelled bigint[] := spanmq_core.lock_ids(this.queue_id, msg_ids, 0::bigint, '{}'::bigint[]);
    others bigint[] := '{}';
begin
    if cancelled <> '{}' then
        perform spanmq_core.end_as_cancelled(this, cancelled);
    end if;
    -- Finding out where a message is costs more than taking it: only for those that could not be taken.
    if cardinality(cancelled) < cardinality(msg_ids) then
        -- Raises if the queue was dropped meanwhile.
        this := spanmq_core.find_queue(queue);
        others := array(select u.msg_id from spanmq_core.unsettled u
                        where u.queue_id = this.queue_id and u.msg_id = any (msg_ids) order by u.msg_id);
    end if;
    if others <> '{}' then
        -- They end when their receivers return them. The id of the queue, negative, notifies its workers.
        perform spanmq_core.note_use(this, false, true);
        insert into spanmq_core.expiry as e (queue_id, msg_id, expires_at, is_cancelled)
            select this.queue_id, id, clock_timestamp(), true from unnest(others) id
            on conflict on constraint expiry_pkey do update set expires_at = least(e.expires_at, excluded.expires_at),
            is_cancelled = true;
        perform spanmq_core.notify_channel(l.channel, (-this.queue_id)::text)
            from spanmq_core.listener l where l.channel is not null and l.expires_at > clock_timestamp()
            and this.queue_id = any (l.queue_ids);
    end if;
    return query
        select distinct id, case when id in (select unnest(cancelled)) then 'cancelled'
                                 when id in (select unnest(others)) then 'cancelling' else 'unknown' end
        from unnest(msg_ids) id where id is not null order by id;
end $$;

-- Returns the messages that the holder of the lease should stop handling: they were cancelled or have ended, or they
-- are taken, which means that they still exist and the lease no longer holds them.
create or replace function spanmq_call.cancelled(
    queue text, lease_id bigint, msg_ids bigint[]
) returns table (msg_id bigint, is_taken boolean)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    perform spanmq_core.check_lease(lease_id, msg_ids);
    return query
        select id, r.msg_id is not null and r.lease_id is distinct from cancelled.lease_id
        from (select distinct unnest(msg_ids)) m (id)
        left join lateral (select u.msg_id, u.lease_id from spanmq_core.unsettled u
                           where u.queue_id = this.queue_id and u.msg_id = id offset 0) r on true
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

-- The first qty messages with an id over `after`, in any state, without taking them; with newest_first the last qty
-- with an id below `after` (0: of all), the newest one first. Its cost grows with qty, not with the queue.
-- Bodies and headers of more than body_bytes_max bytes are left out (see cut()).
create or replace function spanmq_call.peek(queue text, qty integer default 10, after bigint default 0,
                                            body_bytes_max integer default null, newest_first boolean default false)
returns setof pgmq.message_record
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    from_id bigint := least(greatest(after, 0), 9223372036854775550) + 1;
    to_id bigint;
    last_id bigint;
    wider_id bigint;
    step bigint;
    n int;
begin
    perform spanmq_core.check_quantity(qty);
    perform spanmq_core.check_body_bytes(body_bytes_max);
    perform spanmq_core.raise_if(newest_first is null, 'newest_first cannot be NULL', 'Pass true or false.');
    if newest_first then
        last_id := spanmq_core.drawn_from(this.ids);
        last_id := case when after > 0 then least(after - 1, last_id) else last_id end;
    end if;
    while newest_first and qty > 0 and last_id > 0 loop
        -- From which block on there are about qty messages up to last_id: the steps double while there are fewer.
        from_id := last_id / 256 * 256;
        step := 256;
        while from_id > 0 and step >= 256 loop
            wider_id := greatest(from_id - step, 0);
            -- There are fewer if no message is left between where these qty ids end and last_id.
            if exists (select from spanmq_core.reach(this.queue_id, wider_id, qty) r
                       cross join lateral spanmq_core.reach(this.queue_id, r.to_id + 1, 1) next
                       where r.to_id < last_id and next.from_id <= last_id) then
                step := step / 2;
            else
                from_id := wider_id;
                step := step * 2;
            end if;
        end loop;
        -- Those are at most a block more than qty.
        return query
            select * from spanmq_call.peek(queue, least(qty + 512::bigint, 2147483647)::int, from_id - 1,
                                                  body_bytes_max) p
            where p.msg_id <= last_id order by p.msg_id desc limit qty;
        get diagnostics n = row_count;
        qty := qty - n;
        last_id := from_id - 1;
    end loop;
    while not newest_first and qty > 0 loop
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
