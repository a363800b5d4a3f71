-- After the functions of a release: drops those of the last one that the release lacks, and grants EXECUTE as it was
-- granted on the functions that were dropped, as far as there is a function of that name.
do $leftovers$
declare
    before jsonb := pg_catalog.current_setting('spanmq.functions_before')::jsonb;
    differing oid[] := array(
        select p.oid from pg_catalog.pg_proc p
        where before ->> p.oid::text = p.xmin::text
          -- The functions of one queue: entries.sql keeps them.
          and not (p.pronamespace = 'spanmq_call'::pg_catalog.regnamespace and p.proname ~ '_[0-9]+$'));
    granted record;
begin
    :drop
    for granted in
        select p.oid::pg_catalog.regprocedure as function,
               pg_catalog.bool_or(g.role = 0) as is_public,
               pg_catalog.string_agg(distinct pg_catalog.quote_ident(r.rolname), ', ') filter (where not g.option)
               as roles,
               pg_catalog.string_agg(distinct pg_catalog.quote_ident(r.rolname), ', ') filter (where g.option)
               as granters
        from pg_catalog.jsonb_to_recordset(pg_catalog.current_setting('spanmq.granted')::jsonb)
            g (schema oid, name name, role oid, option boolean)
        join pg_catalog.pg_proc p on p.pronamespace = g.schema and p.proname = g.name and not before ? p.oid::text
        left join pg_catalog.pg_roles r on r.oid = g.role and r.oid <> p.proowner
        group by p.oid
    loop
        if not granted.is_public then
            execute pg_catalog.format('revoke all on function %s from public', granted.function);
        end if;
        if granted.roles is not null then
            execute pg_catalog.format('grant execute on function %s to %s', granted.function, granted.roles);
        end if;
        if granted.granters is not null then
            execute pg_catalog.format('grant execute on function %s to %s with grant option', granted.function,
                                      granted.granters);
        end if;
    end loop;
end
$leftovers$;
