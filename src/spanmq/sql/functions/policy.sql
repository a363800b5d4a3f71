-- Policies: how a queue delivers. As JSON, so that a client and a schema of different releases understand each other.

-- The policy of a queue; of one that has none of its own the defaults.
create or replace function spanmq.policy_of(this_queue int) returns spanmq.policy
language plpgsql stable as $$
declare
    this spanmq.policy;
begin
    select * into this from spanmq.policy p where p.queue_id = this_queue;
    if not found then
        this := spanmq.default_policy(this_queue);
    end if;
    return this;
end $$;

create or replace function spanmq.default_policy(this_queue int) returns spanmq.policy
language sql immutable as $$
    select (this_queue, null, 30, 1, 2, 3600, true, null, false, false, false, false, null, null, null, null, 60, null)::spanmq.policy
$$;

-- A policy as people see it: with the settings that the queue's own row holds.
create or replace function spanmq.settings_of(this spanmq.queue, policy spanmq.policy) returns jsonb
language sql stable as $$
    select to_jsonb(policy) - 'queue_id'
           || jsonb_build_object('archive_on_ack', this.archive_on_ack, 'archive_retention', this.retention_interval)
$$;

-- The settings of a queue's policy, those with their default too, as a JSON object.
-- Raises 42P01 for an unknown queue, 42501 without the right to look into it.
create or replace function pgmq.get_policy(queue text) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq.queue := spanmq.find_queue(queue, 'select');
begin
    return spanmq.settings_of(this, spanmq.policy_of(this.queue_id));
end $$;

-- Changes the settings that are named and leaves the others; null gives one its default back. Returns the whole policy. It holds
-- from the next call of anybody. Raises MQ002 for a setting that is unknown or out of range: then nothing has changed;
-- MQ060 for a max_backlog of a subscription.
create or replace function pgmq.set_policy(queue text, settings jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq.queue := spanmq.find_queue(queue, 'delete with grant option');
    policy spanmq.policy := spanmq.default_policy(this.queue_id);
    defaults jsonb := to_jsonb(policy) - 'queue_id' || '{"archive_on_ack": false, "archive_retention": null}';
    unknown text;
    was_blocking boolean;
    old_max_backlog bigint;
begin
    if settings is null or jsonb_typeof(settings) <> 'object' then
        raise exception 'the settings of a policy must be a JSON object, got: %', coalesce(settings::text, 'NULL')
            using errcode = 'MQ002', hint = 'Such as {"max_attempts": 5}.';
    end if;
    select string_agg(key, ', ') into unknown from jsonb_object_keys(settings) key where not defaults ? key;
    if unknown is not null then
        raise exception 'a policy has no setting %', unknown
            using errcode = 'MQ002', hint = 'It has ' || (select string_agg(key, ', ' order by key) from jsonb_object_keys(defaults) key) || '.';
    end if;
    -- One change after the other. Whoever sends or receives only reads the queue's row, and does not wait.
    select * into this from spanmq.queue q where q.queue_id = this.queue_id for no key update;
    if not found then
        perform spanmq.raise_not_found(queue, 'select');
    end if;
    was_blocking := (spanmq.policy_of(this.queue_id)).dead_letter_blocks_group;
    old_max_backlog := (spanmq.policy_of(this.queue_id)).max_backlog;
    settings := (select coalesce(jsonb_object_agg(key, case value when 'null' then defaults->key else value end), '{}') from jsonb_each(settings));
    begin
        policy := jsonb_populate_record(spanmq.policy_of(this.queue_id), settings);
        this := jsonb_populate_record(this, jsonb_build_object(
            'archive_on_ack', coalesce(settings->'archive_on_ack', to_jsonb(this.archive_on_ack)),
            'retention_interval', case when settings ? 'archive_retention' then settings->'archive_retention' else to_jsonb(this.retention_interval) end));
        delete from spanmq.policy p where p.queue_id = this.queue_id;
        insert into spanmq.policy select policy.*;
        perform spanmq.set_bucket(this.queue_id, policy.rate_limit is not null);
        update spanmq.queue q set
            archive_on_ack = this.archive_on_ack,
            lease = policy.lease,
            max_attempts = policy.max_attempts,
            retention_interval = this.retention_interval,
            has_plain_policy = not (policy.ordered or policy.paused or policy.max_in_flight is not null
                                    or policy.max_in_flight_per_group is not null or policy.rate_limit is not null)
            where q.queue_id = this.queue_id;
    exception
        when check_violation or not_null_violation or data_exception or datatype_mismatch then
            raise exception 'a setting of the policy is out of range: %', sqlerrm
                using errcode = 'MQ002', detail = settings::text, hint = 'pgmq.get_policy() shows all settings; docs/delivery.md says what they may be.';
    end;
    if policy.max_backlog is distinct from old_max_backlog then
        if this.is_subscription then
            raise exception 'max_backlog is of the queue that is sent into, not of its subscription %', this.name
                using errcode = 'MQ060', hint = 'Set it on the queue that it subscribes to.';
        end if;
        perform spanmq.set_room(this.queue_id, policy.max_backlog is not null);
    end if;
    if not (policy.dead_letter_blocks_group and was_blocking) then
        delete from spanmq.blocked_group b where b.queue_id = this.queue_id;
    end if;
    return spanmq.settings_of(this, policy);
end $$;
