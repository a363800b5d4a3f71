-- Taking messages out by their ids: delete, archive, set_vt, ack, nack and all other ends of a lease.
--
-- Lock order: rows of held and fresh, ascending by id -> notes in done, ascending. A transaction that
-- waited for a row looks again, in a new statement: the row may have been replaced by others that hold the rest of its
-- messages.

-- Takes these messages and returns them as runs, ascending; what is in no run is not in the result.
--   fence     null: wherever they are, but for batches of receivers; else only those of this lease, or with 0 only
--             those of none
--   for_good  they never come back (delete, archive): so what leaves a leased run in part is only noted
create or replace function spanmq_core.take_out(
    this_queue int, msg_ids bigint[], fence bigint, for_good boolean default false
) returns spanmq_core.run[]
language plpgsql as $$
declare
    n_asked int := cardinality(msg_ids);
    first_id bigint := msg_ids[1];
    last_id bigint := msg_ids[n_asked];
    next_id bigint := first_id;
    run spanmq_core.run;
    runs spanmq_core.run[] := '{}';
    has_leased boolean := false;
    asked int8multirange;
begin
    -- First the usual: ids that follow each other, and whole runs of them.
    if spanmq_core.is_sequence(msg_ids) then
        while next_id <= last_id loop
            delete from spanmq_core.held h
                where h.queue_id = this_queue and h.lo = next_id and h.lo + h.n - 1 <= last_id
                and (h.lease_id = fence or fence is null and h.lease_id >= 0)
                returning h.lo, h.n, h.attempts, h.lease_id, h.vt, h.last_read_at, h.group_hash, h.group_key,
                h.priority, h.lost, h.alone into run;
            exit when not found;
            runs := runs || run;
            has_leased := has_leased or run.n > 1 and run.lease_id > 0;
            next_id := next_id + run.n;
        end loop;
        -- A new statement, under the locks: messages may have been deleted from these runs one by one.
        if has_leased and (not spanmq_core.sees_now() or exists (
                select from spanmq_core.done d where d.queue_id = this_queue and d.msg_id >= first_id
                    and d.msg_id < next_id)) then
            runs := spanmq_core.without_done(this_queue, runs);
        end if;
        if next_id > last_id then
            return runs;
        end if;
    end if;
    -- No message has the highest number that there is, nor can a range end behind it.
    asked := (select range_agg(int8range(id, id, '[]')) from unnest(msg_ids) id
              where id > 0 and id < 9223372036854775807);
    asked := coalesce(asked, '{}');
    if next_id > first_id then
        asked := asked - int8multirange(int8range(first_id, next_id));
    end if;
    return runs || spanmq_core.take_parts(this_queue, asked, fence, for_good);
end $$;

-- Whether these ids are a number and the next ones, in order.
create or replace function spanmq_core.is_sequence(ids bigint[]) returns boolean
language plpgsql immutable as $$
declare
    n int := cardinality(ids);
begin
    -- greatest(): the distance between the lowest and the highest number is out of range. A statement of its own: a
    -- plan may run the next one's query first.
    if n = 1 then
        return true;
    elsif (greatest(ids[n], 0) - greatest(ids[1], 0) = n - 1) is not true then
        return false;
    end if;
    return ids = array(select generate_series(ids[1], ids[n]));
end $$;

-- Goes on with take_out(), run by run.
create or replace function spanmq_core.take_parts(this_queue int, asked int8multirange, fence bigint, for_good boolean)
returns spanmq_core.run[]
language plpgsql as $$
declare
    candidate record;
    row_id tid;
    whole tid[];
    run spanmq_core.run;
    took spanmq_core.run[];
    took_all spanmq_core.run[];
    runs spanmq_core.run[] := '{}';
    found_any boolean;
begin
    -- Each round takes something, unless another transaction was first. "Not found" is accepted only from a statement
    -- begun after the last wait.
    for round in 1 .. 1000 loop
        exit when isempty(asked);
        found_any := false;
        whole := '{}';
        took_all := '{}';
        for candidate in select * from spanmq_core.runs_with(this_queue, asked, fence) r order by r.lo loop
            if candidate.is_fresh then
                took := spanmq_core.take_from_fresh(this_queue, candidate.lo, candidate.wanted);
            elsif candidate.wanted = int8multirange(int8range(candidate.lo, candidate.lo + candidate.n)) then
                -- Locked here, in order; all are deleted in one statement.
                select h.ctid into row_id from spanmq_core.held h
                    where h.queue_id = this_queue and h.lo = candidate.lo and h.n = candidate.n
                      and (h.lease_id = fence or fence is null and h.lease_id >= 0) for update;
                found_any := true;
                exit when not found;
                whole := whole || row_id;
                continue;
            elsif for_good and candidate.lease_id > 0 then
                took := spanmq_core.note_done(this_queue, candidate.lo, candidate.lease_id, candidate.wanted);
            else
                took := spanmq_core.take_from_held(this_queue, candidate.lo, candidate.wanted, fence);
            end if;
            -- If a run only has ids that are done already, no other transaction was first: it was found in vain.
            found_any := found_any or took is null or took <> '{}';
            -- Ids that a run has lost may be in another one before the next.
            exit when took is null;
            -- One by one, which is in place: to join two arrays copies both, a square of the number of runs.
            foreach run in array took loop
                took_all := took_all || run;
            end loop;
        end loop;
        if whole <> '{}' then
            with gone as (
                delete from spanmq_core.held h where h.ctid = any (whole) returning spanmq_core.run_of(h) as run)
            select array_agg(g.run order by (g.run).lo) into took from gone g;
            asked := asked - coalesce(spanmq_core.ids_of_runs(took), '{}');
            took_all := took_all || spanmq_core.without_done(this_queue, took);
        end if;
        exit when not found_any;
        runs := runs || took_all;
        asked := asked - coalesce(spanmq_core.ids_of_runs(took_all), '{}');
    end loop;
    return array(select r from unnest(runs) r order by r.lo);
end $$;

-- The runs that hold any of these ids, under the fence, and which.
create or replace function spanmq_core.runs_with(this_queue int, asked int8multirange, fence bigint)
returns table (lo bigint, n int, lease_id bigint, is_fresh boolean, wanted int8multirange)
language plpgsql volatile as $$
begin
    -- For each range: the run that holds its first id, which begins in the same block of 256, and those that begin
    -- later.
    return query
        select h.lo, h.n, h.lease_id, false, range_agg(a * int8range(h.lo, h.lo + h.n))
        from unnest(asked) a cross join lateral (
            (select * from spanmq_core.held h
             where h.queue_id = this_queue and h.lo <= lower(a) and h.lo >= lower(a) / 256 * 256
             order by h.queue_id desc, h.lo desc limit 1)
            union all
            (select * from spanmq_core.held h where h.queue_id = this_queue and h.lo > lower(a) and h.lo < upper(a))) h
        where h.lo + h.n > lower(a) and (h.lease_id = fence or fence is null and h.lease_id >= 0)
        group by h.lo, h.n, h.lease_id
        union all
        select f.lo, f.n, 0::bigint, true, range_agg(a * int8range(f.lo, f.lo + f.n))
        from unnest(asked) a cross join lateral (
            (select * from spanmq_core.fresh f
             where f.queue_id = this_queue and f.lo <= lower(a) and f.lo >= lower(a) / 256 * 256
             order by f.queue_id desc, f.lo desc limit 1)
            union all
            (select * from spanmq_core.fresh f where f.queue_id = this_queue and f.lo > lower(a) and f.lo < upper(a))) f
        where f.lo + f.n > lower(a) and coalesce(fence, 0) = 0
        group by f.lo, f.n;
end $$;

-- Takes these messages (null: all) out of the held run that begins at this_lo; the rest stays as it was. Waits for the
-- lock of the run; with due_at it takes only a run that was visible then, and doesn't wait. Returns null if the run was
-- not taken, is another lease's by now, or no longer holds all of these: what it lost may be in another that is before
-- the next one.
create or replace function spanmq_core.take_from_held(
    this_queue int, this_lo bigint, wanted int8multirange, fence bigint, due_at timestamptz default null
) returns spanmq_core.run[]
language plpgsql as $$
declare
    this spanmq_core.held;
    ids int8multirange;
begin
    if due_at is not null then
        select * into this from spanmq_core.held h
            where h.queue_id = this_queue and h.lo = this_lo and (h.lease_id = fence or fence is null)
            and h.vt <= due_at
              and (wanted is null or h.lo + h.n >= upper(wanted)) for update skip locked;
    else
        select * into this from spanmq_core.held h
            where h.queue_id = this_queue and h.lo = this_lo
            and (h.lease_id = fence or fence is null and h.lease_id >= 0)
              and (wanted is null or h.lo + h.n >= upper(wanted)) for update;
    end if;
    if not found then
        return null;
    end if;
    ids := spanmq_core.ids_of(this.lo, this.n);
    wanted := coalesce(wanted, ids);
    if this.n > 1 and this.lease_id > 0 then
        ids := ids - spanmq_core.forget_done(this_queue, this.lo, this.n);
    end if;
    delete from spanmq_core.held h where h.queue_id = this_queue and h.lo = this_lo;
    -- Messages that stay leased hide none, and need not be cut.
    insert into spanmq_core.held (queue_id, lo, n, lease_id, attempts, lost, alone, vt, last_read_at, priority,
                                  group_hash, group_key)
        select this_queue, t.lo, t.n, this.lease_id, this.attempts, this.lost, this.alone, this.vt, this.last_read_at,
        this.priority, this.group_hash, this.group_key
        from unnest(ids - wanted) r
        cross join lateral (
            select lower(r) as lo, (upper(r) - lower(r))::int as n where this.lease_id <> 0
            union all
            select t.lo, t.n from spanmq_core.tens(lower(r), upper(r) - 1) t where this.lease_id = 0) t;
    return spanmq_core.pieces(spanmq_core.run_of(this), ids * wanted);
end $$;

-- The same of a run of fresh.
create or replace function spanmq_core.take_from_fresh(this_queue int, this_lo bigint, wanted int8multirange)
returns spanmq_core.run[]
language plpgsql as $$
declare
    this spanmq_core.fresh;
    ids int8multirange;
begin
    delete from spanmq_core.fresh f where f.queue_id = this_queue and f.lo = this_lo and f.lo + f.n >= upper(wanted)
        returning f.* into this;
    if not found then
        return null;
    end if;
    ids := spanmq_core.ids_of(this.lo, this.n);
    insert into spanmq_core.fresh (queue_id, lo, n, priority, group_hash, group_key)
        select this_queue, lower(r), upper(r) - lower(r), this.priority, this.group_hash, this.group_key
        from unnest(ids - wanted) r;
    return spanmq_core.pieces(spanmq_core.run_of(this), ids * wanted);
end $$;

-- Notes that these messages have left the run of this lease that begins at this_lo, so that others may leave it at the
-- same time. Returns those that had not left it before; null if the run no longer holds all of these.
create or replace function spanmq_core.note_done(this_queue int, this_lo bigint, lease bigint, wanted int8multirange)
returns spanmq_core.run[]
language plpgsql as $$
declare
    this spanmq_core.held;
    took int8multirange;
begin
    -- A shared lock for all transactions that add notes. A transaction that takes the whole run waits for them, or
    -- skips it.
    select * into this from spanmq_core.held h
        where h.queue_id = this_queue and h.lo = this_lo and h.lease_id = lease and h.lo + h.n >= upper(wanted)
        for key share;
    if not found then
        return null;
    end if;
    with notes as (
        insert into spanmq_core.done (queue_id, msg_id)
            select this_queue, id
            from unnest(wanted) r, generate_series(lower(r), upper(r) - 1) id order by id
            on conflict do nothing
            returning msg_id)
        select coalesce(range_agg(int8range(n.msg_id, n.msg_id, '[]')), '{}') into took from notes n;
    if spanmq_core.may_be_last(this.lo, this.n, upper(took) - 1) then
        perform spanmq_core.sweep_run(this_queue, this.lo, this.n);
    end if;
    return spanmq_core.pieces(spanmq_core.run_of(this), took);
end $$;

-- Notes that a message has left the leased run of several that holds it, and returns what it was; null if there is no
-- such run, or it had left before. fence: null, or the lease that must hold it.
create or replace function spanmq_core.note_one(this_queue int, id bigint, fence bigint) returns spanmq_core.run
language plpgsql as $$
declare
    run spanmq_core.run;
begin
    -- Locked by its number, and only if it has the message: a lower run would be locked out of order.
    select h.lo, h.n, h.attempts, h.lease_id, h.vt, h.last_read_at into run from spanmq_core.held h
        where h.queue_id = this_queue and h.n > 1 and (h.lease_id = fence or fence is null and h.lease_id > 0)
        and h.lo + h.n > id and h.lo = (
            select c.lo from spanmq_core.held c
            where c.queue_id = this_queue and c.lo <= id and c.lo >= id / 256 * 256 order by c.queue_id desc, c.lo desc
            limit 1)
        for key share;
    if not found then
        return null;
    end if;
    insert into spanmq_core.done (queue_id, msg_id) values (this_queue, id) on conflict do nothing;
    if not found then
        return null;
    end if;
    if spanmq_core.may_be_last(run.lo, run.n, id) then
        perform spanmq_core.sweep_run(this_queue, run.lo, run.n);
    end if;
    run.lo := id;
    run.n := 1;
    return run;
end $$;

-- Whether the transaction that takes this message of a leased run counts what is left, and sweeps the run after the
-- last. Counting at each step would cost n^2 for a run, so a large one is swept when the message with its last id is
-- taken, otherwise by a claim after the lease has expired, or by maintain(). In SQL, so that it is a part of the
-- statement.
create or replace function spanmq_core.may_be_last(this_lo bigint, n int, id bigint) returns boolean
language sql immutable as $$ select n <= 16 or id = this_lo + n - 1 $$;

-- Goes on where a caller has deleted the runs with the ids from first_id to before next_id: takes the rest of these
-- messages for good, as take_out() does, and returns all of them.
create or replace function spanmq_core.take_rest(
    this_queue int, msg_ids bigint[], fence bigint, first_id bigint, next_id bigint
) returns spanmq_core.run[]
language plpgsql as $$
begin
    if (next_id > first_id) is not true then
        return spanmq_core.take_out(this_queue, msg_ids, fence, true);
    end if;
    return spanmq_core.without_done(this_queue, array[
               (first_id, next_id - first_id, 0, 1, null, null, null, null, null, 0, 0)::spanmq_core.run])
           || spanmq_core.take_out(this_queue, array(select id from unnest(msg_ids) id where id >= next_id), fence,
                                   true);
end $$;

-- Deletes a leased run all of whose messages are done. Never waits: its holder may be waiting for a note of this
-- transaction.
create or replace function spanmq_core.sweep_run(this_queue int, this_lo bigint, n int) returns boolean
language plpgsql as $$
begin
    if (select count(*) from spanmq_core.done d where d.queue_id = this_queue and d.msg_id >= this_lo
        and d.msg_id < this_lo + n) < n then
        return false;
    end if;
    perform from spanmq_core.held h where h.queue_id = this_queue and h.lo = this_lo and h.n = sweep_run.n
        and h.lease_id <> 0 for update skip locked;
    if not found then
        return false;
    end if;
    perform spanmq_core.forget_done(this_queue, this_lo, n);
    delete from spanmq_core.held h where h.queue_id = this_queue and h.lo = this_lo;
    return true;
end $$;

-- How many messages a held run has: without those that were deleted from it one by one. In SQL, so that it is a part of
-- the statement.
create or replace function spanmq_core.count_left(this spanmq_core.held) returns int
language sql stable as $$
    select case when this.n = 1 or this.lease_id = 0 then this.n
                else this.n - (select count(*) from spanmq_core.done d
                               where d.queue_id = this.queue_id and d.msg_id >= this.lo
                               and d.msg_id < this.lo + this.n)::int end
$$;

-- Gives messages back that were taken: visible at once, or hidden until the vt of their run. Never fresh again, and ten
-- a row. A delivery alone has ended with this; one that has not begun is still to come.
create or replace function spanmq_core.give_back(this_queue int, runs spanmq_core.run[]) returns void
language plpgsql set jit = off as $$
begin
    perform spanmq_core.heed_clock(this_queue);
    insert into spanmq_core.held (queue_id, lo, n, attempts, lost, alone, vt, last_read_at, priority, group_hash,
                                  group_key)
        select this_queue, t.lo, t.n, r.attempts, r.lost, r.alone & 1, greatest(r.vt, clock_timestamp()),
        r.last_read_at, r.priority, r.group_hash, r.group_key
        from unnest(runs) r, spanmq_core.tens(r.lo, r.lo + r.n - 1) t;
end $$;

-- Takes all messages of a queue out of it. Returns their number. Messages sent meanwhile are removed and counted, too;
-- it ends when a statement sees none, although it may have waited for transactions that moved the messages it saw to
-- other rows. Messages that this statement did not see stay, and are recorded (was_purged).
create or replace function spanmq_core.purge(this_queue int) returns bigint
language plpgsql as $$
declare
    purged bigint;
    n bigint;
    n_fresh bigint;
    runs spanmq_core.run[];
    sees_any boolean;
    seen_in pg_snapshot;
    unpublished int8multirange;
    run_lo bigint;
    -- Runs are taken without waiting for a lock. If that fails, it starts over, and first locks the runs up to this id
    -- in their order, waiting.
    locked_to bigint;
    must_wait boolean := false;
    is_waiting boolean := false;
begin
    loop
        purged := 0;
        locked_to := case when must_wait then -1 else 9223372036854775807 end;
        begin
            loop
                if must_wait then
                    is_waiting := true;
                    for run_lo in
                        select h.lo from spanmq_core.held h where h.queue_id = this_queue and h.lo > locked_to
                        union all select f.lo from spanmq_core.fresh f where f.queue_id = this_queue
                        and f.lo > locked_to order by 1
                    loop
                        perform from spanmq_core.fresh f where f.queue_id = this_queue and f.lo = run_lo for update;
                        perform from spanmq_core.held h where h.queue_id = this_queue and h.lo = run_lo for update;
                        locked_to := run_lo;
                    end loop;
                    is_waiting := false;
                end if;
                with doomed as (
                    select h.ctid from spanmq_core.held h where h.queue_id = this_queue and h.lo <= locked_to
                        order by h.lo for update nowait),
                gone as (delete from spanmq_core.held h where h.ctid in (select d.ctid from doomed d)
                         returning h.n, h.lease_id, spanmq_core.run_of(h) as run),
                doomed_fresh as (
                    select f.ctid from spanmq_core.fresh f where f.queue_id = this_queue and f.lo <= locked_to
                        order by f.lo for update nowait),
                gone_fresh as (delete from spanmq_core.fresh f where f.ctid in (select d.ctid from doomed_fresh d)
                               returning f.n)
                select (select sum(g.n) from gone g), (select sum(g.n) from gone_fresh g),
                       (select array_agg(g.run) from gone g where g.lease_id <> 0 and g.n > 1),
                       exists (select from spanmq_core.held h where h.queue_id = this_queue)
                       or exists (select from spanmq_core.fresh f where f.queue_id = this_queue),
                       pg_current_snapshot(),
                       -- Ids of bulk writes that are reserved and not published: of these and the runs one statement
                       -- sees one.
                       (select coalesce(range_agg(int8range(b.lo, b.hi, '[]')), '{}') from spanmq_core.bulk_block b
                        where b.queue_id = coalesce((select p.log_id from spanmq_core.subscription p
                                                     where p.queue_id = this_queue), this_queue))
                    into n, n_fresh, runs, sees_any, seen_in, unpublished;
                exit when not sees_any;
                -- A new statement, under the locks: what was deleted from these runs one by one before was not in the
                -- queue.
                purged := purged + coalesce(n, 0) + coalesce(n_fresh, 0) - spanmq_core.count_runs(runs) +
                    spanmq_core.count_runs(spanmq_core.without_done(this_queue, runs));
            end loop;
            exit;
        exception when lock_not_available then
            -- The end of this block has released its locks. The caller's lock_timeout is an error as ever.
            if is_waiting then
                raise;
            end if;
            must_wait := true;
        end;
    end loop;
    if purged > 0 then
        insert into spanmq_core.upkeep (queue_id, purged_in, purged_by, purged_on, spared)
            values (this_queue, seen_in, pg_current_xact_id(), (select c.system_identifier from pg_control_system() c),
                    unpublished)
            -- Messages that an earlier purge spared are seen or spared by this one.
            on conflict (queue_id) do update
                set purged_in = excluded.purged_in, purged_by = excluded.purged_by, purged_on = excluded.purged_on,
                spared = excluded.spared;
    end if;
    return purged;
end $$;
