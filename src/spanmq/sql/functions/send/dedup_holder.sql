-- Ids of which one message is pending: a message holds the dedup_id that it was sent with until it is settled, or until
-- it is started (dedup_until).
--
-- Whether it holds it still is what state and later say, so nothing is freed: the transaction that settles, rejects,
-- cancels, purges or deletes the message frees the id. A message that has left comes back only by redrive(), which
-- takes the id anew.

-- By the places of dedup_ids: the message that was sent last with it, when that was noted (both null: none), and
-- whether it holds the id.
create or replace function spanmq_core.holders(this_queue int, dedup_ids text[], until_started boolean)
returns table (dedup_id text, msg_id bigint, look_at timestamptz, is_held boolean, place int)
language plpgsql as $$
begin
    return query
        select u.dedup_id, h.msg_id, h.look_at, coalesce(m.is_held, false), u.place::int
        from unnest(dedup_ids) with ordinality u (dedup_id, place)
        left join lateral (select * from spanmq_core.dedup_holder d
                           where d.queue_id = this_queue and d.dedup_id = u.dedup_id offset 0) h on true
        left join lateral (select true as is_held from spanmq_core.unsettled s
                           where s.queue_id = this_queue and s.msg_id = h.msg_id
                             and (not until_started or s.attempts = 0 and s.lease_id = 0) offset 0) m on true;
end $$;

-- Locks those of these messages that no lease holds, and with until_started never one did: no claim takes them before
-- the end of this transaction. Waits for claims that are not committed. Returns their ids.
create or replace function spanmq_core.lock_unleased(this_queue int, msg_ids bigint[], until_started boolean)
returns bigint[]
language plpgsql as $$
declare
    locked bigint[] := array(
        select s.msg_id from spanmq_core.state s
        where s.queue_id = this_queue and s.msg_id = any (msg_ids) and s.lease_id = 0
          and (not until_started or s.attempts = 0)
        order by s.queue_id, s.msg_id for no key update);
begin
    if cardinality(locked) = cardinality(msg_ids) then
        return locked;
    end if;
    -- A new statement: a message goes from state to later.
    return locked || array(
        select l.msg_id from spanmq_core.later l
        where l.queue_id = this_queue and l.msg_id = any (msg_ids) and l.lease_id = 0
          and (not until_started or l.attempts = 0)
        order by l.queue_id, l.msg_id for no key update);
end $$;

-- Takes dedup_ids (null: a message without one) for new messages, or for own_ids, dead letters that are to be redriven.
-- Returns, as draw_once(), the id of each message, or of the one that holds its dedup_id, and whether it is the message
-- itself. Of those with one dedup_id the first is sent, with `replace` the last. on_duplicate: as in send_messages().
--
-- An id is taken only from the state in which it was seen: if another transaction changes it and commits, this looks
-- again. Waits for claims of the messages that hold ids before it has taken any: a transaction that claims a message,
-- and then sends with its id, does not deadlock with this.
create or replace function spanmq_core.hold_ids(
    this spanmq_core.queue, dedup_ids text[], own_ids bigint[], until_started boolean, on_duplicate text
) returns table (ids bigint[], is_first boolean[])
language plpgsql as $$
declare
    replaces boolean := on_duplicate = 'replace';
    replaced bigint[] := '{}';
    leader int[];                  -- as in draw_once()
    -- The ids that are still to be taken, the places of their messages, and the messages that hold them (null: none);
    -- and by its id when each was noted.
    wanted text[];
    places int[];
    holders bigint[];
    known jsonb;
    locked bigint[];
    undrawn int[];
    drawn bigint[];
    won text[];
begin
    perform spanmq_core.check_isolation('dedup_until');
    dedup_ids := array(select unnest(dedup_ids));
    leader := array(
        select case when u.dedup_id is null then u.place
                    when replaces then max(u.place) over (partition by u.dedup_id)
                    else min(u.place) over (partition by u.dedup_id) end::int
        from unnest(dedup_ids) with ordinality u (dedup_id, place) order by u.place);
    is_first := array(select l.leader = l.place from unnest(leader) with ordinality l (leader, place) order by l.place);
    ids := coalesce(own_ids, array_fill(null::bigint, array[cardinality(dedup_ids)]));
    if on_duplicate = 'raise' and false = any (is_first) then
        perform spanmq_core.raise_held(dedup_ids[array_position(is_first, false)], null);
    end if;
    select coalesce(array_agg(u.dedup_id), '{}'), coalesce(array_agg(u.place::int), '{}') into wanted, places
        from unnest(dedup_ids, is_first) with ordinality u (dedup_id, is_first, place)
        where u.is_first and u.dedup_id is not null;
    loop
        select coalesce(array_agg(case when h.is_held then h.msg_id end order by h.place), '{}'),
               coalesce(jsonb_object_agg(h.dedup_id, h.look_at) filter (where h.look_at is not null), '{}')
            into holders, known from spanmq_core.holders(this.queue_id, wanted, until_started) h;
        if until_started or replaces then
            locked := spanmq_core.lock_unleased(this.queue_id, array_remove(holders, null), until_started);
        end if;
        if until_started then
            -- The others were started meanwhile, or have left.
            holders := array(select l.id from unnest(holders) with ordinality h (id, place)
                             left join unnest(locked) l (id) on l.id = h.id order by h.place);
        end if;
        if on_duplicate = 'raise' then
            perform spanmq_core.raise_held(u.dedup_id, u.holder)
                from unnest(wanted, holders) u (dedup_id, holder) where u.holder is not null;
        elsif not replaces then
            for i in 1 .. cardinality(holders) loop
                if holders[i] is not null then
                    ids[places[i]] := holders[i];
                    is_first[places[i]] := false;
                end if;
            end loop;
            select coalesce(array_agg(u.dedup_id order by u.n), '{}'), coalesce(array_agg(u.place order by u.n), '{}')
                into wanted, places
                from unnest(wanted, places, holders) with ordinality u (dedup_id, place, holder, n)
                where u.holder is null;
        end if;
        -- Messages for which others stand draw no id.
        undrawn := array(select u.place from unnest(ids, is_first) with ordinality u (id, is_first, place)
                         where u.is_first and u.id is null order by u.place);
        if undrawn <> '{}' then
            drawn := spanmq_core.draw_ids(this.ids, cardinality(undrawn));
            for i in 1 .. cardinality(undrawn) loop
                ids[undrawn[i]] := drawn[i];
            end loop;
        end if;
        exit when wanted = '{}';
        with taken as (
            insert into spanmq_core.dedup_holder as h (queue_id, dedup_id, msg_id, look_at)
                select this.queue_id, u.dedup_id, ids[u.place], clock_timestamp() + interval '5 minutes'
                -- All in one order, as in draw_once().
                from unnest(wanted, places) u (dedup_id, place) order by u.dedup_id collate "C"
                on conflict (queue_id, dedup_id) do update set msg_id = excluded.msg_id, look_at = excluded.look_at
                where h.look_at = (known->>h.dedup_id)::timestamptz
                returning h.dedup_id)
        select coalesce(array_agg(t.dedup_id), '{}') into won from taken t;
        if replaces then
            replaced := replaced || array(select u.holder from unnest(wanted, holders) u (dedup_id, holder)
                                          join unnest(won) w (id) on w.id = u.dedup_id where u.holder is not null);
        end if;
        select coalesce(array_agg(u.dedup_id order by u.n), '{}'), coalesce(array_agg(u.place order by u.n), '{}')
            into wanted, places
            from unnest(wanted, places) with ordinality u (dedup_id, place, n)
            left join unnest(won) w (id) on w.id = u.dedup_id where w.id is null;
    end loop;
    if replaced <> '{}' then
        perform from spanmq_call.cancel(this.name, replaced);
    end if;
    ids := array(select ids[l.leader] from unnest(leader) with ordinality l (leader, place) order by l.place);
    return next;
end $$;

-- Raises MQ066 for a dedup_id that a message holds; null: another one of the same batch.
create or replace function spanmq_core.raise_held(dedup_id text, holder bigint) returns void
language plpgsql as $$
begin
    raise exception '%', case when holder is null then format('dedup_id %L is in the batch twice', dedup_id)
                              else format('message %s is in the queue with dedup_id %L', holder, dedup_id) end
        using errcode = 'MQ066', hint = 'on_duplicate ''keep'' returns that message, ''replace'' cancels it.';
end $$;

-- The dedup_id that a message holds, or held; null for none.
create or replace function spanmq_core.dedup_id_of(headers jsonb) returns text
language sql immutable as $$
    select case when jsonb_typeof(headers->'x-spanmq-dedup-id') = 'string'
                     and octet_length(headers->>'x-spanmq-dedup-id') between 1 and 512
                then headers->>'x-spanmq-dedup-id' end
$$;

-- For each of the dead letters of these messages, the message that keeps it from being redriven, since it holds its
-- dedup_id; null for none: these take their ids, but in a dry run. Null if none of them has one. A subscription may
-- have several messages with one dedup_id, because it gets them before or after its queue settles them.
create or replace function spanmq_core.beside(
    this spanmq_core.queue, own_ids bigint[], headers jsonb[], dry_run boolean
) returns bigint[]
language plpgsql as $$
declare
    dedup_ids text[] := array(select spanmq_core.dedup_id_of(h) from unnest(headers) with ordinality u (h, place)
                              order by u.place);
begin
    if this.is_subscription or array_remove(dedup_ids, null) = '{}' then
        return null;
    elsif dry_run then
        return array(
            select case when h.dedup_id is not null
                   then nullif(coalesce(case when h.is_held then h.msg_id end,
                                        first_value(o.id) over (partition by h.dedup_id order by h.place)), o.id) end
            from spanmq_core.holders(this.queue_id, dedup_ids, false) h
            join unnest(own_ids) with ordinality o (id, place) on o.place = h.place order by h.place);
    end if;
    return (select array(select case when not u.is_first then u.id end
                         from unnest(h.ids, h.is_first) with ordinality u (id, is_first, place) order by u.place)
            from spanmq_core.hold_ids(this, dedup_ids, own_ids, false, 'keep') h);
end $$;

-- Deletes up to `budget` entries of a queue whose messages have left, but none that a transaction has locked.
create or replace function spanmq_core.forget_holders(this_queue int, budget int) returns bigint
language plpgsql as $$
declare
    at_ timestamptz := clock_timestamp();
    n bigint;
begin
    -- An entry that has changed meanwhile has another look_at.
    update spanmq_core.dedup_holder d
        set look_at = (select least(greatest(s.vt, at_), at_ + interval '23 hours') + interval '1 hour'
                       from spanmq_core.unsettled s where s.queue_id = this_queue and s.msg_id = d.msg_id)
        where d.ctid = any (array(select e.ctid from spanmq_core.dedup_holder e
                                  where e.queue_id + 0 = this_queue and e.look_at <= at_
                                  order by e.queue_id + 0, e.look_at limit budget for update skip locked))
          and d.look_at <= at_
          and exists (select from spanmq_core.unsettled s where s.queue_id = this_queue and s.msg_id = d.msg_id);
    delete from spanmq_core.dedup_holder d
        where d.ctid = any (array(select e.ctid from spanmq_core.dedup_holder e
                                  where e.queue_id + 0 = this_queue and e.look_at <= at_
                                  order by e.queue_id + 0, e.look_at limit budget for update skip locked))
          and d.look_at <= at_
          and not exists (select from spanmq_core.unsettled s where s.queue_id = this_queue and s.msg_id = d.msg_id);
    get diagnostics n = row_count;
    return n;
end $$;
