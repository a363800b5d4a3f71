-- Rights are EXECUTE on functions of schema spanmq_call, which run with the rights of the schema's owner and do not
-- check the caller.
--
-- A verb is a group of functions (entries.sql lists them). A role that has a verb on all queues may execute these
-- functions themselves. One that has it on one queue may execute that queue's wrappers: spanmq_call.ack_7(...) is
-- spanmq_call.ack('orders', ...). They are made when the first role gets the verb there.
--
-- All roles call spanmq.ack('orders', ...), an entry: it runs with the rights of its caller and calls the function if
-- permitted, otherwise the wrapper of the queue. So PostgreSQL's executor checks the current role, whichever role
-- connected, and whatever runs the code. An entry calls only by statements that start the executor: PL/pgSQL checks a
-- scalar expression once a transaction. Entries and wrappers are made from the functions that they call.

-- The verbs that a verb includes, itself the last. Raises MQ002 for another word.
create or replace function spanmq_core.verbs_of(verb text) returns text[]
language plpgsql immutable as $$
begin
    return case verb
        when 'send' then '{send}'
        when 'look' then '{look}'
        when 'receive' then '{look,receive}'
        when 'manage' then '{send,look,receive,manage}'
        when 'create' then '{create}'
        when 'maintain' then '{maintain}'
        when 'serve' then '{serve}'
        when 'admin' then '{serve,admin}'
        else spanmq_core.raise_verb(verb)
    end::text[];
end $$;

create or replace function spanmq_core.all_verbs() returns text[]
language sql immutable as $$ select '{send,look,receive,manage,create,maintain,serve,admin}'::text[] $$;

-- The verbs that go when a verb is revoked: those that it includes, and those that include it.
create or replace function spanmq_core.verbs_revoked_with(verb text) returns text[]
language sql immutable as $$
    select array(select v from unnest(spanmq_core.all_verbs()) v where v = any (spanmq_core.verbs_of(verb)) or verb = any (spanmq_core.verbs_of(v)))
$$;

create or replace function spanmq_core.raise_verb(verb text) returns text
language plpgsql immutable as $$
begin
    raise exception 'verb % does not exist', coalesce(quote_literal(verb), 'NULL')
        using errcode = 'MQ002', hint = 'On a queue a role may send, receive, look or manage; on all also create, maintain, serve or admin.';
end $$;

-- All queues there are, for entries: their names are in PostgreSQL's catalogs, too.
create or replace function spanmq_call.known_queues()
returns table (queue_id int, queue_name varchar, is_partitioned boolean, is_unlogged boolean, created_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select q.queue_id, q.name, q.is_partitioned, q.is_unlogged, q.created_at from spanmq_core.queue q order by q.queue_id
$$;

-- The number of a queue, for its wrappers. Raises what find_queue() raises.
create or replace function spanmq_call.number_of(queue_name text) returns int
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    return (spanmq_core.find_queue(queue_name)).queue_id;
end $$;

-- Whether the caller has the verb on a queue, which is the right to execute may_<verb>().
create or replace function spanmq_call.may(queue_id int, verb text) returns boolean
language sql stable as $$
    select pg_catalog.has_function_privilege('spanmq_call.may_' operator(pg_catalog.||) verb operator(pg_catalog.||) '()', 'execute')
        or coalesce(pg_catalog.has_function_privilege(pg_catalog.to_regprocedure(
               pg_catalog.format('spanmq_call.may_%s_%s()', verb, queue_id)), 'execute'), false)
$$;

-- Whether the caller has any right on the queue of that name.
create or replace function spanmq_call.sees(queue_name text) returns boolean
language sql stable as $$
    select exists (select from spanmq_call.known_queues() q
                   where pg_catalog.lower(q.queue_name) operator(pg_catalog.=) pg_catalog.lower(sees.queue_name)
                     and (spanmq_call.may(q.queue_id, 'send') or spanmq_call.may(q.queue_id, 'look')))
$$;

-- The queues on which the caller has the verb, or those of them that are named.
create or replace function spanmq_call.names_for(verb text, queues text[] default null) returns setof text
language sql stable as $$
    select q.queue_name::pg_catalog.text from spanmq_call.known_queues() q
    where (queues is null or pg_catalog.lower(q.queue_name) operator(pg_catalog.=) any (array(select pg_catalog.lower(n) from pg_catalog.unnest(queues) n)))
      and spanmq_call.may(q.queue_id, verb)
$$;

-- The call of a queue's wrapper, with the parameters $1, $2, ... Raises what find_queue() raises, and 42501 for a caller without the verb; to one without
-- any right on it the queue is not there.
create or replace function spanmq_call.wrapper_call(queue_name text, function_name text, verb text, n_arguments int) returns text
language plpgsql stable as $$
declare
    number int;
begin
    if queue_name is null then
        raise exception 'permission denied for all queues'
            using errcode = '42501', hint = pg_catalog.format('Name the queue; or: select spanmq.grant_all(%L, %L)', current_user, verb);
    end if;
    select * into number from spanmq_call.number_of(queue_name);
    if not spanmq_call.may(number, verb) then
        if not spanmq_call.may(number, 'send') and not spanmq_call.may(number, 'look') then
            raise exception 'relation "pgmq.%" does not exist', pgmq.format_table_name(queue_name, 'q')
                using errcode = '42P01', hint = pg_catalog.format('Create the queue first: select pgmq.create(%L). If it exists, you have no right on it.', queue_name);
        end if;
        raise exception 'permission denied for queue %', queue_name
            using errcode = '42501', hint = pg_catalog.format('select spanmq.grant_queue(%L, %L, %L)', current_user, queue_name, verb);
    end if;
    return pg_catalog.format('select * from spanmq_call.%I(%s)', pg_catalog.format('%s_%s', function_name, number),
                             (select pg_catalog.string_agg(pg_catalog.format('$%s', i), ', ') from pg_catalog.generate_series(1, n_arguments) i));
end $$;

-- Leaves a proof of the role that calls, and returns it: for functions that ask for of_caller.
create or replace function spanmq_call.prove_caller() returns uuid
language plpgsql as $$
declare
    of_caller pg_catalog.uuid := pg_catalog.gen_random_uuid();
begin
    insert into spanmq_call.caller (proof) values (of_caller);
    return of_caller;
end $$;

-- The role that calls, of which the entry has left a proof. Raises 42501 without one: a function that asks is called by its entry only.
create or replace function spanmq_core.take_caller(of_caller uuid) returns name
language plpgsql as $$
declare
    by_role name;
begin
    delete from spanmq_call.caller c where c.proof = of_caller returning c.role into by_role;
    perform spanmq_core.raise_if(not found,
        'permission denied without a proof of the role that calls', 'Call the function of the same name in schema spanmq.', '42501');
    return by_role;
end $$;

-- The entry of a function in the schema where people look for it. Left out of its arguments are of_queue, which the function of that name in `finder`
-- finds by the first argument, by_role, which is the role that calls (a function that believes it decides nothing by it), and
-- of_caller, which proves that role (take_caller).
create or replace function spanmq_core.entry_text(inner_function regprocedure, schema_name text, verb text, finder text) returns text
language plpgsql stable as $$
declare
    this pg_proc := (select p from pg_proc p where p.oid = inner_function);
    names text[] := coalesce(this.proargnames[1:this.pronargs], '{}');
    result text := pg_get_function_result(inner_function);
    -- The expression for each argument in the call; the call of a wrapper lacks the queue.
    given text[] := '{}';
    rest text[] := '{}';
    types text[] := '{}';
    queue_name text := 'null';
    is_void boolean := this.prorettype = 'void'::regtype;
    n int := 0;
    call text;
    otherwise text;
begin
    for i in 1 .. this.pronargs loop
        if names[i] = 'of_queue' then
            queue_name := 'of_queue';
            given := given || queue_name;
            continue;
        end if;
        if names[i] = 'of_caller' then
            given := given || 'spanmq_call.prove_caller()'::text;
        elsif names[i] = 'by_role' then
            given := given || 'current_user::pg_catalog.text'::text;
        else
            n := n + 1;
            types := types || format_type(this.proargtypes[i - 1], null);
            given := given || format('$%s', n);
        end if;
        if names[i] in ('queue', 'queue_name', 'table_name') then
            queue_name := '$' || n;
        elsif names[i] = 'queues' then
            queue_name := 'each_queue';
        else
            rest := rest || given[i];
        end if;
    end loop;
    call := format('select * from spanmq_call.%I(%s)', this.proname, array_to_string(given, ', '));
    otherwise := format('spanmq_call.wrapper_call(%s, %L, %L, %s)%s', queue_name, this.proname, verb, cardinality(rest),
                        ' using ' || nullif(array_to_string(rest, ', '), ''));
    if this.proretset then
        call := 'return query ' || call;
        otherwise := 'return query execute ' || otherwise;
    elsif is_void then
        call := replace(call, 'select * from', 'perform');
        otherwise := 'execute ' || otherwise;
    else
        -- Here PostgreSQL would look at EXECUTE once a transaction: the entry asks at each call.
        call := replace(call, 'select * from', 'result :=');
        otherwise := regexp_replace('execute ' || otherwise, '[)]( using |$)', E') into result\\1');
    end if;
    if queue_name = 'each_queue' then
        otherwise := format('for each_queue in select * from spanmq_call.names_for(%L, queues) loop %s; end loop', verb, otherwise);
    end if;
    return format(
        $entry$create or replace function %I.%I(%s) returns %s language plpgsql %s as $body$
declare
%sbegin
    %sif pg_catalog.has_function_privilege(%L::pg_catalog.regprocedure, 'execute') then
        %s;
    else
        %s;
    end if;%s
end $body$;
comment on function %I.%I(%s) is %L$entry$,
        schema_name, this.proname,
        regexp_replace(regexp_replace(pg_get_function_arguments(inner_function), '^of_queue text(, )?', ''), ',? ?(by_role text|of_caller uuid)( DEFAULT NULL::[a-z]+)?$', ''),
        result, case this.provolatile when 's' then 'stable' else 'volatile' end,
        -- Types with their schema: the caller's search path may have others of the same name first.
        case when not this.proretset and not is_void then format(E'    result %s;\n', (
            select format('%I.%I', t.typnamespace::regnamespace, t.typname) from pg_type t where t.oid = this.prorettype)) else '' end
        || case when queue_name in ('each_queue', 'of_queue') then format(E'    %s pg_catalog.text;\n', queue_name) else '' end,
        case when queue_name = 'of_queue' then format(E'select * into of_queue from spanmq_call.%I($1);\n    ', finder) else '' end,
        inner_function::text, call, otherwise,
        case when not this.proretset and not is_void then E'\n    return result;' else '' end,
        schema_name, this.proname, array_to_string(types, ', '), obj_description(inner_function, 'pg_proc'));
end $$;

-- The wrapper of a function for one queue.
create or replace function spanmq_core.wrapper_text(inner_function regprocedure, this spanmq_core.queue) returns text
language plpgsql stable as $$
declare
    this_function pg_proc := (select p from pg_proc p where p.oid = inner_function);
    result text := pg_get_function_result(inner_function);
    types text[] := '{}';
    given text[] := '{}';
    call text;
begin
    for i in 1 .. this_function.pronargs loop
        if this_function.proargnames[i] in ('of_queue', 'queue', 'queue_name', 'table_name') then
            given := given || quote_literal(this.folded_name);
        elsif this_function.proargnames[i] = 'queues' then
            given := given || format('array[%L]', this.folded_name);
        else
            types := types || format_type(this_function.proargtypes[i - 1], null);
            given := given || format('$%s', cardinality(types));
        end if;
    end loop;
    call := format('spanmq_call.%I(%s)', this_function.proname, array_to_string(given, ', '));
    return format('create or replace function spanmq_call.%I(%s) returns %s language plpgsql %s security definer set search_path = pg_catalog, pg_temp as %L',
                  format('%s_%s', this_function.proname, this.queue_id), array_to_string(types, ', '), result,
                  case this_function.provolatile when 's' then 'stable' else 'volatile' end,
                  case when this_function.proretset then format('begin return query select * from %s; end', call)
                       when result = 'void' then format('begin perform %s; end', call)
                       else format('begin return %s; end', call) end);
end $$;

-- Creates the wrappers of a queue for a verb, unless they exist, and returns them; no role may execute a new one.
create or replace function spanmq_core.make_wrappers(this spanmq_core.queue, verb text) returns regprocedure[]
language plpgsql as $$
declare
    each regprocedure;
    wrapper regprocedure;
    wrappers regprocedure[] := '{}';
begin
    for each in select f.inner_function from spanmq_core.functions_on_queues() f where f.verb = make_wrappers.verb loop
        wrapper := spanmq_core.wrapper_of(each, this.queue_id);
        if wrapper is null then
            execute spanmq_core.wrapper_text(each, this);
            wrapper := spanmq_core.wrapper_of(each, this.queue_id);
            perform spanmq_core.close_functions(array[wrapper]);
        end if;
        wrappers := wrappers || wrapper;
    end loop;
    return wrappers;
end $$;

create or replace function spanmq_core.wrapper_of(inner_function regprocedure, this_queue int) returns regprocedure
language sql stable as $$
    select to_regprocedure(format('spanmq_call.%I(%s)', format('%s_%s', p.proname, this_queue), (
        select string_agg(format_type(t.type, null), ', ' order by t.place)
        from unnest(p.proargtypes) with ordinality t (type, place)
        where p.proargnames[t.place] <> all ('{of_queue,queue,queue_name,table_name,queues}'))))
    from pg_proc p where p.oid = inner_function
$$;

create or replace function spanmq_core.has_wrappers(this_queue int, verb text) returns boolean
language sql stable as $$ select to_regprocedure(format('spanmq_call.may_%s_%s()', verb, this_queue)) is not null $$;

-- Drops the wrappers of a queue, which is about to be dropped.
create or replace function spanmq_core.drop_wrappers(this_queue int) returns void
language plpgsql as $$
declare
    wrappers text;
begin
    select string_agg(w.wrapper::text, ', ') into wrappers
        from (select spanmq_core.wrapper_of(f.inner_function, this_queue) as wrapper from spanmq_core.functions_on_queues() f
              where spanmq_core.has_wrappers(this_queue, f.verb)) w
        where w.wrapper is not null;
    if wrappers is not null then
        begin
            execute 'drop function ' || wrappers;
        exception when dependent_objects_still_exist then
            -- A view of any role may call them. They stay without a right: no other queue gets this number.
            perform spanmq_core.close_functions(string_to_array(wrappers, ', ')::regprocedure[]);
        end;
    end if;
end $$;

-- The roles that have a verb on all queues (this_queue null) or on one, but for the owner. By these grants are known: there is no list beside them.
create or replace function spanmq_core.grantees_of(verb text, this_queue int) returns setof text
language sql stable as $$
    select case when a.grantee = 0 then 'public' else pg_get_userbyid(a.grantee) end
    from pg_proc p cross join lateral aclexplode(p.proacl) a
    where p.oid = to_regprocedure(concat_ws('_', 'spanmq_call.may', verb, this_queue) || '()') and a.privilege_type = 'EXECUTE' and a.grantee <> p.proowner
    order by 1
$$;

-- Grants select on the view and the archive of a new queue to roles that may look into all queues, and on its own to
-- those that may look into it.
create or replace function spanmq_core.open_relations(this spanmq_core.queue) returns void
language plpgsql as $$
declare
    role text;
begin
    for role in
        select g from spanmq_core.grantees_of('look', null) g union select g from spanmq_core.grantees_of('look', this.queue_id) g order by 1
    loop
        perform spanmq_core.open_to(this, role, true);
    end loop;
end $$;

-- Lets a role look at the view and the archive of a queue, or no longer.
create or replace function spanmq_core.open_to(this spanmq_core.queue, role text, may_look boolean) returns void
language plpgsql as $$
begin
    execute format(case when may_look then 'grant select on %s%s to %s' else 'revoke select on %s%s from %s' end,
                   this.queue_view, ', ' || spanmq_core.archive_of(this), spanmq_core.role_name(role));
end $$;

-- The role as GRANT wants it. Raises MQ002 for one that isn't there.
create or replace function spanmq_core.role_name(role text) returns text
language plpgsql stable as $$
begin
    if role is null or role = '' then
        raise exception 'role cannot be NULL or empty'
            using errcode = 'MQ002', hint = 'Name a role, or public.';
    elsif role = 'public' then
        return 'public';
    elsif not exists (select from pg_roles r where r.rolname = role) then
        raise exception 'role "%" does not exist', role using errcode = 'MQ002', hint = 'Names of roles distinguish upper and lower case.';
    end if;
    return quote_ident(role);
end $$;

-- Whether a role that is known by name has the verb on a queue; false for a role that was dropped.
create or replace function spanmq_core.role_may(role_name text, this_queue int, verb text) returns boolean
language sql stable as $$
    select coalesce(has_function_privilege(r.oid, format('spanmq_call.may_%s()', verb), 'execute')
                    or coalesce(has_function_privilege(r.oid, to_regprocedure(format('spanmq_call.may_%s_%s()', verb, this_queue)), 'execute'), false), false)
    from (select to_regrole(quote_ident(role_name))::oid as oid) r
$$;

-- Raises 42501 unless the role has the verb on the queue.
create or replace function spanmq_core.check_role_may(role_name text, this spanmq_core.queue, verb text) returns void
language plpgsql stable as $$
begin
    if not spanmq_core.role_may(role_name, this.queue_id, verb) then
        raise exception 'permission denied for queue %', this.name
            using errcode = '42501', hint = format('select spanmq.grant_queue(%L, %L, %L)', role_name, this.name, verb);
    end if;
end $$;

-- Grants manage on a queue to the role that created it, unless it may manage all.
create or replace function spanmq_core.give_to_maker(this spanmq_core.queue, maker text) returns void
language plpgsql as $$
begin
    if not has_function_privilege(maker, 'spanmq_call.may_manage()', 'execute') then
        perform spanmq_call.grant_queue(maker, this.name::text, 'manage');
    end if;
end $$;

-- Allows a role (public: every role) to send to a queue, receive from it (which includes to look), look into it, or manage it (which includes all). Repeating a grant has no effect. Raises MQ002 for an unknown role or verb.
create or replace function spanmq_call.grant_queue(role text, queue text, verb text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    grantee text := spanmq_core.role_name(role);
    each text;
begin
    perform spanmq_core.check_queue_verb(verb);
    perform spanmq_core.raise_if(verb = 'manage' and role = 'public', 'not everybody can manage a queue', 'Grant send, receive or look, or name a role.');
    -- A queue that is about to be dropped gets no wrappers, which would stay behind.
    perform spanmq_core.lock(0, 'queue ' || this.folded_name);
    this := spanmq_core.find_queue(queue);
    -- Two that grant at once would make the same wrappers.
    perform spanmq_core.lock(this.queue_id, 'rights');
    foreach each in array spanmq_core.verbs_of(verb) loop
        execute format('grant execute on function %s to %s', array_to_string(spanmq_core.make_wrappers(this, each), ', '), grantee);
        if each = 'look' then
            perform spanmq_core.open_to(this, role, true);
        end if;
    end loop;
end $$;

create or replace function spanmq_core.check_queue_verb(verb text) returns void
language plpgsql immutable as $$
begin
    if verb is null or verb not in ('send', 'receive', 'look', 'manage') then
        perform spanmq_core.raise_verb(case when verb in ('create', 'maintain', 'serve', 'admin') then verb || ' on one queue' else verb end);
    end if;
end $$;

-- Raises MQ004 for an owner of these objects: all of them are used with its rights.
create or replace function spanmq_core.check_revocable(role text, relations regclass[]) returns void
language plpgsql stable as $$
begin
    perform spanmq_core.raise_if(
        exists (select from pg_class c where c.oid = any (relations) and pg_get_userbyid(c.relowner) = role),
        format('the rights of role %s can''t be revoked: it owns the schema or the queue', role),
        'Owners can do everything, and every call needs their rights. Change the owner instead.', 'MQ004');
end $$;

-- Revokes what grant_queue() granted, with the verbs that include it: a role that may not send may not manage. What a role has by another way (as
-- a member of a role, by PUBLIC,
-- on all queues) it keeps; false if it may still do it. Raises what grant_queue() raises, and MQ004 for the owner.
create or replace function spanmq_call.revoke_queue(role text, queue text, verb text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    grantee text := spanmq_core.role_name(role);
    each text;
begin
    perform spanmq_core.check_queue_verb(verb);
    perform spanmq_core.lock(0, 'queue ' || this.folded_name);
    this := spanmq_core.find_queue(queue);
    perform spanmq_core.check_revocable(
        role, array['spanmq_core.queue'::regclass, this.queue_view, this.ids, spanmq_core.archive_of(this)]);
    perform spanmq_core.lock(this.queue_id, 'rights');
    foreach each in array spanmq_core.verbs_revoked_with(verb) loop
        if spanmq_core.has_wrappers(this.queue_id, each) then
            execute format('revoke execute on function %s from %s', array_to_string(spanmq_core.make_wrappers(this, each), ', '), grantee);
            if each = 'look' and role not in (select g from spanmq_core.grantees_of('look', null) g) then
                perform spanmq_core.open_to(this, role, false);
            end if;
        end if;
    end loop;
    return not (has_function_privilege(role, format('spanmq_call.may_%s()', verb), 'execute')
                or coalesce(has_function_privilege(role, to_regprocedure(format('spanmq_call.may_%s_%s()', verb, this.queue_id)), 'execute'), false));
end $$;

-- The verbs that roles have on a queue, or (null) on each; where queue_name is null, on all: without those that another includes. Owners and
-- superusers can do everything and are not listed.
create or replace function spanmq_call.list_grants(queue text default null) returns table (queue_name text, role text, verb text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this_queue int := case when queue is not null then (spanmq_core.find_queue(queue)).queue_id end;
begin
    return query
        with given as (
            select q.name::text as name, g.role, v.verb, v.place
            from (select q.queue_id, q.name from spanmq_core.queue q where list_grants.queue is null or q.queue_id = this_queue
                  union all select null, null) q
            join unnest(spanmq_core.all_verbs()) with ordinality v (verb, place)
                on list_grants.queue is null or v.verb in ('send', 'receive', 'look', 'manage')
            cross join lateral spanmq_core.grantees_of(v.verb, q.queue_id) g (role))
        select g.name, g.role, g.verb from given g
        where not exists (select from given o where o.name is not distinct from g.name and o.role = g.role and o.verb <> g.verb
                                                and g.verb = any (spanmq_core.verbs_of(o.verb)))
        order by 1 nulls first, 2, g.place;
end $$;

-- Allows a role (public: every role) to send to all queues, receive from them, look into them, manage them, also those to come; or make queues
-- (create), run maintenance (maintain), do what the HTTP service needs besides (serve), or handle its tokens and keys (admin). Only the owner of the
-- schema and superusers may call it. Raises MQ002 for an unknown role or verb.
create or replace function spanmq.grant_all(role text, verb text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    grantee text := spanmq_core.role_name(role);
    each text;
begin
    perform spanmq_core.lock(0, 'rights');
    foreach each in array spanmq_core.verbs_of(verb) loop
        execute format('grant execute on function %s to %s', spanmq_core.functions_of(each), grantee);
        if each = 'look' then
            perform spanmq_core.open_to(q, role, true) from spanmq_core.queue q;
        end if;
    end loop;
end $$;

-- Revokes what grant_all() granted, with the verbs that include it. Rights on single queues stay. Raises MQ004 for the owner.
create or replace function spanmq.revoke_all(role text, verb text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    grantee text := spanmq_core.role_name(role);
    each text;
begin
    perform spanmq_core.check_revocable(role, '{spanmq_core.queue}');
    perform spanmq_core.lock(0, 'rights');
    foreach each in array spanmq_core.verbs_revoked_with(verb) loop
        execute format('revoke execute on function %s from %s', spanmq_core.functions_of(each), grantee);
        if each = 'look' then
            perform spanmq_core.open_to(q, role, false) from spanmq_core.queue q
                where role not in (select g from spanmq_core.grantees_of('look', q.queue_id) g);
        end if;
    end loop;
    -- A function may belong to another verb, too.
    foreach each in array spanmq_core.all_verbs() loop
        if role in (select g from spanmq_core.grantees_of(each, null) g) then
            execute format('grant execute on function %s to %s', spanmq_core.functions_of(each), grantee);
        end if;
    end loop;
end $$;

-- Allows a role to create queues, which it then manages.
create or replace function spanmq.grant_create(role text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform spanmq.grant_all(role, 'create');
end $$;
