-- Turns: where on the ring of groups this session's claims of a queue continue, as a custom setting,
-- spanmq.turn_<queue_id>. Any place is valid, so only fairness depends on it; without one, it is random.

-- The place from which to continue. Its lowest bit decides, for a claim of only one message, between the oldest group
-- and the next one.
create or replace function spanmq_core.get_turn(this_queue int) returns bigint
language plpgsql volatile as $$
declare
    kept text := current_setting('spanmq.turn_' || this_queue, true);
begin
    if kept ~ '^-?[0-9]{1,18}$' then
        return ((kept::bigint >> 1) << 5) | 30 | (ascii(right(kept, 1)) & 1);
    end if;
    -- The lowest bits of so large a product are zeros.
    return ((random() * 2 - 1) * 9.2e18)::bigint | (random() < 0.5)::int;
end $$;

-- `place` is the hash of the group that was looked at last. (Groups whose hashes differ in the last five bits only
-- share a turn.)
create or replace function spanmq_core.set_turn(this_queue int, place bigint, is_odd boolean) returns void
language plpgsql as $$
begin
    perform set_config('spanmq.turn_' || this_queue, ((place >> 5) * 2 + is_odd::int)::text, false);
end $$;
