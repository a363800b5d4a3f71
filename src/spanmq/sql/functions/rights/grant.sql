-- Granting and revoking verbs, on all queues or on one, and which roles have them: rights.sql has what a verb is.

-- The roles that have a verb on all queues (this_queue null) or on one, but for the owner. By these grants are known:
-- there is no list beside them.
create or replace function spanmq_core.grantees_of(verb text, this_queue int) returns setof text
language sql stable as $$
    select case when a.grantee = 0 then 'public' else pg_get_userbyid(a.grantee) end
    from pg_proc p cross join lateral aclexplode(p.proacl) a
    where p.oid = to_regprocedure(concat_ws('_', 'spanmq_call.may', verb, this_queue) || '()')
    and a.privilege_type = 'EXECUTE' and a.grantee <> p.proowner
    order by 1
$$;

-- Grants select on the view and the archive of a new queue to roles that may look into all queues, and on its own to
-- those that may look into it; follows the table privileges that it has by default.
create or replace function spanmq_core.open_relations(this spanmq_core.queue) returns void
language plpgsql as $$
declare
    role text;
begin
    for role in
        select g from spanmq_core.grantees_of('look', null) g union select g
        from spanmq_core.grantees_of('look', this.queue_id) g order by 1
    loop
        perform spanmq_core.open_to(this, role, true);
    end loop;
    if spanmq_core.is_following() then
        perform spanmq_core.follow(this);
    end if;
end $$;

-- Lets a role look at the view and the archive of a queue, or no longer.
create or replace function spanmq_core.open_to(this spanmq_core.queue, role text, may_look boolean) returns void
language plpgsql as $$
begin
    execute format(case when may_look then 'grant select on %s%s to %s'
                   else 'revoke select on %s%s from %s cascade' end,
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
        raise exception 'role "%" does not exist', role using errcode = 'MQ002',
            hint = 'Names of roles distinguish upper and lower case.';
    end if;
    return quote_ident(role);
end $$;

-- Whether a role that is known by name has the verb on a queue; false for a role that was dropped.
create or replace function spanmq_core.role_may(role_name text, this_queue int, verb text) returns boolean
language sql stable as $$
    select coalesce(has_function_privilege(r.oid, format('spanmq_call.may_%s()', verb), 'execute')
                    or coalesce(has_function_privilege(r.oid,
                                                       to_regprocedure(format('spanmq_call.may_%s_%s()', verb,
                                                           this_queue)), 'execute'), false), false)
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

-- Allows a role (public: every role) to send to a queue, receive from it (which includes to look), look into it, or
-- manage it (which includes all of these). bulk is send, and to write its rows straight into the log, as Spark and COPY
-- do (bulk.sql). Repeating a grant has no effect. Raises MQ002 for an unknown role or verb.
create or replace function spanmq_call.grant_queue(role text, queue text, verb text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    grantee text := spanmq_core.role_name(role);
    each text;
begin
    perform spanmq_core.check_queue_verb(verb);
    perform spanmq_core.raise_if(verb in ('manage', 'bulk') and role = 'public',
                                 format('not everybody can %s a queue', case verb when 'bulk' then 'write in bulk into'
                                                                        else verb end),
                                 'Grant send, receive or look, or name a role.');
    -- A queue that is about to be dropped gets no wrappers, which would stay behind.
    perform spanmq_core.lock_name('queue', this.folded_name);
    this := spanmq_core.find_queue(queue);
    -- Two that grant at once would make the same wrappers.
    perform spanmq_core.lock(this.queue_id, 'rights');
    foreach each in array spanmq_core.verbs_of(verb) loop
        execute format('grant execute on function %s to %s',
                       array_to_string(spanmq_core.make_wrappers(this, each), ', '), grantee);
        if each = 'look' then
            perform spanmq_core.open_to(this, role, true);
        elsif each = 'bulk' then
            execute format('grant usage on schema spanmq_core to %s', grantee);
            perform spanmq_core.open_segment(s.queue_id, s.log_name) from spanmq_core.segment s
                where s.queue_id = this.queue_id;
        end if;
    end loop;
    update spanmq_core.followed_grant f set was_granted = true
        where f.queue_id = this.queue_id and f.role = grant_queue.role
        and f.verb = any (spanmq_core.verbs_of(grant_queue.verb));
end $$;

create or replace function spanmq_core.check_queue_verb(verb text) returns void
language plpgsql immutable as $$
begin
    if verb is null or verb not in ('send', 'bulk', 'receive', 'look', 'manage') then
        perform spanmq_core.raise_verb(case
                                       when verb in ('create', 'maintain', 'serve', 'admin') then verb ||
                                       ' on one queue' else verb end);
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

-- Revokes a verb that grant_queue() granted, and the verbs that include it: a role that may not send may not manage.
-- Grants that the role has passed on with a grant option are revoked, too. The role keeps verbs that it has in another
-- way (as a member of a role, through PUBLIC, on all queues); the result is false if it still has this verb. If table
-- grants are followed, the table privileges for the verb are revoked, too. Raises the errors of grant_queue(), and
-- MQ004 for the owner.
create or replace function spanmq_call.revoke_queue(role text, queue text, verb text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    grantee text := spanmq_core.role_name(role);
    each text;
begin
    perform spanmq_core.check_queue_verb(verb);
    perform spanmq_core.lock_name('queue', this.folded_name);
    this := spanmq_core.find_queue(queue);
    perform spanmq_core.check_revocable(
        role, array['spanmq_core.queue'::regclass, this.queue_view, this.ids, spanmq_core.archive_of(this)]);
    perform spanmq_core.lock(this.queue_id, 'rights');
    foreach each in array spanmq_core.verbs_revoked_with(verb) loop
        if spanmq_core.has_wrappers(this.queue_id, each) then
            execute format('revoke execute on function %s from %s cascade',
                           array_to_string(spanmq_core.make_wrappers(this, each), ', '), grantee);
            if each = 'look' and role not in (select g from spanmq_core.grantees_of('look', null) g) then
                perform spanmq_core.open_to(this, role, false);
            end if;
        end if;
    end loop;
    perform spanmq_core.close_privileges(this.queue_id);
    if spanmq_core.is_following() then
        perform spanmq_core.close_verbs(this, grantee, spanmq_core.verbs_revoked_with(verb));
        perform spanmq_core.follow(this);
    end if;
    return not (has_function_privilege(role, format('spanmq_call.may_%s()', verb), 'execute')
                or coalesce(has_function_privilege(role,
                                                   to_regprocedure(format('spanmq_call.may_%s_%s()', verb,
                                                       this.queue_id)), 'execute'), false));
end $$;

-- The verbs that roles have on a queue, or (null) on each queue. A row whose queue_name is null is a verb on all
-- queues. A verb that another verb of the role includes is not listed. Owners and superusers have all verbs and are
-- not listed.
create or replace function spanmq_call.list_grants(
    queue text default null
) returns table (queue_name text, role text, verb text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this_queue int := case when queue is not null then (spanmq_core.find_queue(queue)).queue_id end;
begin
    return query
        with given as (
            select q.name::text as name, g.role, v.verb, v.place
            from (select q.queue_id, q.name from spanmq_core.queue q where list_grants.queue is null
                  or q.queue_id = this_queue
                  union all select null, null) q
            join unnest(spanmq_core.all_verbs()) with ordinality v (verb, place)
                on list_grants.queue is null or v.verb in ('send', 'bulk', 'receive', 'look', 'manage')
            cross join lateral spanmq_core.grantees_of(v.verb, q.queue_id) g (role))
        select g.name, g.role, g.verb from given g
        where not exists (select from given o where o.name is not distinct from g.name and o.role = g.role
                          and o.verb <> g.verb
                                                and g.verb = any (spanmq_core.verbs_of(o.verb)))
        order by 1 nulls first, 2, g.place;
end $$;

-- Grants a role (public: every role) a verb on all queues, including later ones: send, bulk, receive, look or manage;
-- or create (queues), maintain (maintenance), serve (the other calls of the HTTP service), or admin (its tokens and
-- keys). Only the owner of the schema and superusers may call it. Raises MQ002 for an unknown role or verb.
create or replace function spanmq_call.grant_all(role text, verb text) returns void
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
        elsif each = 'bulk' then
            perform spanmq_core.raise_if(role = 'public', 'not everybody can write in bulk', 'Name a role.');
            execute format('grant usage on schema spanmq_core to %s', grantee);
            perform spanmq_core.open_segment(s.queue_id, s.log_name) from spanmq_core.segment s;
        end if;
    end loop;
end $$;

-- Revokes a verb that grant_all() granted, and the verbs that include it. Verbs on single queues stay. Raises MQ004 for
-- the owner.
create or replace function spanmq_call.revoke_all(role text, verb text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    grantee text := spanmq_core.role_name(role);
    each text;
begin
    perform spanmq_core.check_revocable(role, '{spanmq_core.queue}');
    perform spanmq_core.lock(0, 'rights');
    foreach each in array spanmq_core.verbs_revoked_with(verb) loop
        execute format('revoke execute on function %s from %s cascade', spanmq_core.functions_of(each), grantee);
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
    perform spanmq_core.close_privileges(null);
end $$;

-- Allows a role to create queues, which it then manages.
create or replace function spanmq_call.grant_create(role text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform spanmq_call.grant_all(role, 'create');
end $$;
