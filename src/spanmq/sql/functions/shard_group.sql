-- What the change of a map of shards must know of the groups in one of them.

-- Tells whether a message of this group is not settled, committed or of this transaction.
create or replace function spanmq.has_group(this_queue int, key text) returns boolean
language plpgsql as $$
begin
    return exists (select from spanmq.fresh f
                   where f.queue_id + 0 = this_queue and f.group_hash = hashtextextended(key, 0) and f.group_hash is not null and f.group_key = key)
        or exists (select from spanmq.held h
                   where h.queue_id + 0 = this_queue and h.group_hash = hashtextextended(key, 0) and h.group_hash is not null and h.group_key = key
                     and spanmq.count_left(h) > 0);
end $$;

-- A loose scan of the indexes: a step a group, however many messages it has.
create or replace function spanmq.groups_after(this_queue int, after text, qty int) returns setof text
language plpgsql as $$
declare
    place bigint := hashtextextended(after, 0);
    from_hash bigint;
begin
    for step in 1 .. qty loop
        exit when place = 9223372036854775807;
        from_hash := coalesce(place + 1, -9223372036854775808);
        place := least((select f.group_hash from spanmq.fresh f
                        where f.queue_id + 0 = this_queue and f.group_hash >= from_hash and f.group_hash is not null
                        order by f.queue_id + 0, f.group_hash limit 1),
                       (select h.group_hash from spanmq.held h
                        where h.queue_id + 0 = this_queue and h.group_hash >= from_hash and h.group_hash is not null
                        order by h.queue_id + 0, h.group_hash limit 1));
        exit when place is null;
        -- Two groups of one hash are both told.
        return query
            select f.group_key from spanmq.fresh f where f.queue_id + 0 = this_queue and f.group_hash = place and f.group_hash is not null
            union
            select h.group_key from spanmq.held h
            where h.queue_id + 0 = this_queue and h.group_hash = place and h.group_hash is not null and spanmq.count_left(h) > 0;
    end loop;
end $$;
