-- Drops the four schemas. Raises MQ006, naming what would be lost, unless forced. Runs between begin.sql and end.sql.
do $uninstall$
declare
    is_forced boolean := :force;
    losses text[] := '{}';
    this record;
    is_empty boolean;
begin
    if not is_forced then
        -- Every call reads this table first: no message is sent between the count and the drop.
        if to_regclass('spanmq_core.queue') is not null then
            lock table spanmq_core.queue in access exclusive mode;
        end if;
        for this in select m.queue_name, m.queue_length from pgmq.metrics_all() m where m.queue_length > 0
            order by 1 loop
            losses := losses || format('queue %s with %s messages', this.queue_name, this.queue_length);
        end loop;
        for this in
            select c.oid::regclass as archive from pg_class c
            where c.relnamespace = 'pgmq'::regnamespace and c.relname ~ '^a_' and c.relkind in ('r', 'p') order by 1
        loop
            execute format('select not exists (select from %s)', this.archive) into is_empty;
            if not is_empty then
                losses := losses || format('archive %s', this.archive);
            end if;
        end loop;
        if to_regclass('spanmq_core.dead_letter_count') is not null then
            for this in
                select q.name, sum(c.n) as n from spanmq_core.dead_letter_count c join spanmq_core.queue q
                on q.queue_id = c.queue_id
                group by q.name having sum(c.n) <> 0 order by 1
            loop
                losses := losses || format('queue %s with %s dead letters', this.name, this.n);
            end loop;
        end if;
        losses := losses || array(
            select format('your own %s %s', object.kind, object.name)
            from (:snapshot) object
            where object.kind <> 'view text'
                and not exists (select from spanmq_core.object_checksum known where known.kind = object.kind
                                and known.name = object.name)
                -- The functions that a grant makes for one queue: ack_7(...) only calls ack(...).
                and not exists (
                    select from pg_proc p
                    where p.pronamespace = 'spanmq_call'::regnamespace
                        and object.name = format('spanmq_call.%I(%s)', p.proname,
                                                 pg_get_function_identity_arguments(p.oid))
                        and p.proname ~ '_[0-9]+$'
                        and p.prosrc ~
                        format('^begin (return|perform|return query select \* from) spanmq_call\.%s\([^;]*; end$',
                               regexp_replace(p.proname, '_[0-9]+$', '')))
            order by 1);
        -- Objects whose names are like those of a queue's parts: the snapshot leaves them out. Tables named a_ are
        -- above, if they have rows.
        losses := losses || array(
            select format('your own %s', pg_describe_object('pg_class'::regclass, c.oid, 0))
            from pg_class c
            where c.relnamespace = 'pgmq'::regnamespace and c.relname ~ '^[qa]_'
            and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S') and not c.relispartition
                and not (c.relname ~ '^a_' and c.relkind in ('r', 'p'))
                and not exists (select from pgmq.metrics_all() m
                                where c.relname in ('q_' || lower(m.queue_name collate "C"),
                                                    'q_' || lower(m.queue_name collate "C") || '_msg_id_seq'))
                and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid
                                and d.deptype in ('a', 'i'))
            order by 1);
        losses := losses || array(
            select distinct pg_describe_object(d.classid, d.objid, 0)
            from pg_depend d
            cross join pg_identify_object(d.refclassid, d.refobjid, 0) there
            cross join pg_identify_object(d.classid, d.objid, 0) here
            -- Objects without a schema of their own, rules and triggers, are named after their table.
            cross join pg_identify_object_as_address(d.classid, d.objid, 0) address
            where d.deptype in ('n', 'a')
                and there.schema in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core')
                and here.type not in ('default acl', 'toast table', 'toast table column')
                and coalesce(here.schema, address.object_names[1]) not in ('pgmq', 'spanmq', 'spanmq_call',
                    'spanmq_core')
            order by 1);
        if cardinality(losses) > 0 then
            raise exception 'uninstalling spanmq would lose data'
                using errcode = 'MQ006',
                detail = array_to_string(losses[1:20], ', ') || case when cardinality(losses) > 20 then ', ...'
                else '' end,
                    hint = 'Empty the queues, archives and dead letters first, or force it.';
        end if;
    end if;
    drop schema pgmq, spanmq, spanmq_call, spanmq_core cascade;
    -- The extension without members that `spanmq schema extension` registered.
    if pg_catalog.pg_has_role((select n.nspowner from pg_catalog.pg_namespace n where n.nspname = 'spanmq_extension'),
                              'usage') then
        drop schema spanmq_extension cascade;
    end if;
end
$uninstall$;
