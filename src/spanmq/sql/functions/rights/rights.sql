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
    select array(select v from unnest(spanmq_core.all_verbs()) v where v = any (spanmq_core.verbs_of(verb))
                 or verb = any (spanmq_core.verbs_of(v)))
$$;

create or replace function spanmq_core.raise_verb(verb text) returns text
language plpgsql immutable as $$
begin
    raise exception 'verb % does not exist', coalesce(quote_literal(verb), 'NULL')
        using errcode = 'MQ002',
        hint = 'On a queue a role may send, receive, look or manage; on all also create, maintain, serve or admin.';
end $$;

-- All queues there are, for entries: their names are in PostgreSQL's catalogs, too.
create or replace function spanmq_call.known_queues()
returns table (queue_id int, queue_name varchar, is_partitioned boolean, is_unlogged boolean, created_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select q.queue_id, q.name, q.is_partitioned, q.is_unlogged, q.created_at from spanmq_core.queue q
        order by q.queue_id
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
    select pg_catalog.has_function_privilege('spanmq_call.may_' operator(pg_catalog.||) verb operator(pg_catalog.||)
                                             '()', 'execute')
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
    where (queues is null
           or pg_catalog.lower(q.queue_name) operator(pg_catalog.=) any
           (array(select pg_catalog.lower(n) from pg_catalog.unnest(queues) n)))
      and spanmq_call.may(q.queue_id, verb)
$$;

-- The call of a queue's wrapper, with the parameters $1, $2, ... Raises what find_queue() raises, and 42501 for a
-- caller without the verb; to one without any right on it the queue is not there.
create or replace function spanmq_call.wrapper_call(
    queue_name text, function_name text, verb text, n_arguments int
) returns text
language plpgsql stable as $$
declare
    number int;
begin
    if queue_name is null then
        raise exception 'permission denied for all queues'
            using errcode = '42501', hint = pg_catalog.format('Name the queue; or: select spanmq.grant_all(%L, %L)',
                                                              current_user, verb);
    end if;
    select * into number from spanmq_call.number_of(queue_name);
    if not spanmq_call.may(number, verb) then
        if not spanmq_call.may(number, 'send') and not spanmq_call.may(number, 'look') then
            raise exception 'relation "pgmq.%" does not exist', pgmq.format_table_name(queue_name, 'q')
                using errcode = '42P01',
                hint = pg_catalog.format('Create the queue first: select pgmq.create(%L). If it exists, you have no'
                                         ' right on it:'
                                                             ' see spanmq.grant_queue() and'
                                                             ' spanmq.follow_table_grants().', queue_name);
        end if;
        raise exception 'permission denied for queue %', queue_name
            using errcode = '42501', hint = pg_catalog.format('select spanmq.grant_queue(%L, %L, %L)', current_user,
                                                              queue_name, verb);
    end if;
    return pg_catalog.format('select * from spanmq_call.%I(%s)', pg_catalog.format('%s_%s', function_name, number),
                             (select pg_catalog.string_agg(pg_catalog.format('$%s', i), ', ')
                              from pg_catalog.generate_series(1, n_arguments) i));
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

-- The role that calls, of which the entry has left a proof. Raises 42501 without one: a function that asks is called by
-- its entry only.
create or replace function spanmq_core.take_caller(of_caller uuid) returns name
language plpgsql as $$
declare
    by_role name;
begin
    delete from spanmq_call.caller c where c.proof = of_caller returning c.role into by_role;
    perform spanmq_core.raise_if(not found,
        'permission denied without a proof of the role that calls',
        'Call the function of the same name in schema spanmq.', '42501');
    return by_role;
end $$;

-- The entry of a function in the schema where people look for it. Left out of its arguments are of_queue, which the
-- function of that name in `finder` finds by the first argument, by_role, which is the role that calls (a function that
-- believes it decides nothing by it), and of_caller, which proves that role (take_caller).
create or replace function spanmq_core.entry_text(
    inner_function regprocedure, schema_name text, verb text, finder text
) returns text
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
        otherwise := format('for each_queue in select * from spanmq_call.names_for(%L, queues) loop %s; end loop', verb,
                            otherwise);
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
        regexp_replace(regexp_replace(pg_get_function_arguments(inner_function), '^of_queue text(, )?', ''),
                       ',? ?(by_role text|of_caller uuid)( DEFAULT NULL::[a-z]+)?$', ''),
        result, case this.provolatile when 's' then 'stable' else 'volatile' end,
        -- Types with their schema: the caller's search path may have others of the same name first.
        case when not this.proretset and not is_void then format(E'    result %s;\n', (
            select format('%I.%I', t.typnamespace::regnamespace, t.typname) from pg_type t
                where t.oid = this.prorettype)) else '' end
        || case when queue_name in ('each_queue', 'of_queue') then format(E'    %s pg_catalog.text;\n', queue_name)
        else '' end,
        case when queue_name = 'of_queue' then format(E'select * into of_queue from spanmq_call.%I($1);\n    ', finder)
        else '' end,
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
    return format('create or replace function spanmq_call.%I(%s) returns %s language plpgsql %s security definer set'
                  ' search_path = pg_catalog, pg_temp as %L',
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
        from (select spanmq_core.wrapper_of(f.inner_function, this_queue) as wrapper
              from spanmq_core.functions_on_queues() f
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
