-- Segments of logs: made ahead, and retired when nothing of them is needed.
--
-- The transaction ids that are recorded with a segment are those of maintain()'s own transactions. Such an id is below
-- the horizon only when every transaction has ended that was open when maintain() looked: so it waits for a sender that
-- has drawn its ids but not written yet; and one that has written holds a lock on the table until it commits.

-- Whether a queue needs messages of its log. In this order, a statement each: see is_reserved().
create or replace function spanmq_core.is_needed_by(this_queue int, first_id bigint, last_id bigint) returns boolean
language plpgsql as $$
begin
    if spanmq_core.is_reserved(this_queue, first_id, last_id) then
        return true;
    elsif spanmq_core.has_unsettled_in(this_queue, first_id, last_id) then
        return true;
    end if;
    return spanmq_core.is_kept(this_queue, first_id, last_id);
end $$;

-- Whether a segment is needed by its queue, or by one of its subscriptions.
create or replace function spanmq_core.is_needed(
    this spanmq_core.queue, first_id bigint, last_id bigint
) returns boolean
language plpgsql as $$
begin
    return exists (select from spanmq_core.queues_of(this.queue_id) o
                   where spanmq_core.is_needed_by(o.queue_id, first_id, last_id));
end $$;

-- Two segments ready ahead, so that no send makes one; one while the ids are in the first half of the oldest, which a
-- queue that is used little never leaves, and none before the first message. Where the last that is full was made less
-- than a minute before (of a log that is kept: a 64th of that time), the next are twice as large.
create or replace function spanmq_core.make_ahead(this spanmq_core.queue) returns table (action text, detail text)
language plpgsql as $$
declare
    drawn bigint := coalesce(pg_sequence_last_value(this.ids), 0);
    last spanmq_core.segment;
    size int := this.segment_size;
    oldest spanmq_core.segment;
    wanted int;
    keep interval := (spanmq_core.policy_of(this.queue_id)).keep;
    -- A log that is kept has about 64 segments at most, whatever its rate, and up to 16 million ids in each: readers of
    -- the whole log open all.
    least_age interval := greatest(interval '1 minute', keep / 64);
    size_max int := case when keep is null then 1048576 else 16777216 end;
begin
    if drawn > this.log_hi then
        perform spanmq_core.remember_segment(this.queue_id, drawn);
    end if;
    select * into oldest from spanmq_core.segment s where s.queue_id = this.queue_id order by s.queue_id, s.lo limit 1;
    wanted := case when drawn = 0 then 0 when drawn < (oldest.lo + oldest.hi) / 2 then 1 else 2 end;
    for step in 1 .. 3 loop
        exit when (select count(*) from spanmq_core.segment s where s.queue_id = this.queue_id
                   and s.lo > drawn) >= wanted;
        if step = 1 and not this.is_partitioned and size < size_max
           and (select s.created_at from spanmq_core.segment s where s.queue_id = this.queue_id and s.hi < drawn
                order by s.queue_id desc, s.lo desc limit 1)
               > spanmq_core.before(clock_timestamp(), least_age) then
            size := size * 2;
            -- Unless another transaction has locked the row: then with the next segment.
            perform from spanmq_core.queue q where q.queue_id = this.queue_id for no key update skip locked;
            if found then
                update spanmq_core.queue q set segment_size = size where q.queue_id = this.queue_id;
            end if;
        end if;
        select * into last from spanmq_core.segment s where s.queue_id = this.queue_id order by s.queue_id desc,
            s.lo desc limit 1;
        last := spanmq_core.create_segment(this.queue_id, greatest(coalesce(last.hi, 0), drawn) + 1, size, false);
        exit when last.lo is null;
        action := 'made segment';
        detail := last.log_name;
        return next;
    end loop;
end $$;

-- Takes the first segment of a queue that can go one step further on its way out, and says which step. One that another
-- session has locked is left as it is: its locks are released with the sub-block, because readers would wait for the
-- end of maintain().
create or replace function spanmq_core.retire_segments(
    this spanmq_core.queue, drawn bigint
) returns table (action text, detail text)
language plpgsql as $$
declare
    segment spanmq_core.segment;
    was_passed_at xid8;
    n_noted int := 0;
    horizon xid8;
    is_used boolean;
    is_young boolean;
    kept_from timestamptz := spanmq_core.before(clock_timestamp(), (spanmq_core.policy_of(this.queue_id)).keep);
begin
    for segment in select * from spanmq_core.segment s where s.queue_id = this.queue_id and s.hi < drawn
        order by s.lo loop
        -- As long as the queue's row names this segment, receivers take the table's name from there.
        continue when segment.lo = (select q.log_lo from spanmq_core.queue q where q.queue_id = this.queue_id);
        is_young := coalesce(segment.newest_at >= kept_from and segment.state = 'open', false);
        continue when is_young and segment.old_name is null and segment.copy_name is null;
        horizon := coalesce(horizon, spanmq_core.horizon());
        was_passed_at := segment.passed_at_xid;
        segment := spanmq_core.note_passed(segment);
        n_noted := n_noted + (segment.passed_at_xid is distinct from was_passed_at)::int;
        -- A transaction that drew ids of it before it was passed, and is still open, may be about to publish.
        continue when segment.settled_at_xid is null and segment.passed_at_xid >= horizon;
        detail := segment.log_name;
        begin
            if segment.state = 'truncated' then
                -- No session that looked the table's name up before it was truncated can still have it. What a lane
                -- shows can't be dropped.
                continue when segment.settled_at_xid >= horizon
                    or exists (select from spanmq_core.lane l where l.log_name = segment.log_name);
                perform spanmq_core.lock_log(segment.log_name, 'access exclusive');
                -- A new statement under the lock: a dead letter may have come back into it.
                continue when not spanmq_core.is_as_it_was(segment);
                perform spanmq_core.drop_relation(format('spanmq_core.%I', segment.log_name)::regclass);
                delete from spanmq_core.segment s where s.queue_id = this.queue_id and s.lo = segment.lo;
                delete from spanmq_core.unsent u where u.queue_id = this.queue_id and u.lo between segment.lo
                    and segment.hi;
                action := 'dropped segment';
                exit;
            end if;
            if kept_from is not null and segment.newest_at is null then
                -- Nobody can send into it any more.
                execute format('select coalesce(min(enqueued_at), ''infinity''), coalesce(max(enqueued_at),'
                               ' ''-infinity'') from spanmq_core.%I',
                               segment.log_name)
                    into segment.oldest_at, segment.newest_at;
                update spanmq_core.segment s set oldest_at = segment.oldest_at, newest_at = segment.newest_at
                    where s.queue_id = segment.queue_id and s.lo = segment.lo returning * into segment;
                is_young := segment.newest_at >= kept_from;
            end if;
            -- While a snapshot is held elsewhere the note can't be below the horizon, and a look would pass all that
            -- died in the segment. Nothing comes into it but by redrive(), which takes the note away.
            is_used := is_young or (segment.settled_at_xid >= horizon) is not true
                and spanmq_core.is_needed(this, segment.lo, segment.hi);
            if segment.old_name is not null and segment.swapped_at_xid < horizon
               and not exists (select from spanmq_core.lane l where l.log_name = segment.old_name) then
                perform spanmq_core.lock_log(segment.old_name, 'access exclusive');
                perform spanmq_core.drop_relation(format('spanmq_core.%I', segment.old_name)::regclass);
                update spanmq_core.segment s set old_name = null where s.queue_id = this.queue_id and s.lo = segment.lo;
                action := 'dropped old table of segment';
            elsif is_used and segment.settled_at_xid is not null then
                -- Nobody brings one without taking the note away, it was said: should it be wrong, nothing is lost.
                update spanmq_core.segment s set settled_at_xid = null where s.queue_id = this.queue_id
                    and s.lo = segment.lo;
            elsif not is_used and segment.settled_at_xid is null then
                -- A transaction that returns old messages to the segment holds its lock: when this one is granted, a
                -- new statement sees the messages.
                perform spanmq_core.lock_log(segment.log_name, 'share');
                continue when spanmq_core.is_needed(this, segment.lo, segment.hi);
                update spanmq_core.segment s set settled_at_xid = pg_current_xact_id() where s.queue_id = this.queue_id
                    and s.lo = segment.lo;
                n_noted := n_noted + 1;
            elsif not is_used and segment.settled_at_xid < horizon and segment.old_name is null
                and segment.copy_name is null then
                perform spanmq_core.truncate_segment(this, segment);
                action := 'truncated segment';
            elsif segment.copy_name is not null then
                continue when segment.copied_at_xid >= horizon;
                perform spanmq_core.swap_segment(segment);
                action := 'rewrote segment';
            elsif is_used and segment.old_name is null and segment.passed_at_xid < horizon and segment.n_rows > 1000
                and not is_young then
                continue when (select sum(spanmq_core.count_alive(o.queue_id, segment.lo, segment.hi))
                               from spanmq_core.queues_of(this.queue_id) o)
                              * 10 >= segment.n_rows;
                -- Rows of no unsettled message may be needed too: the copy would not have them.
                continue when spanmq_core.is_reserved(this.queue_id, segment.lo, segment.hi);
                continue when (select bool_or(spanmq_core.is_kept(o.queue_id, segment.lo, segment.hi))
                               from spanmq_core.queues_of(this.queue_id) o);
                -- Uncommitted rows are not in the copy. This lock is granted only when no transaction has written any.
                perform spanmq_core.lock_log(segment.log_name, 'share');
                perform spanmq_core.copy_segment(this, segment);
                action := 'copied segment';
            end if;
        exception when lock_not_available then
            continue;
        end;
        exit when action is not null;
    end loop;
    if action is null and n_noted > 0 then
        -- The next call may go further: a caller that repeats it until it returns nothing must not stop here.
        action := 'noted segments';
        detail := n_noted;
    end if;
    if action is not null then
        return next;
    end if;
end $$;

-- Notes that the ids have passed this segment. Numbers from the future come from another server, by dump and restore:
-- they begin anew, else nothing would ever be below the horizon.
create or replace function spanmq_core.note_passed(segment spanmq_core.segment) returns spanmq_core.segment
language plpgsql as $$
declare
    this_id xid8 := pg_current_xact_id();
begin
    if segment.passed_at_xid is not null
       and greatest(segment.passed_at_xid, segment.settled_at_xid, segment.copied_at_xid,
                    segment.swapped_at_xid) <= this_id then
        return segment;
    end if;
    update spanmq_core.segment s
        set passed_at_xid = least(s.passed_at_xid, this_id),
            settled_at_xid = case when s.settled_at_xid > this_id then this_id else s.settled_at_xid end,
            copied_at_xid = case when s.copied_at_xid > this_id then this_id else s.copied_at_xid end,
            swapped_at_xid = case when s.swapped_at_xid > this_id then this_id else s.swapped_at_xid end
        where s.queue_id = segment.queue_id and s.lo = segment.lo
        returning * into segment;
    return segment;
end $$;

-- Whether the row of a segment is unchanged since it was read: redrive() changes it when a message returns to it.
create or replace function spanmq_core.is_as_it_was(segment spanmq_core.segment) returns boolean
language plpgsql as $$
begin
    return exists (select from spanmq_core.segment s where s.queue_id = segment.queue_id and s.lo = segment.lo
                   and s is not distinct from segment);
end $$;

-- First half of a rewrite. Only write_again() changes the row of a message, or writes it once more where an id comes
-- alive again: it writes into the copy too, so the copy stays good. Raises 55P03, as a lock does, if the copy may lack
-- a row that is needed.
create or replace function spanmq_core.copy_segment(this spanmq_core.queue, segment spanmq_core.segment) returns void
language plpgsql as $$
declare
    copy text := format('log_%s_%s', this.queue_id, nextval('spanmq_core.segment_number'));
    n bigint;
begin
    execute format('create %s table spanmq_core.%I (like spanmq_core.log_%s, primary key (msg_id)) with'
                   ' (autovacuum_enabled = off)',
                   case when this.is_unlogged then 'unlogged' end, copy, this.queue_id);
    perform spanmq_core.close_relation(format('spanmq_core.%I', copy)::regclass, '{}');
    n := (select sum(spanmq_core.copy_alive(o.queue_id, segment.lo, segment.hi, segment.log_name, copy))
          from spanmq_core.queues_of(this.queue_id) o);
    -- A new statement: what was settled before the copy was made, and since the caller looked, may be needed now.
    if (select bool_or(spanmq_core.is_kept(o.queue_id, segment.lo, segment.hi))
        from spanmq_core.queues_of(this.queue_id) o) then
        raise exception 'a row is needed that no unsettled message has' using errcode = '55P03';
    end if;
    perform spanmq_core.note_lost(segment);
    update spanmq_core.segment s set copy_name = copy, copied_at_xid = pg_current_xact_id(), n_rows = n
        where s.queue_id = this.queue_id and s.lo = segment.lo;
end $$;

-- Second half, when every snapshot sees the copy. The replaced table stays until no session knows its name.
create or replace function spanmq_core.swap_segment(segment spanmq_core.segment) returns void
language plpgsql as $$
begin
    -- The parent first, which needs no more than a sender that makes a segment: readers must not wait while we wait for
    -- it.
    perform spanmq_core.lock_log('log_' || segment.queue_id, 'share update exclusive'),
        spanmq_core.lock_log(segment.log_name, 'access exclusive');
    execute format('alter table spanmq_core.%I no inherit spanmq_core.log_%s', segment.log_name, segment.queue_id);
    execute format('alter table spanmq_core.%I inherit spanmq_core.log_%s', segment.copy_name, segment.queue_id);
    update spanmq_core.segment s
        set log_name = segment.copy_name, copy_name = null, old_name = segment.log_name,
        swapped_at_xid = pg_current_xact_id()
        where s.queue_id = segment.queue_id and s.lo = segment.lo;
end $$;

-- Empties a segment whose messages are all settled. Raises 55P03 if one has returned.
create or replace function spanmq_core.truncate_segment(
    this spanmq_core.queue, segment spanmq_core.segment
) returns void
language plpgsql as $$
begin
    perform spanmq_core.lock_log(segment.log_name, 'access exclusive');
    -- A new statement under the lock.
    if not spanmq_core.is_as_it_was(segment) or spanmq_core.is_needed(this, segment.lo, segment.hi) then
        raise exception 'a message has come back' using errcode = '55P03';
    end if;
    execute format('truncate spanmq_core.%I', segment.log_name);
    perform spanmq_core.note_lost(segment);
    update spanmq_core.segment s set state = 'truncated', settled_at_xid = pg_current_xact_id()
        where s.queue_id = this.queue_id and s.lo = segment.lo;
end $$;
