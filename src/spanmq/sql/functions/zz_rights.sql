-- Last in the order of file names: it makes entries for the functions of all files, and gives the rights.

-- The functions that act on queues: their verb, the schema of their entry, and what finds the queue of those that are called by another name.
create or replace function spanmq_core.functions_on_queues() returns table (verb text, schema_name text, inner_function regprocedure, finder text)
language sql stable as $$
    with listed (verb, schema_name, names) as (values
        ('send', 'pgmq', '
            send send_batch
        '),
        ('send', 'spanmq', '
            send_messages copy_begin copy_publish bulk_reserve bulk_seal bulk_publish bulk_close bulk_published schedule
            unschedule:queue_of_schedule pause_schedule:queue_of_schedule resume_schedule:queue_of_schedule
            plan_schedule:queue_of_schedule upcoming_schedules create_batch add_to_batch
        '),
        ('look', 'pgmq', '
            metrics create_fifo_index
        '),
        ('look', 'spanmq', '
            peek peek_archive storage archive_position archive_ranges archive_piece list_category_policies classify
            list_category_rules dead_letters count_dead_letters dead_letters_between dead_letter_extent failures
            failures_between failure_extent statistics list_leases list_groups list_segments list_bindings list_throttles dead_letters_of get_policy
            receiver_log list_receivers read_ranges state list_subscriptions shard_groups glance health latest_statistics  list_schedules begin_pipeline_run note_pipeline_run:queue_of_run
            end_pipeline_run:queue_of_run list_pipeline_runs list_batches
            get_schema replay replay_extent await_settled unsettled get_results list_workers list_task_kinds
        '),
        ('receive', 'pgmq', '
            read read_with_poll pop read_grouped read_grouped_rr read_grouped_head read_grouped_with_poll
            read_grouped_rr_with_poll read_grouped_head_with_poll delete archive set_vt
        '),
        ('receive', 'spanmq', '
            receive ack cancel nack reject release extend hold receiver_open receiver_claim receiver_ranges
            adopt_receiver release_receiver reject_from_receiver await_messages look_ahead report_breaker report_worker note_export store_result
            forget_export redrive redrive_message purge_dead_letters
        '),
        ('manage', 'pgmq', '
            purge_queue enable_notify_insert disable_notify_insert update_notify_insert
            convert_archive_partitioned unbind_topic
        '),
        ('manage', 'spanmq', '
            set_policy set_schema set_category_policy set_category_rule drop_category_rule pause resume grant_queue revoke_queue
            list_grants
        ')),
    named as (
        select l.verb, l.schema_name, split_part(n, ':', 1) as name, nullif(split_part(n, ':', 2), '') as finder
        from listed l cross join regexp_split_to_table(trim(l.names, E' \n'), '[[:space:]]+') n
        union all
        select 'manage', null, 'drop_queue', null
        union all
        select v, null, 'may_' || v, null from unnest('{send,look,receive,manage}'::text[]) v)
    select n.verb, n.schema_name, p.oid::regprocedure, n.finder
    from named n join pg_proc p on p.pronamespace = 'spanmq_call'::regnamespace and p.proname = n.name
$$;

-- All functions whose EXECUTE a verb is, as a list for GRANT.
create or replace function spanmq_core.functions_of(verb text) returns text
language sql stable as $$
    select string_agg(f.name::text, ', ') from (
        select q.inner_function as name from spanmq_core.functions_on_queues() q where q.verb = functions_of.verb
        union all
        select p.oid::regprocedure from pg_proc p
        join (values
            ('create', 'spanmq_call', '{may_create,create_queue,create_partitioned_queue}'::text[]),
            ('create', 'spanmq', '{set_shards,forget_shards}'),
            ('look', 'spanmq', '{sum_statistics}'),
            ('send', 'spanmq', '{enter_shards}'),
            ('manage', 'spanmq', '{create_subscription}'),
            ('manage', 'pgmq', '{bind_topic}'),
            -- Maintenance plans the schedules of all queues.
            ('maintain', 'spanmq_call', '{may_maintain,plan_schedule,upcoming_schedules}'),
            ('maintain', 'spanmq', '{maintain,doctor}'),
            ('serve', 'spanmq_call', '{may_serve}'),
            ('serve', 'spanmq', '{check_token,find_access_key,open_session,check_session,close_session,list_sqs_queues,set_sqs_queue,start_sqs_move,list_sqs_moves,'
                                'find_sqs_move,cancel_sqs_move,take_sqs_move,note_sqs_move,move_sqs_messages,list_sqs_moved}'),
            ('admin', 'spanmq_call', '{may_admin}'),
            ('admin', 'spanmq', '{create_token,list_tokens,revoke_token,rotate_token,create_access_key,list_access_keys,revoke_access_key}')
        ) d (verb, schema_name, names) on p.pronamespace = to_regnamespace(d.schema_name) and p.proname = any (d.names)
        where d.verb = functions_of.verb) f
$$;

-- A role that may execute may_<verb>() has the verb. These functions do nothing.
create or replace function spanmq_call.may_send() returns void language sql immutable as 'select null::void';
create or replace function spanmq_call.may_look() returns void language sql immutable as 'select null::void';
create or replace function spanmq_call.may_receive() returns void language sql immutable as 'select null::void';
create or replace function spanmq_call.may_manage() returns void language sql immutable as 'select null::void';
create or replace function spanmq_call.may_create() returns void language sql immutable as 'select null::void';
create or replace function spanmq_call.may_maintain() returns void language sql immutable as 'select null::void';
create or replace function spanmq_call.may_serve() returns void language sql immutable as 'select null::void';
create or replace function spanmq_call.may_admin() returns void language sql immutable as 'select null::void';

do $$
declare
    this record;
    each text;
    grants text[] := '{}';
begin
    for this in select * from spanmq_core.functions_on_queues() f where f.schema_name is not null loop
        execute spanmq_core.entry_text(this.inner_function, this.schema_name, this.verb, this.finder);
    end loop;
    -- First no role, then those that had the verb before: an upgrade may have brought functions, and what was restored without privileges is open to all.
    revoke all on schema spanmq_core, spanmq_call from public;
    revoke all on all functions in schema spanmq_core from public;
    foreach each in array spanmq_core.all_verbs() loop
        for this in
            select spanmq_core.functions_of(each) as functions, array(select spanmq_core.role_name(g) from spanmq_core.grantees_of(each, null) g) as roles
            union all
            select array_to_string(spanmq_core.make_wrappers(q, each), ', '),
                   array(select spanmq_core.role_name(g) from spanmq_core.grantees_of(each, q.queue_id) g)
            from spanmq_core.queue q where spanmq_core.has_wrappers(q.queue_id, each)
        loop
            execute format('revoke execute on function %s from public', this.functions);
            if this.roles <> '{}' then
                -- After all that is revoked: a function may belong to two verbs.
                grants := grants || format('grant execute on function %s to %s', this.functions, array_to_string(this.roles, ', '));
            end if;
        end loop;
    end loop;
    foreach each in array grants loop
        execute each;
    end loop;
    revoke execute on function spanmq.grant_all(text, text), spanmq.revoke_all(text, text), spanmq.grant_create(text) from public;
    -- Functions in a view are executed with the rights of the role that reads the view.
    grant execute on function spanmq_core.last_notified_at(int) to public;
    -- Entries record the caller there; a caller cannot write another role's name.
    grant insert (proof) on spanmq_call.caller to public;
    -- Last, so that no function is visible before its default grant to public is revoked.
    grant usage on schema pgmq, spanmq, spanmq_call to public;
end $$;

do $$
begin
    grant select on all tables in schema pgmq to pg_monitor;
    grant select on all sequences in schema pgmq to pg_monitor;
    alter default privileges in schema pgmq grant select on tables to pg_monitor;
    alter default privileges in schema pgmq grant select on sequences to pg_monitor;
exception when insufficient_privilege then
    raise notice 'pg_monitor was not given the right to look at queues';
end $$;
