-- The groups in a shard, for a change of the map of shards.

-- Tells whether a message of this group is not settled, committed or of this transaction.
create or replace function spanmq_core.has_group(this_queue int, key text) returns boolean
language plpgsql as $$
begin
    return exists (select from spanmq_core.fresh f
                   where f.queue_id + 0 = this_queue and f.group_hash = hashtextextended(key, 0) and f.group_hash is not null and f.group_key = key)
        or exists (select from spanmq_core.held h
                   where h.queue_id + 0 = this_queue and h.group_hash = hashtextextended(key, 0) and h.group_hash is not null and h.group_key = key
                     and spanmq_core.count_left(h) > 0);
end $$;

-- A loose scan of the indexes: a step a group, however many messages it has.
create or replace function spanmq_core.groups_after(this_queue int, after text, qty int) returns setof text
language plpgsql as $$
declare
    place bigint := hashtextextended(after, 0);
begin
    for step in 1 .. qty loop
        place := spanmq_core.next_group(this_queue, place);
        exit when place is null;
        -- Two groups of one hash are both told.
        return query
            select f.group_key from spanmq_core.fresh f where f.queue_id + 0 = this_queue and f.group_hash = place and f.group_hash is not null
            union
            select h.group_key from spanmq_core.held h
            where h.queue_id + 0 = this_queue and h.group_hash = place and h.group_hash is not null and spanmq_core.count_left(h) > 0;
    end loop;
end $$;
