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
--   free  as fair by every second claim, else the oldest; groups have no order and don't block
-- The policy's max_in_flight_per_group and rate_limit_per_group hold for a group in every mode.
-- PGMQ's modes (fill, rr, head) look at the groups of the oldest messages, then of more and more, up to 5,000 messages.
-- Fair claims look at a few of them only. If these do not suffice, a claim continues around the ring of all groups,
-- from where this session ended the last time. So neither a long backlog nor any number of blocked groups hides a free
-- group indefinitely, nor messages without a group (find_ungrouped). waits: see take_any(). Returns ids in the order
-- of delivery; late: see take_first(). Raises MQ003 outside READ COMMITTED. Locks the groups that it takes, to the end
-- of the transaction; never waits.
create or replace function spanmq_core.take_groups(this_queue int, quantity int, mode text, policy spanmq_core.policy,
                                                   at_ timestamptz, waits boolean, out ids bigint[], out late bigint[])
language plpgsql as $$
declare
    bound spanmq_core.bound := spanmq_core.bound_of(this_queue);
    ungrouped_from bigint := bound.from_id;    -- no visible message without a group is before it
    is_fair boolean := mode in ('fair', 'free');
    -- In order nothing is taken behind a hidden message, so a look stops at it; else it looks past it.
    to_at timestamptz := case when mode = 'free' then at_ else 'infinity' end;
    alone boolean := case when waits is not null then false end;
    most int := case when is_fair then (quantity::bigint + 3) / 4 when mode = 'fill' then quantity else 1 end;
    n_rows int := 32 + 2 * least(quantity, 1000);
    n_places int := least(quantity, 1000) / 32;
    most_places int;
    place bigint := spanmq_core.get_turn(this_queue);      -- on the ring
    is_odd boolean := place & 1 = 1;
    begun_at bigint := place | 31;
    room int := quantity;              -- for this phase
    there_is_more boolean;
    oldest record;
    phase text;
    hashes bigint[];
    tried bigint[] := '{}';
    took record;
    ids_hashes bigint[] := '{}';       -- of the groups of the ids
    n_locked int := 0;                 -- groups whose locks it has: at most 500
begin
    ids := '{}';
    late := '{}';
    perform spanmq_core.check_isolation('a grouped read',
                                        'It needs a snapshot that was taken after the lock of the group.')
        where not spanmq_core.sees_now();
    oldest := spanmq_core.oldest_groups(this_queue, mode, bound, at_, n_rows);
    if oldest.n = 0 or not spanmq_core.has_group_locks(this_queue) then
        return;
    end if;
    there_is_more := oldest.has_more or is_fair and oldest.n > quantity;
    if is_fair and there_is_more then
        -- For claims of one message, every second one takes groups by turn.
        room := case when quantity = 1 then is_odd::int when mode = 'free' and not is_odd then quantity
            else quantity / 2 end;
    end if;
    foreach phase in array
        '{oldest, more, more, more, turn, turn, turn, turn, turn, turn, turn, oldest, ungrouped}'::text[]
    loop
        hashes := oldest.hashes;
        if phase = 'more' then
            continue when is_fair or not oldest.has_more or n_rows = 5000;
            n_rows := least(n_rows * 8, 5000);
            oldest := spanmq_core.oldest_groups(this_queue, mode, bound, at_, n_rows);
            hashes := oldest.hashes;
        elsif phase = 'turn' then
            -- On round the ring, farther at each turn, as far as 500 groups, or 5,000 if none gives anything. Messages
            -- without a group come at its end, unless they are among the oldest.
            most_places := case when ids = '{}' then 5000 else 500 end;
            continue when not there_is_more or n_places >= most_places;
            n_places := least(greatest(n_places * 4, 1), most_places);
            hashes := array(select r.hash from spanmq_core.next_groups(this_queue, begun_at, n_places) r (hash));
            if cardinality(hashes) < n_places then
                -- That was all.
                n_places := 5000;
            end if;
            if array_position(hashes, null) is not null then
                -- One look of a claim: it reads 500 messages.
                if ungrouped_from is not null and array_position(oldest.hashes || tried, null) is null then
                    ungrouped_from := spanmq_core.find_ungrouped(this_queue, bound, at_, to_at, false);
                end if;
                if array_position(oldest.hashes || tried, null) is not null or ungrouped_from is null then
                    hashes := array_remove(hashes, null);
                end if;
            end if;
        elsif phase = 'ungrouped' then
            continue when not there_is_more or ids <> '{}' or array_position(tried, null) is not null;
            ungrouped_from := spanmq_core.find_ungrouped(this_queue, bound, at_, to_at, true);
            continue when ungrouped_from is null;
            hashes := array[null::bigint];
        end if;
        if tried <> '{}' then
            hashes := array(select h from unnest(hashes) h
                            where coalesce(h, 0) not in (select coalesce(t, 0) from unnest(tried) t));
        end if;
        -- Again, with further groups, where others have locked those that were chosen.
        while hashes <> '{}' and room > 0 and n_locked < 500 loop
            took := spanmq_core.take_first(this_queue, hashes[:500 - n_locked], most, room, ids, mode, bound,
                                           ungrouped_from, at_, policy, alone);
            room := room - cardinality(took.ids);
            n_locked := n_locked + took.n_locked;
            ids := ids || took.ids;
            ids_hashes := ids_hashes || took.hashes;
            late := late || took.late;
            -- The last one may have more, if there was no more room.
            tried := tried || hashes[:took.n_looked - (room = 0)::int];
            if phase = 'turn' then
                place := coalesce(hashes[took.n_looked], place);
            end if;
            hashes := hashes[took.n_looked + 1:];
        end loop;
        room := quantity - cardinality(ids);
        exit when room = 0;
    end loop;
    if there_is_more then
        perform spanmq_core.set_turn(this_queue, place, not is_odd);
    end if;
    -- There may be more messages behind those of a group: in equal parts, until all groups have returned theirs.
    while room > 0 and (is_fair or mode = 'rr') loop
        hashes := array(select w.hash from unnest(ids_hashes) with ordinality w (hash, place)
                        group by w.hash having count(*) >= most order by min(w.place));
        exit when hashes = '{}';
        most := most + greatest(room / cardinality(hashes), 1);
        took := spanmq_core.take_first(this_queue, hashes, most, room, ids, mode, bound, ungrouped_from, at_, policy,
                                       alone);
        room := room - cardinality(took.ids);
        ids := ids || took.ids;
        ids_hashes := ids_hashes || took.hashes;
        late := late || took.late;
    end loop;
    if cardinality(ids) < 2 then
        return;
    end if;
    -- Of each group in turn, or the messages of a group from several rounds together.
    ids := array(
        select m.id
        from (select w.id,
                     case when mode = 'rr' then row_number() over (partition by w.hash order by w.id) end as layer,
                     min(case when mode = 'rr' then w.place else w.id end) over (partition by w.hash) as group_place
              from unnest(ids, ids_hashes) with ordinality w (id, hash, place)) m
        order by m.layer, m.group_place, m.id);
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

-- The next n groups on the ring behind a place, at most once round. Behind the group with the greatest hash come the
-- messages without a group (null), then the group with the least. In SQL, so that it is a part of the statement, and
-- goes no farther than that needs.
create or replace function spanmq_core.next_groups(this_queue int, begun_at bigint, n int) returns setof bigint
language sql stable as $$
    with recursive ring (hash, has_wrapped) as (
        select begun_at, false
        union all
        select coalesce(f.hash, -9223372036854775808), r.has_wrapped or f.hash is null
        from ring r
        cross join lateral (
            select least(
                (select s.group_hash from spanmq_core.state s
                 where s.queue_id + 0 = this_queue and s.group_hash > r.hash and s.group_hash is not null
                 order by s.queue_id + 0, s.group_hash, s.msg_id limit 1),
                (select h.group_hash from spanmq_core.later h
                 where h.queue_id + 0 = this_queue and h.group_hash > r.hash and h.group_hash is not null
                 order by h.queue_id + 0, h.group_hash, h.vt limit 1)) as hash
            -- Otherwise it is a part of each expression, and runs several times.
            offset 0) f
        where not r.has_wrapped or f.hash <= begun_at)
    select nullif(r.hash, -9223372036854775808) from ring r offset 1 limit n
$$;

-- From which id on there are messages without a group that are visible at to_at; null if none was found. No index has
-- these: a call looks at the next 500 of state, if it is to be thorough 20,000, from where the last one of this session
-- found some or ended, and round. It does not count hidden messages of groups. A round ends at the message that was the
-- last when it began, so one that was committed late, behind others, has its turn. Of later it looks at the 500 that
-- became visible first, or at all.
create or replace function spanmq_core.find_ungrouped(
    this_queue int, bound spanmq_core.bound, at_ timestamptz, to_at timestamptz, is_thorough boolean
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
                and f.vt <= case when f.group_hash is null then to_at else at_ end
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
        return spanmq_core.find_ungrouped(this_queue, bound, at_, to_at, is_thorough);
    end if;
    return null;
end $$;

-- Takes the first messages of these groups that may be delivered: up to `quantity`, and no group more than `most`, with
-- what this claim has of it (`taken`). alone: false for those before the first message that must be delivered alone,
-- true for that one if it is the first, null for all. Returns their ids, with the hashes of their groups; how many of
-- the groups were needed, from the first on; and how many it has locked. Locks the groups from which it takes to the
-- end of the transaction; passes over those that others have locked. late: those that leases which have run out still
-- hold in these groups, for disown(); in order, it locks them, too.
create or replace function spanmq_core.take_first(
    this_queue int, groups bigint[], most int, quantity int, taken bigint[], mode text, bound spanmq_core.bound,
    ungrouped_from bigint, at_ timestamptz, policy spanmq_core.policy, alone boolean, out ids bigint[],
    out hashes bigint[], out n_looked int, out n_locked int, out late bigint[]
)
language plpgsql as $$
declare
    to_at timestamptz := case when mode = 'free' then at_ else 'infinity' end;
    slots int[];
    locked bigint[];
    has_late boolean;
begin
    n_looked := cardinality(groups);
    n_locked := 0;
    late := '{}';
    -- A first look without the locks, which are held to the commit: only groups that are needed are locked. A second
    -- one, in a new statement begun under all locks: it sees what has changed in these groups until then.
    for round in 1 .. 2 loop
        -- Where groups have an order, nothing is delivered behind a message that is hidden, that must be delivered
        -- alone, or that is not locked: another session holds it, or has committed it meanwhile. Nothing at all beside
        -- one of a lease that has run out, and that another session holds: it may extend the lease.
        select coalesce(array_agg(c.id), '{}'), coalesce(array_agg(c.hash), '{}'), bool_or(c.has_late)
            into ids, hashes, has_late
            from (select w.hash, u.id, g.has_late
                  from unnest(groups) with ordinality w (hash, place)
                  cross join lateral (
                      select array_agg(distinct r.msg_id order by r.msg_id)
                                 filter (where r.vt <= at_ and (mode <> 'free' or take_first.alone is null
                                                                or (r.alone > 0) = take_first.alone)) as visible,
                             min(r.msg_id) filter (where r.vt <= at_ and r.alone > 0) as alone_id,
                             bool_or(r.vt > at_ and (r.lease_id <> 0 or r.attempts > 0)
                                     or round = 2 and r.vt <= at_ and r.lease_id > 0
                                        and r.msg_id not in (select unnest(locked))) as blocks,
                             bool_or(r.vt <= at_ and r.lease_id > 0) as has_late,
                             count(*) filter (where r.vt > at_ and r.lease_id <> 0) as in_flight,
                             min(r.msg_id) filter (where r.vt > at_ or r.alone > 0 and not take_first.alone
                                                   or round = 2 and r.msg_id not in (select unnest(locked))) as stop_id
                      from spanmq_core.rows_of(this_queue, w.hash, most, bound.from_id, ungrouped_from,
                                               least(bound.due_from, at_), at_, to_at) r) g
                  cross join lateral unnest(g.visible[:case
                      when g.blocks and mode <> 'free' then 0
                      -- The row may be of one that buried while the policy was taken back.
                      when (select p.dead_letter_blocks_group
                            from spanmq_core.blocked_group b join spanmq_core.policy p on p.queue_id = b.queue_id
                            where b.queue_id = this_queue and b.group_hash = w.hash limit 1) then 0
                      else least(most,
                                 policy.max_in_flight_per_group - case when mode = 'free' then g.in_flight else 0 end,
                                 case when policy.rate_limit_per_group is not null
                                 then spanmq_core.tokens_of(policy, w.hash) end) end]) u (id)
                  where (mode = 'free' or g.stop_id is null or u.id < g.stop_id)
                    and (take_first.alone is not true or u.id = g.alone_id)
                    and (round = 1 or u.id in (select unnest(locked)))
                    and u.id not in (select unnest(taken))
                  order by w.place limit quantity) c;
        exit when round = 2 or ids = '{}';
        if cardinality(ids) = quantity then
            n_looked := array_position(groups, hashes[quantity]);
            groups := groups[:n_looked];
        end if;
        -- Groups may share a row.
        slots := spanmq_core.lock_slots(this_queue, hashes);
        n_locked := (select count(distinct coalesce(h, 0)) from unnest(hashes) h
                     where spanmq_core.slot_of(this_queue, h) in (select unnest(slots)));
        if has_late and mode <> 'free' then
            late := array(
                select distinct r.msg_id
                from (select distinct unnest(hashes)) w (hash)
                cross join lateral spanmq_core.rows_of(this_queue, w.hash, most, bound.from_id, ungrouped_from,
                                                       least(bound.due_from, at_), at_, to_at) r
                where r.vt <= at_ and r.lease_id > 0
                  and spanmq_core.slot_of(this_queue, w.hash) in (select unnest(slots)));
        end if;
        locked := taken || spanmq_core.lock_visible(this_queue, array(
            select w.id from unnest(ids, hashes) w (id, hash)
            where spanmq_core.slot_of(this_queue, w.hash) in (select unnest(slots))
            union select unnest(late)), at_);
    end loop;
end $$;

-- Whether the rows that claims of groups lock exist (group_lock). Makes them, unless another open transaction has done
-- so: then false. Never waits.
create or replace function spanmq_core.has_group_locks(this_queue int) returns boolean
language plpgsql as $$
begin
    if exists (select from spanmq_core.group_lock l where l.queue_id = this_queue and l.slot = 0) then
        return true;
    elsif not spanmq_core.try_lock(this_queue, 'groups') then
        -- They may have been committed since the first look.
        return exists (select from spanmq_core.group_lock l where l.queue_id = this_queue and l.slot = 0);
    end if;
    insert into spanmq_core.group_lock (queue_id, slot)
        select this_queue, s from generate_series(0, 4095) s on conflict do nothing;
    return true;
end $$;

create or replace function spanmq_core.slot_of(this_queue int, hash bigint) returns int
language sql immutable as $$ select (hashint8extended(coalesce(hash, 0), this_queue) & 4095)::int $$;

-- Locks those rows of these groups that no other transaction holds, to the end of the transaction, and returns their
-- slots; null for none. Never waits.
create or replace function spanmq_core.lock_slots(this_queue int, hashes bigint[]) returns int[]
language plpgsql as $$
begin
    return nullif(array(
        select l.slot from spanmq_core.group_lock l
        where l.queue_id = this_queue
          and l.slot = any (array(select spanmq_core.slot_of(this_queue, h) from unnest(hashes) h))
        for update skip locked), '{}');
end $$;

-- The rows of a group (hash null: of the messages without one) that claims look at: all of later; of state the first
-- `most` that are visible at to_at; and those in front that are hidden, or of a lease that has run out: a plain read
-- leases the lowest ids. It looks at 1,000 rows for these, and at 100 of a queue whose policy has order or limits: a
-- claim in place may have been under way as the policy changed. Messages without a group have no index: the first 5,000
-- from ungrouped_from on are looked at, but for hidden ones of groups. A row may come twice. In SQL, so that it is a
-- part of the statement.
create or replace function spanmq_core.rows_of(
    this_queue int, hash bigint, most int, from_id bigint, ungrouped_from bigint, due_from timestamptz, at_ timestamptz,
    to_at timestamptz
) returns table (msg_id bigint, vt timestamptz, lease_id bigint, attempts int, alone smallint)
language sql stable as $$
    select h.msg_id, h.vt, h.lease_id, h.attempts, h.alone from spanmq_core.later h
    where h.queue_id + 0 = this_queue and h.group_hash = hash and h.group_hash is not null and h.vt >= due_from
    union all
    select f.msg_id, f.vt, f.lease_id, f.attempts, f.alone
    from (select * from spanmq_core.state s
          where s.queue_id + 0 = this_queue and s.group_hash = hash and s.group_hash is not null and s.msg_id >= from_id
          order by s.queue_id + 0, s.group_hash, s.msg_id limit (
              select case when q.has_plain_policy then 1000 else 100 end from spanmq_core.queue q
              where q.queue_id = this_queue)) f
    where f.vt > at_ or f.lease_id > 0
    union all
    (select s.msg_id, s.vt, s.lease_id, s.attempts, s.alone from spanmq_core.state s
     where s.queue_id + 0 = this_queue and s.group_hash = hash and s.group_hash is not null and s.msg_id >= from_id
       and s.vt <= to_at
     order by s.queue_id + 0, s.group_hash, s.msg_id limit most)
    union all
    select u.msg_id, u.vt, u.lease_id, u.attempts, u.alone
    from (select * from spanmq_core.later h
          where h.queue_id + 0 = this_queue and h.group_hash is null and h.vt >= due_from
          union all
          select f.*
          from (select * from spanmq_core.state s
                where s.queue_id = this_queue and s.msg_id >= from_id
                order by s.queue_id, s.msg_id limit (
                    select case when q.has_plain_policy then 1000 else 100 end from spanmq_core.queue q
                    where q.queue_id = this_queue)) f
          where f.group_hash is null and (f.vt > at_ or f.lease_id > 0)
          union all
          (select f.*
           from (select * from spanmq_core.state s
                 where s.queue_id = this_queue and s.msg_id >= ungrouped_from
                   and s.vt <= case when s.group_hash is null then to_at else at_ end
                 order by s.queue_id, s.msg_id limit 5000) f
           where f.group_hash is null order by f.msg_id limit most)
          offset 0) u
    where hash is null
$$;

-- The hidden messages of a group: whether they block an ordered one, the number of leased messages, and the first
-- delayed one.
create or replace function spanmq_core.hidden_of(
    this_queue int, hash bigint, at_ timestamptz, out blocks boolean, out in_flight bigint, out delayed_id bigint
)
language plpgsql as $$
declare
    from_id bigint := (spanmq_core.bound_of(this_queue)).from_id;
begin
    select coalesce(bool_or(r.lease_id <> 0 or r.attempts > 0), false), count(*) filter (where r.lease_id <> 0),
           min(r.msg_id) filter (where r.lease_id = 0 and r.attempts = 0)
        into blocks, in_flight, delayed_id
        from spanmq_core.rows_of(this_queue, hash, 0, from_id, from_id, at_, at_, at_) r
        where r.vt > at_;
end $$;
