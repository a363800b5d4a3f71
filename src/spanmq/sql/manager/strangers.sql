-- Means by which roles other than the owner could reach past their rights: kind, name, problem, detail. A schema,
-- relation or function of a role that lacks the owner's rights, privileges that no grant of a verb gives, and what
-- other roles have hung on our relations.
with
    home as (
        select n.oid, n.nspname, n.nspowner, n.nspacl from pg_catalog.pg_namespace n
        where n.nspname in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core')
    ),
    -- Before the first installation, the role that installs.
    right_owner as (
        select r.oid, r.rolname as name from pg_catalog.pg_roles r
        where r.oid = coalesce((select c.relowner from pg_catalog.pg_class c join home h on h.oid = c.relnamespace
                                where h.nspname = 'spanmq_core' and c.relname = 'migration' and c.relkind = 'r'),
                               (select u.oid from pg_catalog.pg_roles u where u.rolname = current_user))
    ),
    -- Privileges on columns, but the one that entries.sql grants to every role.
    on_columns (relation, privileges) as (
        select t.attrelid, pg_catalog.array_agg(i.item)
        from pg_catalog.pg_attribute t cross join lateral pg_catalog.unnest(t.attacl) i (item)
        where t.attacl is not null
            and (t.attrelid is distinct from pg_catalog.to_regclass('spanmq_call.caller') or t.attname <> 'proof'
                 or exists (select from pg_catalog.aclexplode(array[i.item]) a
                            where a.grantee <> 0 or a.privilege_type <> 'INSERT'))
        group by t.attrelid
    ),
    object (kind, name, owner, may_have, privileges) as (
        select 'schema', pg_catalog.quote_ident(h.nspname), h.nspowner, array['USAGE'], h.nspacl
        from home h
        union all
        select case c.relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end,
            pg_catalog.format('%I.%I', h.nspname, c.relname),
            -- verify.sql compares the owners of objects of single queues.
            case when c.relname ~ '^[a-z_]+_[0-9]+(_|$)' then right_owner.oid else c.relowner end,
            case
                -- A role that looks at the state of an installation reads these.
                when h.nspname = 'spanmq_core' and c.relname in ('migration', 'release', 'object_checksum')
                    then array['SELECT']
                -- A role may write into the log of a queue, and read its view.
                when h.nspname = 'spanmq_core' and c.relname ~ '^log_[0-9]+(_|$)' then array['INSERT']
                when h.nspname = 'spanmq' then array['SELECT']
                else array[]::text[] end,
            c.relacl || o.privileges
        from pg_catalog.pg_class c join home h on h.oid = c.relnamespace cross join right_owner
        left join on_columns o on o.relation = c.oid
        where h.nspname in ('spanmq', 'spanmq_call', 'spanmq_core') and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
        union all
        -- What is in schema pgmq, and ours.
        select case c.relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end,
            pg_catalog.format('%I.%I', h.nspname, c.relname), right_owner.oid,
            case when c.relkind = 'S' or c.relname !~ '^[qa]_' then array['SELECT']
                 else array['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'MAINTAIN'] end,
            c.relacl || o.privileges
        from pg_catalog.pg_class c join home h on h.oid = c.relnamespace cross join right_owner
        left join on_columns o on o.relation = c.oid
        where h.nspname = 'pgmq' and c.relowner = right_owner.oid and (
            c.relkind = 'v' and c.relname ~ '^(q_|meta$|topic_bindings$|notify_insert_throttle$)'
            or exists (select from pg_catalog.pg_class q
                       where q.relnamespace = c.relnamespace and q.relkind = 'v'
                         and q.relname = case when c.relkind = 'S' and c.relname ~ '^q_.*_msg_id_seq$'
                                              then pg_catalog.left(c.relname, -11)
                                              when c.relkind in ('r', 'p') and c.relname ~ '^a_'
                                              then 'q_' || pg_catalog.substr(c.relname, 3) end))
        union all
        -- Privileges on functions are verbs.
        select 'function',
            pg_catalog.format('%I.%I(%s)', h.nspname, p.proname, pg_catalog.pg_get_function_identity_arguments(p.oid)),
            p.proowner, null, null
        from pg_catalog.pg_proc p join home h on h.oid = p.pronamespace
    )
select o.kind, o.name, 'owner' as problem,
    pg_catalog.format('belongs to %s, not to %s', pg_catalog.pg_get_userbyid(o.owner), r.name) as detail
from object o cross join right_owner r
where not pg_catalog.pg_has_role(o.owner, r.oid, 'usage')
union
select o.kind, o.name, 'privilege',
    pg_catalog.format('%s has %s: revoke it', g.role,
                      pg_catalog.string_agg(distinct g.privilege_type, ', ' order by g.privilege_type))
from object o cross join right_owner r
cross join lateral (
    select a.privilege_type,
        case when a.grantee = 0 then 'public' else pg_catalog.pg_get_userbyid(a.grantee) end as role
    from pg_catalog.aclexplode(o.privileges) a
    where a.grantee <> o.owner and (a.grantee = 0 or not pg_catalog.pg_has_role(a.grantee, r.oid, 'usage'))
        and a.privilege_type <> all (o.may_have)) g
group by o.kind, o.name, g.role
union
select f.kind, f.name, 'code', f.detail || ': drop it' from (:foreign_code) f
