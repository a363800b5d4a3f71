-- One row for each function, relation and type of our schemas: kind, name, owner, checksum. Left out is what belongs to
-- single queues: logs, q_ views, archives, their sequences. Checksums are taken over catalog fields that mean the same
-- in all versions of PostgreSQL; the text of a view does not, so it is a row of its own, and verify skips it where the
-- server's major version has changed.
with
    home as (
        select oid, nspname from pg_catalog.pg_namespace
            where nspname in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core')
    ),
    relation as (
        select c.oid, c.relkind, c.relowner, c.reltype, c.relpersistence, c.reloptions,
            pg_catalog.format('%I.%I', h.nspname, c.relname) as name
        from pg_catalog.pg_class c
        join home h on h.oid = c.relnamespace
        where not (h.nspname = 'pgmq' and c.relname ~ '^[qa]_')
            and not (h.nspname = 'spanmq_core' and c.relname ~ '^[a-z_]+_[0-9]+(_|$)')
            and not (h.nspname = 'spanmq' and c.relname ~ '^log_[0-9]+$')
    ),
    described (kind, name, owner, description) as (
        select 'function',
            pg_catalog.format('%I.%I(%s)', h.nspname, p.proname, pg_catalog.pg_get_function_identity_arguments(p.oid)),
            p.proowner,
            pg_catalog.jsonb_build_array(
                p.prokind, l.lanname, p.provolatile, p.proisstrict, p.prosecdef, p.proleakproof, p.proparallel,
                    p.procost, p.prorows, p.proconfig,
                pg_catalog.pg_get_function_arguments(p.oid), pg_catalog.pg_get_function_result(p.oid), p.prosrc,
                pg_catalog.pg_get_function_sqlbody(p.oid))
        from pg_catalog.pg_proc p
        join home h on h.oid = p.pronamespace
        join pg_catalog.pg_language l on l.oid = p.prolang
        union all
        select
            case r.relkind when 'v' then 'view' when 'c' then 'type' when 'S' then 'sequence' else 'table' end, r.name,
            r.relowner,
            pg_catalog.jsonb_build_array(
                r.relpersistence, r.reloptions,
                (select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_array(a.attname,
                    pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull,
                            a.attidentity, a.attgenerated, a.attcollation <> t.typcollation,
                            pg_catalog.pg_get_expr(d.adbin, d.adrelid)) order by a.attnum)
                 from pg_catalog.pg_attribute a
                 join pg_catalog.pg_type t on t.oid = a.atttypid
                 left join pg_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
                 where a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped),
                (select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_array(k.conname,
                    pg_catalog.pg_get_constraintdef(k.oid)) order by k.conname)
                 -- From PostgreSQL 18 on, "not null" is a constraint too; attnotnull says it for all versions.
                 from pg_catalog.pg_constraint k where k.conrelid = r.oid and k.contype <> 'n'),
                (select pg_catalog.jsonb_agg(pg_catalog.pg_get_indexdef(i.indexrelid)
                                             order by i.indexrelid::regclass::text)
                 from pg_catalog.pg_index i where i.indrelid = r.oid),
                (select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_array(pg_catalog.pg_get_triggerdef(g.oid),
                    g.tgenabled) order by g.tgname)
                 from pg_catalog.pg_trigger g where g.tgrelid = r.oid and not g.tgisinternal),
                (select pg_catalog.jsonb_build_array(pg_catalog.format_type(s.seqtypid, null), s.seqincrement, s.seqmin,
                                                     s.seqmax, s.seqcycle)
                 from pg_catalog.pg_sequence s where s.seqrelid = r.oid))
        from relation r
        where r.relkind in ('r', 'p', 'v', 'm', 'c', 'S')
        union all
        select 'view text', r.name, r.relowner, pg_catalog.to_jsonb(pg_catalog.pg_get_viewdef(r.oid))
        from relation r
        where r.relkind in ('v', 'm')
        union all
        select 'type', pg_catalog.format('%I.%I', h.nspname, t.typname), t.typowner,
            pg_catalog.jsonb_build_array(
                t.typtype, pg_catalog.format_type(t.typbasetype, t.typtypmod), t.typnotnull,
                (select pg_catalog.jsonb_agg(pg_catalog.pg_get_constraintdef(k.oid) order by k.conname)
                 from pg_catalog.pg_constraint k where k.contypid = t.oid and k.contype <> 'n'),
                (select pg_catalog.jsonb_agg(e.enumlabel order by e.enumsortorder) from pg_catalog.pg_enum e
                 where e.enumtypid = t.oid))
        from pg_catalog.pg_type t
        join home h on h.oid = t.typnamespace
        where t.typtype in ('d', 'e')
    )
select kind, name, pg_catalog.pg_get_userbyid(owner) as owner,
    pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(description::text, 'UTF8')), 'hex') as checksum
from described
