-- Changes of held messages other than settling: releasing, searching.

-- Takes those messages of an ordered group out of their leases that come after `after_id`, and gives them back as if
-- they had not been delivered: an earlier one goes back, so none of them may be handled before it.
create or replace function spanmq_core.release_followers(this_queue int, key text, after_id bigint) returns void
language plpgsql as $$
declare
    due_from timestamptz := (spanmq_core.bound_of(this_queue)).due_from;
    candidate record;
    behind int8range := int8range(after_id + 1, null);
    took spanmq_core.run[];
    runs spanmq_core.run[] := '{}';
    is_overtaken boolean;
begin
    -- Again where a run was another's by the time that its lock was had: its messages may be in other rows of the
    -- lease.
    for round in 1 .. 100 loop
        is_overtaken := false;
        for candidate in
            select h.lo, h.lease_id, int8multirange(behind * int8range(h.lo, h.lo + h.n)) as wanted
            from spanmq_core.held h
            where key is not null and h.queue_id + 0 = this_queue and h.group_hash = hashtextextended(key, 0)
            and h.group_hash is not null
              and h.vt >= due_from and h.group_key = key and h.lease_id > 0 and h.lo + h.n > after_id + 1
            union all
            select h.lo, h.lease_id, int8multirange(behind * int8range(h.lo, h.lo + h.n)) from spanmq_core.held h
            where key is null and h.queue_id + 0 = this_queue and h.vt >= due_from and h.group_hash is null
            and h.lease_id > 0
              and h.lo + h.n > after_id + 1
            order by 1
        loop
            took := spanmq_core.take_from_held(this_queue, candidate.lo, candidate.wanted, candidate.lease_id);
            is_overtaken := took is null;
            exit when is_overtaken;
            runs := runs || took;
        end loop;
        exit when not is_overtaken;
    end loop;
    perform spanmq_core.give_back(this_queue, array(select spanmq_core.undelivered(r) from unnest(runs) r));
end $$;

-- The run that holds a message (of a fresh one vt is null); no row if it is in none.
create or replace function spanmq_core.find_run(this_queue int, id bigint) returns setof spanmq_core.run
language plpgsql stable rows 1 as $$
begin
    return query
        select r.* from spanmq_core.fresh f cross join lateral spanmq_core.run_of(f) r
        where f.queue_id = this_queue and f.lo = (
                select o.lo from spanmq_core.fresh o
                where o.queue_id = this_queue and o.lo <= id and o.lo >= id / 256 * 256 order by o.queue_id desc,
                o.lo desc limit 1)
          and f.lo + f.n > id
        union all
        select r.* from spanmq_core.held h cross join lateral spanmq_core.run_of(h) r
        where h.queue_id = this_queue and h.lo = (
                select o.lo from spanmq_core.held o
                where o.queue_id = this_queue and o.lo <= id and o.lo >= id / 256 * 256 order by o.queue_id desc,
                o.lo desc limit 1)
          and h.lo + h.n > id
          and (h.n = 1 or h.lease_id = 0 or not exists (select from spanmq_core.done d where d.queue_id = this_queue
                                                        and d.msg_id = id));
end $$;

-- Moves the messages that expired leases, from which these runs were taken, still hold in the same groups to new,
-- unknown leases. Otherwise a worker whose lease has expired could still settle a message that follows one that another
-- worker has in flight. Skips rows that other transactions have locked.
create or replace function spanmq_core.disown(this_queue int, runs spanmq_core.run[], at_ timestamptz) returns void
language plpgsql as $$
declare
    late record;
begin
    for late in
        select l.*, spanmq_core.new_lease(at_) as new_lease
        from (select distinct r.group_hash, r.lease_id from unnest(runs) r where r.lease_id > 0) l
    loop
        update spanmq_core.held h set lease_id = late.new_lease
            where h.ctid = any (array(
                select k.ctid from spanmq_core.held k
                where k.queue_id + 0 = this_queue and k.lease_id = late.lease_id and k.lease_id <> 0 and k.vt <= at_
                  and k.group_hash is not distinct from late.group_hash
                order by k.lo for update skip locked));
    end loop;
end $$;

-- Takes messages out of expired leases, skipping those that other transactions have locked.
create or replace function spanmq_core.take_late(this_queue int, at_ timestamptz, wanted int8multirange)
returns spanmq_core.run[]
language plpgsql as $$
declare
    due_from timestamptz := (spanmq_core.bound_of(this_queue)).due_from;
    candidate record;
    runs spanmq_core.run[] := '{}';
begin
    for candidate in
        select h.lo, h.lease_id, wanted * int8multirange(int8range(h.lo, h.lo + h.n)) as ids from spanmq_core.held h
        where h.queue_id + 0 = this_queue and h.vt >= due_from and h.vt <= at_ and h.lease_id > 0
        and wanted && int8range(h.lo, h.lo + h.n)
        order by h.lo limit 100
    loop
        runs := runs || coalesce(spanmq_core.take_from_held(this_queue, candidate.lo, candidate.ids, candidate.lease_id,
                                                            at_), '{}');
    end loop;
    return runs;
end $$;

-- Those of the messages that no lease holds and no other transaction has locked. Locks their runs.
create or replace function spanmq_core.lock_free(this_queue int, msg_ids bigint[]) returns bigint[]
language plpgsql as $$
declare
    asked int8multirange := (select coalesce(range_agg(int8range(id, id, '[]')), '{}') from unnest(msg_ids) id);
begin
    return array(
        with places as materialized (select * from spanmq_core.runs_with(this_queue, asked, 0) order by lo),
        locked as materialized (
            select k.lo, k.n from places p cross join lateral (
                select h.lo, h.n from spanmq_core.held h where not p.is_fresh and h.queue_id = this_queue
                    and h.lo = p.lo and h.lease_id = 0
                for update skip locked) k
            union all
            select k.lo, k.n from places p cross join lateral (
                select f.lo, f.n from spanmq_core.fresh f where p.is_fresh and f.queue_id = this_queue and f.lo = p.lo
                    for update skip locked) k)
        select id from locked l, unnest(msg_ids) id where id >= l.lo and id < l.lo + l.n);
end $$;
