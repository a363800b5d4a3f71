-- Makes dead letters of messages that the code of a stream cannot process, and removes them from the batches that the
-- receiver (its label or id) holds. Returns their number. Ids that the receiver does not hold are not changed. A
-- running driver stops with an error; the next one reads the same batches without these messages. Raises MQ002 for an
-- unknown receiver. If the sink has rows of such a batch that are not in the checkpoint yet, they stay in the sink.
create or replace function spanmq_call.reject_from_receiver(
    queue text, receiver text, msg_ids bigint[], error text default null, category text default null
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    reader spanmq_core.receiver := spanmq_core.find_receiver(this, receiver);
    reason spanmq_core.reason := spanmq_core.reason_of(this.queue_id, category, error, null, null, null);
    batch spanmq_core.receiver_batch;
    ids bigint[];
    held record;
    rejected bigint := 0;
begin
    if category is null and reason.category = 'UNKNOWN' then
        reason.category := 'PERMANENT';
    end if;
    -- Batches before messages, as settling does.
    for batch in
        select * from spanmq_core.receiver_batch b where b.receiver_id = reader.receiver_id and b.state = 'claimed'
        order by b.batch for update
    loop
        ids := spanmq_core.lock_ids(this.queue_id, msg_ids, batch.lease_id, '{}'::bigint[]);
        continue when ids = '{}';
        rejected := rejected + spanmq_core.bury(this, ids, clock_timestamp(), reason, batch.lease_id);
        select * into held from spanmq_core.list_batch(this.queue_id, batch.lease_id, batch.lo, batch.hi);
        -- One that is empty now stays, with its number: the checkpoint may have its offset.
        update spanmq_core.receiver_batch b
            set n = held.n, los = held.los, his = held.his, attempts = held.attempts, bitmaps = held.bitmaps
            where b.receiver_id = reader.receiver_id and b.batch = batch.batch;
    end loop;
    if rejected > 0 then
        -- Tasks that run have the batch as it was.
        update spanmq_core.receiver r set incarnation = r.incarnation + 1 where r.receiver_id = reader.receiver_id;
    end if;
    return rejected;
end $$;
