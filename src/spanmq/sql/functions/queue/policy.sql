-- Policies: how a queue delivers. As JSON, so that a client and a schema of different releases understand each other.

-- The policy of a queue; of one that has none of its own the defaults.
create or replace function spanmq_core.policy_of(this_queue int) returns spanmq_core.policy
language plpgsql stable :pinned as $$
declare
    this spanmq_core.policy;
begin
    select * into this from spanmq_core.policy p where p.queue_id = this_queue;
    if not found then
        this := spanmq_core.default_policy(this_queue);
    end if;
    return this;
end $$;

-- Makes default_policy(), which returns the defaults of the table's columns as a constant: every receive() may call it.
do $$
begin
    execute format('create or replace function spanmq_core.default_policy(this_queue int) returns spanmq_core.policy'
                   ' language sql immutable as %L',
        (select format('select (this_queue, %s)::spanmq_core.policy',
                       string_agg(coalesce(pg_get_expr(d.adbin, d.adrelid), 'null'), ', ' order by a.attnum))
         from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
         where a.attrelid = 'spanmq_core.policy'::regclass and a.attnum > 1 and not a.attisdropped));
end $$;

-- Whether claims take messages by their groups.
create or replace function spanmq_core.regards_groups(policy spanmq_core.policy) returns boolean
language sql immutable as $$
    select policy.ordered or policy.max_in_flight_per_group is not null or policy.rate_limit_per_group is not null
           or policy.group_shares is not null
$$;

-- After how many attempts receive() and nack() make a dead letter of a message; null: never. Messages and categories
-- may have their own number.
create or replace function spanmq_core.attempts_of(policy spanmq_core.policy) returns int
language sql immutable as $$ select nullif(coalesce(policy.max_attempts, 25), 0) $$;

-- The valid values of a setting, for errors. The table's constraints enforce them.
create or replace function spanmq_core.range_of(setting text) returns text
language sql immutable as $$
    select case
        when setting = 'max_attempts' then 'a whole number from 1 to 1000, or 0 for no limit'
        when setting in ('lease', 'priority_aging') then 'a number of seconds above 0'
        when setting in ('backoff_base', 'backoff_max') then 'a number of seconds, 0 or more'
        when setting = 'redrive_delay' then 'a number of seconds from 0 to 3000000000'
        when setting in ('backoff_factor', 'rate_burst', 'rate_burst_per_group') then 'a number, 1 or more'
        when setting = 'group_shares' then 'an object with weights of groups, 0.000001 to 1000000, such as {"vip": 3}'
        when setting in ('group_by', 'rate_cost') then '"header:NAME" or a path such as "$.customer.id"'
        when setting in ('rate_limit', 'rate_limit_per_group') then 'a number of messages a second above 0'
        when setting in ('max_in_flight', 'max_in_flight_per_group',
                         'max_backlog') then 'a whole number of messages above 0'
        when setting in ('archive_retention', 'dead_letter_retention', 'keep') then 'an interval above 0, such'
            ' as "30 days"'
        else 'true or false' end
$$;

-- A policy as people see it: with the settings that the queue's own row holds.
create or replace function spanmq_core.settings_of(this spanmq_core.queue, policy spanmq_core.policy) returns jsonb
language sql stable as $$
    select to_jsonb(policy) - 'queue_id'
           || jsonb_build_object('max_attempts', coalesce(spanmq_core.attempts_of(policy), 0))
           || jsonb_build_object('archive_on_ack', this.archive_on_ack, 'archive_retention', this.retention_interval)
$$;

-- The settings of a queue's policy as a JSON object, including defaults.
create or replace function spanmq_call.get_policy(queue text) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    return spanmq_core.settings_of(this, spanmq_core.policy_of(this.queue_id));
end $$;

-- Changes only the named settings; null restores the default. Returns the whole policy. It takes effect with the next
-- call of any session. Raises MQ008 for a setting that is unknown or out of range: then nothing has changed; MQ060 for
-- a max_backlog or a keep of a subscription.
create or replace function spanmq_call.set_policy(queue text, settings jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    policy spanmq_core.policy := spanmq_core.default_policy(this.queue_id);
    defaults jsonb := to_jsonb(policy) - 'queue_id' || '{"archive_on_ack": false, "archive_retention": null}';
    bad text;
    constraint_ text;
    was_blocking boolean;
    old_max_backlog bigint;
    is_plain boolean;
begin
    perform spanmq_core.raise_if(settings is null or jsonb_typeof(settings) <> 'object',
        format('the settings of a policy must be a JSON object, got: %L', settings), 'Such as {"max_attempts": 5}.',
        'MQ008');
    select string_agg(key, ', ') into bad from jsonb_object_keys(settings) key where not defaults ? key;
    perform spanmq_core.raise_if(bad is not null,
        format('a policy has no setting %s', bad), 'It has ' || (select string_agg(key, ', ' order by key)
                                                                 from jsonb_object_keys(defaults) key) || '.',
        'MQ008');
    -- Changes are serialized. Senders and receivers only read the queue's row, and do not wait for them.
    select * into this from spanmq_core.queue q where q.queue_id = this.queue_id for no key update;
    if not found then
        perform spanmq_core.raise_not_found(queue);
    end if;
    policy := spanmq_core.policy_of(this.queue_id);
    was_blocking := policy.dead_letter_blocks_group;
    old_max_backlog := policy.max_backlog;
    settings := (select coalesce(jsonb_object_agg(key, case value when 'null' then defaults->key else value end), '{}')
                 from jsonb_each(settings));
    begin
        -- One after the other: an error in a conversion doesn't say which it was.
        for bad in select jsonb_object_keys(settings) loop
            policy := jsonb_populate_record(policy, jsonb_build_object(bad, settings->bad));
        end loop;
        bad := 'archive_retention';
        this.retention_interval := case when settings ? bad then (settings->>bad)::interval
            else this.retention_interval end;
        if settings->bad <> 'null' and this.retention_interval <= interval '0' then
            raise check_violation using constraint = 'policy_archive_retention_check';
        end if;
        bad := 'archive_on_ack';
        this.archive_on_ack := coalesce((settings->>bad)::boolean, this.archive_on_ack);
        bad := 'group_shares';
        -- Places are divided by weights.
        if jsonb_path_exists(policy.group_shares, '$.* ? (@ < 0.000001)') then
            raise check_violation using constraint = 'policy_group_shares_check';
        end if;
        delete from spanmq_core.policy p where p.queue_id = this.queue_id;
        insert into spanmq_core.policy select policy.*;
    exception
        when check_violation or not_null_violation or data_exception or datatype_mismatch then
            get stacked diagnostics constraint_ = constraint_name;
            bad := coalesce(substring(constraint_ from '^policy_(.*)_check$'), bad);
            raise exception '% must be %, got: %', bad, spanmq_core.range_of(bad), settings->bad
                using errcode = 'MQ008', hint = 'null sets the default again'
                    ||
                    coalesce(': ' || coalesce(defaults->>bad,
                                              case bad
                                              when 'max_attempts' then spanmq_core.attempts_of(
                                                  spanmq_core.default_policy(this.queue_id))::text end),
                                              '') || '.';
    end;
    if policy.rate_limit is null then
        perform spanmq_core.drop_sequences(this.queue_id, '{rate}');
    elsif not exists (select from pg_class c where c.relname = 'rate_' || this.queue_id
                      and c.relnamespace = 'spanmq_core'::regnamespace) then
        execute format('create sequence spanmq_core.rate_%s minvalue 0', this.queue_id);
        perform spanmq_core.close_relation(format('spanmq_core.rate_%s', this.queue_id)::regclass, '{}');
    end if;
    perform spanmq_core.end_quiet(this.queue_id);
    if policy.max_in_flight is not null then
        -- The rows that claims try to lock must exist.
        insert into spanmq_core.lock (queue_id, what)
            select this.queue_id, concat_ws(' ', 'in flight', place)
            from (select null::int union all select generate_series(0, 15)) p (place) on conflict do nothing;
    end if;
    update spanmq_core.queue q set
        archive_on_ack = this.archive_on_ack,
        lease = policy.lease,
        max_attempts = nullif(policy.max_attempts, 0),
        retention_interval = this.retention_interval,
        group_by = policy.group_by,
        has_plain_policy = not (spanmq_core.regards_groups(policy) or policy.paused or policy.max_in_flight is not null
                                or policy.rate_limit is not null)
        where q.queue_id = this.queue_id returning q.has_plain_policy into is_plain;
    if this.has_plain_policy and not is_plain then
        -- Its claims lease nothing in place from now on.
        perform spanmq_core.move_hidden(this.queue_id, 0::bigint, 9223372036854775807);
    end if;
    perform spanmq_core.raise_if(policy.keep is not null and this.is_subscription,
        format('keep is of the queue that has the log, not of its subscription %s', this.name),
        'Set it on the queue that it subscribes to.', 'MQ060');
    perform spanmq_core.raise_if(policy.group_by is not null and this.is_subscription,
        format('group_by is of the queue that is sent into, not of its subscription %s', this.name),
        'Set it on the queue that it subscribes to.', 'MQ060');
    perform spanmq_core.raise_if(policy.group_by is not null and policy.ordered,
        'an ordered queue has its groups in the header x-pgmq-group, not in group_by', 'Leave one of the two out.',
        'MQ008');
    if policy.max_backlog is distinct from old_max_backlog then
        perform spanmq_core.raise_if(this.is_subscription,
            format('max_backlog is of the queue that is sent into, not of its subscription %s', this.name),
            'Set it on the queue that it subscribes to.',
            'MQ060');
        -- For check_room(): the next sender counts. It is dropped with the queue only: a sender may have read its name
        -- a moment ago.
        if policy.max_backlog is not null and to_regclass('spanmq_core.room_' || this.queue_id) is null then
            execute format('create sequence spanmq_core.room_%s minvalue -9223372036854775808 start with 0',
                           this.queue_id);
            perform spanmq_core.close_relation(format('spanmq_core.room_%s', this.queue_id)::regclass, '{}');
        elsif policy.max_backlog is not null then
            execute format('alter sequence spanmq_core.room_%s restart with 0', this.queue_id);
        end if;
        update spanmq_core.queue q
            set room = case
            when policy.max_backlog is not null then to_regclass('spanmq_core.room_' || this.queue_id) end
            where q.queue_id = this.queue_id;
    end if;
    if not (policy.dead_letter_blocks_group and was_blocking) then
        delete from spanmq_core.blocked_group b where b.queue_id = this.queue_id;
    end if;
    return spanmq_core.settings_of(this, policy);
end $$;
