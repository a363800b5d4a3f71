-- What other roles have hung on relations of our schemas, so that a write by the owner, or by another role, runs or
-- obeys it: relation (oid), kind, name, detail. A trigger runs with the rights of the role that writes. Any role with
-- TRIGGER makes one of a function that it may execute, and PostgreSQL does not note which role did: so one with
-- arguments or a condition is trusted only if no other role may execute its function. A foreign key keeps rows from
-- being deleted; before PostgreSQL 18, what it cascades to runs triggers with the rights of the role that deletes. A
-- child is written through its parent, and has triggers of its own.
with home as (
    select n.oid from pg_catalog.pg_namespace n where n.nspname in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core'))
select g.tgrelid as relation, 'trigger' as kind,
    pg_catalog.format('%I on %I.%I', g.tgname, n.nspname, c.relname) as name,
    case when pg_catalog.pg_has_role(p.proowner, c.relowner, 'usage')
         then pg_catalog.format('has arguments or a condition, and other roles may execute %s',
                                p.oid::pg_catalog.regprocedure)
         else pg_catalog.format('calls a function of %s', pg_catalog.pg_get_userbyid(p.proowner)) end as detail
from pg_catalog.pg_trigger g
join pg_catalog.pg_class c on c.oid = g.tgrelid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_proc p on p.oid = g.tgfoid
where n.oid in (select oid from home) and not g.tgisinternal
    and (not pg_catalog.pg_has_role(p.proowner, c.relowner, 'usage')
         or (g.tgnargs > 0 or g.tgqual is not null) and exists (
             select from pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) a
             where a.grantee = 0 or not pg_catalog.pg_has_role(a.grantee, c.relowner, 'usage')))
union all
select f.confrelid, 'foreign key', pg_catalog.format('%I on %s', f.conname, f.conrelid::pg_catalog.regclass),
    pg_catalog.format('of %s refers to %s', pg_catalog.pg_get_userbyid(r.relowner),
                      f.confrelid::pg_catalog.regclass)
from pg_catalog.pg_constraint f
join pg_catalog.pg_class c on c.oid = f.confrelid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_class r on r.oid = f.conrelid
where n.oid in (select oid from home) and f.contype = 'f'
    and not pg_catalog.pg_has_role(r.relowner, c.relowner, 'usage') and r.relnamespace not in (select oid from home)
union all
select i.inhparent, 'child', i.inhrelid::pg_catalog.regclass::text,
    pg_catalog.format('of %s inherits from %s', pg_catalog.pg_get_userbyid(r.relowner),
                      i.inhparent::pg_catalog.regclass)
from pg_catalog.pg_inherits i
join pg_catalog.pg_class c on c.oid = i.inhparent
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_class r on r.oid = i.inhrelid
where n.oid in (select oid from home) and r.relkind in ('r', 'p', 'f')
    and not pg_catalog.pg_has_role(r.relowner, c.relowner, 'usage') and r.relnamespace not in (select oid from home)
