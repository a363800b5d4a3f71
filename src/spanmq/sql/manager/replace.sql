-- Before the functions of a release: drops those of the last one that CREATE OR REPLACE cannot replace, because their
-- arguments or results differ, or that would stay beside a new one of the same name, and those of which entries are
-- made. leftovers.sql drops the others that the release lacks.
do $replace$
declare
    -- Schema, name and the rest of the header of each function, in turn.
    headers text[] := :headers;
    ours oid[] := array(
        select p.oid from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
        join spanmq_core.object_checksum known on known.kind = 'function' and known.name = pg_catalog.format(
            '%I.%I(%s)', n.nspname, p.proname, pg_catalog.pg_get_function_identity_arguments(p.oid)));
    differing oid[];
    new oid[];
begin
    -- The row of a function that the release does not have keeps its xmin.
    perform pg_catalog.set_config('spanmq.functions_before', coalesce((
        select pg_catalog.jsonb_object_agg(p.oid::text, p.xmin::text) from pg_catalog.pg_proc p where p.oid = any (ours)
    ), '{}')::text, true), pg_catalog.set_config('spanmq.granted', '[]', true);
    if ours = '{}' then
        return;
    end if;
    -- The new functions under names of their own and without bodies: only the server can compare their arguments.
    for i in 1 .. pg_catalog.cardinality(headers) by 3 loop
        execute pg_catalog.format('create function spanmq_core.%I%s language plpgsql as %L',
                                  'new.' || headers[i] || '.' || headers[i + 1], headers[i + 2], 'begin end');
    end loop;
    new := array(select p.oid from pg_catalog.pg_proc p
                 where p.pronamespace = 'spanmq_core'::pg_catalog.regnamespace and p.proname ~ '^new\.');
    select pg_catalog.array_agg(p.oid) into differing
    from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    where p.oid = any (ours)
      -- Entries, wrappers and the forms that record are made by entries.sql, from the functions of spanmq_call.
      and p.prosrc !~ 'spanmq_call[.]wrapper_call[(]|Made by spanmq_core[.]recorder_text'
      and not (n.nspname = 'spanmq_call' and p.proname ~ '(^may_|_[0-9]+$)')
      and (n.nspname = 'spanmq_call' or exists (
          select from pg_catalog.pg_proc s
          where s.oid = any (new) and s.proname = 'new.' || n.nspname || '.' || p.proname))
      and not exists (
          select from pg_catalog.pg_proc s
          where s.oid = any (new) and s.proname = 'new.' || n.nspname || '.' || p.proname
            and s.proargtypes = p.proargtypes and s.prorettype = p.prorettype and s.proretset = p.proretset
            and s.proallargtypes is not distinct from p.proallargtypes
            and s.proargmodes is not distinct from p.proargmodes
            and s.proargnames is not distinct from p.proargnames
            and s.pronargdefaults >= p.pronargdefaults);
    execute 'drop function ' || (
        select pg_catalog.string_agg(f.oid::pg_catalog.regprocedure::text, ', ') from pg_catalog.unnest(new) f (oid));
    -- The entry of a function that differs is made from it, and so is its form that records.
    differing := differing || array(
        select p.oid from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
        where p.oid = any (ours) and p.oid <> all (differing)
          and p.prosrc ~ case when n.nspname in ('pgmq', 'spanmq') then 'spanmq_call[.](wrapper_call|prove_caller)[(]'
                              when n.nspname = 'spanmq_call' then 'Made by spanmq_core[.]recorder_text' end
          and exists (select from pg_catalog.pg_proc c
                      where c.oid = any (differing) and c.proname = p.proname
                        and c.pronamespace = 'spanmq_call'::pg_catalog.regnamespace));
    :drop
end
$replace$;
