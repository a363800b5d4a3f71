-- Stacks of the running handlers of a worker: where their code is. Only for roles that may manage the queue.

-- Asks the workers of this name for the stacks of the handlers that run for this queue: they report them at once where
-- notifications reach them, otherwise within 20 seconds. False if no such worker is listed. A worker whose report is
-- just being stored is not asked: call again.
create or replace function spanmq_call.ask_stacks(queue text, worker text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    at_ timestamptz := clock_timestamp();
begin
    if not exists (select from spanmq_core.worker w where w.queue_id = this.queue_id and w.worker = ask_stacks.worker
                   and w.seen_at > at_ - interval '60 seconds') then
        return false;
    end if;
    -- Waits for no report that is under way, which a role may keep open.
    update spanmq_core.worker w set stacks_asked_at = at_
        where w.ctid = any (array(select o.ctid from spanmq_core.worker o
                                  where o.queue_id = this.queue_id and o.worker = ask_stacks.worker
                                  for update skip locked));
    -- 0: no queue's number. The workers report, and the listeners of other programs register again.
    perform spanmq_core.notify_channel(l.channel, '0')
        from spanmq_core.listener l
        where l.channel is not null and l.expires_at > at_ and this.queue_id = any (l.queue_ids);
    return true;
end $$;

-- Returns the report that the worker has made since it was last asked: an array of up to 20 objects with msg_id, kind
-- (the task, or null), seconds (the time for which the handler had run) and stack. Null if it has not reported yet, or
-- was not asked.
create or replace function spanmq_call.get_stacks(queue text, worker text) returns jsonb
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    return (select w.stacks from spanmq_core.worker w
            where w.queue_id = this.queue_id and w.worker = get_stacks.worker and w.stacks_at >= w.stacks_asked_at);
end $$;

-- Stores what a worker reports of the stacks, once for each time that it was asked: a role that may receive fills no
-- table with them.
create or replace function spanmq_core.keep_stacks(
    this_queue int, by_worker text, handlers jsonb, at_ timestamptz
) returns void
language plpgsql as $$
begin
    update spanmq_core.worker w set stacks_at = at_, stacks = coalesce((
            select jsonb_agg(to_jsonb(h)) from jsonb_to_recordset(handlers) h
            (msg_id bigint, kind text, seconds double precision, stack text)), '[]')
        where w.queue_id = this_queue and w.worker = by_worker
          and w.stacks_asked_at > greatest(coalesce(w.stacks_at, '-infinity'), at_ - interval '60 seconds');
end $$;
