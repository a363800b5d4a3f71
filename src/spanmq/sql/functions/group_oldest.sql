-- twin: unlogged
-- Groups without an order, of which only so many messages may be in work (max_in_flight_per_group): the usual case in few steps.

-- Takes the oldest ready messages of groups that have room for them, of none more than a quarter of what is wanted. Gives fewer than there are, or
-- none, where more has to be looked at, which it leaves to claim_groups(): something fell due, messages have no group, a dead letter blocks one,
-- others are at the groups, or these are full. Locks the groups that it takes, to the end of the transaction; never waits.
create or replace function spanmq.claim_oldest(
    this_queue int, quantity int, lease bigint, until timestamptz, at_ timestamptz, slots int, most_in_flight int, hint spanmq.hint
) returns spanmq.run[]
language plpgsql as $$
declare
    candidate record;
    hashes bigint[] := '{}';
    wants int[] := '{}';
    room int := quantity;
    most int := least((quantity + 3) / 4, most_in_flight);
    los bigint[];
    taken int[];
begin
    for candidate in
        select s.group_hash as hash, sum(s.n) as n
        from (select s.group_hash, s.n, s.lo from spanmq.span s
              where s.queue_id = this_queue and s.state = 'r' and s.lo >= hint.ready_from
                and not exists (select from spanmq.span d
                                where d.queue_id = this_queue and d.state <> 'r' and d.vt <= at_ and d.vt >= hint.due_from)
                and not exists (select from spanmq.blocked_group b where b.queue_id = this_queue)
              order by s.queue_id, s.lo limit 32 + 2 * least(quantity, 1000)) s
        where s.group_hash is not null
        group by s.group_hash order by min(s.lo)
    loop
        -- Locks are held to commit, and their number is bounded for the whole server: only for groups that are about to be taken.
        continue when not pg_try_advisory_xact_lock(hashint8extended(candidate.hash, this_queue));
        hashes := hashes || candidate.hash;
        wants := wants || least(candidate.n, most, room)::int;
        room := room - wants[cardinality(wants)];
        exit when room = 0 or cardinality(hashes) = 500;
    end loop;
    if hashes = '{}' then
        return '{}';
    end if;
    -- A new statement, begun under the locks: what others had taken of these groups is seen now. A span of a lease counts in full, whatever left it.
    with free as materialized (
        select g.hash, least(g.want, most_in_flight - coalesce(l.n, 0))::int as want
        from unnest(hashes, wants) g (hash, want)
        cross join lateral (
            select sum(s.n) as n from spanmq.span s
            where s.queue_id + 0 = this_queue and s.group_hash = g.hash and s.group_hash is not null
              and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 1
              and s.lo + 0 >= (select q.settled_to from spanmq.queue q where q.queue_id = this_queue)
              and case when s.state = 'l' then s.vt > at_ else false end) l),
    locked as materialized (
        select f.hash, f.want, k.lo, k.n
        from free f
        cross join lateral (
            -- Skip what another holds this instant.
            select s.lo, s.n from spanmq.span s
            where s.queue_id + 0 = this_queue and s.group_hash = f.hash and s.group_hash is not null
              and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 0
              and s.lo + 0 >= (select q.settled_to from spanmq.queue q where q.queue_id = this_queue)
              and case when s.state = 'r' then true else false end
            order by s.queue_id + 0, s.group_hash, s.lo + 0 limit greatest(f.want, 0) for update skip locked) k),
    placed as (
        select l.lo, l.n, l.want, (sum(l.n) over (partition by l.hash order by l.lo))::int as n_to from locked l)
    select array_agg(p.lo), array_agg(case when p.n_to > p.want then p.want - p.n_to + p.n end) into los, taken
        from placed p where p.n_to - p.n < p.want;
    if los is null then
        return '{}';
    end if;
    return spanmq.take_spans(this_queue, los, array_fill(0::bigint, array[cardinality(los)]), taken, lease, until, at_, slots);
end $$;
