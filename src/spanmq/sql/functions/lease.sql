-- twin: unlogged
-- What becomes of messages that a lease held: given back, held longer; and the leases that ran out.

-- Puts runs back that take_out() took, each hidden until its own vt (null: visible at once), with the attempts that the run says.
create or replace function spanmq.give_back(this_queue int, runs spanmq.run[]) returns void
language plpgsql as $$
declare
    at_ timestamptz := clock_timestamp();
begin
    insert into spanmq.span (queue_id, lo, n, attempts, state, vt, last_read_at, ids, group_hash, group_key, priority)
        select this_queue, r.lo, r.n, r.attempts, case when r.vt > at_ then 'w' else 'r' end::"char", r.vt, r.last_read_at, r.ids,
               r.group_hash, r.group_key, r.priority
        from unnest(runs) r;
end $$;

-- Holds the spans of a lease until then, at least: never shorter than before. Returns how many messages it holds. Locks the spans
-- as everybody does, ascending; whoever settles one message waits as long as this takes.
create or replace function spanmq.extend_lease(this_queue int, lease bigint, until timestamptz) returns bigint
language plpgsql as $$
declare
    held bigint;
    is_done boolean;
begin
    -- Until a statement begun after the last wait finds none that ends before: hold() may move messages of the lease to other spans.
    for round in 1 .. 100 loop
        with locked as (
            select s.lo from spanmq.span s
                where s.queue_id = this_queue and s.lease_id = lease and s.state = 'l' order by s.lo for no key update)
        -- By the primary key: the row may have moved from the index of leases while we waited.
        update spanmq.span s set vt = greatest(s.vt, until) from locked k
            where s.queue_id = this_queue and s.lo = k.lo and s.lease_id = lease;
        select coalesce(sum(s.n), 0), coalesce(bool_and(s.vt >= until), true) into held, is_done
            from spanmq.span s where s.queue_id = this_queue and s.lease_id = lease and s.state = 'l';
        exit when is_done;
    end loop;
    -- A new statement: what left the lease one by one.
    return held - (select count(*) from spanmq.settled x where x.queue_id = this_queue and x.lease_id = lease);
end $$;

-- Takes those messages of an ordered group out of their leases that come after `after_id`, and gives them back as if they had not
-- been delivered: an earlier one goes back, so none of them may be handled before it.
create or replace function spanmq.release_followers(this_queue int, key text, after_id bigint) returns int
language plpgsql as $$
declare
    candidate record;
    took spanmq.run;
    runs spanmq.run[] := '{}';
    is_overtaken boolean;
begin
    -- Again where less was found than was seen: somebody settled it, or hold() moved it to another span.
    for round in 1 .. 100 loop
        is_overtaken := false;
        for candidate in
            select s.lo, s.lease_id, spanmq.ids_of(s.lo, s.n, s.ids) - int8multirange(int8range(null, after_id, '[]')) as ids
            from spanmq.span s
            where s.queue_id + 0 = this_queue and key is not null and s.group_hash = hashtextextended(key, 0) and s.group_hash is not null
              and s.group_key = key and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 1
              and case when s.state = 'l' then coalesce(upper(s.ids), s.lo + s.n) > after_id + 1 end
            union all
            select s.lo, s.lease_id, spanmq.ids_of(s.lo, s.n, s.ids) - int8multirange(int8range(null, after_id, '[]'))
            from spanmq.span s
            where s.queue_id = this_queue and key is null and s.state = 'l' and s.group_hash is null
              and coalesce(upper(s.ids), s.lo + s.n) > after_id + 1
            order by 1, 2
        loop
            took := spanmq.cut_out(this_queue, candidate.lo, candidate.lease_id, candidate.ids);
            is_overtaken := is_overtaken or took.n is distinct from spanmq.count_ids(candidate.ids);
            if took.n > 0 then
                runs := runs || spanmq.undelivered(took);
            end if;
        end loop;
        exit when not is_overtaken;
    end loop;
    perform spanmq.give_back(this_queue, runs);
    return spanmq.count_runs(runs);
end $$;

-- Whether a message is ready that these, which were taken out, may have held up: of one of their groups, or with `any_` whichever.
create or replace function spanmq.has_behind(this_queue int, runs spanmq.run[], any_ boolean) returns boolean
language plpgsql as $$
declare
    at_ timestamptz := clock_timestamp();
    candidate record;
    is_ordered boolean;
begin
    if any_ or exists (select from unnest(runs) r where r.group_hash is null) then
        return exists (select from spanmq.span s where s.queue_id = this_queue and s.state = 'r' order by s.queue_id, s.lo limit 1);
    end if;
    is_ordered := (spanmq.policy_of(this_queue)).ordered;
    -- One group after the other, each by its place in the index: the first that is found is enough.
    for candidate in
        select r.group_hash as hash, max(coalesce(upper(r.ids) - 1, r.lo + r.n - 1)) as last_id
        from unnest(runs) r group by r.group_hash
    loop
        -- Whoever acks a run as it goes frees the group with the last message. Only what is leased behind these counts: of two
        -- settlements of one run, none of which sees the other, that of its end speaks.
        continue when is_ordered and exists (
            select from spanmq.span s
            where s.queue_id + 0 = this_queue and s.group_hash = candidate.hash and s.group_hash is not null
              and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 1
              and case when s.state = 'l' then s.vt > at_ and coalesce(upper(s.ids), s.lo + s.n) - 1 > candidate.last_id end and spanmq.holds_any(s));
        if exists (select from spanmq.span s
                   where s.queue_id + 0 = this_queue and s.group_hash = candidate.hash and s.group_hash is not null
                     and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 0
                   order by s.queue_id + 0, s.group_hash, s.lo + 0 limit 1)
        then
            return true;
        end if;
    end loop;
    return false;
end $$;

-- The span that holds a message; none if it is in no span, or left a leased one.
create or replace function spanmq.find_span(this_queue int, id bigint) returns setof spanmq.span
language plpgsql stable rows 1 as $$
begin
    return query
        select s.* from spanmq.span s
        where s.queue_id = this_queue and s.lo between id - id % 256 and id and case when s.ids is null then id < s.lo + s.n else s.ids @> id end
          and (s.lease_id = 0 or not exists (
                select from spanmq.settled x where x.queue_id = this_queue and x.lease_id = s.lease_id and x.msg_id = id))
        limit 1;
end $$;

-- Does a claim of this transaction over: leases `kept` alone, and gives back the rest of what it took: what came from a lease that
-- ran out into that lease, to be met again.
create or replace function spanmq.lease_again(
    this_queue int, kept spanmq.run[], back spanmq.run[], lease bigint, until timestamptz, at_ timestamptz
) returns void
language plpgsql as $$
begin
    delete from spanmq.span s where s.queue_id = this_queue and s.lease_id = lease and s.state = 'l';
    perform spanmq.insert_leased(this_queue, lease, until, at_, kept);
    perform spanmq.give_back(this_queue, array(select r from unnest(back) r where r.lease_id = 0));
    -- A part that the claim left there may have the key. ids in full: see cut_out().
    insert into spanmq.span as s (queue_id, lo, lease_id, n, attempts, state, vt, last_read_at, ids, group_hash, group_key, priority)
        select this_queue, r.lo, r.lease_id, r.n, r.attempts, 'l', r.vt, r.last_read_at, spanmq.ids_of(r.lo, r.n, r.ids), r.group_hash,
               r.group_key, r.priority
        from unnest(back) r where r.lease_id <> 0
        on conflict (queue_id, lo, lease_id) do update
            set ids = spanmq.ids_of(s.lo, s.n, s.ids) + excluded.ids, n = s.n + excluded.n;
end $$;

-- Of the leases that ran out and of which these runs are: gives what they still hold of the same groups to leases that nobody knows. Else whoever
-- overslept could yet settle what stands behind a message that another has in work. Leaves alone what another settles this instant.
create or replace function spanmq.disown_rest(this_queue int, runs spanmq.run[], at_ timestamptz) returns void
language plpgsql as $$
declare
    late record;
    this_lo bigint;
    this spanmq.span;
begin
    for late in
        select l.*, spanmq.new_lease(at_) as new_lease
        from (select distinct r.group_hash, r.lease_id from unnest(runs) r where r.lease_id <> 0) l
    loop
        for this_lo in
            select s.lo from spanmq.span s
            where s.queue_id = this_queue and s.lease_id = late.lease_id and s.state = 'l' and s.vt <= at_
              and s.group_hash is not distinct from late.group_hash
            order by s.lo
        loop
            this := spanmq.lock_visible(this_queue, this_lo, late.lease_id, at_);
            if this.n > 0 then
                update spanmq.span s set lease_id = late.new_lease
                    where s.queue_id = this_queue and s.lo = this_lo and s.lease_id = late.lease_id;
            end if;
        end loop;
    end loop;
end $$;

-- Up to 100 leased spans that ran out with at least so many attempts, as runs; they may hold messages that have left them. Only looks.
create or replace function spanmq.late_runs(this_queue int, at_ timestamptz, least_attempts int) returns spanmq.run[]
language plpgsql as $$
begin
    return array(
        select spanmq.run_of(s, spanmq.ids_of(s.lo, s.n, s.ids)) from spanmq.span s
        where s.queue_id = this_queue and s.state <> 'r' and s.vt <= at_ and s.state = 'l' and s.attempts >= least_attempts
        order by s.queue_id, s.vt, s.lo limit 100);
end $$;

-- Of the next 1,000 spans from an id on those of no lease that are visible after so many attempts, as runs; locks them, skipping what
-- others hold this instant. next_lo: where to go on, 0 after the last one.
create or replace function spanmq.lock_spent(this_queue int, at_ timestamptz, least_attempts int, from_lo bigint)
returns table (runs spanmq.run[], next_lo bigint)
language plpgsql as $$
begin
    return query
        with looked_at as materialized (
            select s.lo, s.lease_id, s.attempts, s.state, s.vt from spanmq.span s
            where s.queue_id = this_queue and s.lo >= from_lo order by s.queue_id, s.lo, s.lease_id limit 1000),
        locked as materialized (
            select k.this
            from (select l.lo from looked_at l where l.lease_id = 0 and l.attempts >= least_attempts and (l.state = 'r' or l.vt <= at_)) l
            cross join lateral (
                select s as this from spanmq.span s
                where s.queue_id = this_queue and s.lo = l.lo and s.lease_id = 0 and s.attempts >= least_attempts and (s.state = 'r' or s.vt <= at_)
                for update skip locked) k)
        select array(select spanmq.run_of(l.this, spanmq.ids_of((l.this).lo, (l.this).n, (l.this).ids)) from locked l),
               (select case when count(*) = 1000 then max(l.lo) + 1 else 0 end from looked_at l);
end $$;

-- Those of the messages that stand in spans of no lease which nobody else holds this instant. Locks these spans.
create or replace function spanmq.lock_free(this_queue int, msg_ids bigint[]) returns bigint[]
language plpgsql as $$
begin
    return array(
        with places as materialized (
            select distinct s.lo
            from unnest(msg_ids) id
            join spanmq.span s on s.queue_id = this_queue and s.lo between id - id % 256 and id and s.lease_id = 0
                                  and case when s.ids is null then id < s.lo + s.n else s.ids @> id end),
        locked as materialized (
            select s.* from places p
            cross join lateral (
                select * from spanmq.span s where s.queue_id = this_queue and s.lo = p.lo and s.lease_id = 0 for update skip locked) s)
        select e.id from locked l cross join lateral spanmq.expand(l.lo, l.n, l.ids) e (id) where e.id = any (msg_ids));
end $$;

-- Takes messages out of leases that ran out, skipping what others hold this instant.
create or replace function spanmq.take_late(this_queue int, at_ timestamptz, wanted int8multirange) returns spanmq.run[]
language plpgsql as $$
declare
    candidate record;
    this spanmq.span;
    took spanmq.run;
    runs spanmq.run[] := '{}';
begin
    for candidate in
        select s.lo, s.lease_id from spanmq.span s
        where s.queue_id = this_queue and s.state <> 'r' and s.vt <= at_ and s.state = 'l' and spanmq.ids_of(s.lo, s.n, s.ids) && wanted
        order by s.queue_id, s.vt, s.lo limit 100
    loop
        this := spanmq.lock_visible(this_queue, candidate.lo, candidate.lease_id, at_);
        continue when this.n is null or this.n = 0 or isempty(spanmq.ids_of(this.lo, this.n, this.ids) * wanted);
        took := spanmq.cut_out(this_queue, candidate.lo, candidate.lease_id, wanted);
        if took.n > 0 then
            runs := runs || took;
        end if;
    end loop;
    return runs;
end $$;
