-- twin: unlogged
-- What the change of a map of shards must know of the groups in one of them.

-- Tells whether a message of this group is not settled, committed or of this transaction.
create or replace function spanmq.has_group(this_queue int, key text) returns boolean
language plpgsql as $$
begin
    return exists (
        select from spanmq.span s
        where s.queue_id + 0 = this_queue and s.group_hash = hashtextextended(key, 0) and s.group_hash is not null and s.group_key = key
          and spanmq.holds_any(s));
end $$;

-- A loose scan of the index: a step a group, however many messages it has.
create or replace function spanmq.groups_after(this_queue int, after text, qty int) returns setof text
language plpgsql as $$
declare
    place bigint := hashtextextended(after, 0);
    from_hash bigint;
begin
    for step in 1 .. qty loop
        exit when place = 9223372036854775807;
        from_hash := coalesce(place + 1, -9223372036854775808);
        select s.group_hash into place from spanmq.span s
            where s.queue_id + 0 = this_queue and s.group_hash >= from_hash and s.group_hash is not null
            order by s.queue_id + 0, s.group_hash limit 1;
        exit when place is null;
        -- Two groups of one hash are both told.
        return query
            select distinct s.group_key from spanmq.span s
            where s.queue_id + 0 = this_queue and s.group_hash = place and s.group_hash is not null and spanmq.holds_any(s);
    end loop;
end $$;
