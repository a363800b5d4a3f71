-- The records of the schema manager about this database: the applied table files, the releases, and the objects that
-- they created.
do $schemas$
declare
    owner name;
    schema_name text;
    stranger record;
    grantee text;
    is_installed boolean := exists (
        select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'spanmq_core' and c.relname = 'migration' and c.relkind = 'r');
begin
    -- A superuser that upgrades must not become the owner of half of the functions: they run with their owner's rights.
    select r.rolname into owner
    from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    join pg_catalog.pg_roles r on r.oid = c.relowner
    where n.nspname = 'spanmq_core'
        and c.relname = 'migration' and c.relkind = 'r'
        and r.rolname <> current_user
        and pg_catalog.pg_has_role(current_user, r.oid,
                                   case when pg_catalog.current_setting('server_version_num')::int >= 160000 then 'set'
                                   else 'member' end);
    if found then
        perform pg_catalog.set_config('role', owner, true);
    end if;
    -- Before the first installation, a schema of ours is empty, as an administrator makes it. A dependency of another
    -- type is a default privilege.
    select n.nspname into schema_name
    from pg_catalog.pg_namespace n
    where n.nspname in ('spanmq', 'spanmq_call', 'spanmq_core')
        and not is_installed
        and exists (select from pg_catalog.pg_depend d
                    where d.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass and d.refobjid = n.oid
                    and d.deptype = 'n')
    limit 1;
    if found then
        raise exception 'the schema % has objects, and spanmq needs this name', schema_name
            using errcode = 'MQ004', hint = 'Rename the schema, or drop what is in it.';
    end if;
    -- The owner of a schema can drop what is in it and put functions of its own there; so can a role that may create.
    select * into stranger from (:strangers) each
        where each.problem = 'owner' or each.problem = 'privilege' and not is_installed
            and each.detail <> pg_catalog.format('%s has CREATE: revoke it', current_user)
        order by each.kind = 'schema' desc, each.name limit 1;
    if found then
        raise exception '% % %', stranger.kind, stranger.name, stranger.detail
            using errcode = 'MQ004', hint = case stranger.problem
                when 'owner' then pg_catalog.format('alter %s %s owner to %I, or drop it.',
                                                    stranger.kind, stranger.name, current_user)
                else pg_catalog.format('revoke all on %s %s from that role.', stranger.kind, stranger.name) end;
    end if;
    -- Not "create schema if not exists": that asks for CREATE on the database even where an administrator made them for
    -- us.
    for schema_name in
        select each from pg_catalog.unnest(array['pgmq', 'spanmq', 'spanmq_call', 'spanmq_core']) each
        where not exists (select from pg_catalog.pg_namespace n where n.nspname = each)
    loop
        execute pg_catalog.format('create schema %I', schema_name);
        -- The owner's default privileges may have granted some.
        for grantee in
            select case when a.grantee = 0 then 'public'
                        else pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) end
            from pg_catalog.pg_namespace n cross join lateral pg_catalog.aclexplode(n.nspacl) a
            where n.nspname = schema_name and a.grantee <> n.nspowner
        loop
            execute pg_catalog.format('revoke all on schema %I from %s cascade', schema_name, grantee);
        end loop;
    end loop;
end
$schemas$;

-- One row a file of sql/tables. A file is frozen once released: its checksum says that it still is what was applied.
create table if not exists spanmq_core.migration (
    name text primary key,
    checksum text not null,          -- SHA-256 of the file, hexadecimal
    version text not null,           -- the product version that applied it
    applied_at timestamptz not null default clock_timestamp()
);

-- One row a run that changed something; the last one is the version of the schema.
create table if not exists spanmq_core.release (
    id int primary key generated always as identity,
    version text not null,
    functions_checksum text not null,  -- SHA-256 over all functions files: equal means nothing to re-apply
    applied_at timestamptz not null default clock_timestamp(),
    applied_by name not null default session_user
);

-- The checksum of each of our objects in the catalogs at the end of the last run. Objects of single queues are not
-- included.
create table if not exists spanmq_core.object_checksum (
    kind text not null,
    name text not null,
    checksum text not null,
    server_major int not null,         -- PostgreSQL prints views differently from one major version to the next
    primary key (kind, name)
);

-- Foreign objects in our schemas: record.sql leaves them out. A user's own function in one of them
-- would otherwise be taken for one of ours at the next upgrade.
do $foreign$
begin
    perform pg_catalog.set_config('spanmq.foreign_objects', coalesce((
        select pg_catalog.string_agg(object.kind || ' ' || object.name, E'\n')
        from (:snapshot) object
        where object.name !~ '^spanmq_core\.(migration|release|object_checksum)'
            and not exists (select from spanmq_core.object_checksum known where known.kind = object.kind
                            and known.name = object.name)
    ), ''), true);
end
$foreign$;
