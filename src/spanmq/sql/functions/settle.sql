-- twin: unlogged
-- Settling. Whatever takes messages out of their spans (delete, archive, ack, set_vt) goes through take_out().
--
-- Lock order: spans, ascending -> notes of settled messages, ascending. Claims never wait. So two settlements can deadlock only
-- where PGMQ's would: on the same messages, in two calls of one transaction.

-- Takes these messages out of their spans and returns them as runs, ascending; what is in no span is not in the result.
-- fence null: wherever they are (delete, archive, set_vt). Else: only from this lease (ack), or with 0 from none (cancel).
create or replace function spanmq.take_out(this_queue int, msg_ids bigint[], fence bigint) returns spanmq.run[]
language plpgsql as $$
declare
    n int := cardinality(msg_ids);
    first_id bigint := msg_ids[1];
    last_id bigint := msg_ids[n];
    -- Not below 0: the distance of the least number that there is and the greatest is none.
    is_unbroken boolean := n = 1 or greatest(last_id, 0) - greatest(first_id, 0) = n - 1;
    taken int := 0;
    has_notes boolean := false;
    run spanmq.run;
    runs spanmq.run[] := '{}';
begin
    if is_unbroken and n > 1 then
        -- A statement of its own: a parallel plan makes the array before it looks at what stands before an `and`.
        is_unbroken := msg_ids = array(select generate_series(greatest(first_id, 0), greatest(last_id, 0)));
    end if;
    -- First what goes as a whole: spans without gaps that lie within ids that follow each other.
    if is_unbroken then
        for run in
            delete from spanmq.span s
                where s.queue_id = this_queue and s.lo >= first_id and s.lo <= last_id and s.lo + s.n - 1 <= last_id
                  and s.ids is null and (s.lease_id = fence or fence is null and s.lease_id >= 0)
                returning s.lo, s.n, s.ids, s.attempts, s.lease_id, s.vt, s.last_read_at, s.group_hash, s.group_key, s.priority
        loop
            runs := runs || run;
            taken := taken + run.n;
            -- A new statement, begun under the locks: messages may have left a leased span one by one.
            if run.n > 1 and run.lease_id > 0 and not has_notes then
                has_notes := exists (select from spanmq.settled x
                                     where x.queue_id = this_queue and x.lease_id = run.lease_id and x.msg_id between run.lo and run.lo | 255)
                             or not spanmq.sees_now();
            end if;
        end loop;
        if taken = n and not has_notes then
            return runs;
        end if;
        if n = 1 and first_id < 9223372036854775807 then
            return spanmq.take_out_rest(this_queue, int8multirange(int8range(first_id, first_id, '[]')), fence, runs);
        end if;
    end if;
    return spanmq.take_out_some(this_queue, msg_ids, fence, runs);
end $$;

-- Goes on with take_out() where not all went as whole spans, or more left a span than it says.
create or replace function spanmq.take_out_some(this_queue int, msg_ids bigint[], fence bigint, runs spanmq.run[]) returns spanmq.run[]
language plpgsql as $$
declare
    -- No message has the last number that there is, nor can a range end behind it.
    asked int8multirange := (select range_agg(int8range(id, id, '[]')) from unnest(msg_ids) id where id < 9223372036854775807);
    run spanmq.run;
    asked_left int8multirange;
    places tid[];
begin
    if asked is null then
        return '{}';
    end if;
    -- What goes as a whole, with gaps or without. Locked first, in the order of all: block by block, by force (offset 0), for a join to the
    -- ids may be planned over all spans of the queue.
    asked_left := asked - coalesce(spanmq.ids_of_runs(runs), '{}');
    places := array(
        select k.ctid
        from (select min(id) as first_id, max(id) as last_id from unnest(msg_ids) id group by id / 256 order by 1 offset 0) b
        cross join lateral (
            select s.ctid from spanmq.span s
            where s.queue_id = this_queue and s.lo >= b.first_id and s.lo <= b.last_id
              and case when s.ids is null then asked_left @> int8range(s.lo, s.lo + s.n) else asked_left @> s.ids end
              and (s.lease_id = fence or fence is null and s.lease_id >= 0)
            order by s.queue_id, s.lo, s.lease_id for update) k);
    if places <> '{}' then
        for run in
            delete from spanmq.span s where s.ctid = any (places)
                returning coalesce(lower(s.ids), s.lo), s.n, s.ids, s.attempts, s.lease_id, s.vt, s.last_read_at, s.group_hash, s.group_key,
                          s.priority
        loop
            runs := runs || run;
        end loop;
    end if;
    runs := spanmq.without_settled(this_queue, runs);
    return spanmq.take_out_rest(this_queue, asked - coalesce(spanmq.ids_of_runs(runs), '{}'), fence, runs);
end $$;

-- These runs, taken from their spans as a whole, without what had left the leased ones before. Such a message may be in another
-- of the runs: it came back, and was taken from there.
create or replace function spanmq.without_settled(this_queue int, runs spanmq.run[]) returns spanmq.run[]
language plpgsql as $$
declare
    run spanmq.run;
    this spanmq.span;
    kept spanmq.run[] := '{}';
begin
    foreach run in array runs loop
        if run.lease_id > 0 and (run.n > 1 or run.ids is not null) then
            -- Of a leased span they may be in full.
            run.ids := case when upper(run.ids) - run.lo > run.n then run.ids end;
            this.queue_id := this_queue;
            this.lo := run.lo;
            this.n := run.n;
            this.ids := run.ids;
            this.lease_id := run.lease_id;
            kept := kept || spanmq.run_without(run, spanmq.forget_settled(this));
        else
            kept := kept || run;
        end if;
    end loop;
    return kept;
end $$;

-- What take_out() does one span after the other: parts of spans, spans with gaps, and what was in another span a moment ago.
create or replace function spanmq.take_out_rest(
    this_queue int, asked int8multirange, fence bigint, runs spanmq.run[]
) returns spanmq.run[]
language plpgsql as $$
declare
    candidate record;
    took spanmq.run;
    found_any boolean;
begin
    -- A settlement that waited for a lock sees the old row and misses the piece that a split has moved to a new one. So "not
    -- found" is believed only of a statement that began after the last wait. Every round settles something or was overtaken.
    for round in 1 .. 1000 loop
        exit when isempty(asked);
        found_any := false;
        for candidate in
            select s.lo, s.lease_id, s.n = count(*) as is_whole, range_agg(int8range(a.id, a.id, '[]')) as ids
            from (select e.id from unnest(asked) r, generate_series(lower(r), upper(r) - 1) e (id)) a
            cross join lateral (
                select * from spanmq.span s
                where s.queue_id = this_queue and s.lo between a.id - a.id % 256 and a.id
                  and (s.lease_id = fence or fence is null and s.lease_id >= 0)
                  and case when s.ids is null then a.id < s.lo + s.n else s.ids @> a.id end
                  and (s.lease_id = 0 or not exists (
                        select from spanmq.settled x where x.queue_id = this_queue and x.lease_id = s.lease_id and x.msg_id = a.id))
                offset 0) s
            group by s.lo, s.lease_id, s.n
            order by s.lo, s.lease_id
        loop
            found_any := true;
            if candidate.lease_id <> 0 and fence is null and not candidate.is_whole then
                took := spanmq.leave_lease(this_queue, candidate.lo, candidate.lease_id, candidate.ids);
            else
                took := spanmq.cut_out(this_queue, candidate.lo, candidate.lease_id, candidate.ids);
            end if;
            if took.n > 0 then
                runs := runs || took;
                asked := asked - spanmq.ids_of(took.lo, took.n, took.ids);
            end if;
        end loop;
        exit when not found_any;
    end loop;
    return (select coalesce(array_agg(r order by r.lo), '{}') from unnest(runs) r);
end $$;

-- Takes messages out of a leased span by noting that they left, so that others may leave it at the same time.
create or replace function spanmq.leave_lease(this_queue int, this_lo bigint, lease bigint, wanted int8multirange) returns spanmq.run
language plpgsql as $$
declare
    this spanmq.span;
    took int8multirange;
begin
    -- Shared by all who leave; whoever takes the span as a whole waits for them, or skips it.
    select * into this from spanmq.span s where s.queue_id = this_queue and s.lo = this_lo and s.lease_id = lease for key share;
    if not found then
        return null;
    end if;
    with notes as (
        insert into spanmq.settled (queue_id, lease_id, msg_id)
            select this_queue, lease, e.id
            from unnest(wanted * spanmq.ids_of(this.lo, this.n, this.ids)) r, generate_series(lower(r), upper(r) - 1) e (id)
            order by e.id
            on conflict do nothing
            returning msg_id)
        select range_agg(int8range(msg_id, msg_id, '[]')) into took from notes;
    if took is null then
        return null;
    end if;
    -- The last one sweeps up. Counting at every step would cost n^2 a span, so a large span is swept only by who takes its last
    -- message; else by a claim when the lease falls due, or by maintain().
    if this.n <= 16 or upper(took) = upper(spanmq.ids_of(this.lo, this.n, this.ids)) then
        perform spanmq.sweep_span(this);
    end if;
    return spanmq.run_of(this, took);
end $$;

-- The part of a span that was taken, as a run.
create or replace function spanmq.run_of(this spanmq.span, took int8multirange) returns spanmq.run
language sql immutable as $$
    select (lower(took), spanmq.count_ids(took), case when int8multirange(int8range(lower(took), upper(took))) <> took then took end,
            this.attempts, this.lease_id, this.vt, this.last_read_at, this.group_hash, this.group_key, this.priority)::spanmq.run
$$;

-- Deletes a leased span that everything has left, unless somebody holds it.
create or replace function spanmq.sweep_span(this spanmq.span) returns boolean
language plpgsql as $$
begin
    if (select count(*) from spanmq.settled x
        where x.queue_id = this.queue_id and x.lease_id = this.lease_id and x.msg_id between this.lo and this.lo | 255
          and case when this.ids is null then x.msg_id < this.lo + this.n else this.ids @> x.msg_id end) < this.n then
        return false;
    end if;
    -- Never wait here: who holds it may be waiting for a note of ours.
    perform from spanmq.span s
        where s.queue_id = this.queue_id and s.lo = this.lo and s.lease_id = this.lease_id and s.n = this.n for update skip locked;
    if not found then
        return false;
    end if;
    perform spanmq.forget_settled(this);
    delete from spanmq.span s where s.queue_id = this.queue_id and s.lo = this.lo and s.lease_id = this.lease_id;
    return true;
end $$;

-- Takes messages out of a span under its lock. What is left keeps its state: a leased span its key, the others get a new one.
create or replace function spanmq.cut_out(this_queue int, this_lo bigint, lease bigint, wanted int8multirange) returns spanmq.run
language plpgsql as $$
declare
    this spanmq.span;
    ids int8multirange;
    rest int8multirange;
begin
    select * into this from spanmq.span s where s.queue_id = this_queue and s.lo = this_lo and s.lease_id = lease for update;
    if not found then
        return null;
    end if;
    ids := spanmq.ids_of(this.lo, this.n, this.ids);
    if lease <> 0 then
        ids := ids - spanmq.forget_settled(this);
    end if;
    rest := ids - wanted;
    if isempty(rest) then
        delete from spanmq.span s where s.queue_id = this_queue and s.lo = this_lo and s.lease_id = lease;
    elsif lease <> 0 or lower(rest) = this_lo then
        -- A leased span that shrank to one message keeps its ids, so that take_out() does not take it for one without notes.
        update spanmq.span s
            set n = spanmq.count_ids(rest), joined_n = null,
                ids = case when int8multirange(int8range(this_lo, upper(rest))) <> rest or lease <> 0 and upper(rest) - this_lo = 1 then rest end
            where s.queue_id = this_queue and s.lo = this_lo and s.lease_id = lease;
    else
        delete from spanmq.span s where s.queue_id = this_queue and s.lo = this_lo and s.lease_id = 0;
        insert into spanmq.span (queue_id, lo, lease_id, n, attempts, state, vt, last_read_at, ids, group_hash, group_key, priority)
            values (this_queue, lower(rest), 0, spanmq.count_ids(rest), this.attempts, this.state, this.vt, this.last_read_at,
                    case when int8multirange(int8range(lower(rest), upper(rest))) <> rest then rest end, this.group_hash, this.group_key, this.priority);
    end if;
    return spanmq.run_of(this, ids * wanted);
end $$;

-- Puts messages back that take_out() took: visible at once (null or a time that is past), or hidden until then.
create or replace function spanmq.put_back(this_queue int, runs spanmq.run[], visible_at timestamptz) returns void
language plpgsql as $$
begin
    insert into spanmq.span (queue_id, lo, n, attempts, state, vt, last_read_at, ids, group_hash, group_key, priority)
        select this_queue, r.lo, r.n, r.attempts, case when visible_at > clock_timestamp() then 'w' else 'r' end::"char", visible_at,
               r.last_read_at, r.ids, r.group_hash, r.group_key, r.priority
        from unnest(runs) r;
end $$;

-- Takes all messages of a queue out of it. Returns how many there were. What is sent meanwhile goes too, counted; it is over
-- when a statement finds nothing. What that one did not see stays, and is noted (was_purged).
create or replace function spanmq.purge(this_queue int) returns bigint
language plpgsql as $$
declare
    purged bigint := 0;
    n bigint;
    runs spanmq.run[];
    seen_in pg_snapshot;
    unpublished int8multirange;
begin
    loop
        -- In the order in which others lock spans.
        with doomed as (select s.lo, s.lease_id from spanmq.span s where s.queue_id = this_queue order by s.lo, s.lease_id for update),
        gone_spans as (
            delete from spanmq.span s using doomed d where s.queue_id = this_queue and s.lo = d.lo and s.lease_id = d.lease_id
            returning s.*)
        select sum(g.n), coalesce(array_agg((g.lo, g.n, g.ids, 0, g.lease_id, null, null, null, null, null)::spanmq.run)
                                  filter (where g.lease_id > 0 and g.n > 1), '{}'),
               pg_current_snapshot(), spanmq.unpublished(this_queue)
            into n, runs, seen_in, unpublished from gone_spans g;
        exit when n is null;
        -- A new statement, begun under the locks: the messages that had left these spans before were not in the queue.
        purged := purged + n - coalesce((select sum(r.n) from unnest(runs) r), 0)
                  + coalesce((select sum(r.n) from unnest(spanmq.without_settled(this_queue, runs)) r), 0);
    end loop;
    if purged > 0 then
        perform spanmq.note_purge(this_queue, seen_in, unpublished);
    end if;
    return purged;
end $$;
