-- Maintenance, run by any caller: segments created ahead, settled segments truncated and dropped, sparse ones
-- rewritten, bounds moved, archives kept to their retention. One at a time, never waiting over 20 ms for a lock.

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

-- Runs one step of maintenance. Returns a row for each action, at most `budget` rows, of at most 100 queues for each
-- action. No row: there is nothing to do, or another session runs maintenance. Repeat the call until it returns no
-- row. A step that locks a segment is the last of its call: commit it soon. Begins with the queue after that at which
-- the last call ended. An error in a queue is noted, and stops no other queue (see doctor()).
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
            continue when spanmq_core.is_quiet(this.queue_id, drawn);
        exception when lock_not_available or undefined_table or undefined_file or internal_error then
            -- Another session drops this queue, or autovacuum truncates a table of the state; or the queue is damaged,
            -- which tend() tells.
            drawn := null;
        end;
        queues := array_append(queues, this);
        positions := array_append(positions, drawn);
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
    return query select e.action, e.queue, e.detail from spanmq_core.end_waits(budget) e;
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
    return query select o.action, o.queue, o.detail from spanmq_core.close_opened() o;
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
        -- tend_lanes() may have given it to another queue.
        this.lane := null;
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
    return exists (select from spanmq_core.state f where f.queue_id = this_queue and f.msg_id >= bound.from_id)
        or exists (select from spanmq_core.later h where h.queue_id + 0 = this_queue and h.vt >= bound.due_from);
end $$;

-- Notes that maintain() has found nothing to do, if the queue is empty, its bound has come to the end, and no segment
-- is on its way out.
create or replace function spanmq_core.note_quiet(this_queue int, drawn bigint) returns void
language plpgsql as $$
begin
    if drawn < (spanmq_core.bound_of(this_queue)).from_id and not spanmq_core.has_messages(this_queue)
       and not exists (select from spanmq_core.segment s where s.queue_id = this_queue and s.hi < drawn)
       and not exists (select from spanmq_core.bucket b where b.queue_id + 0 = this_queue) then
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
            spanmq_core.forget_bounds(this.queue_id), spanmq_core.forget_buckets(this.queue_id);
    if not this.is_subscription then
        return query select a.action, a.detail, false from spanmq_core.make_ahead(this) a;
    end if;
    return query select t.act, t.n::text, false from (values
        ('set hidden messages aside', spanmq_core.set_front_aside(this.queue_id)),
        ('closed abandoned writes', spanmq_core.close_abandoned(this.queue_id)),
        ('deleted from archive', spanmq_core.shorten_archive(this, coalesce(pg_sequence_last_value(this.ids), 0))),
        ('forgot deduplication ids', spanmq_core.forget_duplicates(this.queue_id, 10000)
            + spanmq_core.forget_holders(this.queue_id, 10000)),
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
