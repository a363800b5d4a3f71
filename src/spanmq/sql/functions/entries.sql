-- Last in the order of file names: it makes entries for the functions of all files, and gives the rights.

-- The functions that act on queues: their verb, the schema of their entry, the function that is written and the one
-- that roles may execute, and what finds the queue of those that are called by another name. The calls of those with +
-- are recorded (recorder_text): what is done by hand to queues, messages, schedules and rights, and not what programs
-- do to each message.
create or replace function spanmq_core.functions_on_queues() returns table (verb text, schema_name text,
    written regprocedure, inner_function regprocedure, finder text)
language sql stable as $$
    with listed (verb, schema_name, names) as (values
        ('send', 'pgmq', '
            send send_batch
        '),
        ('send', 'spanmq', '
            send_messages copy_begin copy_publish bulk_published published_epochs
            +schedule +unschedule:queue_of_schedule +pause_schedule:queue_of_schedule
            +run_schedule:queue_of_schedule +resume_schedule:queue_of_schedule
            plan_schedule:queue_of_schedule upcoming_schedules create_batch add_to_batch note_task_shapes
            wait_for_signal signal
        '),
        -- With these a role could end the writes of others, or take their epochs.
        ('bulk', 'spanmq', '
            bulk_reserve bulk_seal bulk_publish bulk_close
        '),
        ('look', 'pgmq', '
            metrics create_fifo_index
        '),
        ('look', 'spanmq', '
            peek peek_archive storage archive_position archive_ranges archive_piece list_category_policies classify
            list_category_rules dead_letters count_dead_letters dead_letters_between dead_letter_extent failures
            failing failing_messages list_changes failures_between failure_extent statistics list_leases list_groups
            list_segments list_bindings list_throttles dead_letters_of get_policy
            receiver_log list_receivers read_ranges state explain list_subscriptions shard_groups count_messages
            metrics_all health latest_statistics attention list_schedules begin_pipeline_run
            note_pipeline_run:queue_of_run end_pipeline_run:queue_of_run list_pipeline_runs list_batches
            get_schema +replay replay_extent await_settled unsettled get_results list_results list_workers
            list_task_kinds task_statistics
            note_position known_positions noted_export exported_ids list_task_shapes list_signals
        '),
        ('receive', 'pgmq', '
            read read_with_poll pop read_grouped read_grouped_rr read_grouped_head read_grouped_with_poll
            read_grouped_rr_with_poll read_grouped_head_with_poll delete archive set_vt
        '),
        ('receive', 'spanmq', '
            receive begin_alone ack +cancel cancelled nack reject release extend close_bucket receiver_open
            receiver_claim receiver_ranges
            +adopt_receiver +release_receiver +reject_from_receiver await_messages look_ahead report_worker
            note_export hold_export store_result ack_with_results
            +refuse_export +forget_export +redrive +redrive_message +purge_dead_letters
            +retry_failing +reject_failing
        '),
        ('manage', 'pgmq', '
            +purge_queue +enable_notify_insert +disable_notify_insert +update_notify_insert
            +convert_archive_partitioned +unbind_topic
        '),
        ('manage', 'spanmq', '
            +set_policy +set_schema +set_category_policy +set_category_rule +drop_category_rule +pause +resume
            +close_breaker +grant_queue +revoke_queue list_grants ask_stacks get_stacks
        ')),
    named as (
        select l.verb, l.schema_name, split_part(ltrim(n, '+'), ':', 1) as name,
            nullif(split_part(n, ':', 2), '') as finder, starts_with(n, '+') as is_recorded
        from listed l cross join regexp_split_to_table(trim(l.names, E' \n'), '[[:space:]]+') n
        union all
        select 'manage', null, 'drop_queue', null, true
        union all
        select v, null, 'may_' || v, null, false from unnest('{send,bulk,look,receive,manage}'::text[]) v)
    select n.verb, n.schema_name, p.oid::regprocedure,
        case when n.is_recorded then spanmq_core.recorder_of(p.oid) else p.oid::regprocedure end, n.finder
    from named n join pg_proc p on p.pronamespace = 'spanmq_call'::regnamespace and p.proname = n.name
    where not (n.is_recorded and 'of_caller' = any (p.proargnames))
$$;

-- The other functions whose calls are recorded: they need their verb on all queues, or (null) the owner's rights.
create or replace function spanmq_core.recorded_on_all() returns table (verb text, schema_name text,
    written regprocedure, inner_function regprocedure)
language sql stable as $$
    select l.verb, l.schema_name, p.oid::regprocedure, spanmq_core.recorder_of(p.oid)
    from (values
        ('create', 'spanmq', '{set_shards,forget_shards}'::text[]),
        ('manage', 'spanmq', '{create_subscription,stop_worker}'),
        ('manage', 'pgmq', '{bind_topic}'),
        ('serve', 'spanmq', '{set_sqs_queue,start_sqs_move,cancel_sqs_move}'),
        ('admin', 'spanmq', '{create_token,revoke_token,rotate_token,create_access_key,revoke_access_key}'),
        (null, 'spanmq', '{grant_all,revoke_all,grant_create,follow_table_grants}')) l (verb, schema_name, names)
    join pg_proc p on p.pronamespace = 'spanmq_call'::regnamespace and p.proname = any (l.names)
    where 'of_caller' <> all (p.proargnames)
$$;

-- All functions whose calls are recorded.
create or replace function spanmq_core.recorded() returns table (written regprocedure)
language sql stable as $$
    select f.written from spanmq_core.functions_on_queues() f where f.written is distinct from f.inner_function
    union all
    select r.written from spanmq_core.recorded_on_all() r
$$;

-- All functions whose EXECUTE a verb is, as a list for GRANT.
create or replace function spanmq_core.functions_of(verb text) returns text
language sql stable as $$
    select string_agg(f.name::text, ', ') from (
        select q.inner_function as name from spanmq_core.functions_on_queues() q where q.verb = functions_of.verb
        union all
        select r.inner_function from spanmq_core.recorded_on_all() r where r.verb = functions_of.verb
        union all
        select p.oid::regprocedure from pg_proc p
        join (values
            ('create', 'spanmq_call', '{may_create,create_queue,create_partitioned_queue}'::text[]),
            ('look', 'spanmq', '{sum_statistics}'),
            ('send', 'spanmq', '{enter_shards}'),
            -- Maintenance plans the schedules of all queues.
            ('maintain', 'spanmq_call', '{may_maintain,plan_schedule,upcoming_schedules}'),
            ('maintain', 'spanmq', '{maintain,doctor,begin_notices,end_notices}'),
            ('serve', 'spanmq_call', '{may_serve,move_sqs_messages}'),
            ('serve', 'spanmq',
             '{check_token,find_access_key,open_session,check_session,close_session,list_sqs_queues,list_sqs_moves,'
             'find_sqs_move,take_sqs_move,has_sqs_moves,note_sqs_move,list_sqs_moved}'),
            ('admin', 'spanmq_call', '{may_admin}'),
            ('admin', 'spanmq', '{list_tokens,list_access_keys}')
        ) d (verb, schema_name, names) on p.pronamespace = to_regnamespace(d.schema_name) and p.proname = any (d.names)
        where d.verb = functions_of.verb) f
$$;

-- Revokes every right on functions from all roles but their owners: what PostgreSQL grants to PUBLIC, and what the
-- owner's default privileges grant.
create or replace function spanmq_core.close_functions(functions regprocedure[]) returns void
language plpgsql as $$
declare
    this record;
begin
    for this in
        select case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end as role,
               string_agg(distinct p.oid::regprocedure::text, ', ') as functions
        from pg_proc p cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
        where p.oid = any (functions) and a.grantee <> p.proowner group by 1
    loop
        execute format('revoke all on function %s from %s cascade', this.functions, this.role);
    end loop;
end $$;

-- A role that may execute may_<verb>() has the verb. These functions do nothing. On a new one no role has a right.
do $$
declare
    each text;
    is_new boolean;
begin
    foreach each in array spanmq_core.all_verbs() loop
        each := format('spanmq_call.may_%s()', each);
        is_new := to_regprocedure(each) is null;
        execute format('create or replace function %s returns void language sql immutable as ''select null::void''',
                       each);
        if is_new then
            perform spanmq_core.close_functions(array[each::regprocedure]);
        end if;
    end loop;
end $$;

do $$
declare
    this record;
    each text;
    grants text[] := '{}';
    -- All inner functions are open to other roles only after a restore without privileges: then none of the privileges
    -- is a grant of a verb.
    was_restored boolean := coalesce((
        select bool_and(exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
                                where a.grantee <> p.proowner)) from pg_proc p
        join spanmq_core.object_checksum known on known.kind = 'function'
            and known.name = format('spanmq_core.%I(%s)', p.proname, pg_get_function_identity_arguments(p.oid))
        where p.pronamespace = 'spanmq_core'::regnamespace), false);
    closed regprocedure[];
begin
    for this in select * from spanmq_core.recorded() loop
        execute spanmq_core.recorder_text(this.written);
        closed := closed || this.written;
    end loop;
    for this in
        select f.written, f.inner_function, f.schema_name, f.verb, f.finder from spanmq_core.functions_on_queues() f
            where f.schema_name is not null
        union all
        select r.written, r.inner_function, r.schema_name, null, null from spanmq_core.recorded_on_all() r
    loop
        execute spanmq_core.entry_text(this.written, this.inner_function, this.schema_name, this.verb, this.finder);
    end loop;
    closed := closed || array(select r.inner_function from spanmq_core.recorded_on_all() r where r.verb is null);
    -- First no role, then those that had the verb before: an upgrade may have brought functions, and what was restored
    -- without privileges is open to all.
    revoke all on schema spanmq_core, spanmq_call from public;
    perform spanmq_core.close_functions(array(select p.oid from pg_proc p
                                              where p.pronamespace = 'spanmq_core'::regnamespace));
    foreach each in array spanmq_core.all_verbs() loop
        for this in
            select spanmq_core.functions_of(each) as functions,
            array(select spanmq_core.role_name(g) from spanmq_core.grantees_of(each, null) g) as roles
            union all
            select array_to_string(spanmq_core.make_wrappers(q, each), ', '),
                   array(select spanmq_core.role_name(g) from spanmq_core.grantees_of(each, q.queue_id) g)
            from spanmq_core.queue q where spanmq_core.has_wrappers(q.queue_id, each)
        loop
            closed := closed || string_to_array(this.functions, ', ')::regprocedure[];
            if this.roles <> '{}' and not was_restored then
                -- After all that is revoked: a function may belong to two verbs.
                grants := grants || format('grant execute on function %s to %s', this.functions,
                                           array_to_string(this.roles, ', '));
            end if;
        end loop;
    end loop;
    -- With the wrappers of functions that another verb had before.
    perform spanmq_core.close_functions(closed || array(
        select p.oid::regprocedure from pg_proc p where p.pronamespace = 'spanmq_call'::regnamespace
            and p.proname ~ '_[0-9]+$'));
    -- They go, and so do those of functions that have a proof of their caller only now.
    perform spanmq_core.drop_functions(array(
        select p.oid::regprocedure from pg_proc p where p.pronamespace = 'spanmq_call'::regnamespace
            and p.proname ~ '_[0-9]+$' and p.oid <> all (closed)
            and p.prosrc ~ '^begin (return|perform|return query select [*] from) spanmq_call[.]'));
    foreach each in array grants loop
        execute each;
    end loop;
    -- A new function that checks its caller is every role's, also where the owner's default privileges leave PUBLIC no
    -- new functions.
    for this in
        select p.oid::regprocedure as function
        from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        cross join lateral format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)) named
        where n.nspname in ('pgmq', 'spanmq', 'spanmq_call') and p.oid <> all (closed)
        and not has_function_privilege('public', p.oid, 'execute')
            and 'function ' || named <> all (string_to_array(current_setting('spanmq.foreign_objects'), E'\n'))
            and not exists (select from spanmq_core.object_checksum known where known.kind = 'function'
                            and known.name = named)
    loop
        execute format('grant execute on function %s to public', this.function);
    end loop;
    -- Up to 0.1.0, EXECUTE on these was the verb.
    for this in
        select e.oid::regprocedure as function
        from spanmq_core.recorded_on_all() r
        join pg_proc p on p.oid = r.written
        join pg_proc e on e.pronamespace = r.schema_name::regnamespace and e.proname = p.proname
        where not exists (select from spanmq_core.object_checksum known where known.kind = 'function'
                          and starts_with(known.name, format('spanmq_call.%I(', p.proname)))
    loop
        execute format('grant execute on function %s to public', this.function);
    end loop;
    perform spanmq_core.close_privileges(null);
    -- Functions in a view are executed with the rights of the role that reads the view.
    grant execute on function spanmq_core.last_notified_at(int), spanmq_core.refuse_replica_role(),
        spanmq_core.unless_replica_role(anyelement) to public;
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

-- Views of queues and logs that an older release made have no guard and no defaults.
do $$
declare
    this spanmq_core.queue;
begin
    for this in
        select * from spanmq_core.queue q
        where to_regclass(format('pgmq.%I', 'q_' || q.folded_name)) = q.queue_view
          and (to_regclass(format('spanmq_core.guard_%s', q.queue_id)) is null
               or not exists (select from pg_attrdef d where d.adrelid = q.queue_view))
    loop
        perform spanmq_core.make_view(this.queue_id, 'q_' || this.folded_name);
        if to_regclass(format('spanmq.log_%s', this.queue_id)) is not null then
            execute spanmq_core.log_view_text(this.queue_id);
        end if;
    end loop;
end $$;
