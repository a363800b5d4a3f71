-- Choosing the messages of a claim. A claim locks what it takes and changes nothing: what it does not deliver is as it
-- was when the transaction ends, and lease_ids() leases the rest. It never waits: it skips rows that other transactions
-- have locked. Claims of the usual kind lease in place: see receive.sql.

-- Locks the visible ones of these messages, but for those that others hold. Returns their ids, ascending. The order is
-- outside: before PostgreSQL 17, a scan by many ids has none, and one in order would read the whole queue.
create or replace function spanmq_core.lock_visible(this_queue int, ids bigint[], at_ timestamptz) returns bigint[]
language plpgsql as $$
declare
    mine bigint[] := array(
        select k.msg_id
        from (select s.msg_id from spanmq_core.state s
              where s.queue_id = this_queue and s.msg_id = any (ids) and s.vt <= at_ for update skip locked) k
        order by k.msg_id);
begin
    if cardinality(mine) = cardinality(ids) then
        return mine;
    end if;
    return array(
        select u.id from unnest(mine || array(
            select l.msg_id from spanmq_core.later l
            where l.queue_id = this_queue and l.msg_id = any (ids) and l.vt <= at_
            for update skip locked)) u (id) order by u.id);
end $$;

-- These ids, in their order, without some.
create or replace function spanmq_core.without(ids bigint[], gone bigint[]) returns bigint[]
language plpgsql immutable as $$
begin
    return case when gone = '{}' then ids
                else array(select u.id from unnest(ids) u (id) where u.id not in (select unnest(gone))) end;
end $$;

-- What take_any() looks at for `quantity` messages behind this id, lowest ids first: the visible messages of later that
-- became due first, twice as many and at least 100, and those of state; none of `but`. waits: see take_any().
create or replace function spanmq_core.oldest_visible(
    this_queue int, quantity int, bound spanmq_core.bound, at_ timestamptz, waits boolean, but bigint[], behind bigint
) returns bigint[]
language plpgsql as $$
begin
    return array(
        select c.msg_id from (
            (select d.msg_id
             from (select l.msg_id, l.alone from spanmq_core.later l
                   where l.queue_id + 0 = this_queue and l.vt >= bound.due_from and l.vt <= at_
                     and l.msg_id > behind and (l.alone = 0 or waits is null)
                     and l.msg_id not in (select unnest(but))
                   order by l.queue_id + 0, l.vt, l.msg_id + 0 limit greatest(2::bigint * quantity, 100)) d)
            union all
            (select s.msg_id from spanmq_core.state s
             where s.queue_id = this_queue and s.msg_id >= greatest(bound.from_id, behind + 1) and s.vt <= at_
               and s.msg_id not in (select unnest(but))
             order by s.queue_id, s.msg_id limit 2::bigint * quantity)) c
        order by c.msg_id);
end $$;

-- Takes up to `quantity` visible messages that no receiver has had, lowest ids first, or with `newest` highest: of
-- state, and of the 1,000 of later that became due first (delayed or released ones). Fewer, where others hold some of
-- those that were found.
create or replace function spanmq_core.take_untried(this_queue int, quantity int, at_ timestamptz, newest boolean)
returns bigint[]
language plpgsql as $$
declare
    bound spanmq_core.bound := spanmq_core.bound_of(this_queue);
begin
    return spanmq_core.lock_visible(this_queue, array(
        select c.msg_id
        from (select l.msg_id
              from (select * from spanmq_core.later l
                    where l.queue_id + 0 = this_queue and l.vt >= bound.due_from and l.vt <= at_
                    order by l.queue_id + 0, l.vt, l.msg_id + 0 limit 1000) l
              where l.attempts = 0 and l.alone = 0
              union all
              (select s.msg_id from spanmq_core.state s
               where not newest and s.queue_id = this_queue and s.msg_id >= bound.from_id and s.vt <= at_
                 and s.attempts = 0
               order by s.queue_id, s.msg_id limit quantity)
              union all
              (select s.msg_id from spanmq_core.state s
               where newest and s.queue_id = this_queue and s.msg_id >= bound.from_id and s.vt <= at_
                 and s.attempts = 0
               order by s.queue_id desc, s.msg_id desc limit quantity)) c
        order by case when newest then -c.msg_id else c.msg_id end limit quantity), at_);
end $$;

-- Moves these messages from state to later as they are. The caller has locked them.
create or replace function spanmq_core.move_to_later(this_queue int, ids bigint[]) returns void
language plpgsql as $$
begin
    perform spanmq_core.heed_clock(this_queue);
    with gone as (
        delete from spanmq_core.state s where s.queue_id = this_queue and s.msg_id = any (ids) returning s.*)
    insert into spanmq_core.later (queue_id, msg_id, lease_id, attempts, lost, alone, vt, last_read_at, priority,
                                   group_hash, group_key)
        select g.queue_id, g.msg_id, g.lease_id, g.attempts, g.lost, g.alone, greatest(g.vt, clock_timestamp()),
               g.last_read_at, g.priority, g.group_hash, g.group_key
        from gone g;
end $$;

-- The same for those leased and hidden messages of state with first_id <= msg_id < end_id that no other transaction
-- holds, 10,000 at a time. Returns how many.
create or replace function spanmq_core.move_hidden(this_queue int, first_id bigint, end_id bigint) returns int
language plpgsql as $$
declare
    ids bigint[];
    n int := 0;
begin
    loop
        ids := array(
            select k.msg_id from spanmq_core.state k
            where k.queue_id = this_queue and k.msg_id >= first_id and k.msg_id < end_id and k.vt > clock_timestamp()
            order by k.queue_id, k.msg_id limit 10000 for update skip locked);
        exit when ids = '{}';
        perform spanmq_core.move_to_later(this_queue, ids);
        first_id := ids[cardinality(ids)] + 1;
        n := n + cardinality(ids);
    end loop;
    return n;
end $$;

-- For maintain(): the same for those in front of a queue that stay hidden for a second and more, if they are more than
-- 500, which each claim would pass; at most 50,000. Returns how many, if there may be more, else 0. Not by claims: one
-- in an open transaction would lock what others settle.
create or replace function spanmq_core.set_front_aside(this_queue int) returns int
language plpgsql as $$
declare
    n int := 0;
    from_id bigint := (spanmq_core.bound_of(this_queue)).from_id;
    first_id bigint;
    last_id bigint;
begin
    for round in 1 .. 5 loop
        select min(f.msg_id), max(f.msg_id) into first_id, last_id
            from (select k.msg_id, k.vt from spanmq_core.state k
                  where k.queue_id = this_queue and k.msg_id >= from_id
                  order by k.queue_id, k.msg_id limit 10000) f
            where f.vt > clock_timestamp() + interval '1 second' having count(*) > 500;
        if first_id is null then
            return 0;
        end if;
        n := n + spanmq_core.move_hidden(this_queue, first_id, last_id + 1);
        from_id := last_id + 1;
    end loop;
    return n;
end $$;
