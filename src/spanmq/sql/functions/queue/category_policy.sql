-- How each category of failures is handled: whether a message is retried, how often, and at what intervals.

-- The settings of a category in a queue: its own row, otherwise that of all queues (this_queue null: the latter).
create or replace function spanmq_core.category_settings(
    this_queue int, category text
) returns spanmq_core.category_policy
language plpgsql stable as $$
begin
    return (select c from spanmq_core.category_policy c
            where coalesce(c.queue_id, 0) in (coalesce(this_queue, 0), 0) and c.category = category_settings.category
            order by c.queue_id nulls last limit 1);
end $$;

-- Changes the policy of a category in a queue, or in all queues that have none of their own (queue null). Only the
-- named settings change. retries: whether a message of this category is tried again (PERMANENT and BUSINESS: no,
-- unless set). max_attempts, backoff_base, backoff_factor, backoff_max: used in place of those of the queue's policy;
-- null: the queue's policy holds. With settings null, a queue follows the general settings again. Returns the settings
-- that hold from the next failure on. Raises MQ008 for a setting that is unknown or out of range, MQ002 for an unknown
-- category, and changes nothing then; 42P01; 42501 without manage on the queue (queue null: manage on all queues).
create or replace function spanmq_call.set_category_policy(queue text, category text, settings jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    this_queue int := spanmq_core.find_and_hold(set_category_policy.queue);
    policy spanmq_core.category_policy;
    unknown text;
    setting text;
    constraint_ text;
begin
    perform spanmq_core.check_category(set_category_policy.category);
    if settings is null and this_queue is not null then
        delete from spanmq_core.category_policy c where c.queue_id = this_queue
            and c.category = set_category_policy.category;
        return to_jsonb(spanmq_core.category_settings(this_queue, set_category_policy.category)) - 'queue_id';
    end if;
    perform spanmq_core.raise_if(settings is null or jsonb_typeof(settings) <> 'object',
        format('the settings of a category must be a JSON object, got: %L', settings), 'Such as {"max_attempts": 3}.',
        'MQ008');
    select string_agg(key, ', ') into unknown from jsonb_object_keys(settings) key
        where key not in ('retries', 'max_attempts', 'backoff_base', 'backoff_factor', 'backoff_max');
    perform spanmq_core.raise_if(unknown is not null,
        format('a category has no setting %s', unknown),
        'It has retries, max_attempts, backoff_base, backoff_factor and backoff_max.', 'MQ008');
    -- One change after the other.
    perform spanmq_core.lock(coalesce(this_queue, 0), 'category policy');
    policy := spanmq_core.category_settings(this_queue, set_category_policy.category);
    policy.queue_id := this_queue;
    policy.category := set_category_policy.category;
    begin
        -- One after the other: an error in a conversion doesn't say which it was.
        for setting in select jsonb_object_keys(settings) loop
            policy := jsonb_populate_record(policy, jsonb_build_object(setting, settings->setting));
        end loop;
        policy.retries := coalesce(policy.retries, policy.category not in ('PERMANENT', 'BUSINESS'));
        delete from spanmq_core.category_policy c where c.queue_id is not distinct from this_queue
            and c.category = policy.category;
        insert into spanmq_core.category_policy select policy.*;
    exception
        when check_violation or not_null_violation or data_exception or datatype_mismatch then
            get stacked diagnostics constraint_ = constraint_name;
            setting := coalesce(substring(constraint_ from '^category_policy_(.*)_check$'), setting);
            raise exception '% must be %, got: %', setting,
                case setting when 'max_attempts' then 'a whole number from 1 to 1000'
                else spanmq_core.range_of(setting) end, settings->setting
                using errcode = 'MQ008', hint = 'null stands for the setting of the policy.';
    end;
    return to_jsonb(policy) - 'queue_id';
end $$;

-- The policies of categories, in a queue or in general (queue null); queue_name is null where the general one holds.
create or replace function spanmq_call.list_category_policies(queue text default null)
returns table (category text, retries boolean, max_attempts integer, backoff_base double precision,
               backoff_factor double precision,
               backoff_max double precision, queue_name text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := case when queue is not null then spanmq_core.find_queue(queue) end;
begin
    return query
        select c.category, s.retries, s.max_attempts, s.backoff_base, s.backoff_factor, s.backoff_max,
               case when s.queue_id is not null then this.name::text end
        from unnest(array['TRANSIENT', 'DEPENDENCY', 'PERMANENT', 'BUSINESS', 'UNKNOWN']) with ordinality c (category,
            place)
        cross join lateral spanmq_core.category_settings(this.queue_id, c.category) s
        order by c.place;
end $$;
