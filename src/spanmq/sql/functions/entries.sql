-- Last in the order of file names: it makes entries for the functions of all files, and gives the rights.

-- The functions that act on queues: their verb, the schema of their entry, and what finds the queue of those that are
-- called by another name.
create or replace function spanmq_core.functions_on_queues() returns table (verb text, schema_name text,
    inner_function regprocedure, finder text)
language sql stable as $$
    with listed (verb, schema_name, names) as (values
        ('send', 'pgmq', '
            send send_batch
        '),
        ('send', 'spanmq', '
            send_messages copy_begin copy_publish bulk_reserve bulk_seal bulk_publish bulk_close bulk_published schedule
            unschedule:queue_of_schedule pause_schedule:queue_of_schedule run_schedule:queue_of_schedule
            resume_schedule:queue_of_schedule
            plan_schedule:queue_of_schedule upcoming_schedules create_batch add_to_batch
        '),
        ('look', 'pgmq', '
            metrics create_fifo_index
        '),
        ('look', 'spanmq', '
            peek peek_archive storage archive_position archive_ranges archive_piece list_category_policies classify
            list_category_rules dead_letters count_dead_letters dead_letters_between dead_letter_extent failures
            failing failing_messages list_changes failures_between failure_extent statistics list_leases list_groups
            list_segments list_bindings list_throttles dead_letters_of get_policy
            receiver_log list_receivers read_ranges state list_subscriptions shard_groups count_messages metrics_all
            health latest_statistics list_schedules begin_pipeline_run note_pipeline_run:queue_of_run
            end_pipeline_run:queue_of_run list_pipeline_runs list_batches
            get_schema replay replay_extent await_settled unsettled get_results list_results list_workers
            list_task_kinds
            note_position known_positions
        '),
        ('receive', 'pgmq', '
            read read_with_poll pop read_grouped read_grouped_rr read_grouped_head read_grouped_with_poll
            read_grouped_rr_with_poll read_grouped_head_with_poll delete archive set_vt
        '),
        ('receive', 'spanmq', '
            receive begin_alone ack cancel cancelled nack reject release extend hold receiver_open receiver_claim
            receiver_ranges
            adopt_receiver release_receiver reject_from_receiver await_messages look_ahead report_breaker report_worker
            note_export store_result ack_with_results
            refuse_export forget_export redrive redrive_message purge_dead_letters
            retry_failing reject_failing
        '),
        ('manage', 'pgmq', '
            purge_queue enable_notify_insert disable_notify_insert update_notify_insert
            convert_archive_partitioned unbind_topic
        '),
        ('manage', 'spanmq', '
            set_policy set_schema set_category_policy set_category_rule drop_category_rule pause resume grant_queue
            revoke_queue
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
            ('serve', 'spanmq_call', '{may_serve,move_sqs_messages}'),
            ('serve', 'spanmq',
             '{check_token,find_access_key,open_session,check_session,close_session,list_sqs_queues,set_sqs_queue,'
             'start_sqs_move,list_sqs_moves,find_sqs_move,cancel_sqs_move,take_sqs_move,has_sqs_moves,note_sqs_move,'
             'list_sqs_moved}'),
            ('admin', 'spanmq_call', '{may_admin}'),
            ('admin', 'spanmq',
             '{create_token,list_tokens,revoke_token,rotate_token,create_access_key,list_access_keys,'
             'revoke_access_key}')
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

-- Leaves other roles SELECT, if anything, of what the owner's default privileges grant on a new table, view or
-- sequence.
create or replace function spanmq_core.close_relation(relation regclass) returns void
language plpgsql as $$
declare
    this record;
begin
    for this in
        select case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end as role,
               bool_or(a.privilege_type = 'SELECT') as may_select
        from pg_class c cross join lateral aclexplode(c.relacl) a
        where c.oid = relation and a.grantee <> c.relowner group by 1 having bool_or(a.privilege_type <> 'SELECT')
    loop
        execute format('revoke all on %s from %s cascade', relation, this.role);
        if this.may_select then
            execute format('grant select on %s to %s', relation, this.role);
        end if;
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
    closed regprocedure[]
        :=
        '{"spanmq.grant_all(text,text)","spanmq.revoke_all(text,text)",spanmq.grant_create(text),'
        'spanmq.follow_table_grants(boolean)}';
begin
    for this in select * from spanmq_core.functions_on_queues() f where f.schema_name is not null loop
        execute spanmq_core.entry_text(this.inner_function, this.schema_name, this.verb, this.finder);
    end loop;
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
    -- Tables and sequences of ours are read by functions only. The log of a queue may be granted, and so may the
    -- ledger.
    for this in
        select c.oid::regclass as relation,
               string_agg(distinct case when a.grantee = 0 then 'public'
                          else quote_ident(pg_get_userbyid(a.grantee)) end, ', ') as roles
        from pg_class c cross join lateral aclexplode(c.relacl) a
        where c.relnamespace in ('spanmq_core'::regnamespace, 'spanmq_call'::regnamespace)
        and c.relkind in ('r', 'p', 'v', 'S')
            and a.grantee <> c.relowner and c.relname !~ '^[a-z_]+_[0-9]+(_|$)'
            and (c.relname <> all ('{migration,release,object_checksum}') or a.privilege_type <> 'SELECT')
        group by 1
    loop
        execute format('revoke all on %s from %s cascade', this.relation, this.roles);
    end loop;
    perform spanmq_core.close_relation(r.relation)
        from unnest('{pgmq.meta,pgmq.topic_bindings,pgmq.notify_insert_throttle}'::regclass[]) r (relation)
        where not exists (select from spanmq_core.object_checksum known where known.name = r.relation::text);
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
