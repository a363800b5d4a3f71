-- The data of the SQS protocol about queues, beside their policies. Only roles with the verb `serve` may call it: the
-- service, which identifies its callers.

-- Attributes and tags of a queue, or of all.
create or replace function spanmq.list_sqs_queues(queue text default null)
returns table (queue_name text, attributes jsonb, tags jsonb, created_at timestamptz, changed_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := case when queue is not null then spanmq_core.find_queue(queue) end;
begin
    return query
        select q.name::text, coalesce(s.attributes, '{}'), coalesce(s.tags, '{}'), q.created_at,
        coalesce(s.changed_at, q.created_at)
        from spanmq_core.queue q left join spanmq_core.sqs_queue s using (queue_id)
        where this.queue_id is null or q.queue_id = this.queue_id
        order by q.name;
end $$;

-- The queue for a name of SQS's, which may have 80 characters: a longer one than a queue may have is cut and gets a
-- hash. The service does the same (queue_of_name).
create or replace function spanmq_core.sqs_queue_of(sqs_name text) returns text
language sql immutable as $$
    select case when pg_catalog.length(sqs_name) <= 47 then sqs_name
           else pg_catalog.left(sqs_name, 29) || '-' ||
           pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(sqs_name, 'UTF8')), 'hex'), 12)
                || case when sqs_name like '%.fifo' then '.fifo' else '' end end
$$;

-- The queue that the RedrivePolicy among these attributes names as the dead-letter queue; null without one.
create or replace function spanmq_core.sqs_redrive_to(attributes jsonb) returns text
language plpgsql immutable as $$
begin
    return spanmq_core.sqs_queue_of(substring((attributes ->> 'RedrivePolicy')::jsonb ->> 'deadLetterTargetArn'
                                         from '^arn:aws:sqs:[^:]*:000000000000:([A-Za-z0-9_-]+(?:[.]fifo)?)$'));
exception when invalid_text_representation then
    return null;
end $$;

-- Adds attributes and tags to what is known of a queue, and forgets those that are null. Raises 42P01 also for the
-- dead-letter queue that a RedrivePolicy names, MQ002 for what is not an object. Notifies the services, which cache
-- them.
create or replace function spanmq_call.set_sqs_queue(
    queue text, attributes jsonb default '{}', tags jsonb default '{}'
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    perform spanmq_core.raise_if(coalesce(jsonb_typeof(attributes), '') <> 'object'
                                 or coalesce(jsonb_typeof(tags), '') <> 'object',
        'attributes and tags must be JSON objects', 'Pass {} for none.');
    if attributes ->> 'RedrivePolicy' is not null then
        perform spanmq_core.raise_if(spanmq_core.sqs_redrive_to(attributes) is null,
            format('the RedrivePolicy of queue %s names no queue of this service', this.name),
            'Such as {"deadLetterTargetArn": "arn:aws:sqs:x:000000000000:dead", "maxReceiveCount": 5}, as a string.');
        perform spanmq_core.find_target(spanmq_core.sqs_redrive_to(attributes));
    end if;
    perform spanmq_core.hold_queue(this);
    insert into spanmq_core.sqs_queue as s (queue_id, attributes, tags)
        values (this.queue_id, jsonb_strip_nulls(set_sqs_queue.attributes), jsonb_strip_nulls(set_sqs_queue.tags))
        on conflict (queue_id) do update
            set attributes = jsonb_strip_nulls(s.attributes || set_sqs_queue.attributes),
            tags = jsonb_strip_nulls(s.tags || set_sqs_queue.tags), changed_at = clock_timestamp();
    perform spanmq_core.notify_channel('spanmq.access');
end $$;
