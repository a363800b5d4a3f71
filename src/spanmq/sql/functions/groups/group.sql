-- Ordered groups. A group is blocked while one of its messages is leased or waits after a delivery, or while a dead
-- letter blocks it; messages behind a delayed one wait for it. Messages without a group are one group,
-- `_default_fifo_group`, as in PGMQ. Here a group is its hash (null: no group): two keys of one hash would only wait
-- for each other.

-- The ordered group of a message; null for those without, which are a group too: the one that PGMQ calls
-- _default_fifo_group.
create or replace function spanmq_core.group_of(headers jsonb) returns text
language sql immutable as $$ select nullif(headers->>'x-pgmq-group', '_default_fifo_group') $$;

-- The same, where a queue says in which place of a message its group is (null: in that header): a text, a number, or
-- true or false; else it has none.
create or replace function spanmq_core.group_in(group_by text, message jsonb, headers jsonb) returns text
language sql immutable as $$
    select case
           when group_by is null then spanmq_core.group_of(headers)
           when jsonb_typeof(spanmq_core.value_at(group_by, message, headers)) in ('string', 'number', 'boolean')
           then spanmq_core.value_at(group_by, message, headers)#>>'{}' end
$$;

-- Takes the first messages of groups that are not blocked. mode says how they share the quantity:
--   fair  no group more than a quarter while others have some; half for the oldest, half by turn
--   fill  as much as there is of the oldest group, then of the next
--   rr    one of each group in turn, the oldest group first
--   head  one of each
-- free  groups have no order and don't block: none has more than most_in_flight messages in flight. Shared as with fair
-- by every second
--         claim, else the oldest
-- The policy's max_in_flight_per_group and rate_limit_per_group hold for a group in every mode.
-- PGMQ's modes (fill, rr, head) look at the groups of the oldest messages, then of more and more, up to 5,000 messages.
-- Fair claims look at a few of them only. If these do not suffice, a claim continues around the ring of all groups,
-- from where this session ended the last time. So neither a long backlog nor any number of blocked groups hides a free
-- group indefinitely, nor messages without a group (find_ungrouped). waits: see take_any(). Returns ids in the order
-- of delivery. Raises MQ003 outside READ COMMITTED. Locks the groups that it takes, to the end of the transaction;
-- never waits.
create or replace function spanmq_core.take_groups(this_queue int, quantity int, mode text, policy spanmq_core.policy,
                                                   at_ timestamptz, waits boolean)
returns bigint[]
language plpgsql as $$
declare
    bound spanmq_core.bound := spanmq_core.bound_of(this_queue);
    ungrouped spanmq_core.bound := bound;   -- the same for messages without a group: none is before it
    n_looked int := 32 + 2 * least(quantity, 1000);
    is_fair boolean := mode in ('fair', 'free');
    phase text;
    oldest record;
    hash bigint;
    share int;
    -- The messages of a group in the first round.
    most int := least(case mode when 'fair' then (quantity::bigint + 3) / 4 when 'free' then (quantity::bigint + 3) / 4
                      when 'fill' then quantity else 1 end, policy.max_in_flight_per_group);
    missing int := quantity;
    left_for_oldest int := quantity;
    tried bigint[] := '{}';
    full_hashes bigint[] := '{}';      -- the groups that gave all that they were asked for
    took bigint[];
    ids bigint[] := '{}';
    turn bigint := spanmq_core.get_turn(this_queue);
    is_odd boolean := turn & 1 = 1;
    begun_at bigint := turn | 31;
    steps int := 0;
    n_groups int := 0;                 -- whose locks it has: at most 500
    there_is_more boolean;
    has_wrapped boolean := false;
    is_ungrouped boolean;
    alone boolean := case when waits is not null then false end;
    has record;
begin
    perform spanmq_core.check_isolation('a grouped read',
                                        'It needs a snapshot that was taken after the lock of the group.')
        where not spanmq_core.sees_now();
    oldest := spanmq_core.oldest_groups(this_queue, mode, bound, at_, n_looked);
    if oldest.n = 0 or not spanmq_core.has_group_locks(this_queue) then
        return ids;
    end if;
    there_is_more := oldest.has_more or is_fair and oldest.n > quantity;
    if is_fair and there_is_more then
        -- For claims of one message, every second one takes groups by turn.
        left_for_oldest := case when quantity = 1 then is_odd::int when mode = 'free' and not is_odd then quantity
            else quantity / 2 end;
    end if;
    foreach phase in array case when is_fair then '{oldest, turn, oldest, ungrouped}'
        else '{oldest, more, more, more, turn, ungrouped}' end::text[] loop
        if phase = 'more' then
            continue when not oldest.has_more or n_looked = 5000;
            n_looked := least(n_looked * 8, 5000);
            oldest := spanmq_core.oldest_groups(this_queue, mode, bound, at_, n_looked);
        elsif phase = 'ungrouped' then
            continue when not there_is_more or ids <> '{}' or 0 = any (tried);
            ungrouped.from_id := spanmq_core.find_ungrouped(this_queue, bound, at_, true);
            continue when ungrouped.from_id is null;
            oldest.hashes := array[null::bigint];
        end if;
        if phase <> 'turn' then
            foreach hash in array oldest.hashes loop
                exit when missing = 0 or left_for_oldest = 0 or n_groups = 500;
                continue when coalesce(hash, 0) = any (tried);
                tried := tried || coalesce(hash, 0);
                share := least(most, missing, left_for_oldest);
                took := spanmq_core.take_group(this_queue, hash, 0::bigint, share, mode,
                                               case when hash is null then ungrouped else bound end, at_, policy, 0,
                                               alone);
                continue when took = '{}';
                n_groups := n_groups + 1;
                left_for_oldest := left_for_oldest - cardinality(took);
                missing := missing - cardinality(took);
                ids := ids || took;
                if cardinality(took) = share then
                    full_hashes := full_hashes || hash;
                end if;
            end loop;
            left_for_oldest := missing;
        else
            -- By turn: on round the ring, as far as 500 groups, or 5,000 if none gives anything. Messages without a
            -- group come at its end, unless they are among the oldest.
            turn := begun_at;
            while missing > 0 and there_is_more and n_groups < 500
                and (steps < 500 or ids = '{}' and steps < 5000) loop
                steps := steps + 1;
                hash := spanmq_core.next_group(this_queue, turn);
                is_ungrouped := false;
                if hash is null and not has_wrapped and 0 <> all (tried)
                    and array_position(oldest.hashes, null::bigint) is null then
                    ungrouped.from_id := spanmq_core.find_ungrouped(this_queue, bound, at_, false);
                    is_ungrouped := ungrouped.from_id is not null;
                end if;
                if hash is null and not has_wrapped and not is_ungrouped then
                    has_wrapped := true;
                    hash := spanmq_core.next_group(this_queue, null);
                end if;
                exit when hash is null and not is_ungrouped or has_wrapped and hash > begun_at;
                turn := coalesce(hash, turn);
                continue when coalesce(hash, 0) = any (tried);
                tried := tried || coalesce(hash, 0);
                share := least(most, missing);
                took := spanmq_core.take_group(this_queue, hash, 0::bigint, share, mode,
                                               case when hash is null then ungrouped else bound end, at_, policy, 0,
                                               alone);
                continue when took = '{}';
                n_groups := n_groups + 1;
                missing := missing - cardinality(took);
                ids := ids || took;
                if cardinality(took) = share then
                    full_hashes := full_hashes || hash;
                end if;
            end loop;
        end if;
        exit when missing = 0;
    end loop;
    if there_is_more then
        perform spanmq_core.set_turn(this_queue, turn, not is_odd);
    end if;
    -- There may be more messages behind those of a group: in equal parts, until all groups have returned theirs.
    while missing > 0 and (is_fair or mode = 'rr') and full_hashes <> '{}' loop
        tried := full_hashes;
        full_hashes := '{}';
        most := greatest(missing / cardinality(tried), 1);
        foreach hash in array tried loop
            exit when missing = 0;
            -- The messages that this claim has of the group are not in flight yet.
            select count(*) as n, max(u.msg_id) as last_id into has from spanmq_core.unsettled u
                where u.queue_id = this_queue and u.msg_id = any (ids) and u.group_hash is not distinct from hash;
            share := least(most, missing);
            took := spanmq_core.take_group(this_queue, hash, has.last_id, share, mode,
                                           case when hash is null then ungrouped else bound end, at_, policy,
                                           has.n::int, alone);
            missing := missing - cardinality(took);
            ids := ids || took;
            if cardinality(took) = share then
                full_hashes := full_hashes || hash;
            end if;
        end loop;
    end loop;
    -- Of each group in turn, or the messages of a group from several rounds together.
    return array(
        select m.msg_id
        from (select u.msg_id, w.place,
                     case when mode = 'rr' then row_number() over (partition by u.group_hash order by u.msg_id) end
                         as layer,
                     min(case when mode = 'rr' then w.place else u.msg_id end) over (partition by u.group_hash)
                         as group_place
              from spanmq_core.unsettled u
              join unnest(ids) with ordinality w (id, place) on w.id = u.msg_id
              where u.queue_id = this_queue and u.msg_id = any (ids)) m
        order by m.layer, m.group_place, m.msg_id);
end $$;

-- The groups of the first n_rows visible messages, the oldest first, without blocked ones (but for mode `free`); the
-- number of these messages; whether there may be more.
create or replace function spanmq_core.oldest_groups(
    this_queue int, mode text, bound spanmq_core.bound, at_ timestamptz, n_rows int, out hashes bigint[], out n bigint,
    out has_more boolean
) language plpgsql as $$
begin
    select coalesce(array_agg(g.group_hash order by g.msg_id)
                    filter (where mode = 'free' or not exists (
                        select from spanmq_core.later h
                        where h.queue_id + 0 = this_queue and h.group_hash = g.group_hash and h.group_hash is not null
                        and h.vt > at_ and (h.lease_id <> 0 or h.attempts > 0))), '{}'),
           coalesce(sum(g.n), 0), coalesce(sum(g.n), 0) >= oldest_groups.n_rows
        into hashes, n, has_more
        from (select s.group_hash, min(s.msg_id) as msg_id, count(*) as n
              from ((select f.group_hash, f.msg_id from spanmq_core.state f
                     where f.queue_id = this_queue and f.msg_id >= bound.from_id and f.vt <= at_
                     order by f.queue_id, f.msg_id limit oldest_groups.n_rows)
                    union all
                    (select h.group_hash, h.msg_id from spanmq_core.later h
                     where h.queue_id + 0 = this_queue and h.vt >= bound.due_from and h.vt <= at_
                     order by h.queue_id + 0, h.vt, h.msg_id + 0 limit oldest_groups.n_rows)) s
              group by s.group_hash) g;
end $$;

-- The group with the next greater hash (after null: with the least); null after the last.
create or replace function spanmq_core.next_group(this_queue int, after bigint) returns bigint
language plpgsql as $$
begin
    if after = 9223372036854775807 then
        return null;
    end if;
    after := coalesce(after + 1, -9223372036854775808);
    return least(
        (select f.group_hash from spanmq_core.state f
         where f.queue_id + 0 = this_queue and f.group_hash >= after and f.group_hash is not null
         order by f.queue_id + 0, f.group_hash, f.msg_id limit 1),
        (select h.group_hash from spanmq_core.later h
         where h.queue_id + 0 = this_queue and h.group_hash >= after and h.group_hash is not null
         order by h.queue_id + 0, h.group_hash, h.vt limit 1));
end $$;

-- From which id on there are visible messages without a group; null if none was found. No index has these: a call looks
-- at the next 500 of state, if it is to be thorough 20,000, from where the last one of this session found some or
-- ended, and round. A round ends at the message that was the last when it began, so one that was committed late, behind
-- others, has its turn. Of later it looks at the 500 that became visible first, or at all.
create or replace function spanmq_core.find_ungrouped(
    this_queue int, bound spanmq_core.bound, at_ timestamptz, is_thorough boolean
) returns bigint
language plpgsql as $$
declare
    setting text := 'spanmq.ungrouped_' || this_queue;
    kept text := current_setting(setting, true);
    n_rows int := case when is_thorough then 20000 else 500 end;
    begin_id bigint := 0;
    round_to bigint := -1;
    next_id bigint;
    looked record;
begin
    if kept ~ '^[0-9]{1,18} [0-9]{1,18}$' then
        begin_id := split_part(kept, ' ', 1);
        round_to := split_part(kept, ' ', 2);
    end if;
    if begin_id > round_to then
        begin_id := 0;
        round_to := coalesce(
            (select f.msg_id from spanmq_core.state f where f.queue_id = this_queue
             order by f.queue_id desc, f.msg_id desc limit 1), 0);
    end if;
    select min(f.msg_id) filter (where f.group_hash is null) as found_id, max(f.msg_id) as last_id, count(*) as n
        into looked
        from (select * from spanmq_core.state f
              where f.queue_id = this_queue and f.msg_id >= greatest(begin_id, bound.from_id)
                and f.vt <= at_
              order by f.queue_id, f.msg_id limit n_rows) f;
    next_id := coalesce(looked.found_id, case when looked.n = n_rows then looked.last_id else round_to end + 1);
    perform set_config(setting, format('%s %s', next_id, round_to), false);
    if looked.found_id is not null or exists (
        select from (select h.group_hash from spanmq_core.later h
                     where h.queue_id + 0 = this_queue and h.vt >= bound.due_from and h.vt <= at_
                     order by h.queue_id + 0, h.vt, h.msg_id + 0 limit case when not is_thorough then n_rows end) h
        where h.group_hash is null) then
        return next_id;
    elsif looked.n < n_rows and begin_id > 0 then
        -- The round has ended: the next one begins.
        return spanmq_core.find_ungrouped(this_queue, bound, at_, is_thorough);
    end if;
    return null;
end $$;

-- Takes the first `want` messages of a group (hash null: of none) behind `after_id` that may be delivered, but no more
-- than its limits allow beside the n_taken that this claim has, unless the group is blocked or another session is at
-- it: then '{}'. alone: false for those before the first message that must be delivered alone, true for that one if it
-- is the first, null for all. Locks the group to the end of the transaction.
create or replace function spanmq_core.take_group(
    this_queue int, hash bigint, after_id bigint, want int, mode text, bound spanmq_core.bound, at_ timestamptz,
    policy spanmq_core.policy, n_taken int, alone boolean
) returns bigint[]
language plpgsql as $$
declare
    most_in_flight int := policy.max_in_flight_per_group - n_taken;
    hidden record;
    ids bigint[];
    first_alone bigint;            -- the first of them that must be delivered alone
    stop_at bigint := 9223372036854775807;
    took bigint[];
begin
    -- A first look without the lock, which is held to the commit.
    if policy.rate_limit_per_group is not null and spanmq_core.tokens_of(policy, hash) <= n_taken
       or (spanmq_core.hidden_of(this_queue, hash, at_, mode, most_in_flight)).is_blocked then
        return '{}';
    end if;
    -- Groups may share a row.
    perform from spanmq_core.group_lock l
        where l.queue_id = this_queue and l.slot = spanmq_core.slot_of(this_queue, hash) for update skip locked;
    if not found then
        return '{}';
    end if;
    -- New statements, begun under the lock: what others had taken of the group is seen now.
    hidden := spanmq_core.hidden_of(this_queue, hash, at_, mode, most_in_flight);
    if hidden.is_blocked then
        return '{}';
    end if;
    want := least(want, most_in_flight);
    if policy.rate_limit_per_group is not null then
        want := greatest(least(want, spanmq_core.tokens_of(policy, hash) - n_taken), 0);
    end if;
    if mode = 'free' then
        want := greatest(least(want, most_in_flight - hidden.in_flight), 0);
    end if;
    select array_agg(c.msg_id order by c.msg_id), min(c.msg_id) filter (where c.alone > 0) into ids, first_alone
        from (select u.* from (
                  select h.msg_id, h.alone from spanmq_core.later h
                  where h.queue_id + 0 = this_queue and h.group_hash = hash and h.group_hash is not null
                  and h.vt >= bound.due_from and h.vt <= at_ and h.msg_id > after_id
                  union all
                  select h.msg_id, h.alone from spanmq_core.later h
                  where hash is null and h.queue_id + 0 = this_queue and h.group_hash is null
                  and h.vt >= bound.due_from and h.vt <= at_ and h.msg_id > after_id
                  union all
                  (select f.msg_id, 0 from spanmq_core.state f
                   where f.queue_id + 0 = this_queue and f.group_hash = hash and f.group_hash is not null
                   and f.msg_id >= greatest(bound.from_id, after_id + 1) and f.vt <= at_
                   order by f.queue_id + 0, f.group_hash, f.msg_id limit want)
                  union all
                  (select f.msg_id, 0
                   from (select * from spanmq_core.state f where hash is null and f.queue_id = this_queue
                         and f.msg_id >= greatest(bound.from_id, after_id + 1) and f.vt <= at_
                         order by f.queue_id, f.msg_id limit 5000) f
                   where f.group_hash is null order by f.queue_id, f.msg_id limit want)) u
              where mode <> 'free' or take_group.alone is null or (u.alone > 0) = take_group.alone
              order by u.msg_id limit want) c;
    if ids is null or take_group.alone and first_alone is null then
        return '{}';
    end if;
    if mode <> 'free' then
        -- In statements begun after the one that found what is visible: what was hidden meanwhile, such as an expired
        -- lease that was extended, or became a dead letter, blocks the group.
        hidden := spanmq_core.hidden_of(this_queue, hash, at_, mode, most_in_flight);
        if hidden.is_blocked then
            return '{}';
        end if;
        stop_at := least(stop_at, hidden.delayed_id, case when not take_group.alone then first_alone end);
    end if;
    ids := array(select id from unnest(ids) id where id < stop_at order by id);
    took := spanmq_core.lock_visible(this_queue, ids, at_);
    -- Where another session holds a message, nothing behind it is delivered: but where groups have no order.
    if mode <> 'free' and cardinality(took) < cardinality(ids) then
        stop_at := (select min(id) from unnest(spanmq_core.without(ids, took)) id);
        took := array(select id from unnest(took) id where id < stop_at order by id);
    end if;
    return took;
end $$;

-- Whether the rows that claims of groups lock exist (group_lock). Makes them, unless another open transaction has done
-- so: then false. Never waits. The claim that makes them also moves the hidden messages that claims of groups would not
-- find in state, where set_vt() has left them until now: see front_end().
create or replace function spanmq_core.has_group_locks(this_queue int) returns boolean
language plpgsql as $$
begin
    if exists (select from spanmq_core.group_lock l where l.queue_id = this_queue and l.slot = 0) then
        return true;
    elsif not spanmq_core.try_lock(this_queue, 'groups') then
        -- They may have been committed since the first look.
        return exists (select from spanmq_core.group_lock l where l.queue_id = this_queue and l.slot = 0);
    end if;
    -- A statement of its own before the move: what is hidden from now on, in any transaction, goes to later.
    delete from spanmq_core.lock l where l.queue_id = this_queue and l.what = 'groups';
    insert into spanmq_core.group_lock (queue_id, slot)
        select this_queue, s from generate_series(0, 4095) s on conflict do nothing;
    -- set_policy() has moved those of an ordered or limited queue.
    perform spanmq_core.move_hidden(q.queue_id, spanmq_core.front_end(q.queue_id, q.is_plain), 9223372036854775807)
        from spanmq_core.queue q where q.queue_id = this_queue and q.has_plain_policy;
    return true;
end $$;

-- Of 0.1.0, which left this row there.
delete from spanmq_core.lock l
    where l.what = 'groups'
      and exists (select from spanmq_core.group_lock g where g.queue_id = l.queue_id and g.slot = 0);

create or replace function spanmq_core.slot_of(this_queue int, hash bigint) returns int
language sql immutable as $$ select (hashint8extended(coalesce(hash, 0), this_queue) & 4095)::int $$;

-- Locks those rows of these groups that no other transaction holds, to the end of the transaction, and returns their
-- slots; null for none. Never waits.
create or replace function spanmq_core.lock_slots(this_queue int, hashes bigint[]) returns int[]
language plpgsql as $$
declare
    slots int[];
begin
    with locked as materialized (
        select l.slot from spanmq_core.group_lock l
        where l.queue_id = this_queue
          and l.slot = any (array(select spanmq_core.slot_of(this_queue, h) from unnest(hashes) h))
        for update skip locked)
    select array_agg(l.slot) into slots from locked l;
    return slots;
end $$;

-- The hidden messages of a group: whether they block an ordered one, the number of leased messages, and the first
-- delayed one. With a mode (take_groups), whether the group gives nothing now, because of these messages or of a dead
-- letter. In state hidden messages are among the first of their group: a plain read leases the lowest ids. There it
-- looks at 1,000 messages, and at 100 of a queue whose claims lease nothing in place: one may have been under way as
-- the policy changed.
create or replace function spanmq_core.hidden_of(
    this_queue int, hash bigint, at_ timestamptz, mode text default null, most_in_flight int default null,
    out blocks boolean, out in_flight bigint, out delayed_id bigint, out is_blocked boolean
)
language plpgsql as $$
declare
    most int := (select case when q.is_plain then 1000 else 100 end from spanmq_core.queue q
                 where q.queue_id = this_queue);
begin
    if hash is null then
        select coalesce(bool_or(h.lease_id <> 0 or h.attempts > 0), false),
               count(*) filter (where h.lease_id <> 0),
               min(h.msg_id) filter (where h.lease_id = 0 and h.attempts = 0)
            into blocks, in_flight, delayed_id
            from (select h.msg_id, h.lease_id, h.attempts from spanmq_core.later h
                  where h.queue_id + 0 = this_queue and h.group_hash is null and h.vt > at_
                  union all
                  select f.msg_id, f.lease_id, f.attempts
                  from (select * from spanmq_core.state s
                        where s.queue_id = this_queue and s.msg_id >= (spanmq_core.bound_of(this_queue)).from_id
                        order by s.queue_id, s.msg_id limit most) f
                  where f.group_hash is null and f.vt > at_) h;
    else
        select coalesce(bool_or(h.lease_id <> 0 or h.attempts > 0), false),
               count(*) filter (where h.lease_id <> 0),
               min(h.msg_id) filter (where h.lease_id = 0 and h.attempts = 0)
            into blocks, in_flight, delayed_id
            from (select h.msg_id, h.lease_id, h.attempts from spanmq_core.later h
                  where h.queue_id + 0 = this_queue and h.group_hash = hash and h.group_hash is not null
                    and h.vt > at_
                  union all
                  select f.msg_id, f.lease_id, f.attempts
                  from (select * from spanmq_core.state s
                        where s.queue_id + 0 = this_queue and s.group_hash = hash and s.group_hash is not null
                          and s.msg_id >= (spanmq_core.bound_of(this_queue)).from_id
                        order by s.queue_id + 0, s.group_hash, s.msg_id limit most) f
                  where f.vt > at_) h;
    end if;
    if mode = 'free' and in_flight >= most_in_flight or mode <> 'free' and blocks then
        is_blocked := true;
    elsif mode is not null then
        -- The row may be of one that buried while the policy was taken back.
        is_blocked := exists (
            select from spanmq_core.blocked_group b join spanmq_core.policy p on p.queue_id = b.queue_id
            where b.queue_id = this_queue and b.group_hash = hash and p.dead_letter_blocks_group);
    end if;
end $$;
