-- Bounds: where index scans over the state of a queue begin (spanmq.bound). Under a snapshot that is held for long, vacuum can't remove dead
-- rows, and a scan from the left would pass all of them.
--
-- maintain() moves a bound in two calls. The first notes a mark: the last id that was drawn, and the time. Then it notes the transactions
-- that might still commit a row below the mark: every sender (spanmq.sending) and every transaction that writes spanmq.held. A later
-- call moves the bound up to the mark, or to the first row that is there, once all of these have ended. This is right because
--   - a sender locks spanmq.sending before it draws an id, and writes the id into a row in the same transaction;
--   - a claim that puts back a part of a row of fresh puts it behind the begin of that row, which others see until the claim commits;
--   - whoever writes a row of held reads the clock after it has locked held, and writes no earlier time as its vt.
-- A bound is a row like any other, so it is rolled back, dumped and restored together with what it is about.

-- The bound of a queue.
create or replace function spanmq.bound_of(this_queue int) returns spanmq.bound
language plpgsql stable as $$
declare
    this spanmq.bound;
begin
    select * into this from spanmq.bound b where b.queue_id = this_queue order by b.queue_id desc, b.number desc limit 1;
    return this;
end $$;

-- The transactions of this database that hold a ROW EXCLUSIVE lock on a relation, prepared ones too.
create or replace function spanmq.writers_of(relation regclass) returns text[]
language sql volatile as $$
    select array(
        select l.virtualtransaction from pg_catalog.pg_locks l
        where l.locktype = 'relation' and l.relation = writers_of.relation and l.mode = 'RowExclusiveLock' and l.granted
          and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database()))
$$;

-- Moves the bounds of a queue as far as its last mark allows, and notes a new one: `drawn`, the last id that was drawn, and `at_`, both read
-- before `senders` and `holders` (writers_of spanmq.sending and spanmq.held).
create or replace function spanmq.move_bound(this_queue int, drawn bigint, at_ timestamptz, senders text[], holders text[]) returns void
language plpgsql as $$
declare
    before spanmq.bound := spanmq.bound_of(this_queue);
    mark spanmq.upkeep;
    new_fresh bigint := before.fresh_from;
    new_due timestamptz := before.due_from;
    first_lo bigint;
begin
    select * into mark from spanmq.upkeep u where u.queue_id = this_queue;
    if mark.mark_id is not null and not mark.senders && senders then
        first_lo := (select f.lo from spanmq.fresh f where f.queue_id = this_queue and f.lo >= before.fresh_from order by f.queue_id, f.lo limit 1);
        new_fresh := least(first_lo, mark.mark_id + 1);
        -- Ids that were drawn by a transaction which has ended, and are published by another.
        new_fresh := least(new_fresh, (
            select min(b.lo) from spanmq.bulk_block b
            where b.queue_id = coalesce((select s.log_id from spanmq.subscription s where s.queue_id = this_queue), this_queue)));
        new_fresh := greatest(new_fresh, before.fresh_from);
    end if;
    if drawn < mark.mark_id or drawn + 1 < before.fresh_from then
        -- Somebody has set the sequence back: ids come again.
        new_fresh := 0;
    end if;
    if at_ < mark.mark_at then
        -- The clock was set back: what is written now may be due before the bound.
        new_due := '-infinity';
    elsif mark.mark_at is not null and not mark.holders && holders then
        -- A second earlier, for a clock that is set back by less before it is seen here.
        new_due := greatest(before.due_from, least(mark.mark_at - interval '1 second', (
            select h.vt from spanmq.held h
            where h.queue_id + 0 = this_queue and h.vt >= before.due_from order by h.queue_id + 0, h.vt limit 1)));
    end if;
    if (new_fresh, new_due) is distinct from (before.fresh_from, before.due_from) then
        insert into spanmq.bound (queue_id, number, fresh_from, due_from) values (this_queue, before.number + 1, new_fresh, new_due);
        delete from spanmq.bound b where b.queue_id = this_queue and b.number <= before.number;
    end if;
    -- Of an idle queue nothing is written.
    if mark.mark_id is distinct from drawn or mark.senders && senders or mark.holders && holders
       or exists (select from spanmq.held h where h.queue_id = this_queue) or before.due_from < mark.mark_at - interval '2 seconds' then
        insert into spanmq.upkeep as u (queue_id, mark_id, mark_at, senders, holders)
            values (this_queue, drawn, at_, move_bound.senders, move_bound.holders)
            on conflict (queue_id) do update set
                -- A mark that still waits for a transaction stays.
                mark_id = case when u.senders && excluded.senders then u.mark_id else excluded.mark_id end,
                mark_at = case when u.holders && excluded.holders and u.mark_at <= excluded.mark_at then u.mark_at else excluded.mark_at end,
                senders = case when u.senders && excluded.senders then u.senders else excluded.senders end,
                holders = case when u.holders && excluded.holders and u.mark_at <= excluded.mark_at then u.holders else excluded.holders end;
    end if;
end $$;
