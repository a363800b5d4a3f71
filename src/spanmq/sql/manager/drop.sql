-- Drops the functions `differing`, and notes in spanmq.granted which roles might execute them. Refuses while an object
-- that is not of this release depends on one: then nothing of the upgrade has happened.
    declare
        dependents text;
        this record;
    begin
        -- The wrappers of a function, one for each queue, are made from it.
        differing := differing || array(
            select distinct p.oid from pg_catalog.pg_proc p
            join pg_catalog.pg_proc c on c.oid = any (differing) and c.pronamespace = p.pronamespace
            where p.pronamespace = 'spanmq_call'::pg_catalog.regnamespace
              and p.proname ~ pg_catalog.format('^%s_[0-9]+$', c.proname));
        select pg_catalog.string_agg(distinct pg_catalog.format('%s needs %s; to create it again: %s',
            pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid), d.refobjid::pg_catalog.regprocedure,
            case d.classid
                when 'pg_catalog.pg_rewrite'::pg_catalog.regclass then (
                    select pg_catalog.format('create view %s as %s', w.ev_class::pg_catalog.regclass,
                                             pg_catalog.pg_get_viewdef(w.ev_class))
                    from pg_catalog.pg_rewrite w where w.oid = d.objid)
                when 'pg_catalog.pg_proc'::pg_catalog.regclass then pg_catalog.pg_get_functiondef(d.objid)
                when 'pg_catalog.pg_trigger'::pg_catalog.regclass then pg_catalog.pg_get_triggerdef(d.objid)
                when 'pg_catalog.pg_class'::pg_catalog.regclass then pg_catalog.pg_get_indexdef(d.objid)
                when 'pg_catalog.pg_constraint'::pg_catalog.regclass then (
                    select pg_catalog.format('alter table %s add constraint %I %s', k.conrelid::pg_catalog.regclass,
                                             k.conname, pg_catalog.pg_get_constraintdef(k.oid))
                    from pg_catalog.pg_constraint k where k.oid = d.objid)
                when 'pg_catalog.pg_attrdef'::pg_catalog.regclass then (
                    select pg_catalog.format('alter table %s alter %I set default %s', f.adrelid::pg_catalog.regclass,
                                             a.attname, pg_catalog.pg_get_expr(f.adbin, f.adrelid))
                    from pg_catalog.pg_attrdef f
                    join pg_catalog.pg_attribute a on a.attrelid = f.adrelid and a.attnum = f.adnum
                    where f.oid = d.objid)
                else 'see its definition' end), E'\n') into dependents
        from pg_catalog.pg_depend d
        where d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass and d.refobjid = any (differing)
          and d.deptype = 'n'
          and not (d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass and d.objid = any (differing));
        if dependents is not null then
            raise exception 'objects depend on functions that this release changes or drops'
                using errcode = 'MQ006', detail = dependents,
                      hint = 'Drop them, upgrade, and create them again, adapted where they use what has changed.';
        end if;
        perform pg_catalog.set_config('spanmq.granted', (
            pg_catalog.current_setting('spanmq.granted')::jsonb || coalesce((
                select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
                    'schema', p.pronamespace, 'name', p.proname, 'role', a.grantee, 'option', a.is_grantable))
                from pg_catalog.pg_proc p
                cross join lateral (
                    select e.grantee, e.is_grantable
                    from pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) e
                    -- That PUBLIC has none is a row, too.
                    union all select p.proowner, false) a
                -- On the others, entries.sql grants what verbs include.
                where p.oid = any (differing)
                  and p.pronamespace in ('pgmq'::pg_catalog.regnamespace, 'spanmq'::pg_catalog.regnamespace)
            ), '[]'))::text, true);
        for this in select r.oid::pg_catalog.regprocedure as function from pg_catalog.unnest(differing) r (oid) loop
            execute pg_catalog.format('drop function %s', this.function);
        end loop;
    end;
