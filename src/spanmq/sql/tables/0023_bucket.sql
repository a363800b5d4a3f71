-- since 0.2.0
-- Limits by group: messages a second that receivers get of each group of a queue.
alter table spanmq_core.policy
    add column rate_limit_per_group double precision
        check (rate_limit_per_group > 0 and rate_limit_per_group < 'infinity'),
    -- how many may come at once; null: a second's
    add column rate_burst_per_group double precision
        check (rate_burst_per_group >= 1 and rate_burst_per_group < 'infinity'),
    -- where a message says how many tokens it draws, "header:NAME" or "$.path"; null: each draws one
    add column rate_cost text check (rate_cost ~ '^(header:.{1,200}|[$]([.][^.]{1,200}){1,20})$'),
    -- groups get equal shares of what is received, or as these weights say: an object; null: the oldest come first
    add column group_shares jsonb
        check (jsonb_typeof(group_shares) = 'object'
               and not jsonb_path_exists(group_shares, '$.* ? (@.type() != "number" || @ <= 0)')
               and not jsonb_path_exists(group_shares, '$.* ? (@ > 1000000)')
               and octet_length(group_shares::text) <= 10000),
    -- where a message says its group; null: in the header x-pgmq-group
    add column group_by text check (group_by ~ '^(header:.{1,200}|[$]([.][^.]{1,200}){1,20})$');
-- A copy of the policy's, for senders.
alter table spanmq_core.queue add column group_by text;

-- The bucket of a group that was drawn from: when it will be full, in nanoseconds since 2020. One that is full has no
-- row, or needs none. See functions/limits/bucket.sql.
create table spanmq_core.bucket (
    queue_id int not null,
    group_hash bigint not null,            -- 0: messages without a group
    full_ns bigint not null,
    primary key (queue_id, group_hash)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index bucket_full on spanmq_core.bucket ((queue_id + 0), full_ns);

-- Groups whose bucket a receiver has closed: nothing of them is delivered before `until`. A row for each call, so that
-- none waits for a claim that has locked the group.
create table spanmq_core.closed_group (
    queue_id int not null,
    group_hash bigint not null,
    until timestamptz not null
);
alter table spanmq_core.closed_group replica identity full;
create index closed_group_hash on spanmq_core.closed_group (queue_id, group_hash, until);
create index closed_group_until on spanmq_core.closed_group ((queue_id + 0), until);

-- An odd number of a queue's rate is from now on a bucket that a receiver has closed.
select setval(r.name, pg_sequence_last_value(r.name) & -2)
    from spanmq_core.policy p cross join lateral to_regclass('spanmq_core.rate_' || p.queue_id) r (name)
    where pg_sequence_last_value(r.name) > 0;
