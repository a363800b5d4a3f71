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
--
-- A function whose calls are recorded has two forms. The one that is written in these files has no right of any role.
-- The other one has one more argument, of_caller, and is made from it (recorder_text): it takes the proof of the role
-- that calls, calls the first, and records the change. Verbs, wrappers and entries are about that one.

-- The verbs that a verb includes, itself the last. Raises MQ002 for another word.
create or replace function spanmq_core.verbs_of(verb text) returns text[]
language plpgsql immutable as $$
begin
    return case verb
        when 'send' then '{send}'
        when 'bulk' then '{send,bulk}'
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
language sql immutable as $$ select '{send,bulk,look,receive,manage,create,maintain,serve,admin}'::text[] $$;

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
        hint = 'On a queue a role may send, bulk (write in bulk), receive, look or manage; on all also create,'
               ' maintain, serve or admin.';
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

-- Whether the caller has any right on the queue of that name: a verb, or a privilege on its view.
create or replace function spanmq_call.sees(queue_name text) returns boolean
language sql stable as $$
    select exists (select from spanmq_call.known_queues() q
                   where pg_catalog.lower(q.queue_name collate pg_catalog."C")
                         operator(pg_catalog.=) pg_catalog.lower(sees.queue_name collate pg_catalog."C")
                     and (spanmq_call.may(q.queue_id, 'send') or spanmq_call.may(q.queue_id, 'look')
                          or spanmq_call.has_table_privileges(q.queue_name, 'SELECT,INSERT,UPDATE,DELETE,TRUNCATE')))
$$;

-- Whether the caller has one of these table privileges on the view of a queue.
create or replace function spanmq_call.has_table_privileges(queue_name text, privileges text) returns boolean
language sql stable as $$
    select coalesce(pg_catalog.has_table_privilege(pg_catalog.to_regclass(pg_catalog.format(
        'pgmq.%I', pg_catalog.lower(('q_' operator(pg_catalog.||) queue_name) collate pg_catalog."C"))), privileges),
        false)
$$;

-- Whether the caller has one of the table privileges that the verb needs on the view of a queue.
create or replace function spanmq_call.has_privilege_for(queue_name text, verb text) returns boolean
language sql stable as $$
    select spanmq_call.has_table_privileges(queue_name, case verb
        when 'send' then 'INSERT' when 'look' then 'SELECT' when 'receive' then 'UPDATE,DELETE' else 'TRUNCATE' end)
$$;

-- Whether the caller, who lacks the verb on a queue, has it now by table privileges that were granted a moment ago.
create or replace function spanmq_call.gains(queue_name text, queue_id int, verb text) returns boolean
language plpgsql stable as $$
begin
    return spanmq_call.has_privilege_for(queue_name, verb) and spanmq_call.follow_now(queue_id)
        and spanmq_call.may(queue_id, verb);
end $$;

-- The queues on which the caller has the verb, or those of them that are named.
create or replace function spanmq_call.names_for(verb text, queues text[] default null) returns setof text
language sql stable as $$
    select q.queue_name::pg_catalog.text from spanmq_call.known_queues() q
    where (queues is null
           or pg_catalog.lower(q.queue_name collate pg_catalog."C") operator(pg_catalog.=) any
           (array(select pg_catalog.lower(n collate pg_catalog."C") from pg_catalog.unnest(queues) n)))
      and (spanmq_call.may(q.queue_id, verb) or spanmq_call.gains(q.queue_name, q.queue_id, verb))
$$;

-- Raises 42501 for a caller without the verb on a queue. The hint names the function that makes verbs of the table
-- privileges that the caller has, or grants the verb.
create or replace function spanmq_call.refuse(queue_name text, verb text) returns void
language plpgsql stable as $$
begin
    raise exception 'permission denied for queue %', queue_name
        using errcode = '42501', hint = case
            when spanmq_call.has_privilege_for(queue_name, verb)
            then pg_catalog.format('The role has table privileges, which count as verbs by: select'
                                   ' spanmq.follow_table_grants(); or: select spanmq.grant_queue(%L, %L, %L)',
                                   current_user, queue_name, verb)
            else pg_catalog.format('select spanmq.grant_queue(%L, %L, %L)', current_user, queue_name, verb) end;
end $$;

-- The call of a queue's wrapper, with the parameters $1, $2, ... Raises what find_queue() raises, and 42501 for a
-- caller without the verb; to one without any right on it, verb or table privilege, the queue does not exist.
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
    if not (spanmq_call.may(number, verb) or spanmq_call.gains(queue_name, number, verb)) then
        if not spanmq_call.sees(queue_name) then
            raise exception 'relation "pgmq.%" does not exist', pgmq.format_table_name(queue_name, 'q')
                using errcode = '42P01',
                hint = pg_catalog.format('Create the queue first: select pgmq.create(%L). If it exists, you have no'
                                         ' right on it: see spanmq.grant_queue().', queue_name);
        end if;
        perform spanmq_call.refuse(queue_name, verb);
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

-- The entry of a function in the schema where people look for it; inner_function is what roles may execute, which is
-- `written` or records its calls. Left out of its arguments are of_queue, which the function of that name in `finder`
-- finds by the first argument, by_role, which is the role that calls (a function that believes it, and is no recorded
-- one, decides nothing by it), and of_caller, which proves that role (take_caller). Without a verb there are no
-- wrappers: only roles that may execute the function itself may call it.
create or replace function spanmq_core.entry_text(
    written regprocedure, inner_function regprocedure, schema_name text, verb text, finder text
) returns text
language plpgsql stable as $$
declare
    this pg_proc := (select p from pg_proc p where p.oid = written);
    names text[] := coalesce(this.proargnames[1:this.pronargs], '{}');
    result text := pg_get_function_result(written);
    is_recorded boolean := written <> inner_function;
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
        elsif names[i] = 'by_role' and is_recorded then
            continue;
        elsif names[i] = 'by_role' then
            given := given || 'current_user::pg_catalog.text'::text;
        else
            n := n + 1;
            types := types || format_type(this.proargtypes[i - 1], null);
            given := given || format('$%s', n);
        end if;
        if names[i] in ('queue', 'queue_name', 'table_name') then
            queue_name := '$' || n;
        elsif names[i] = 'queues' and verb is not null then
            queue_name := 'each_queue';
        else
            rest := rest || given[i];
        end if;
    end loop;
    if is_recorded then
        given := given || 'spanmq_call.prove_caller()'::text;
        rest := rest || 'spanmq_call.prove_caller()'::text;
    end if;
    call := format('select * from spanmq_call.%I(%s)', this.proname, array_to_string(given, ', '));
    otherwise := format('spanmq_call.wrapper_call(%s, %L, %L, %s)%s', queue_name, this.proname, verb, cardinality(rest),
                        ' using ' || nullif(array_to_string(rest, ', '), ''));
    if this.proretset then
        call := 'return query ' || call;
        otherwise := 'return query execute ' || otherwise;
    elsif is_void then
        call := replace(call, 'select * from', 'perform');
        otherwise := 'execute ' || otherwise;
    elsif verb is null then
        call := replace(call, '* from', '* into result from');
    else
        -- Here PostgreSQL would look at EXECUTE once a transaction: the entry asks at each call.
        call := replace(call, 'select * from', 'result :=');
        otherwise := regexp_replace('execute ' || otherwise, '[)]( using |$)', E') into result\\1');
    end if;
    if queue_name = 'each_queue' then
        otherwise := format('for each_queue in select * from spanmq_call.names_for(%L, queues) loop %s; end loop', verb,
                            otherwise);
    end if;
    if verb is not null then
        call := format($call$if pg_catalog.has_function_privilege(%L::pg_catalog.regprocedure, 'execute') then
        %s;
    else
        %s;
    end if$call$, inner_function::text, call, otherwise);
    end if;
    return format(
        $entry$create or replace function %I.%I(%s) returns %s language plpgsql %s as $body$
declare
%sbegin
    %s%s;%s
end $body$;
comment on function %I.%I(%s) is %L$entry$,
        schema_name, this.proname,
        regexp_replace(regexp_replace(pg_get_function_arguments(written), '^of_queue text(, )?', ''),
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
        call,
        case when not this.proretset and not is_void then E'\n    return result;' else '' end,
        schema_name, this.proname, array_to_string(types, ', '), obj_description(written, 'pg_proc'));
end $$;

-- The form of a function that records its calls; null until it is made.
create or replace function spanmq_core.recorder_of(written regprocedure) returns regprocedure
language sql stable as $$
    select to_regprocedure(format('spanmq_call.%I(%s)', p.proname, array_to_string(array(
        select format_type(t.type, null) from unnest(p.proargtypes) with ordinality t (type, place)
        where p.proargnames[t.place] <> 'by_role' order by t.place) || 'uuid'::text, ', ')))
    from pg_proc p where p.oid = written
$$;

-- Makes that form. It has the arguments of the function, without defaults, and of_caller in place of by_role, which is
-- the role that this proves. It records the queue, and those of the other arguments that are not as by default and are
-- neither secrets nor bodies. The record is in the transaction of the change, after it: one that fails leaves none.
create or replace function spanmq_core.recorder_text(written regprocedure) returns text
language plpgsql stable as $$
declare
    this pg_proc := (select p from pg_proc p where p.oid = written);
    result text := pg_get_function_result(written);
    arguments text[] := '{}';
    given text[] := '{}';
    details text[] := '{}';
    queue_name text := 'null';
    argument text;
    call text;
begin
    for i in 1 .. this.pronargs loop
        if this.proargnames[i] = 'by_role' then
            given := given || 'by_role'::text;
            continue;
        end if;
        argument := format('$%s', cardinality(arguments) + 1);
        arguments := arguments || format('%I %s', this.proargnames[i], format_type(this.proargtypes[i - 1], null));
        given := given || argument;
        if this.proargnames[i] in ('of_queue', 'queue', 'queue_name', 'table_name', 'source') then
            queue_name := argument;
        elsif this.proargnames[i] <> all ('{secret,secret_hash,message,body,headers,payload,patch,new_messages}') then
            details := details || format('%L, spanmq_core.shown(%s)', this.proargnames[i],
                coalesce('nullif(' || argument || ', ' || (
                    select d from pg_get_function_arg_default(written, i) d where not starts_with(d, 'NULL::')) || ')',
                    argument));
        end if;
    end loop;
    call := format('spanmq_call.%I(%s)', this.proname, array_to_string(given, ', '));
    return format(
        $recorder$create or replace function spanmq_call.%I(%s) returns %s
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
-- Made by spanmq_core.recorder_text().
declare
    by_role text := spanmq_core.take_caller(of_caller);
%sbegin
    %s;
    perform spanmq_core.record_change(by_role, %L, %s, jsonb_build_object(%s));%s
end $body$ $recorder$,
        this.proname, array_to_string(arguments || 'of_caller uuid'::text, ', '), result,
        case when not this.proretset and result <> 'void' then format(E'    result %s;\n', result) else '' end,
        case when this.proretset then 'return query select * from ' || call
             when result = 'void' then 'perform ' || call
             else 'result := ' || call end,
        this.proname, queue_name, array_to_string(details, ', '),
        case when not this.proretset and result <> 'void' then E'\n    return result;' else '' end);
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

-- Reads the catalogue: after a wait for a lock to_regprocedure() may still answer what it did before.
create or replace function spanmq_core.wrapper_of(inner_function regprocedure, this_queue int) returns regprocedure
language sql stable as $$
    select w.oid from pg_proc p
    join pg_proc w on w.pronamespace = p.pronamespace and w.proname = format('%s_%s', p.proname, this_queue)
        and array(select unnest(w.proargtypes)) = array(
            select t.type from unnest(p.proargtypes) with ordinality t (type, place)
            where p.proargnames[t.place] <> all ('{of_queue,queue,queue_name,table_name,queues}') order by t.place)
    where p.oid = inner_function
$$;

create or replace function spanmq_core.has_wrappers(this_queue int, verb text) returns boolean
language sql stable as $$
    select exists (select from pg_proc p where p.proname = format('may_%s_%s', verb, this_queue)
                   and p.pronamespace = 'spanmq_call'::regnamespace)
$$;

-- Drops the wrappers of a queue, which is about to be dropped.
create or replace function spanmq_core.drop_wrappers(this_queue int) returns void
language plpgsql as $$
declare
    wrappers regprocedure[] := array(
        select w.wrapper
        from (select spanmq_core.wrapper_of(f.inner_function, this_queue) as wrapper
              from spanmq_core.functions_on_queues() f
              where spanmq_core.has_wrappers(this_queue, f.verb)) w
        where w.wrapper is not null);
begin
    perform spanmq_core.drop_functions(wrappers);
end $$;

-- Drops wrappers. A view of any role may call them: then they stay without a right. No other queue gets their number.
create or replace function spanmq_core.drop_functions(wrappers regprocedure[]) returns void
language plpgsql as $$
begin
    if wrappers <> '{}' then
        execute 'drop function ' || array_to_string(wrappers, ', ');
    end if;
exception when dependent_objects_still_exist then
    perform spanmq_core.close_functions(wrappers);
end $$;
