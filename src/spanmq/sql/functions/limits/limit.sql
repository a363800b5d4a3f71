-- Limits on receivers: how many messages may be in flight, and how many a second may come.

-- How many of `quantity` messages may be in flight beside those that are. Holds locks of the queue to the end of the
-- transaction, because only then do others see what this claim takes. Messages of an expired lease are not in flight.
--
-- Far from the limit up to 16 transactions claim side by side, once each, for at most a 64th of the limit, so all of
-- them for a quarter; as long as they see no more than half of it. (When the last of them looked, there was half; what
-- was under way then was a quarter; what is under way now is the other.) Else claims go one at a time. One that has
-- waited for 50 ms, for that or for one of the 16, gives 0.
create or replace function spanmq_core.room_in_flight(
    this spanmq_core.queue, quantity int, max_in_flight int, at_ timestamptz
) returns int
language plpgsql as $$
declare
    kept text := current_setting('lock_timeout');
    -- This transaction's place, if an earlier claim of it found or took something. Other sessions do not see it.
    before text := coalesce(current_setting('spanmq.place_' || this.queue_id, true), '');
    place int;
begin
    perform spanmq_core.check_isolation('a queue with max_in_flight',
                                        'An older snapshot does not show messages that were received since.')
        where not spanmq_core.sees_now();
    if quantity <= max_in_flight / 64 and before <> 'used'
        and spanmq_core.count_in_flight(this.queue_id, at_) <= max_in_flight / 2 then
        perform from spanmq_core.lock l where l.queue_id = this.queue_id and l.what = 'in flight' for share skip locked;
        if found then
            -- A session that polls keeps one place: otherwise it would soon hold all of them.
            place := coalesce(nullif(before, '')::int, floor(random() * 16)::int);
            for step in 1 .. 16 loop
                exit when spanmq_core.try_lock(this.queue_id, 'in flight ' || place);
                place := (place + 1) % 16;
            end loop;
        end if;
    end if;
    -- First without a subtransaction, in which nobody sees whose lock it is (holder_of). Again, if no place was free.
    if not spanmq_core.try_lock(this.queue_id, concat_ws(' ', 'in flight', place)) then
        begin
            perform set_config('lock_timeout', '50ms', true);
            perform spanmq_core.lock(this.queue_id, concat_ws(' ', 'in flight', place));
            perform set_config('lock_timeout', kept, true);
        exception when lock_not_available then
            return 0;
        end;
    end if;
    if place is null then
        return least(quantity, max_in_flight - spanmq_core.count_in_flight(this.queue_id, at_));
    end if;
    perform set_config('spanmq.place_' || this.queue_id, place::text, true);
    -- Again, in a new statement under the lock.
    return case when spanmq_core.count_in_flight(this.queue_id, at_) <= max_in_flight / 2 then quantity else 0 end;
end $$;

-- A rate limit is a bucket that fills at `rate` tokens a second up to `burst`; a message takes one. It is kept as one
-- number, the time at which the bucket would be full, in a sequence (nanoseconds since 2020): reading and setting it
-- takes no lock that lasts, so a receiver never waits for the transaction of another. What a rolled back claim took is
-- lost. An odd number is the time until which a receiver has closed the bucket, which has one token then.

-- Takes up to `quantity` tokens and returns how many; negative: gives them back. At most burst + rate * seconds in any
-- time.
create or replace function spanmq_core.take_tokens(
    this_queue int, quantity int, rate double precision, burst double precision
) returns int
language plpgsql as $$
declare
    bucket regclass := to_regclass('spanmq_core.rate_' || this_queue);
    token bigint := spanmq_core.token_ns(rate);
    room bigint := spanmq_core.bucket_ns(rate, burst);
    at_ns bigint;
    full_ns bigint;
    n int;
begin
    if bucket is null then
        return quantity;
    end if;
    begin
        -- The lock goes with the rollback of this block, the sequence keeps what it was set to. No claim waits while it
        -- holds it.
        perform spanmq_core.lock(this_queue, 'rate');
        at_ns := spanmq_core.now_ns();
        full_ns := coalesce(pg_sequence_last_value(bucket), 0);
        if full_ns & 1 = 1 and full_ns > at_ns then
            n := 0;
        else
            full_ns := full_ns + case when full_ns & 1 = 1 then room - token else 0 end;
            -- A time too far ahead comes from a clock that was set back, or from a slower rate.
            full_ns := least(greatest(full_ns, at_ns), at_ns + room);
            n := least(quantity, (at_ns + room - full_ns) / token);
            if n <> 0 then
                perform setval(bucket, (full_ns + n * token) & -2);
            end if;
        end if;
        raise exception using errcode = 'MQ000';
    exception when sqlstate 'MQ000' then
        return n;
    end;
end $$;

-- Closes the bucket until then, for a receiver.
create or replace function spanmq_core.close_rate(this_queue int, until timestamptz) returns void
language plpgsql as $$
declare
    bucket regclass := to_regclass('spanmq_core.rate_' || this_queue);
    until_ns bigint := (least(extract(epoch from until - '2020-01-01 00:00:00+00'), 4e9) * 1e9)::bigint | 1;
    full_ns bigint;
begin
    if bucket is null then
        return;
    end if;
    begin
        -- As in take_tokens().
        perform spanmq_core.lock(this_queue, 'rate');
        full_ns := coalesce(pg_sequence_last_value(bucket), 0);
        if full_ns & 1 = 0 or full_ns < until_ns then
            perform setval(bucket, until_ns);
        end if;
        raise exception using errcode = 'MQ000';
    exception when sqlstate 'MQ000' then null;
    end;
end $$;

-- Seconds until take_tokens() would give a token; null: it would now, or there is no limit.
create or replace function spanmq_core.until_token(
    this_queue int, rate double precision, burst double precision
) returns double precision
language plpgsql as $$
declare
    token bigint;
    room bigint;
    full_ns bigint;
    missing bigint;
begin
    if rate is null or to_regclass('spanmq_core.rate_' || this_queue) is null then
        return null;
    end if;
    token := spanmq_core.token_ns(rate);
    room := spanmq_core.bucket_ns(rate, burst);
    full_ns := coalesce(pg_sequence_last_value(to_regclass('spanmq_core.rate_' || this_queue)), 0);
    if full_ns & 1 = 1 then
        return nullif(greatest(full_ns - spanmq_core.now_ns(), 0), 0) / 1e9;
    end if;
    missing := full_ns - spanmq_core.now_ns() - room + token;
    -- A time too far ahead: see take_tokens().
    return case when missing > 0 then least(missing, token) / 1e9 end;
end $$;

-- How many tokens take_tokens() would give.
create or replace function spanmq_core.tokens(this_queue int, rate double precision, burst double precision)
returns int
language plpgsql as $$
declare
    room bigint := spanmq_core.bucket_ns(rate, burst);
    bucket regclass := to_regclass('spanmq_core.rate_' || this_queue);
    at_ns bigint := spanmq_core.now_ns();
    full_ns bigint := coalesce(pg_sequence_last_value(bucket), 0);
begin
    if full_ns & 1 = 1 then
        return case when full_ns > at_ns then 0 else 1 end;
    end if;
    full_ns := least(greatest(full_ns, at_ns), at_ns + room);
    return least((at_ns + room - full_ns) / spanmq_core.token_ns(rate), 2147483647);
end $$;

-- The value of a token, and the capacity of the bucket, in nanoseconds. Limited to the range of a sequence, whatever
-- the policy: centuries.
create or replace function spanmq_core.token_ns(rate double precision) returns bigint
language sql immutable as $$ select ceil(1e9 / greatest(rate, 1e-9))::bigint $$;

create or replace function spanmq_core.bucket_ns(rate double precision, burst double precision) returns bigint
language sql immutable as $$ select least(least(coalesce(burst, greatest(rate, 1)), 4e18) * spanmq_core.token_ns(rate),
                                          4e18)::bigint $$;
