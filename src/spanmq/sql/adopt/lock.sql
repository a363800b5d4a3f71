-- Keeps PGMQ's tables as they are to the end of the transaction, and other sessions out of them if the mode says so,
-- before anything of them is checked or read. In the order in which PGMQ's calls lock them, so that a call that is
-- under way waits for us or we for it; a transaction over several queues may still end one of us in a deadlock.

-- Locks the table of that name and notes it for inspect(); a view or other object is noted and not locked. What is
-- locked can't be renamed: the name means the same relation before and after.
create function spanmq_adopt.hold(schema_name text, table_name text, mode text, place text, folded_name text)
returns void language plpgsql as $$
declare
    full_name text := format('%I.%I', schema_name, table_name);
    relation regclass;
begin
    loop
        relation := to_regclass(full_name);
        if relation is null then
            return;
        end if;
        if (select c.relkind in ('r', 'p') from pg_class c where c.oid = relation) then
            execute format('lock table %s in %s mode', full_name, mode);
        end if;
        exit when relation = to_regclass(full_name);
    end loop;
    insert into spanmq_adopt.relation values (relation, place, folded_name) on conflict do nothing;
exception
    when undefined_table then
        return;
    when lock_not_available then
        raise exception 'a transaction is using PGMQ''s tables and did not end in time'
            using errcode = '55P03', hint = 'End it, or raise the lock timeout. Nothing was changed.';
end $$;

create function spanmq_adopt.hold_settings(mode text) returns void
language plpgsql as $$
declare
    partman name := (select n.nspname from pg_extension e join pg_namespace n on n.oid = e.extnamespace
                     where e.extname = 'pg_partman');
begin
    perform spanmq_adopt.hold('pgmq', 'meta', mode, 'names', null);
    if partman is not null then
        perform spanmq_adopt.hold(partman, 'part_config', mode, 'partman', null);
        insert into spanmq_adopt.relation
            select k.conrelid, 'partman', null from pg_constraint k join spanmq_adopt.relation r on r.oid = k.confrelid
            where r.place = 'partman' and k.contype = 'f' on conflict do nothing;
    end if;
    -- An owner of a schema can drop what is in it, and put other objects under the names.
    insert into spanmq_adopt.obstacle (object, reason)
        select format('schema %s', n.nspname),
               format('it belongs to %1$I, which has fewer rights than %2$I:'
                      ' alter schema %3$I owner to %2$I, or adopt as %1$I',
                      pg_get_userbyid(n.nspowner), current_user, n.nspname)
        from pg_namespace n
        where n.nspname in ('pgmq', partman) and not pg_has_role(n.nspowner, current_user, 'usage');
    insert into spanmq_adopt.obstacle (object, reason)
        select 'extension pg_partman',
               format('it belongs to %I, which has fewer rights than %I: a superuser must install it',
                      pg_get_userbyid(e.extowner), current_user)
        from pg_extension e where e.extname = 'pg_partman' and not pg_has_role(e.extowner, current_user, 'usage');
    perform spanmq_adopt.inspect('{names,partman}');
end $$;

create function spanmq_adopt.hold_queues(mode text) returns void
language plpgsql as $$
declare
    this record;
begin
    perform spanmq_adopt.hold('pgmq', 'topic_bindings', mode, 'settings', null);
    for this in
        select distinct p.prefix || lower(m.queue_name collate "C") as table_name, p.place,
            lower(m.queue_name collate "C") as folded_name
        from pgmq.meta m, (values ('q_', 'queue'), ('a_', 'archive')) p (prefix, place)
        -- A queue before its archive, as pgmq.archive does it.
        order by 3, 2 desc
    loop
        perform spanmq_adopt.hold('pgmq', this.table_name, mode, this.place, this.folded_name);
    end loop;
    perform spanmq_adopt.hold('pgmq', 'notify_insert_throttle', mode, 'settings', null);
    perform spanmq_adopt.inspect('{settings,queue,archive}');
end $$;
