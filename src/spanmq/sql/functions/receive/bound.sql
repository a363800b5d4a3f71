-- Bounds: where index scans over the state of a queue begin (spanmq_core.bound). Under a long-held snapshot, vacuum
-- cannot remove dead rows, and a scan from the left would pass all of them.
--
-- A bound moves in two steps. The first records a mark: the last id that was drawn, and the time. After that it records
-- the transactions that might still commit a row below the mark: every sender (spanmq_core.sending) and every
-- transaction that writes spanmq_core.later. A later step moves the bound up to the mark, or to the first existing row,
-- once all of these have ended. This is right because
--   - a sender locks spanmq_core.sending before it draws an id, and writes the id into a row in the same transaction;
--   - only a sender inserts into state;
--   - a transaction that writes a row of later reads the clock after it has locked later, and writes no earlier time as
--     its vt.
-- The clock may be set back meanwhile, to before the bound or a mark. A writer of later that finds it so counts up
-- spanmq_core.set_backs, and moves the bound back if need be: see heed_clock(). A step that finds another count than
-- was noted with its mark begins anew: rows below the mark may be written by transactions that were not noted. A step
-- replaces the row of the step before, so the second of two side by side does nothing. A bound is a row like any other,
-- so it is rolled back, dumped and restored together with what it is about. maintain() makes a step, and so does every
-- claim that comes past a multiple of 128 ids (1,024 in batches): so there are never many dead rows behind the bound.

-- The bound of a queue.
create or replace function spanmq_core.bound_of(this_queue int) returns spanmq_core.bound
language plpgsql stable :pinned as $$
declare
    this spanmq_core.bound;
begin
    select * into this from spanmq_core.bound b where b.queue_id = this_queue order by b.queue_id desc, b.number desc
        limit 1;
    return this;
end $$;

-- The mark of a step: the time, and the transactions of this database that may still send or write into later, prepared
-- ones too. In this order: a writer that is not among them finds the time when it reads the clock, and counts after
-- set_backs was read.
create or replace function spanmq_core.note_mark() returns spanmq_core.bound_mark
language plpgsql as $$
declare
    mark spanmq_core.bound_mark;
begin
    mark.mark_at := clock_timestamp();
    perform setval('spanmq_core.latest_mark',
                   greatest((extract(epoch from mark.mark_at) * 1000000)::bigint,
                            pg_sequence_last_value('spanmq_core.latest_mark')));
    mark.set_backs := coalesce(pg_sequence_last_value('spanmq_core.set_backs'), 0);
    select coalesce(array_agg(l.virtualtransaction) filter (where l.relation = 'spanmq_core.sending'::regclass), '{}'),
           coalesce(array_agg(l.virtualtransaction) filter (where l.relation = 'spanmq_core.later'::regclass), '{}')
        into mark.senders, mark.holders
        from pg_locks l
        where l.locktype = 'relation' and l.relation in ('spanmq_core.sending'::regclass, 'spanmq_core.later'::regclass)
          and l.mode = 'RowExclusiveLock' and l.granted
          and l.database = (select d.oid from pg_database d where d.datname = current_database());
    return mark;
end $$;

-- Makes a step: moves the bounds of a queue, whose sequence of ids is `ids`, as far as the last mark allows, and notes
-- a new one. In transactions with an old snapshot it does nothing.
create or replace function spanmq_core.move_bound(this_queue int, ids regclass) returns void
language plpgsql as $$
declare
    -- Before the mark: a transaction that draws an id up to there is noted with it.
    drawn bigint := spanmq_core.drawn_from(ids);
begin
    perform spanmq_core.step_bound(this_queue, drawn, spanmq_core.note_mark());
end $$;

-- The same, where the last id that was drawn, and then the mark, were noted before, for many queues at once.
create or replace function spanmq_core.step_bound(this_queue int, drawn bigint, mark spanmq_core.bound_mark)
returns void
language plpgsql as $$
declare
    before spanmq_core.bound;
    next spanmq_core.bound;
    senders_ended boolean;         -- null where there is no mark yet
    holders_ended boolean;
    is_sequence_back boolean;
    is_clock_back boolean;
    first_block bigint;
    first_id bigint;
begin
    if not spanmq_core.sees_now() then
        return;
    end if;
    before := spanmq_core.bound_of(this_queue);
    next := before;
    -- One that was prepared meanwhile has another name now (-1/...): so none that is prepared may be there.
    senders_ended := not before.senders && mark.senders and strpos(array_to_string(mark.senders, ' '), '-1/') = 0;
    holders_ended := not before.holders && mark.holders and strpos(array_to_string(mark.holders, ' '), '-1/') = 0;
    is_sequence_back := drawn < before.mark_id or drawn + 1 < before.from_id;
    -- The number before the count: of a writer that counts later the bound has a higher number.
    next.number := nextval('spanmq_core.bound_number');
    is_clock_back := mark.mark_at < before.mark_at
        or before.set_backs <> coalesce(pg_sequence_last_value('spanmq_core.set_backs'), 0);
    if is_sequence_back then
        -- Somebody has set the sequence back: ids come again.
        next.from_id := 0;
    elsif senders_ended then
        -- Ids that were drawn by a transaction which has ended, and are published by another. In this order, a
        -- statement each: what is published is a block first, and then a row.
        first_block := (
            select min(b.lo) from spanmq_core.bulk_block b
            where b.queue_id = coalesce((select s.log_id from spanmq_core.subscription s where s.queue_id = this_queue),
                                        this_queue));
        first_id := (select s.msg_id from spanmq_core.state s where s.queue_id = this_queue
                     and s.msg_id >= before.from_id order by s.queue_id, s.msg_id limit 1);
        next.from_id := greatest(before.from_id, least(before.mark_id + 1, first_id, first_block));
    end if;
    if before.senders is null or senders_ended or is_sequence_back then
        next.mark_id := drawn;
        next.senders := mark.senders;
    end if;
    if is_clock_back then
        -- The clock was set back: what is written now may be due before the bound.
        next.due_from := '-infinity';
    elsif holders_ended then
        -- Earlier than the mark by the time since then: a clock that was set back by less is not seen to be so.
        next.due_from := greatest(before.due_from, least(
            before.mark_at - (mark.mark_at - before.mark_at),
            (select h.vt from spanmq_core.later h
             where h.queue_id + 0 = this_queue and h.vt >= before.due_from
             order by h.queue_id + 0, h.vt, h.msg_id + 0 limit 1)));
    end if;
    if before.holders is null or holders_ended or is_clock_back then
        next.mark_at := mark.mark_at;
        next.set_backs := mark.set_backs;
        next.holders := mark.holders;
    end if;
    -- Nothing is written for an idle queue.
    if (next.from_id, next.mark_id, next.senders) is distinct from (before.from_id, before.mark_id,
                                                                       before.senders)
       or (next.set_backs, next.holders) is distinct from (before.set_backs, before.holders)
       or exists (select from spanmq_core.later h where h.queue_id + 0 = this_queue and h.vt >= next.due_from)
       or next.due_from < before.mark_at - interval '10 seconds' then
        delete from spanmq_core.bound b
            where b.ctid = (select o.ctid from spanmq_core.bound o where o.queue_id = this_queue
                            and o.number = before.number for update skip locked);
        if found then
            insert into spanmq_core.bound select next.*;
        end if;
    end if;
end $$;

-- Whether a step, committed or not, has a later mark. In SQL, so that it is a part of the statement; without numeric,
-- which costs more.
create or replace function spanmq_core.is_marked_after(at_ timestamptz) returns boolean
language sql volatile as $$
    select coalesce(pg_sequence_last_value('spanmq_core.latest_mark') / 1e6::float8 > date_part('epoch', at_), false)
$$;

-- For transactions that are about to write rows of later: if the clock was set back to before the bound or its mark,
-- the bound is moved back first. The next step might come when the clock has passed the mark again, and not notice.
-- Raises a serialization failure if the clock was set back and the snapshot does not have the newest bound.
create or replace function spanmq_core.heed_clock(this_queue int) returns void
language plpgsql as $$
declare
    this spanmq_core.bound;
    now_at timestamptz;
begin
    -- The lock of a writer, before the clock and the bound.
    lock table only spanmq_core.later in row exclusive mode;
    this := spanmq_core.bound_of(this_queue);
    now_at := clock_timestamp();
    -- The sequence has the latest mark also where the snapshot is older, or the step is not committed.
    if greatest(this.due_from, this.mark_at) <= now_at
       and not spanmq_core.is_marked_after(now_at) then
        return;
    end if;
    perform nextval('spanmq_core.set_backs');
    perform from spanmq_core.bound b where b.queue_id = this_queue and b.number = this.number for key share skip locked;
    if not found or greatest(this.due_from, this.mark_at) > now_at then
        -- Also beside a step that is not committed yet, whose number is lower.
        insert into spanmq_core.bound (queue_id, number, from_id, due_from, mark_id, senders)
            values (this_queue, nextval('spanmq_core.bound_number'), this.from_id, '-infinity', this.mark_id,
                    this.senders);
    end if;
end $$;

-- Deletes bounds that others have taken the place of: where the clock was set back.
create or replace function spanmq_core.forget_bounds(this_queue int) returns void
language plpgsql as $$
declare
    newest bigint := (spanmq_core.bound_of(this_queue)).number;
begin
    delete from spanmq_core.bound b
        where b.ctid = any (array(
            select o.ctid from spanmq_core.bound o where o.queue_id = this_queue and o.number < newest
                for update skip locked));
end $$;
