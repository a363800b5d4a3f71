-- Shards: one logical queue over several queues. Clients do the routing; this file has the map, and the locks that keep
-- a change of it from reordering messages.
--
-- A sender holds the map's lock shared until the end of the transaction; a change of the map holds it exclusively. So
-- when a change has committed here, all messages sent by the old map are committed, or never will be.

-- The map of a logical queue, or no row. Raises nothing.
create or replace function spanmq.get_shards(
    queue text
) returns table (epoch bigint, routing text, shards jsonb, former jsonb)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select m.epoch, m.routing, m.shards, m.former from spanmq_core.shard_map m where m.name = lower(queue collate "C")
$$;

-- Writes the map, unless one with this epoch or a later one exists. Returns the epoch that is stored in the end. Waits
-- for senders that use the former map, to the end of their transactions. Raises MQ002 for an invalid map, 42501 without
-- the right to create queues.
create or replace function spanmq_call.set_shards(
    queue text, epoch bigint, routing text, shards jsonb, former jsonb default null
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    there bigint;
begin
    perform pgmq.validate_queue_name(queue);
    perform spanmq_core.raise_if(epoch is null or routing is null or shards is null,
        'a map of shards needs an epoch, a routing and shards', 'Pass the result of get_shards() with your changes.');
    perform spanmq_core.lock(0, 'shards ' || lower(queue collate "C"));
    begin
        insert into spanmq_core.shard_map as m
            values (lower(queue collate "C"), set_shards.epoch, set_shards.routing, set_shards.shards,
                    set_shards.former)
            on conflict (name) do update set epoch = excluded.epoch, routing = excluded.routing,
            shards = excluded.shards, former = excluded.former
            where m.epoch < excluded.epoch;
    exception when check_violation then
        raise exception 'this is not a map of shards: %', sqlerrm
            using errcode = 'MQ002', detail = format('routing %s, shards %s, former %s', routing, shards, former),
                hint = 'Pass the result of get_shards() with your changes.';
    end;
    select m.epoch into there from spanmq_core.shard_map m where m.name = lower(queue collate "C");
    return there;
end $$;

-- Deletes the map; the shards stay as queues. False if the map does not exist.
create or replace function spanmq_call.forget_shards(queue text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform pgmq.validate_queue_name(queue);
    perform spanmq_core.lock_name('shards', lower(queue collate "C"));
    delete from spanmq_core.shard_map m where m.name = lower(queue collate "C");
    return found;
end $$;

-- Keeps the map unchanged until the end of the transaction. Call it before a send, in the transaction of the send.
-- With a shard and a group, senders of this group with the same arguments wait for each other, and the result is
-- whether the shard has unsettled messages of the group. Raises MQ030 if the map has another epoch, and 55P03 after 30
-- seconds, because two servers cannot detect a deadlock between them.
create or replace function spanmq.enter_shards(
    queue text, epoch bigint, shard text default null, group_key text default null
) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '30s' :pinned as $$
declare
    this spanmq_core.queue;
    there bigint;
begin
    perform pgmq.validate_queue_name(queue);
    perform spanmq_core.lock_shared(0, 'shards ' || lower(queue collate "C"));
    -- A new statement: the last holder of the lock may have changed the map.
    select m.epoch into there from spanmq_core.shard_map m where m.name = lower(queue collate "C");
    -- Not null and null: a row of the lock would stay for a name without a map.
    perform spanmq_core.raise_if((there = enter_shards.epoch) is not true,
        format('the shards of queue "%s" have changed: epoch %s here, not %s', queue, coalesce(there::text, 'none'),
               enter_shards.epoch),
        'Read the map again, and send by the new one.', 'MQ030');
    if shard is null or group_key is null then
        return null;
    end if;
    this := spanmq_core.find_target(shard);
    perform spanmq_core.lock(this.queue_id, 'shard ' || (hashtextextended(group_key, 0) & 255));
    -- Committed or of this transaction.
    return exists (
            select from spanmq_core.state f
            where f.queue_id + 0 = this.queue_id and f.group_hash = hashtextextended(enter_shards.group_key, 0)
            and f.group_hash is not null
              and f.group_key = enter_shards.group_key)
        or exists (
            select from spanmq_core.later h
            where h.queue_id + 0 = this.queue_id and h.group_hash = hashtextextended(enter_shards.group_key, 0)
            and h.group_hash is not null
              and h.group_key = enter_shards.group_key);
end $$;

-- The groups of messages that are not settled, in the order of their hashes, after the group `after` (null: from the
-- first): for the end of a change. Messages without a group are not among them.
create or replace function spanmq_call.shard_groups(
    queue text, after text default null, qty integer default 1000
) returns setof text
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    begun_at bigint := coalesce(hashtextextended(after, 0), -9223372036854775808);
    place bigint;
begin
    perform spanmq_core.check_quantity(qty);
    -- A loose scan of the indexes: a step a group, however many messages it has.
    for place in select r.hash from spanmq_core.next_groups(this.queue_id, begun_at, qty) r (hash) loop
        exit when place is null;
        -- Two groups of one hash are both told.
        return query
            select f.group_key from spanmq_core.state f where f.queue_id + 0 = this.queue_id and f.group_hash = place
            and f.group_hash is not null
            union
            select h.group_key from spanmq_core.later h
            where h.queue_id + 0 = this.queue_id and h.group_hash = place and h.group_hash is not null;
    end loop;
end $$;
