-- What the SQS protocol keeps of queues, beside their policies.

-- Attributes and tags of a queue, or of all that the caller sees. Raises 42P01 and 42501 without the right to look.
create or replace function pgmq.list_sqs_queues(queue text default null)
returns table (queue_name text, attributes jsonb, tags jsonb, created_at timestamptz, changed_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq.queue;
begin
    if queue is not null then
        this := spanmq.find_queue(queue, 'select');
    end if;
    return query
        select q.name::text, coalesce(s.attributes, '{}'), coalesce(s.tags, '{}'), q.created_at, coalesce(s.changed_at, q.created_at)
        from spanmq.queue q left join spanmq.sqs_queue s using (queue_id)
        where (this.queue_id is null or q.queue_id = this.queue_id) and has_table_privilege(spanmq.caller(), q.queue_view, 'select')
        order by q.name;
end $$;

-- Adds attributes and tags to what is known of a queue, and forgets those that are null. Raises 42P01, 42501 unless the caller manages
-- the queue, MQ002 for what is no object.
create or replace function pgmq.set_sqs_queue(queue text, attributes jsonb default '{}', tags jsonb default '{}') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq.queue := spanmq.find_queue(queue, 'delete with grant option');
begin
    if coalesce(jsonb_typeof(attributes), '') <> 'object' or coalesce(jsonb_typeof(tags), '') <> 'object' then
        raise exception 'attributes and tags must be JSON objects'
            using errcode = 'MQ002', hint = 'Give {} for none.';
    end if;
    insert into spanmq.sqs_queue as s (queue_id, attributes, tags)
        values (this.queue_id, jsonb_strip_nulls(set_sqs_queue.attributes), jsonb_strip_nulls(set_sqs_queue.tags))
        on conflict (queue_id) do update
            set attributes = jsonb_strip_nulls(s.attributes || set_sqs_queue.attributes), tags = jsonb_strip_nulls(s.tags || set_sqs_queue.tags),
                changed_at = clock_timestamp();
end $$;
