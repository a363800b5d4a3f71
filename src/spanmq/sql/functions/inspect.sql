-- twin: unlogged
-- Counting: sums over spans, of which there are hundreds of times fewer than messages unless each was sent singly and is
-- young (maintain() joins neighbours).

-- How many messages there are, how many of them visible at this time, and the lowest and the highest id; ids are null where there is none.
-- In one statement, so of one moment. What maintain() joined is counted by its own index, which has the numbers, where nothing else can be among
-- it: since each message is in one span, where the spans hold every id (so it needs no look into the key, of which each page kept one entry when
-- those were joined that had filled it), and where the key has no entry but theirs. That is asked of all of them, or else of every 4,096 ids. What
-- is left is counted by the key.
create or replace function spanmq.count_messages(this_queue int, at_ timestamptz, out total bigint, out visible bigint, out oldest_id bigint, out newest_id bigint)
language plpgsql
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
begin
    with joined as not materialized (
        -- In the order of the index that holds nothing else, or a plan made for a young table would look for them in another.
        select s.lo, s.joined_n from spanmq.span s
        where s.queue_id = this_queue and s.state = 'r' and s.priority is null and s.joined_n is not null
        order by s.queue_id, s.priority desc, s.lo),
    whole as materialized (
        select w.first_lo, w.last_lo, w.first_lo & -256 as from_id, (w.last_lo | 255) + 1 as to_id, w.n,
               w.n = (w.last_lo | 255) + 1 - (w.first_lo & -256)
               -- Not where most are whole: the key may lie on as many pages as there are spans.
               or w.n < 192 * w.spans and w.spans = (select count(*) from spanmq.span s
                    where s.queue_id = this_queue and s.lo between w.first_lo & -256 and w.last_lo | 255) as is_alone
        from (select min(j.lo) as first_lo, max(j.lo) as last_lo, count(*) as spans, sum(j.joined_n) as n from joined j) w),
    runs as materialized (
        select w.* from whole w where w.is_alone
        union all
        select c.first_lo, c.last_lo, c.from_id, c.from_id + 4096, c.n, true
        from (select j.lo & -4096 as from_id, min(j.lo) as first_lo, max(j.lo) as last_lo, count(*) as spans, sum(j.joined_n) as n
              from joined j group by 1) c
        where (select not w.is_alone from whole w)
          and (c.n = 4096 or c.spans = (select count(*) from spanmq.span s
                where s.queue_id = this_queue and s.lo >= c.from_id and s.lo < c.from_id + 4096))),
    unsettled as not materialized (
        select s.queue_id, s.lo, case when s.lease_id = 0 then spanmq.ids_of(s.lo, s.n, s.ids)
                                      else spanmq.ids_of(s.lo, s.n, s.ids) - coalesce((
                                            select range_agg(int8range(x.msg_id, x.msg_id + 1)) from spanmq.settled x
                                            where x.queue_id = this_queue and x.lease_id = s.lease_id and x.msg_id between s.lo and s.lo | 255), '{}') end as ids
        from spanmq.span s where s.queue_id = this_queue),
    gaps as (
        select lag(r.to_id, 1, 0) over (order by r.from_id) as from_id, r.from_id - 1 as to_id
        from (select r.from_id, r.to_id from runs r union all select 9223372036854775807, null) r)
    select w.n + r.n - x.noted, w.n + r.n - r.hidden - x.noted_due,
           -- Of the first block, and of the last, that have more than what left its leases: the spans of a block may lie between each other.
           (select min(lower(u.ids)) from unsettled u where u.lo between a.first_lo and a.first_lo | 255),
           (select max(upper(u.ids)) - 1 from unsettled u where u.lo between a.last_lo & -256 and a.last_lo)
        into total, visible, oldest_id, newest_id
        from (select coalesce(sum(n), 0) as n, min(first_lo) as first_lo, max(last_lo) as last_lo from runs) w
        cross join (
            select coalesce(sum(o.n), 0) as n, coalesce(sum(o.hidden), 0) as hidden, min(o.first_lo) as first_lo, max(o.last_lo) as last_lo
            from gaps g
            -- Of a ready span vt is past: so one comparison a span tells what is hidden, which is what a million messages cost here.
            cross join lateral (
                select sum(s.n) as n, sum(s.n) filter (where s.vt > at_) as hidden, min(s.lo) as first_lo, max(s.lo) as last_lo
                from spanmq.span s where s.queue_id = this_queue and s.lo between g.from_id and g.to_id) o
            where g.from_id <= g.to_id) r
        cross join (
            select count(*) as noted, count(*) filter (where exists (
                    select from spanmq.span s where s.queue_id = this_queue and s.lo between x.msg_id - x.msg_id % 256 and x.msg_id
                        and s.lease_id = x.lease_id and s.vt <= at_ and case when s.ids is null then x.msg_id < s.lo + s.n else s.ids @> x.msg_id end))
                as noted_due
            from spanmq.settled x where x.queue_id = this_queue) x
        cross join lateral (select least(w.first_lo, r.first_lo) as first_lo, greatest(w.last_lo, r.last_lo) as last_lo) e
        cross join lateral (
            select case when x.noted = 0 then e.first_lo
                        else (select u.lo from unsettled u where u.lo >= e.first_lo and u.ids <> '{}' order by u.queue_id, u.lo limit 1) end as first_lo,
                   case when x.noted = 0 then e.last_lo
                        else (select u.lo from unsettled u where u.lo <= e.last_lo and u.ids <> '{}' order by u.queue_id desc, u.lo desc limit 1) end as last_lo) a;
end $$;

-- Where the first span at or over first_id's block begins, and up to where, in whole blocks, the spans from there on hold
-- `quantity` ids over first_id. Null: there is no span.
create or replace function spanmq.reach(this_queue int, first_id bigint, quantity int, out from_id bigint, out to_id bigint)
language plpgsql as $$
declare
    this record;
    n bigint := 0;
begin
    for this in
        select s.lo, s.n from spanmq.span s where s.queue_id = this_queue and s.lo >= first_id / 256 * 256 order by s.queue_id, s.lo
    loop
        -- Within a block spans may lie between each other: it counts as a whole.
        exit when n >= quantity and this.lo > to_id;
        from_id := coalesce(from_id, greatest(this.lo, first_id));
        to_id := this.lo | 255;
        n := n + case when this.lo >= first_id then this.n else 0 end;
    end loop;
end $$;

create or replace function spanmq.has_span(this_queue int, first_id bigint, last_id bigint) returns boolean
language plpgsql as $$
begin
    return exists (select from spanmq.span s where s.queue_id = this_queue and s.lo between first_id and last_id);
end $$;

create or replace function spanmq.count_alive(this_queue int, first_id bigint, last_id bigint) returns bigint
language plpgsql as $$
begin
    return (select coalesce(sum(s.n), 0) from spanmq.span s where s.queue_id = this_queue and s.lo between first_id and last_id);
end $$;

-- Copies the rows of a segment that a span still holds into another table, if they aren't there. Returns how many.
create or replace function spanmq.copy_alive(this_queue int, first_id bigint, last_id bigint, from_name text, to_name text) returns bigint
language plpgsql as $$
declare
    n bigint;
begin
    execute format('insert into spanmq.%I select l.* from spanmq.span s cross join lateral ('
                   ' select * from spanmq.%I l where l.msg_id >= s.lo and l.msg_id < coalesce(upper(s.ids), s.lo + s.n)'
                   ' and (s.ids is null or s.ids @> l.msg_id) offset 0) l'
                   ' where s.queue_id = $1 and s.lo between $2 and $3'
                   -- A subscription's may be there already.
                   ' on conflict do nothing', to_name, from_name)
        using this_queue, first_id, last_id;
    get diagnostics n = row_count;
    return n;
end $$;

-- Deletes leased spans that everything has left. Returns how many.
create or replace function spanmq.sweep(this_queue int, at_most int) returns int
language plpgsql as $$
declare
    this spanmq.span;
    n int := 0;
begin
    -- One look at spans for each note: where few spans are alive and many are dead, a join was planned to begin with the spans.
    for this in
        select distinct on (s.lo, s.lease_id) s.* from (
            select * from spanmq.settled x where x.queue_id = this_queue limit at_most * 256) x
            cross join lateral (
                select * from spanmq.span s
                where s.queue_id = this_queue and s.lo between x.msg_id - x.msg_id % 256 and x.msg_id and s.lease_id = x.lease_id offset 0) s
    loop
        n := n + spanmq.sweep_span(this)::int;
    end loop;
    return n;
end $$;

-- Writes ready spans that were never delivered, of no group, within the blocks from first_id to last_id, anew: those of a block as one, in
-- order, with their number in the index by which count_messages() counts. Skips what others hold. Returns how many spans fewer there are.
create or replace function spanmq.join_spans(this_queue int, first_id bigint, last_id bigint) returns bigint
language plpgsql as $$
declare
    places tid[];
    before bigint;
    after bigint;
begin
    with locked as (
        select s.ctid as place, s.lo, s.joined_n is null as is_new from spanmq.span s
        where s.queue_id = this_queue and s.state = 'r' and s.lo between first_id and last_id
          and s.lease_id = 0 and s.attempts = 0 and s.vt is null and s.last_read_at is null and s.group_hash is null and s.priority is null
        order by s.lo for update skip locked)
    select array_agg(c.place) into places
        from (select l.place, l.is_new, count(*) over (partition by l.lo / 256) as spans from locked l) c
        where c.spans > 1 or c.is_new;
    if places is null then
        return 0;
    end if;
    -- A new statement, which sees the rows as they were locked. By their places: a join by keys on a table that was never analysed
    -- was planned as a look at every block for every span. Deleted and written anew, in order: the joined spans then lie side by
    -- side, where each by itself would stay on a page full of the dead, and who counts them would touch as many pages as blocks.
    with gone as (
        delete from spanmq.span s where s.ctid = any (places)
        returning s.lo, s.n, s.ids),
    blocks as (
        select range_agg(piece) as ids from gone g, unnest(spanmq.ids_of(g.lo, g.n, g.ids)) piece group by g.lo / 256),
    joined as (
        insert into spanmq.span (queue_id, lo, n, state, ids, joined_n)
        select this_queue, lower(b.ids), b.n, 'r', spanmq.run_ids(b.ids), b.n
            from (select ids, spanmq.count_ids(ids) as n from blocks) b order by lower(b.ids)
        returning lo)
    select (select count(*) from gone), (select count(*) from joined) into before, after;
    return before - after;
end $$;
