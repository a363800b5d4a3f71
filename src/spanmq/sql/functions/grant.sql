-- Who may do what with a queue, in three words. They stand for privileges on its view, which every function looks at: a grant in
-- plain SQL counts as much.
--
--   send     insert
--   receive  update, delete, select: takes, settles and looks
--   manage   all of them, with the right to grant, and to read the archive

-- The privileges of a verb. Raises MQ002 for another word.
create or replace function spanmq_core.privileges_of(verb text) returns text
language plpgsql immutable as $$
begin
    return case verb
        when 'send' then 'insert'
        when 'receive' then 'update, delete, select'
        when 'manage' then 'all'
        else spanmq_core.raise_verb(verb)
    end;
end $$;

create or replace function spanmq_core.raise_verb(verb text) returns text
language plpgsql immutable as $$
begin
    raise exception 'there is no verb %', coalesce(quote_literal(verb), 'NULL')
        using errcode = 'MQ002', hint = 'A role may send, receive or manage.';
end $$;

-- The queue, if the caller may grant this on it. Raises 42P01, 42501, and MQ002 for a role that isn't there.
create or replace function spanmq_core.find_granted(role text, queue text, verb text) returns spanmq_core.queue
language plpgsql as $$
declare
    this spanmq_core.queue;
    wanted text := spanmq_core.privileges_of(verb);
    each text;
begin
    this := spanmq_core.find_queue(queue, 'delete with grant option');
    foreach each in array string_to_array(case wanted when 'all' then 'insert, update, delete, select, truncate, trigger' else wanted end, ', ') loop
        perform spanmq_core.find_queue(queue, each || ' with grant option');
    end loop;
    if role is null or role = '' then
        raise exception 'role cannot be NULL or empty'
            using errcode = 'MQ002', hint = 'Name a role, or public.';
    end if;
    if role <> 'public' and not exists (select from pg_roles r where r.rolname = role) then
        raise exception 'role "%" does not exist', role using errcode = 'MQ002', hint = 'Names of roles tell upper from lower case.';
    end if;
    return this;
end $$;

-- Lets a role (public: every role) send to a queue, receive from it, or manage it. Twice is as good as once.
-- Raises 42P01 or 42501 unless the caller manages the queue, MQ002 for an unknown role or verb.
create or replace function spanmq.grant_queue(role text, queue text, verb text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_granted(role, queue, verb);
begin
    if verb = 'manage' and role = 'public' then
        raise exception 'not everybody can manage a queue' using errcode = 'MQ002', hint = 'Grant send or receive, or name a role.';
    end if;
    execute format('grant usage on schema pgmq, spanmq to %I', role);
    execute format('grant %s on %s to %I %s', spanmq_core.privileges_of(verb), this.queue_view, role,
                   case verb when 'manage' then 'with grant option' end);
    if verb = 'manage' and spanmq_core.archive_of(this) is not null then
        execute format('grant %s on %s to %I with grant option', spanmq_core.archive_privileges(), spanmq_core.archive_of(this), role);
    end if;
end $$;

-- Takes back what grant_queue() gave, and what the role granted on by it. What a role has by another way (by being a member of one,
-- by PUBLIC, by a grant in SQL of somebody else) it keeps; false if it may still do some of it. Raises what grant_queue() raises.
create or replace function spanmq.revoke_queue(role text, queue text, verb text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_granted(role, queue, verb);
begin
    execute format('revoke %s on %s from %I cascade', spanmq_core.privileges_of(verb), this.queue_view, role);
    if verb = 'manage' and spanmq_core.archive_of(this) is not null then
        execute format('revoke all on %s from %I cascade', spanmq_core.archive_of(this), role);
    end if;
    return not has_table_privilege(role, this.queue_view,
        case verb when 'manage' then 'insert, update, delete, select, truncate, trigger' else spanmq_core.privileges_of(verb) end);
end $$;

-- The verbs that roles were given on queues, those of the caller's queues only, or on one. Owners and superusers, who may do
-- everything, are not listed. Raises 42P01 or 42501 unless the caller manages the queue that is named.
create or replace function spanmq.list_grants(queue text default null) returns table (queue_name text, role text, verb text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue;
begin
    if queue is not null then
        this := spanmq_core.find_queue(queue, 'delete with grant option');
    end if;
    return query
        with given as (
            select q.name, coalesce(r.rolname, 'public')::text as grantee, bool_or(a.privilege_type = 'INSERT') as sends,
                   count(*) filter (where a.privilege_type in ('UPDATE', 'DELETE', 'SELECT')) = 3 as receives,
                   count(*) filter (where a.is_grantable and a.privilege_type in ('INSERT', 'UPDATE', 'DELETE', 'SELECT', 'TRUNCATE', 'TRIGGER')) = 6 as manages
            from spanmq_core.queue q
            join pg_class c on c.oid = q.queue_view
            cross join lateral (select distinct e.grantee, e.privilege_type, e.is_grantable from aclexplode(c.relacl) e where e.grantee <> c.relowner) a
            left join pg_roles r on r.oid = a.grantee
            where (this.queue_id is null or q.queue_id = this.queue_id)
              and has_table_privilege(spanmq_core.caller(), q.queue_view, 'delete with grant option')
            group by q.name, 2)
        select g.name::text, g.grantee, v.verb
        from given g cross join lateral (values (1, 'send', g.sends), (2, 'receive', g.receives), (3, 'manage', g.manages)) v (place, verb, has)
        where v.has order by 1, 2, v.place;
end $$;
