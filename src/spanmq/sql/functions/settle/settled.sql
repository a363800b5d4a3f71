-- Waiting until messages are settled, and what their handlers returned.

-- Announces that a session waits for messages of this queue to be settled, for this number of seconds (at most 60),
-- and returns the channel to listen to. Until then each settlement notifies the channel. The payload is a range of ids
-- that includes those of the settled messages. Messages that leave the queue in other ways (an expiry, a pop, a purge)
-- are not notified: call unsettled() from time to time. Raises MQ002 for seconds that are null or out of range.
create or replace function spanmq_call.await_settled(queue text, seconds double precision default 30) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '20ms' as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    now_at timestamptz := clock_timestamp();
begin
    perform spanmq_core.raise_if(seconds is null or not (seconds > 0 and seconds <= 60),
        format('seconds must be more than 0 and at most 60, got: %L', seconds),
        'Call it again before they have passed.');
    begin
        insert into spanmq_core.settle_wait as w (queue_id, until)
            values (this.queue_id, now_at + make_interval(secs => seconds))
            on conflict (queue_id) do update set until = excluded.until where w.until < excluded.until;
    exception when lock_not_available then
        -- Another session is about to say the same.
        null;
    end;
    perform spanmq_core.watch(this.queue_id);
    -- As note_settled().
    return 'spanmq.s_' || this.folded_name;
end $$;

-- Returns the messages among these that are not settled: pending, delayed, or being processed. Raises MQ002 for null.
create or replace function spanmq_call.unsettled(queue text, msg_ids bigint[]) returns setof bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    perform spanmq_core.raise_if(msg_ids is null, 'msg_ids cannot be NULL', 'Pass the ids of messages.');
    -- In one statement: a message that moves from table to table is in one of them.
    return query
        select id from unnest(msg_ids) id
        where exists (select from spanmq_core.unsettled u where u.queue_id = this.queue_id and u.msg_id = id offset 0);
end $$;

-- Stores the result of a message's handler, for keep_for seconds, up to 30 days. Call it in the transaction of the ack.
-- A result that is stored already is replaced. Raises MQ002 for more than 65,536 bytes of JSON and for another
-- keep_for.
create or replace function spanmq_call.store_result(
    queue text, msg_id bigint, result jsonb, keep_for double precision default 3600
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
begin
    perform spanmq_core.raise_if(msg_id is null, 'msg_id cannot be NULL', 'Pass the id of a message.');
    perform spanmq_core.store_results(spanmq_core.find_queue(queue), array[msg_id], array[result], keep_for);
end $$;

create or replace function spanmq_core.store_results(
    this spanmq_core.queue, msg_ids bigint[], results jsonb[], keep_for double precision
) returns void
language plpgsql as $$
declare
    bytes int := (select max(octet_length(r::text)) from unnest(results) r);
begin
    perform spanmq_core.raise_if(bytes > 65536,
        format('the result of a message has at most 65536 bytes as JSON, got: %s', bytes),
        'Store it elsewhere, and return its key.');
    perform spanmq_core.raise_if(keep_for is null or not (keep_for > 0 and keep_for <= 2592000),
        format('keep_for must be more than 0 and at most 2592000 seconds (30 days), got: %L', keep_for),
        'Omit it for an hour.');
    perform spanmq_core.hold_queue(this);
    insert into spanmq_core.result (queue_id, msg_id, result, expires_at)
        select this.queue_id, r.msg_id, r.result, clock_timestamp() + make_interval(secs => keep_for)
        from unnest(store_results.msg_ids, store_results.results) r (msg_id, result) order by r.msg_id
        on conflict (queue_id, msg_id) do update set result = excluded.result, stored_at = excluded.stored_at,
        expires_at = excluded.expires_at;
end $$;

-- Acks messages of a lease and stores the results of their handlers, as store_result() does. results[i] is the result
-- of msg_ids[i]. Returns rows as ack() does; for a stale message no result is stored. If one result can't be stored,
-- nothing is acked. Raises MQ002 as ack() and store_result() do, and for ids that are null or repeated, or that are
-- not as many as the results.
create or replace function spanmq_call.ack_with_results(
    queue text, lease_id bigint, msg_ids bigint[], results jsonb[], keep_for double precision default 3600
) returns table (msg_id bigint, outcome text)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
#variable_conflict use_column
declare
    acked_ids bigint[];
    outcomes text[];
begin
    select array_agg(a.msg_id), array_agg(a.outcome) into acked_ids, outcomes
        from spanmq_call.ack(ack_with_results.queue, ack_with_results.lease_id, ack_with_results.msg_ids) a;
    perform spanmq_core.raise_if(coalesce(cardinality(acked_ids), 0) is distinct from cardinality(msg_ids)
                                 or cardinality(msg_ids) is distinct from cardinality(results),
        'msg_ids must be different ids, and results as many',
        'Pass the result of each message, JSON''s null where there is none.');
    perform spanmq_core.store_results(spanmq_core.find_queue(queue), array_agg(r.msg_id), array_agg(r.result), keep_for)
        from unnest(msg_ids, results) r (msg_id, result) join unnest(acked_ids, outcomes) a (msg_id, outcome)
        on a.msg_id = r.msg_id
        where a.outcome = 'acked' having count(*) > 0;
    return query select * from unnest(acked_ids, outcomes);
end $$;

-- Returns the outcome of these messages, at most 10,000, a row for each id in the order of msg_ids. state is `stored`
-- (its result is kept), `dead` (it is a dead letter, with its error) or `missing` (no result is kept: none was stored,
-- it has expired, or the message is not settled). Raises MQ002 for null and for more ids.
create or replace function spanmq_call.list_results(queue text, msg_ids bigint[])
returns table (msg_id bigint, state text, result jsonb, error text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    perform spanmq_core.raise_if(msg_ids is null or cardinality(msg_ids) > 10000,
        format('msg_ids must be at most 10000 ids, got: %s', coalesce(cardinality(msg_ids)::text, 'NULL')),
        'Call it again for the rest.');
    return query
        select m.id, case when r.msg_id is not null then 'stored' when d.msg_id is not null then 'dead'
        else 'missing' end, r.result,
               case when r.msg_id is null then coalesce(d.error, d.error_class, d.category) end
        from unnest(msg_ids) with ordinality m (id, place)
        left join spanmq_core.result r on r.queue_id = this.queue_id and r.msg_id = m.id
        and r.expires_at > clock_timestamp()
        left join spanmq_core.dead_letter d on d.queue_id = this.queue_id and d.msg_id = m.id and d.redriven_at is null
        order by m.place;
end $$;

-- The results of these messages that are still kept.
create or replace function spanmq_call.get_results(queue text, msg_ids bigint[])
returns table (msg_id bigint, result jsonb, stored_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    return query
        select r.msg_id, r.result, r.stored_at from spanmq_core.result r
        where r.queue_id = this.queue_id and r.msg_id = any (msg_ids) and r.expires_at > clock_timestamp()
        order by r.msg_id;
end $$;
