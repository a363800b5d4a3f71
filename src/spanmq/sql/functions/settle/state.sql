-- One message as a person asks for it, and pausing a queue.

-- A message whose id was drawn before a purge may be committed after the purge has looked for the last time: it stays,
-- and is a message like any other.

-- Whether a message that has a row in the log, written by this transaction, and no state was purged, or settled
-- before a purge. Of what was written under a savepoint the transaction is not known: it counts as purged if its
-- savepoint was older than the purge's look.
create or replace function spanmq_core.was_purged(this_queue int, id bigint, written_by xid) returns boolean
language plpgsql stable as $$
declare
    this spanmq_core.upkeep;
    writer xid8;
begin
    select * into this from spanmq_core.upkeep u where u.queue_id = this_queue;
    if id > coalesce(this.purged_to, 0) then
        return false;
    elsif this.purged_on is distinct from (select c.system_identifier from pg_control_system() c) then
        -- Never purged (a subscription begins so), or in a database from which this one was restored.
        return true;
    end if;
    writer := spanmq_core.full_id(written_by, pg_snapshot_xmax(this.purged_in)::text::bigint)::text::xid8;
    return not this.spared @> id and (writer = this.purged_by or pg_visible_in_snapshot(writer, this.purged_in));
end $$;

-- The state of a message. A redriven message has one of these states like any other message.
--   pending      a receive may get it (also after its lease has expired)
--   processing   leased
--   delayed      hidden until a time that was set when it was sent, or that set_vt set
--   failed       waits for its backoff
--   dead         among the dead letters
--   completed    acked, archived or deleted (PGMQ's word for done); for as long as its row is in the log, or the
--                archive has it
--   cancelled    cancelled, for as long as its row is in the log
--   expired      expired, if the policy drops such messages; for as long as its row is in the log
--   discarded    discarded as a dead letter; for as long as its row is in the log
--   unknown      never sent, purged (as a dead letter too), or completed or cancelled long ago
-- explain() has the reasons for which a pending message waits.
create or replace function spanmq_call.state(queue text, msg_id bigint) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    id bigint := msg_id;
    at_ timestamptz := clock_timestamp();
    unsettled record;
    is_there boolean;
    segment spanmq_core.segment;
    written_by xid;
begin
    perform spanmq_core.raise_if(id is null, 'msg_id cannot be NULL', 'Pass the id of a message.');
    select u.* into unsettled from spanmq_core.unsettled u where u.queue_id = this.queue_id and u.msg_id = id;
    if unsettled.vt > at_ then
        return case
            when unsettled.lease_id <> 0 then 'processing'
            when unsettled.attempts > 0 and exists (
                select from spanmq_core.failures_of(this.queue_id, id) f where f.outcome = 'retrying'
                    and f.retry_at = unsettled.vt) then 'failed'
            else 'delayed' end;
    elsif unsettled.msg_id is not null then
        return 'pending';
    end if;
    if exists (select from spanmq_core.dead_letter d where d.queue_id = this.queue_id and d.msg_id = id
               and d.redriven_at is null) then
        return 'dead';
    end if;
    if spanmq_core.archive_of(this) is not null then
        execute format('select exists (select from %s a where a.msg_id = $1)', spanmq_core.archive_of(this))
            into is_there using id;
    end if;
    if is_there then
        return 'completed';
    end if;
    segment := spanmq_core.segment_of(this.queue_id, id);
    if segment.lo is not null then
        execute format('select xmin from spanmq_core.%I where msg_id = $1', segment.log_name) into written_by using id;
    end if;
    if written_by is not null and not spanmq_core.was_purged(this.queue_id, id, written_by) then
        return coalesce((
            select case f.category when 'EXPIRED' then 'expired' when 'DISCARDED' then 'discarded' else 'cancelled' end
            from spanmq_core.failures_of(this.queue_id, id) f where f.outcome = 'cancelled'
            order by f.failed_at desc limit 1), 'completed');
    end if;
    return 'unknown';
end $$;

-- Pauses deliveries; messages can still be sent, and leased ones settled. Requires the rights of set_policy.
create or replace function spanmq_call.pause(queue text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform spanmq_call.set_policy(queue, '{"paused": true}');
end $$;

-- Ends the pause of a queue: receivers get messages again.
create or replace function spanmq_call.resume(queue text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform spanmq_call.set_policy(queue, '{"paused": false}');
    perform spanmq_core.wake(q.queue_id, q.bells) from spanmq_core.find_queue(queue) q;
end $$;
