-- Runs: arithmetic without tables.

create or replace function spanmq_core.ids_of(lo bigint, n int) returns int8multirange
language sql immutable as $$ select int8multirange(int8range(lo, lo + n)) $$;

-- The ordered group of a message; null for those without, which are a group too: the one that PGMQ calls
-- _default_fifo_group.
create or replace function spanmq_core.group_of(headers jsonb) returns text
language sql immutable as $$ select nullif(headers->>'x-pgmq-group', '_default_fifo_group') $$;

-- Cuts runs so that no run crosses a multiple of `size` in the count of their messages: a slot is `size` messages.
create or replace function spanmq_core.cut(runs spanmq_core.run[], size int) returns spanmq_core.run[]
language plpgsql immutable as $$
declare
    this spanmq_core.run;
    piece spanmq_core.run;
    cut spanmq_core.run[] := '{}';
    room int := size;
begin
    foreach this in array runs loop
        while this.n > room loop
            piece := this;
            piece.n := room;
            cut := cut || piece;
            this.lo := this.lo + room;
            this.n := this.n - room;
            room := size;
        end loop;
        cut := cut || this;
        room := room - this.n;
        if room = 0 then
            room := size;
        end if;
    end loop;
    return cut;
end $$;

-- In PL/pgSQL: before PostgreSQL 18 an aggregate in an SQL function is planned anew at every call.
create or replace function spanmq_core.ids_of_runs(runs spanmq_core.run[]) returns int8multirange
language plpgsql immutable as $$
begin
    return (select range_agg(int8range(r.lo, r.lo + r.n)) from unnest(runs) r);
end $$;

-- A run without some ids, as runs without gaps (the run itself if none is removed).
create or replace function spanmq_core.run_without(this spanmq_core.run, gone int8multirange) returns spanmq_core.run[]
language plpgsql immutable as $$
begin
    if isempty(gone) then
        return array[this];
    end if;
    return spanmq_core.pieces(this, spanmq_core.ids_of(this.lo, this.n) - gone);
end $$;

create or replace function spanmq_core.count_runs(runs spanmq_core.run[]) returns int
language plpgsql immutable as $$
declare
    this spanmq_core.run;
    n int := 0;
begin
    if runs is not null then
        foreach this in array runs loop
            n := n + this.n;
        end loop;
    end if;
    return n;
end $$;

-- Runs of one message each, one of every group in turn; groups in their given order.
create or replace function spanmq_core.layer(runs spanmq_core.run[]) returns spanmq_core.run[]
language sql immutable as $$
    select coalesce(array_agg((m.id, 1, m.attempts, m.lease_id, m.vt, m.last_read_at, m.group_hash, m.group_key,
                               m.priority, m.lost,
                               m.alone)::spanmq_core.run
                              order by m.layer, m.group_place), '{}')
    from (select e.id, r.*, row_number() over (partition by r.group_key order by e.id) as layer,
                 min(r.ordinality) over (partition by r.group_key) as group_place
          from unnest(runs) with ordinality r, generate_series(r.lo, r.lo + r.n - 1) e (id)) m
$$;

-- A run that gives its delivery back: it does not count as an attempt (one that was only reserved never did), and if it
-- was alone, so is the next. For give_back(), which makes it visible.
create or replace function spanmq_core.undelivered(this spanmq_core.run) returns spanmq_core.run
language plpgsql immutable as $$
begin
    if this.alone <> 1 then
        this.attempts := greatest(this.attempts - 1, 0);
    end if;
    this.alone := least(this.alone, 1);
    this.vt := null;
    if this.attempts = 0 then
        this.last_read_at := null;
    end if;
    return this;
end $$;

-- Joins runs that are adjacent within a block, and alike.
create or replace function spanmq_core.join_runs(runs spanmq_core.run[]) returns spanmq_core.run[]
language plpgsql immutable as $$
declare
    this spanmq_core.run;
    joined spanmq_core.run;
    all_joined spanmq_core.run[] := '{}';
begin
    if cardinality(runs) < 2 then
        return runs;
    end if;
    foreach this in array runs loop
        if this.lo = joined.lo + joined.n and this.lo & 255 <> 0
           and this.attempts = joined.attempts and this.group_key is not distinct from joined.group_key
           and this.priority is not distinct from joined.priority and this.lease_id = joined.lease_id
           and this.lost = joined.lost and this.alone = joined.alone and this.vt is not distinct from joined.vt
           and this.last_read_at is not distinct from joined.last_read_at then
            joined.n := joined.n + this.n;
        else
            if joined.n > 0 then
                all_joined := all_joined || joined;
            end if;
            joined := this;
        end if;
    end loop;
    if joined.n > 0 then
        all_joined := all_joined || joined;
    end if;
    return all_joined;
end $$;

-- The part of each run that is among the ids.
create or replace function spanmq_core.runs_among(runs spanmq_core.run[], wanted int8multirange)
returns spanmq_core.run[]
language plpgsql immutable as $$
declare
    this spanmq_core.run;
    piece spanmq_core.run;
    part spanmq_core.run[] := '{}';
    gone int8multirange;
begin
    foreach this in array runs loop
        -- Id by id: to subtract all that is wanted from each run costs the square of their number.
        gone := coalesce((select range_agg(int8range(e.id, e.id, '[]'))
                          from generate_series(this.lo, this.lo + this.n - 1) e (id)
                          where not e.id <@ wanted), '{}');
        foreach piece in array spanmq_core.run_without(this, gone) loop
            part := part || piece;
        end loop;
    end loop;
    return part;
end $$;

-- The part of each run that is not among the ids.
create or replace function spanmq_core.runs_not_among(runs spanmq_core.run[], gone int8multirange)
returns spanmq_core.run[]
language plpgsql immutable as $$
begin
    return case when isempty(gone) then runs
                else spanmq_core.runs_among(runs, coalesce(spanmq_core.ids_of_runs(runs), '{}') - gone) end;
end $$;
