-- Rate limits of groups. A bucket fills at rate_limit_per_group tokens a second up to rate_burst_per_group; a message
-- draws one, or what rate_cost says. It is kept as one number, the time at which it would be full, in a row that a
-- claim makes and changes under the lock of the group (group_lock), and that maintain() deletes when the bucket is
-- full. What a claim has drawn is there again if its transaction rolls back.

create or replace function spanmq_core.now_ns() returns bigint
language sql volatile as $$ select (date_part('epoch', clock_timestamp() - '2020-01-01 00:00:00+00') * 1e9)::bigint $$;

-- When a bucket will be full, never before now. A time too far ahead comes from a clock that was set back, or from a
-- slower rate; or, where messages have costs, it is a debt. In SQL, as the next one, so that they are parts of the
-- statement.
create or replace function spanmq_core.filled(policy spanmq_core.policy, full_ns bigint, at_ns bigint, room bigint)
returns bigint
language sql immutable as $$
    select case when policy.rate_cost is null then least(greatest(full_ns, at_ns), at_ns + room)
           else greatest(full_ns, at_ns) end
$$;

-- Its tokens. A message may be taken as long as there is one.
create or replace function spanmq_core.tokens_at(policy spanmq_core.policy, full_ns bigint, at_ns bigint, room bigint)
returns int
language sql immutable as $$
    select least(greatest((at_ns + room - spanmq_core.filled(policy, full_ns, at_ns, room))
                          / spanmq_core.token_ns(policy.rate_limit_per_group), 0), 2147483647)::int
$$;

-- The tokens of the bucket of a group (null: messages without one); 0 if a receiver has closed it.
create or replace function spanmq_core.tokens_of(policy spanmq_core.policy, hash bigint) returns int
language plpgsql as $$
begin
    return case when spanmq_core.closed_until(policy.queue_id, coalesce(hash, 0)) is null then
        spanmq_core.tokens_at(
            policy, (select b.full_ns from spanmq_core.bucket b
                     where b.queue_id = policy.queue_id and b.group_hash = coalesce(hash, 0)),
            spanmq_core.now_ns(), spanmq_core.bucket_ns(policy.rate_limit_per_group, policy.rate_burst_per_group))
        else 0 end;
end $$;

-- Until when a receiver has closed a group; null if none has.
create or replace function spanmq_core.closed_until(this_queue int, hash bigint) returns timestamptz
language plpgsql as $$
declare
    now_at timestamptz := clock_timestamp();
begin
    return (select c.until from spanmq_core.closed_group c
            where c.queue_id = this_queue and c.group_hash = hash and c.until > now_at
            order by c.queue_id desc, c.group_hash desc, c.until desc limit 1);
end $$;

-- When the bucket of a group has its next token; null: it has one.
create or replace function spanmq_core.opens_at(policy spanmq_core.policy, hash bigint) returns timestamptz
language plpgsql as $$
declare
    at_ns bigint := spanmq_core.now_ns();
    room bigint := spanmq_core.bucket_ns(policy.rate_limit_per_group, policy.rate_burst_per_group);
    token_ns bigint := spanmq_core.filled(
        policy, (select b.full_ns from spanmq_core.bucket b
                 where b.queue_id = policy.queue_id and b.group_hash = coalesce(hash, 0)), at_ns, room)
        - room + spanmq_core.token_ns(policy.rate_limit_per_group);
begin
    return greatest(spanmq_core.closed_until(policy.queue_id, coalesce(hash, 0)), case when token_ns > at_ns
                    then timestamptz '2020-01-01 00:00:00+00' + least(token_ns / 1e9, 1e11) * interval '1 second' end);
end $$;

-- Seconds until the bucket of a group of the queue has its next token, of those that have none; null: all have one. Not
-- less than 20 ms, lest one who waits look for each of many groups.
create or replace function spanmq_core.until_open(policy spanmq_core.policy) returns double precision
language plpgsql as $$
declare
    at_ns bigint := spanmq_core.now_ns();
    now_at timestamptz := clock_timestamp();
    -- A bucket has its first token this long before it is full.
    lead bigint := spanmq_core.bucket_ns(policy.rate_limit_per_group, policy.rate_burst_per_group)
                   - spanmq_core.token_ns(policy.rate_limit_per_group);
    next_in double precision;
begin
    next_in := least(
        ((select b.full_ns from spanmq_core.bucket b
          where b.queue_id + 0 = policy.queue_id and b.full_ns > at_ns + lead
          order by b.queue_id + 0, b.full_ns limit 1) - at_ns - lead) / 1e9,
        extract(epoch from (select c.until from spanmq_core.closed_group c
                            where c.queue_id + 0 = policy.queue_id and c.until > now_at
                            order by c.queue_id + 0, c.until limit 1) - now_at));
    return case when next_in is not null then greatest(next_in, 0.02) end;
end $$;

-- Closes the rate buckets of these messages for at least `seconds`, for all receivers. Call it if another service has
-- asked a handler to come again later. With rate_limit_per_group in the policy, it closes the buckets of the messages'
-- groups; otherwise, with rate_limit, the bucket of the queue. Returns one row for each distinct id, ascending:
-- closed, stale if the lease does not hold the message, or unlimited if there is no such limit. Raises MQ002 for a
-- lease that is none, and for negative seconds.
create or replace function spanmq_call.close_bucket(
    queue text, lease_id bigint, msg_ids bigint[], seconds double precision
) returns table (msg_id bigint, outcome text)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
#variable_conflict use_column
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    closed_until timestamptz := spanmq_core.after(seconds, 'seconds');
    policy spanmq_core.policy := spanmq_core.policy_of(this.queue_id);
    ids bigint[];
begin
    perform spanmq_core.check_lease(lease_id, msg_ids);
    perform spanmq_core.raise_if(seconds < 0, format('seconds cannot be negative, got: %s', seconds),
                                 'Pass the time after which the next message may be handled.');
    ids := array(select u.msg_id from spanmq_core.unsettled u
                 where u.queue_id = this.queue_id and u.msg_id = any (msg_ids) and u.lease_id = close_bucket.lease_id);
    if policy.rate_limit_per_group is not null then
        insert into spanmq_core.closed_group (queue_id, group_hash, until)
            select distinct this.queue_id, coalesce(u.group_hash, 0), closed_until from spanmq_core.unsettled u
            where u.queue_id = this.queue_id and u.msg_id = any (ids);
    elsif policy.rate_limit is not null and ids <> '{}' then
        perform spanmq_core.close_rate(this.queue_id, closed_until);
    end if;
    return query select * from spanmq_core.outcomes(msg_ids, ids, '{}'::bigint[], case
        when policy.rate_limit_per_group is null and policy.rate_limit is null then 'unlimited' else 'closed' end);
end $$;

-- For maintain(): deletes what says nothing any more, up to 1,000 full buckets and ends of closed ones. Under the locks
-- of the groups, so that no claim waits for a row.
create or replace function spanmq_core.forget_buckets(this_queue int) returns void
language plpgsql as $$
declare
    -- In variables: a function of the clock would be no condition of an index.
    at_ns bigint := spanmq_core.now_ns();
    now_at timestamptz := clock_timestamp();
    hashes bigint[] := array(
        select b.group_hash from spanmq_core.bucket b
        where b.queue_id + 0 = this_queue and b.full_ns <= at_ns
        order by b.queue_id + 0, b.full_ns limit 1000);
    slots int[];
begin
    delete from spanmq_core.closed_group c where c.ctid = any (array(
        select o.ctid from spanmq_core.closed_group o
        where o.queue_id + 0 = this_queue and o.until <= now_at
        order by o.queue_id + 0, o.until limit 1000 for update skip locked));
    if hashes = '{}' then
        return;
    end if;
    slots := spanmq_core.lock_slots(this_queue, hashes);
    delete from spanmq_core.bucket b
        where b.queue_id = this_queue and b.group_hash = any (hashes) and b.full_ns <= at_ns
          and spanmq_core.slot_of(this_queue, b.group_hash) = any (slots);
end $$;

-- What these messages, which the caller has locked, draw, in their order.
create or replace function spanmq_core.costs_of(policy spanmq_core.policy, ids bigint[])
returns table (msg_id bigint, hash bigint, place bigint, cost double precision)
language plpgsql rows 10 as $$
begin
    if policy.rate_cost is null then
        return query
            select u.msg_id, u.group_hash, 0::bigint, 1::double precision from spanmq_core.unsettled u
            where u.queue_id = policy.queue_id and u.msg_id = any (ids);
        return;
    end if;
    return query execute format(
        'select u.msg_id, u.group_hash, w.place, spanmq_core.cost_of($3, l.message, l.headers)'
        ' from spanmq_core.unsettled u join unnest($2) with ordinality w (id, place) on w.id = u.msg_id'
        ' left join lateral (select * from spanmq_core.%I l where l.msg_id = u.msg_id offset 0) l on true'
        ' where u.queue_id = $1 and u.msg_id = any ($2)',
        (select spanmq_core.log_of(policy.queue_id, min(id), max(id)) from unnest(ids) id))
        using policy.queue_id, ids, policy.rate_cost;
end $$;

create or replace function spanmq_core.cost_of(place text, message jsonb, headers jsonb) returns double precision
language sql immutable as $$
    select case when jsonb_typeof(v.value) = 'number' then least(greatest(v.value::numeric, 0), 1e9) else 1
           end::double precision
    from spanmq_core.value_at(place, message, headers) v (value)
$$;

-- The value at a place of a message: "header:NAME" or "$.path".
create or replace function spanmq_core.value_at(place text, message jsonb, headers jsonb) returns jsonb
language sql immutable as $$
    select case when place like 'header:%' then headers->substr(place, 8)
           else message#>string_to_array(substr(place, 3), '.') end
$$;

-- Those of these messages, in their order, that the buckets of their groups allow, where messages have costs.
create or replace function spanmq_core.within_tokens(policy spanmq_core.policy, ids bigint[]) returns bigint[]
language plpgsql as $$
begin
    return array(
        select c.msg_id
        from (select o.*, sum(o.cost) over (partition by o.hash order by o.place) - o.cost as before
              from spanmq_core.costs_of(policy, ids) o) c
        where c.before < spanmq_core.tokens_of(policy, c.hash) order by c.place);
end $$;

-- Draws what these messages cost. The caller has locked their groups.
create or replace function spanmq_core.draw_tokens(policy spanmq_core.policy, ids bigint[]) returns void
language plpgsql as $$
declare
    token bigint := spanmq_core.token_ns(policy.rate_limit_per_group);
    room bigint := spanmq_core.bucket_ns(policy.rate_limit_per_group, policy.rate_burst_per_group);
    at_ns bigint := spanmq_core.now_ns();
begin
    insert into spanmq_core.bucket (queue_id, group_hash, full_ns)
        select policy.queue_id, d.hash,
               least(spanmq_core.filled(policy, b.full_ns, at_ns, room) + d.cost * token, 9e18)::bigint
        from (select coalesce(o.hash, 0) as hash, sum(o.cost) as cost from spanmq_core.costs_of(policy, ids) o
              group by o.hash) d
        left join spanmq_core.bucket b on b.queue_id = policy.queue_id and b.group_hash = d.hash
        on conflict on constraint bucket_pkey do update set full_ns = excluded.full_ns;
end $$;
