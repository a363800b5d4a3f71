-- Maintenance, run by any caller: segments created ahead, settled segments truncated and dropped, sparse ones
-- rewritten, bounds moved, archives kept to their retention. One at a time, never waiting over 20 ms for a lock.
--
-- The transaction ids that are recorded with a segment are those of maintain()'s own transactions. Such an id is below
-- the horizon only when every transaction has ended that was open when maintain() looked: so it waits for a sender that
-- has drawn its ids but not written yet; and one that has written holds a lock on the table until it commits.

-- A transaction id in full, from its 32 bits and one that is near. (age() counts from where the transaction looked
-- first.)
create or replace function spanmq_core.full_id(id xid, near bigint) returns bigint
language sql immutable as $$
    select near + 2147483648 - ((near + 2147483648 - id::text::bigint) & 4294967295)
$$;

-- A transaction id below which everything has ended, for every snapshot that is held or will be taken. Like a bound it
-- moves in two steps: the first notes a mark, below which everything has ended for new snapshots, and the transactions
-- that are open; when these have ended, the horizon is the mark. pg_locks shows to every role which transactions are
-- open, and pg_stat_activity in which database; those of roles whose sessions it may look into (pg_read_all_stats)
-- count only while they have a snapshot or a transaction id. A snapshot that was exported to a transaction which
-- outlives its own is not seen. Called by maintain() only, one at a time.
create or replace function spanmq_core.horizon() returns xid8
language plpgsql as $$
declare
    before spanmq_core.horizon := (select h from spanmq_core.horizon h);
    -- First the mark, then the open transactions, a statement each: those that are not among these have a younger
    -- snapshot.
    next spanmq_core.horizon := (before.reached, pg_snapshot_xmin(pg_current_snapshot()), null);
begin
    -- The sessions as they are now: within a transaction the first look at them would be repeated.
    perform pg_stat_clear_snapshot();
    next.transactions := array(
        select l.virtualxid from pg_locks l
        where l.locktype = 'virtualxid' and l.mode = 'ExclusiveLock' and l.pid <> pg_backend_pid()
          and not exists (select from pg_stat_activity a
                          where a.pid = l.pid and (a.datname <> current_database()
                                                   or a.state is not null and a.backend_xmin is null
                                                   and a.backend_xid is null)));
    if next.transactions = '{}' then
        next.reached := next.mark;
    elsif before.mark > next.mark then
        -- From another server, by dump and restore.
        next.reached := '3';
    elsif before.transactions && next.transactions then
        next := before;
    else
        next.reached := before.mark;
    end if;
    if next is distinct from before then
        update spanmq_core.horizon set reached = next.reached, mark = next.mark, transactions = next.transactions;
    end if;
    return least(next.reached, (select min(spanmq_core.full_id(r.xmin, next.mark::text::bigint))
                                from pg_replication_slots r)::text::xid8,
                 (select min(spanmq_core.full_id(r.backend_xmin, next.mark::text::bigint))
                  from pg_stat_replication r)::text::xid8);
end $$;

-- Whether a queue needs messages of its log. In this order, a statement each: see is_reserved().
create or replace function spanmq_core.is_needed_by(this_queue int, first_id bigint, last_id bigint) returns boolean
language plpgsql as $$
begin
    if spanmq_core.is_reserved(this_queue, first_id, last_id) then
        return true;
    elsif spanmq_core.has_run(this_queue, first_id, last_id) then
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

-- One step of maintenance: returns what it did, a row an act, at most `budget` of them, in at most 100 queues for each;
-- no row if there is nothing to do, or if another session runs it. Repeat the call until it returns no row. A step that
-- locks a segment is the last of its call: commit it soon. Begins with the queue after that at which the last call
-- ended. An error in a queue is noted, and stops no other queue (see doctor()).
create or replace function spanmq.maintain(
    budget integer default 10
) returns table (action text, queue text, detail text)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set lock_timeout = '20ms' as $$
declare
    this spanmq_core.queue;
    last_tended int := coalesce(pg_sequence_last_value('spanmq_core.last_tended'::regclass), 0);
    -- The last id of each sequence, read before this transaction has a transaction id of its own: then every sender
    -- that drew an id up to there has a lower transaction id than the ones that retire_segments() records. In a
    -- transaction that has one, no segment is retired.
    may_retire boolean := pg_current_xact_id_if_assigned() is null;
    queues spanmq_core.queue[] := '{}';
    positions bigint[] := '{}';
    drawn bigint;
    mark spanmq_core.bound_mark;
    act record;
    is_last boolean := false;
    n int := 0;
begin
    perform spanmq_core.raise_if(budget is null or budget < 1, format('budget must be at least 1, got: %L', budget),
                                 'Pass the number of steps of a call.');
    perform spanmq_core.check_isolation('maintain()');
    for this in select * from spanmq_core.queue q order by q.queue_id <= last_tended, q.queue_id loop
        begin
            drawn := coalesce(pg_sequence_last_value(this.ids), 0);
        exception when lock_not_available or undefined_table or undefined_file or internal_error then
            -- Another session drops this queue; or it is damaged, which tend() tells.
            drawn := null;
        end;
        if not spanmq_core.is_quiet(this.queue_id, drawn) then
            queues := array_append(queues, this);
            positions := array_append(positions, drawn);
        end if;
    end loop;
    -- Even if another session runs maintenance: schedules have locks of their own, and are urgent.
    return query select f.action, f.queue, f.detail from spanmq_core.fire_schedules(budget) f;
    if found then
        return;
    end if;
    return query select e.action, e.queue, e.detail from spanmq_core.end_batches(budget) e;
    if found then
        return;
    end if;
    if queues <> '{}' then
        mark := spanmq_core.note_mark();
    end if;
    -- A row's, which gives this transaction an id.
    if not spanmq_core.try_lock(0, 'maintain') then
        return;
    end if;
    perform spanmq_core.tend_notifications(), spanmq_core.tidy(), spanmq_core.drop_set_aside();
    if spanmq_core.is_following() then
        return query select f.action, f.queue, f.detail from spanmq_core.follow_changes(budget) f;
        if found then
            return;
        end if;
    end if;
    if may_retire then
        return query select d.action, d.queue, d.detail from spanmq_core.remove_dropped(budget) d;
        if found then
            return;
        end if;
    end if;
    perform spanmq_core.tend_lanes(array(select (q).queue_id from unnest(queues) q),
                                   case when may_retire then positions else '{}' end);
    for i in 1 .. cardinality(queues) loop
        this := queues[i];
        begin
            -- All is done before the first row comes.
            for act in select * from spanmq_core.tend(this, positions[i], may_retire, mark) loop
                action := act.action;
                queue := this.name;
                detail := act.detail;
                return next;
                n := n + 1;
                is_last := is_last or act.is_last;
            end loop;
            if not found then
                perform spanmq_core.note_quiet(this.queue_id, positions[i]);
            end if;
        exception
            when lock_not_available then
                -- Somebody drops or changes this queue: the next call will see.
                continue;
            when others then
                -- A queue that is damaged, or whose archive another session has locked, does not prevent maintenance of
                -- other queues.
                if not spanmq_core.is_gone(this) then
                    raise warning 'maintain() can''t keep queue "%": %', this.name, sqlerrm;
                    insert into spanmq_core.upkeep as u (queue_id, trouble) values (this.queue_id, sqlerrm)
                        on conflict (queue_id) do update set trouble = excluded.trouble
                        where u.trouble is distinct from excluded.trouble;
                end if;
                continue;
        end;
        perform setval('spanmq_core.last_tended', this.queue_id);
        exit when is_last or n >= budget or i >= 100::bigint * budget;
    end loop;
end $$;

-- Frees the part of PostgreSQL's queue of notifications that all listeners have read, and warns if it is half full:
-- from then on notify_channel() leaves notifications out.
create or replace function spanmq_core.tend_notifications() returns void
language plpgsql as $$
declare
    -- A look at it frees what has been read. Otherwise only a commit with a notification does, and one that does not
    -- fit fails before.
    usage double precision := pg_notification_queue_usage();
begin
    if usage >= 0.5 then
        raise warning 'the queue of notifications of this server is % %% full: sends do not notify', round(100 * usage)
            using hint = 'End the listening session with the oldest transaction: see pg_stat_activity.xact_start.';
    end if;
end $$;

-- Forgets batches that ended long ago, results and reports of tasks that are kept no longer, unused proofs of callers,
-- some of each; and notes in the queues' rows whether they are watched.
create or replace function spanmq_core.tidy() returns void
language plpgsql as $$
declare
    this_queue int;
begin
    delete from spanmq_core.batch b where b.batch_id = any (array(
        select o.batch_id from spanmq_core.batch o where o.ended_at < clock_timestamp() - interval '7 days'
            order by o.ended_at limit 1000
        for update skip locked));
    delete from spanmq_core.result r where (r.queue_id, r.msg_id) in (
        select o.queue_id, o.msg_id from spanmq_core.result o where o.expires_at <= clock_timestamp()
            order by o.expires_at limit 1000 for update skip locked);
    delete from spanmq_core.task_time t where t.ctid = any (array(
        select o.ctid from spanmq_core.queue q cross join lateral (
            select s.ctid from spanmq_core.task_time s
            where s.queue_id = q.queue_id and s.minute < clock_timestamp() - interval '1 day' order by s.minute
            limit 1000 for update skip locked) o
        limit 5000));
    delete from spanmq_core.change c where c.change_id = any (array(
        select o.change_id from spanmq_core.change o where o.changed_at < clock_timestamp() - interval '90 days'
            order by o.change_id limit 1000
        for update skip locked));
    -- Proofs that no function took (take_caller): those of calls under way are not seen here.
    delete from spanmq_call.caller c
        where c.proof = any (array(select o.proof from spanmq_call.caller o limit 10000 for update skip locked));
    for this_queue in select distinct p.queue_id from spanmq_core.batch_part p join spanmq_core.queue q
        on q.queue_id = p.queue_id where not q.is_watched loop
        perform spanmq_core.watch(this_queue);
    end loop;
    for this_queue in
        select q.queue_id from spanmq_core.queue q
        where q.is_watched and not exists (select from spanmq_core.batch_part p
                                           where int4range(p.queue_id, p.queue_id, '[]') && int4range(q.queue_id,
                                               q.queue_id, '[]'))
          and not exists (select from spanmq_core.settle_wait w where w.queue_id = q.queue_id
                          and w.until > clock_timestamp())
        for no key update skip locked
    loop
        update spanmq_core.queue q set is_watched = false where q.queue_id = this_queue;
    end loop;
end $$;

-- Whether there is nothing to do in a queue: it was so within the last minute, and nothing was sent into it or is in it
-- since. What comes with time alone, such as the end of a retention, waits for the minute.
create or replace function spanmq_core.is_quiet(this_queue int, drawn bigint) returns boolean
language plpgsql as $$
begin
    return exists (select from spanmq_core.upkeep u
                   where u.queue_id = this_queue and u.quiet_drawn = drawn and u.trouble is null
                     and u.quiet_at between clock_timestamp() - interval '1 minute' and clock_timestamp())
        and not spanmq_core.has_messages(this_queue);
end $$;

-- Lets maintain() look into a queue again: for changes of what is to be kept there.
create or replace function spanmq_core.end_quiet(this_queue int) returns void
language plpgsql as $$
begin
    update spanmq_core.upkeep u set quiet_at = null where u.queue_id = this_queue and u.quiet_at is not null;
end $$;

create or replace function spanmq_core.has_messages(this_queue int) returns boolean
language plpgsql as $$
declare
    bound spanmq_core.bound := spanmq_core.bound_of(this_queue);
begin
    return exists (select from spanmq_core.fresh f where f.queue_id = this_queue and f.lo >= bound.fresh_from)
        or exists (select from spanmq_core.held h where h.queue_id + 0 = this_queue and h.vt >= bound.due_from);
end $$;

-- Notes that maintain() has found nothing to do, if the queue is empty, its bound has come to the end, and no segment
-- is on its way out.
create or replace function spanmq_core.note_quiet(this_queue int, drawn bigint) returns void
language plpgsql as $$
begin
    if drawn < (spanmq_core.bound_of(this_queue)).fresh_from and not spanmq_core.has_messages(this_queue)
       and not exists (select from spanmq_core.segment s where s.queue_id = this_queue and s.hi < drawn) then
        insert into spanmq_core.upkeep as u (queue_id, quiet_at, quiet_drawn)
            values (this_queue, clock_timestamp(), drawn)
            on conflict (queue_id) do update set quiet_at = excluded.quiet_at, quiet_drawn = excluded.quiet_drawn,
            trouble = null;
    else
        update spanmq_core.upkeep u set trouble = null where u.queue_id = this_queue and u.trouble is not null;
    end if;
end $$;

-- Maintenance of one queue, a bounded part of each kind. is_last: it holds a lock on a segment.
create or replace function spanmq_core.tend(
    this spanmq_core.queue, drawn bigint, may_retire boolean, mark spanmq_core.bound_mark
) returns table (action text, detail text, is_last boolean)
language plpgsql as $$
begin
    perform spanmq_core.step_bound(this.queue_id, coalesce(drawn, spanmq_core.drawn_from(this.ids)), mark),
            spanmq_core.forget_bounds(this.queue_id);
    if not this.is_subscription then
        return query select a.action, a.detail, false from spanmq_core.make_ahead(this) a;
    end if;
    return query select t.act, t.n::text, false from (values
        ('swept leased runs', spanmq_core.sweep(this.queue_id, 100)::bigint),
        ('cut runs', spanmq_core.cut_visible(this.queue_id, clock_timestamp(), 100)),
        ('closed abandoned writes', spanmq_core.close_abandoned(this.queue_id)),
        ('deleted from archive', spanmq_core.shorten_archive(this, coalesce(pg_sequence_last_value(this.ids), 0))),
        ('forgot deduplication ids', spanmq_core.forget_duplicates(this.queue_id, 10000)),
        ('expired messages', spanmq_core.expire(this, clock_timestamp(), 1000)),
        ('dead-lettered messages without attempts', spanmq_core.bury_exhausted(this, clock_timestamp())),
        ('deleted old failures', spanmq_core.tidy_failures(this)),
        ('deleted dead letters', spanmq_core.retire_dead_letters(this)),
        ('folded counts of dead letters', spanmq_core.fold_dead_letter_counts(this.queue_id))) t (act, n) where t.n > 0;
    perform spanmq_core.take_sample(this);
    if not this.is_subscription and may_retire then
        return query select r.action, r.detail, true from spanmq_core.retire_segments(this, drawn) r;
    end if;
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
               > clock_timestamp() - least_age then
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
                -- A transaction that returns old messages to the segment has locked it. A check in a new statement,
                -- when there is no such lock, sees what it returned.
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
                -- Rows that no run holds are needed too: the copy would not have them.
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

-- First half of a rewrite. The rows of a message never change, and where an id comes alive again (redrive) its row is
-- written into the copy too, so the copy stays good. Raises 55P03, as a lock does, if the copy may lack a row that is
-- needed.
create or replace function spanmq_core.copy_segment(this spanmq_core.queue, segment spanmq_core.segment) returns void
language plpgsql as $$
declare
    copy text := format('log_%s_%s', this.queue_id, nextval('spanmq_core.segment_number'));
    n bigint;
begin
    execute format('create %s table spanmq_core.%I (like spanmq_core.log_%s, primary key (msg_id)) with'
                   ' (autovacuum_enabled = off)',
                   case when this.is_unlogged then 'unlogged' end, copy, this.queue_id);
    n := (select sum(spanmq_core.copy_alive(o.queue_id, segment.lo, segment.hi, segment.log_name, copy))
          from spanmq_core.queues_of(this.queue_id) o);
    -- A new statement: what left its run before the copy was made, and since the caller looked, may be needed now.
    if (select bool_or(spanmq_core.is_kept(o.queue_id, segment.lo, segment.hi))
        from spanmq_core.queues_of(this.queue_id) o) then
        raise exception 'a row is needed that no run holds' using errcode = '55P03';
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
