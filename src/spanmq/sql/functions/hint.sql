-- Hints: custom settings of the session, spanmq.hint_<queue_id>; spanmq.hints says until when there may be any. They are set only where a look from the left was slow, so in
-- health every claim looks from the left. A message that comes back left of a hint waits for the next look from the left:
-- at most half a second, or 20 times as long as that look takes (a minute at most). So that look is taken again and again, as long as the
-- snapshot is held, and under one that is held for long it is most of what a claim costs. Nothing is looked at a second time for it.

-- The hint of this session; its parts are 0, null, -infinity, null where there is none, or where it is malformed, too old or in
-- the future. What has nothing to say any more is removed: that it ran out is told once, to the claim whose look is the next from the left.
-- Few expressions: each is prepared anew in each transaction.
create or replace function spanmq.get_hint(this_queue int, at_ timestamptz) returns spanmq.hint
language plpgsql volatile as $$
declare
    kept text := current_setting('spanmq.hint_' || this_queue, true);
    parts numeric[];
    now_ms bigint := spanmq.hint_ms(at_);
    this spanmq.hint := spanmq.no_hint();
begin
    if length(kept) < 60 and translate(kept, '0123456789 ', '') = '' then
        parts := string_to_array(kept, ' ', '');
        if cardinality(parts) = 4 then
            if parts[2] between now_ms and now_ms + 61000 then
                this.ready_from := least(parts[1], 9e18);
                this.ready_until := parts[2];
            elsif parts[2] between now_ms - 60000 and now_ms then
                this.ready_ran_out := true;
            end if;
            if parts[4] between now_ms and now_ms + 61000 and parts[3] <= now_ms then
                this.due_from := spanmq.hint_time(parts[3]);
                this.due_until := parts[4];
            elsif parts[4] between now_ms - 60000 and now_ms then
                this.due_ran_out := true;
            end if;
        end if;
    end if;
    if this.ready_until is null and this.due_until is null then
        perform spanmq.forget_hint(this_queue);
        if current_setting('spanmq.hints', true) < now_ms::text then
            perform set_config('spanmq.hints', '', false);
        end if;
    elsif this.ready_ran_out or this.due_ran_out then
        perform spanmq.keep_hint(this_queue, this);
    end if;
    return this;
end $$;

create or replace function spanmq.no_hint() returns spanmq.hint
language sql immutable as $$ select (0, null, '-infinity', null, false, false)::spanmq.hint $$;

-- The hint of a look that began there; `hint` is null where there is none.
create or replace function spanmq.hint_from(hint spanmq.hint, from_lo bigint) returns spanmq.hint
language plpgsql immutable as $$
begin
    hint := coalesce(hint, spanmq.no_hint());
    hint.ready_from := from_lo;
    return hint;
end $$;

-- Times of hints: milliseconds since 2020, short, and exact as an integer. Of an interval extract() is immutable: so these are inlined.
create or replace function spanmq.hint_ms(at_ timestamptz) returns bigint
language sql immutable as $$
    select greatest(0, floor(extract(epoch from at_ - '2020-01-01 00:00:00+00'::timestamptz) * 1000))::bigint
$$;

create or replace function spanmq.hint_time(milliseconds numeric) returns timestamptz
language sql stable as $$ select '2020-01-01 00:00:00+00'::timestamptz + make_interval(secs => milliseconds::float8 / 1000) $$;

-- Whether a look took so long that it must have passed a thousand dead entries: ten times as long as it takes in health.
create or replace function spanmq.is_slow(took interval) returns boolean
language sql immutable as $$ select took > interval '0.3 milliseconds' $$;

-- Until when a look that took so long is believed.
create or replace function spanmq.hint_until(took interval) returns bigint
language sql volatile as $$
    select spanmq.hint_ms(clock_timestamp() + least(greatest(interval '500 milliseconds', 20 * took), interval '60 seconds'))
$$;

-- Remembers what a look found: the first ready span (null: none), and when the first span falls due (null: never). A look from
-- the left that was slow starts a hint; one along a hint moves it.
create or replace function spanmq.set_hint(
    this_queue int, this spanmq.hint, first_lo bigint, ready_took interval, first_due timestamptz, due_took interval
) returns spanmq.hint
language plpgsql as $$
begin
    if this.ready_until is null and spanmq.is_slow(ready_took) then
        this.ready_until := spanmq.hint_until(ready_took);
    end if;
    if this.ready_until is not null then
        this.ready_from := coalesce(first_lo, 0);
        if first_lo is null then
            this.ready_until := null;
        end if;
    end if;
    if this.due_until is null and spanmq.is_slow(due_took) then
        this.due_until := spanmq.hint_until(due_took);
    end if;
    if this.due_until is not null then
        this.due_from := first_due;
    end if;
    perform spanmq.keep_hint(this_queue, this);
    return this;
end $$;

create or replace function spanmq.keep_hint(this_queue int, this spanmq.hint) returns void
language plpgsql as $$
begin
    perform set_config('spanmq.hints', coalesce(greatest(this.ready_until, this.due_until), 0)::text, false),
            set_config('spanmq.hint_' || this_queue,
                       concat_ws(' ', this.ready_from, coalesce(this.ready_until, 0),
                                 case when this.due_until is not null then spanmq.hint_ms(this.due_from) else 0 end, coalesce(this.due_until, 0)),
                       false);
end $$;

-- This session made a message visible that may lie left of its hint.
create or replace function spanmq.forget_hint(this_queue int) returns void
language plpgsql as $$
begin
    if current_setting('spanmq.hint_' || this_queue, true) <> '' then
        perform set_config('spanmq.hint_' || this_queue, '', false);
    end if;
end $$;
