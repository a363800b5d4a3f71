-- Makes each queue anew and moves into it what was set aside. Runs after ours was installed.
do $take_over$
declare
    partman regclass := (select r.oid from spanmq_adopt.relation r join pg_class c on c.oid = r.oid
                         where r.place = 'partman' and c.relname = 'part_config');
    this spanmq_adopt.queue;
    ours spanmq_core.queue;
    allowed record;
    template text;
    moved bigint;
    is_following boolean := current_setting('spanmq.follow_table_grants', true) is not distinct from 'on';
begin
    for this in select * from spanmq_adopt.queue q where q.source is not null order by q.created_at, q.name loop
        select (c.this).* into ours from spanmq_core.create_queue(this.name, this.is_partitioned, this.is_unlogged) c;
        if this.archive is not null then
            execute format('drop table %s', ours.archive);
            execute format('alter table %s set schema pgmq', this.archive);
            execute format('alter table %s add column if not exists last_read_at timestamptz, add column if not exists'
                           ' headers jsonb', this.archive);
            -- Our functions write it with their owner's rights: its owner, and those of its partitions, could add
            -- triggers.
            for allowed in
                select r.oid::regclass as part from spanmq_adopt.relation r join pg_class c on c.oid = r.oid
                where r.place = 'archive' and r.folded_name = this.folded_name
                and pg_get_userbyid(c.relowner) <> current_user
            loop
                execute format('alter table %s owner to %I', allowed.part, current_user);
            end loop;
        end if;
        update spanmq_core.queue q set created_at = this.created_at, archive = coalesce(this.archive, q.archive)
            where q.queue_id = ours.queue_id returning * into ours;

        -- Default privileges apply to the new view; the table may have had fewer.
        for allowed in
            select c.oid::regclass as relation,
            case when g.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(g.grantee)) end as role
            from pg_class c, aclexplode(c.relacl) g
            where (c.oid = ours.queue_view or c.oid = ours.archive and this.archive is null) and g.grantee <> c.relowner
                and not exists (select from pg_class s, aclexplode(s.relacl) h
                                where s.oid = this.source and h.grantee = g.grantee and h.privilege_type = 'SELECT')
        loop
            execute format('revoke all on %s from %s', allowed.relation, allowed.role);
        end loop;

        moved := spanmq_core.import_messages(ours.queue_id, this.source);
        if moved <> this.messages then
            raise exception 'of the % messages of queue % only % were taken over', this.messages, this.name, moved
                using errcode = 'MQ006', hint = 'This should not happen. Nothing was changed.';
        end if;
        if this.last_id is not null then
            perform setval(ours.ids, greatest(this.last_id, 1), this.last_id > 0);
        end if;
        perform spanmq_core.make_ahead(ours);
        if this.notify_ms is not null then
            perform spanmq_call.enable_notify_insert(this.name, this.notify_ms);
        end if;

        -- The owner of the table had all rights on the queue, and keeps them.
        if not pg_has_role(this.owner, current_user, 'usage') then
            perform spanmq_core.give_to_maker(ours, this.owner::text);
        end if;
        -- From now on a trigger there would run with the rights of the schema's owner; before PostgreSQL 18, so would
        -- an AFTER trigger of a table to which a foreign key there cascades. A grant on a column is revoked with those
        -- on its table.
        for allowed in
            select r.oid::regclass as part,
                   string_agg(distinct case when g.grantee = 0 then 'public'
                              else quote_ident(pg_get_userbyid(g.grantee)) end, ', ') as roles
            from spanmq_adopt.relation r join pg_class c on c.oid = r.oid
            cross join lateral (
                select (aclexplode(c.relacl)).*
                union all
                select (aclexplode(a.attacl)).* from pg_attribute a where a.attrelid = c.oid and a.attacl is not null) g
            where r.place = 'archive' and r.folded_name = this.folded_name and g.grantee <> c.relowner
                and g.privilege_type in ('TRIGGER', 'REFERENCES')
            group by 1
        loop
            execute format('revoke trigger, references on %s from %s cascade', allowed.part, allowed.roles);
        end loop;
        -- Privileges on the table become privileges on the view, which are followed, or verbs.
        if is_following then
            for allowed in
                select case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end
                           || case when a.is_grantable then ' with grant option' else '' end as role,
                       string_agg(a.privilege_type, ', ') as privileges
                from pg_class c, aclexplode(c.relacl) a
                where c.oid = this.source and a.grantee <> c.relowner
                    and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE')
                group by a.grantee, a.is_grantable
            loop
                execute format('grant %s on %s to %s', allowed.privileges, ours.queue_view, allowed.role);
            end loop;
        end if;
        for allowed in
            select g.role, v.verb
            from (select case when a.grantee = 0 then 'public' else pg_get_userbyid(a.grantee)::text end as role,
                         array_agg(a.privilege_type) as has, array_agg(a.privilege_type) filter (where a.is_grantable)
                         as may_grant
                  from pg_class c, aclexplode(c.relacl) a where c.oid = this.source and a.grantee <> c.relowner
                  group by 1) g
            cross join lateral (values ('send', 'INSERT' = any (g.has)), ('look', 'SELECT' = any (g.has)),
                                       ('receive', g.has @> array['SELECT', 'UPDATE', 'DELETE']),
                                       ('manage', g.role <> 'public'
                                        and g.may_grant @> array['SELECT', 'INSERT', 'UPDATE', 'DELETE'])) v (verb, has)
            where v.has and not is_following
        loop
            perform spanmq_call.grant_queue(allowed.role, this.name::text, allowed.verb);
        end loop;

        if partman is not null then
            for template in
                execute format('delete from %s where parent_table = $1 returning template_table', partman)
                using 'pgmq.q_' || this.folded_name
            loop
                -- Its own template only: one that was given to it may serve other tables.
                if split_part(template, '.', 2) = 'template_pgmq_q_' || this.folded_name
                    and to_regclass(template) is not null then
                    execute format('drop table %s', to_regclass(template));
                end if;
            end loop;
            if this.retention is not null
                and not (select c.relkind = 'p' from pg_class c where c.oid = ours.archive) then
                perform spanmq_core.set_retention(ours, '', this.retention);
            end if;
        end if;
        execute format('drop table %s', this.source);
        update spanmq_adopt.queue q set queue_id = ours.queue_id where q.name = this.name;
    end loop;

    insert into spanmq_core.topic_binding (pattern, queue_name, bound_at)
        select t.pattern, q.name, t.bound_at from spanmq_adopt.topic t join spanmq_adopt.queue q
        on q.folded_name = t.folded_name
        where q.queue_id is not null;

    for allowed in select r.table_name, r.role from spanmq_adopt.reader r loop
        execute format('grant select on pgmq.%I to %s', allowed.table_name, allowed.role);
    end loop;

    -- A function with the same name and arguments keeps its grants.
    for allowed in
        select p.oid::regprocedure as function, g.grants, g.owner from spanmq_adopt.function_grant g
        join pg_proc p on p.pronamespace = 'pgmq'::regnamespace and p.proname = g.name
        and oidvectortypes(p.proargtypes) = g.arguments
    loop
        if not exists (select from aclexplode(allowed.grants) a where a.grantee = 0) then
            execute format('revoke execute on function %s from public', allowed.function);
        end if;
        for template in
            select format('%I', pg_get_userbyid(a.grantee)) || case when a.is_grantable then ' with grant option'
            else '' end
            from aclexplode(allowed.grants) a where a.grantee not in (0, allowed.owner)
        loop
            execute format('grant execute on function %s to %s', allowed.function, template);
        end loop;
    end loop;

    for allowed in
        select p.oid::regprocedure as function from spanmq_adopt.own_function f left join pg_proc p on p.oid = f.oid
        where p.prosrc is distinct from f.source
    loop
        raise exception 'your own function % has the name and arguments of one of spanmq', allowed.function
            using errcode = 'MQ006', hint = 'Rename it. Nothing was changed.';
    end loop;
end
$take_over$;

analyze spanmq_core.state, spanmq_core.later;
