-- Makes the schema one of a later release as a client sees it: each result of columns has one more, a policy has a setting
-- more, and the version is another.

do $do$
declare
    this record;
begin
    execute replace(pg_get_functiondef('spanmq.version()'::regprocedure), spanmq.version(), '9.0.0');
    for this in
        select p.proname as name, pg_get_function_identity_arguments(p.oid) as identity, pg_get_function_arguments(p.oid) as arguments,
            (select string_agg('$' || n, ', ' order by n) from generate_series(1, p.pronargs) n) as given, c.columns
        from pg_proc p
        cross join lateral (
            select string_agg(format('%I %s', name, format_type(type, null)), ', ' order by place) as columns
            from (
                select p.proargnames[place], p.proallargtypes[place], place
                from generate_subscripts(p.proallargtypes, 1) place where p.proargmodes[place] = 't'
                union all
                select a.attname, a.atttypid, a.attnum
                from pg_type t join pg_attribute a on a.attrelid = t.typrelid
                where t.oid = p.prorettype and t.typtype = 'c' and a.attnum > 0 and not a.attisdropped
            ) u (name, type, place)) c
        where p.pronamespace = 'spanmq'::regnamespace and p.proretset and c.columns is not null
            -- Functions of pgmq return all columns of these.
            and p.proname not in ('list_bindings', 'list_throttles')
    loop
        execute format('alter function spanmq.%I(%s) rename to %I', this.name, this.identity, this.name || '_of_older');
        execute format(
            $f$create function spanmq.%I(%s) returns table (%s, of_later text) language sql as $$ select r.*, 'later' from spanmq.%I(%s) r $$$f$,
            this.name, this.arguments, this.columns, this.name || '_of_older', this.given);
    end loop;
end $do$;

alter function spanmq.get_policy(text) rename to get_policy_of_older;
create function spanmq.get_policy(queue text) returns jsonb language sql as $$
    select spanmq.get_policy_of_older(queue) || '{"of_later": 1}'
$$;
alter function spanmq.set_policy(text, jsonb) rename to set_policy_of_older;
create function spanmq.set_policy(queue text, settings jsonb) returns jsonb language sql as $$
    select spanmq.set_policy_of_older(queue, settings) || '{"of_later": 1}'
$$;
