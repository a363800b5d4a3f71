-- Bounds: where index scans over the state of a queue begin (spanmq_core.bound). Under a long-held snapshot, vacuum
-- cannot remove dead rows, and a scan from the left would pass all of them.
--
-- A bound moves in two steps. The first records a mark: the last id that was drawn, and the time. After that it records
-- the transactions that might still commit a row below the mark: every sender (spanmq_core.sending) and every
-- transaction that writes spanmq_core.held. A later step moves the bound up to the mark, or to the first existing row,
-- once all of these have ended. This is right because
--   - a sender locks spanmq_core.sending before it draws an id, and writes the id into a row in the same transaction;
-- - a claim that returns a part of a row of fresh inserts it behind the begin of that row, which others see until the
-- claim commits;
-- - a transaction that writes a row of held reads the clock after it has locked held, and writes no earlier time as its
-- vt.
-- The clock may be set back meanwhile, to before the bound or a mark. Then a writer of held locks the bound, which no step
-- can replace until the writer has ended, and moves it back if need be: see heed_clock(). A step replaces the row of the
-- step before, so the second of two side by side does nothing.
-- A bound is a row like any other, so it is rolled back, dumped and restored together with what it is about.
-- maintain() makes a step, and so does every claim that comes past a multiple of 128 ids (8,192 in batches): so there
-- are never many dead rows behind the bound.

-- The bound of a queue.
create or replace function spanmq_core.bound_of(this_queue int) returns spanmq_core.bound
language plpgsql stable as $$
declare
    this spanmq_core.bound;
begin
    select * into this from spanmq_core.bound b where b.queue_id = this_queue order by b.queue_id desc, b.number desc limit 1;
    return this;
end $$;

-- The transactions of this database that may still send or write into held, prepared ones too.
create or replace function spanmq_core.writers(out senders text[], out holders text[])
language sql volatile as $$
    select coalesce(array_agg(l.virtualtransaction) filter (where l.relation = 'spanmq_core.sending'::regclass), '{}'),
           coalesce(array_agg(l.virtualtransaction) filter (where l.relation = 'spanmq_core.held'::regclass), '{}')
    from pg_catalog.pg_locks l
    where l.locktype = 'relation' and l.relation in ('spanmq_core.sending'::regclass, 'spanmq_core.held'::regclass) and l.mode = 'RowExclusiveLock' and l.granted
      and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
$$;

-- Whether all transactions that were noted have ended. One that was prepared meanwhile has another name now: so none that is prepared may be there.
create or replace function spanmq_core.have_ended(noted text[], now_ text[]) returns boolean
language sql immutable as $$ select not noted && now_ and not exists (select from unnest(now_) w where w like '-1/%') $$;

-- Makes a step: moves the bounds of a queue, whose sequence of ids is `ids`, as far as the last mark allows, and notes a new one. In transactions
-- with an old snapshot it does nothing.
create or replace function spanmq_core.move_bound(this_queue int, ids regclass) returns void
language plpgsql as $$
declare
    drawn bigint;
    at_ timestamptz;
    writers record;
begin
    -- The mark before the transactions: a transaction that draws an id up to the mark, or writes a time before it, is
    -- among them.
    drawn := spanmq_core.drawn_from(ids);
    at_ := clock_timestamp();
    writers := spanmq_core.writers();
    perform spanmq_core.step_bound(this_queue, drawn, at_, writers.senders, writers.holders);
end $$;

-- The same, where the mark and then the transactions were noted before, for many queues at once.
create or replace function spanmq_core.step_bound(this_queue int, drawn bigint, at_ timestamptz, senders_now text[], holders_now text[]) returns void
language plpgsql as $$
declare
    before spanmq_core.bound;
    next spanmq_core.bound;
    senders_ended boolean;         -- null where there is no mark yet
    holders_ended boolean;
    is_sequence_back boolean;
    is_clock_back boolean;
    first_block bigint;
    first_lo bigint;
begin
    if not spanmq_core.sees_now() then
        return;
    end if;
    before := spanmq_core.bound_of(this_queue);
    next := before;
    senders_ended := spanmq_core.have_ended(before.senders, senders_now);
    holders_ended := spanmq_core.have_ended(before.holders, holders_now);
    is_sequence_back := drawn < before.mark_id or drawn + 1 < before.fresh_from;
    is_clock_back := at_ < before.mark_at;
    if is_sequence_back then
        -- Somebody has set the sequence back: ids come again.
        next.fresh_from := 0;
    elsif senders_ended then
        -- Ids that were drawn by a transaction which has ended, and are published by another. In this order, a statement each: what is
        -- published is a block first, and then a row.
        first_block := (
            select min(b.lo) from spanmq_core.bulk_block b
            where b.queue_id = coalesce((select s.log_id from spanmq_core.subscription s where s.queue_id = this_queue), this_queue));
        first_lo := (select f.lo from spanmq_core.fresh f where f.queue_id = this_queue and f.lo >= before.fresh_from order by f.queue_id, f.lo limit 1);
        next.fresh_from := greatest(before.fresh_from, least(before.mark_id + 1, first_lo, first_block));
    end if;
    if before.senders is null or senders_ended or is_sequence_back then
        next.mark_id := drawn;
        next.senders := senders_now;
    end if;
    if is_clock_back then
        -- The clock was set back: what is written now may be due before the bound.
        next.due_from := '-infinity';
    elsif holders_ended then
        -- Earlier than the mark by the time since then: a clock that was set back by less is not seen to be so.
        next.due_from := greatest(before.due_from, least(
            before.mark_at - (at_ - before.mark_at),
            (select h.vt from spanmq_core.held h
             where h.queue_id + 0 = this_queue and h.vt >= before.due_from order by h.queue_id + 0, h.vt limit 1)));
    end if;
    if before.holders is null or holders_ended or is_clock_back then
        next.mark_at := at_;
        next.holders := holders_now;
    end if;
    -- Nothing is written for an idle queue.
    if (next.fresh_from, next.mark_id, next.senders) is distinct from (before.fresh_from, before.mark_id, before.senders)
       or next.holders is distinct from before.holders or exists (select from spanmq_core.held h where h.queue_id + 0 = this_queue and h.vt >= next.due_from)
       or next.due_from < before.mark_at - interval '10 seconds' then
        next.number := nextval('spanmq_core.bound_number');
        delete from spanmq_core.bound b
            where b.ctid = (select o.ctid from spanmq_core.bound o where o.queue_id = this_queue and o.number = before.number for update skip locked);
        if found then
            insert into spanmq_core.bound select next.*;
            perform setval('spanmq_core.latest_mark', greatest(spanmq_core.microseconds(at_), pg_sequence_last_value('spanmq_core.latest_mark')));
        end if;
    end if;
end $$;

create or replace function spanmq_core.microseconds(at_ timestamptz) returns bigint
language sql stable as $$ select (extract(epoch from at_) * 1000000)::bigint $$;

-- For transactions that are about to write rows of held: if the clock was set back to before the bound or its mark, the bound is moved back
-- first. The next step might come when the clock has passed the mark again, and not notice. Senders, whose plans are not pinned, call it
-- too. Raises a serialization failure if the clock was set back and the snapshot does not have the newest bound.
create or replace function spanmq_core.heed_clock(this_queue int) returns void
language plpgsql :pinned as $$
declare
    this spanmq_core.bound;
    now_at timestamptz;
begin
    -- The lock of a writer, before the clock and the bound.
    lock table only spanmq_core.held in row exclusive mode;
    this := spanmq_core.bound_of(this_queue);
    now_at := clock_timestamp();
    -- The sequence has the latest mark also where the snapshot is older.
    if greatest(this.due_from, this.mark_at) <= now_at
       and (pg_sequence_last_value('spanmq_core.latest_mark') > spanmq_core.microseconds(now_at)) is not true then
        return;
    end if;
    perform from spanmq_core.bound b where b.queue_id = this_queue and b.number = this.number for key share skip locked;
    if not found or greatest(this.due_from, this.mark_at) > now_at then
        -- Also beside a step that is not committed yet, whose number is lower.
        insert into spanmq_core.bound (queue_id, number, fresh_from, due_from, mark_id, senders)
            values (this_queue, nextval('spanmq_core.bound_number'), this.fresh_from, '-infinity', this.mark_id, this.senders);
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
            select o.ctid from spanmq_core.bound o where o.queue_id = this_queue and o.number < newest for update skip locked));
end $$;
