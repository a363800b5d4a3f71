-- The differences from the state that the last run recorded: kind, name, problem, detail. Reads only.
with
    live as (:snapshot),
    home as (
        select n.oid as schema, n.nspname from pg_catalog.pg_namespace n
            where n.nspname in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core')
    ),
    -- Our functions run with their owner's rights: one that belongs to another role fails, or may do more than it
    -- should.
    right_owner as (
        select pg_catalog.pg_get_userbyid(c.relowner) as name
        from pg_catalog.pg_class c join home o on o.schema = c.relnamespace
        where o.nspname = 'spanmq_core' and c.relname = 'migration'
    )
select known.kind, known.name,
    case when live.name is null then 'missing' else 'changed' end as problem,
    case when live.name is null then 'dropped since: upgrade' else 'not as it was made: upgrade' end as detail
from spanmq_core.object_checksum known
left join live on live.kind = known.kind and live.name = known.name
where live.checksum is distinct from known.checksum
    and (live.name is null or known.kind <> 'view text'
         or known.server_major = pg_catalog.current_setting('server_version_num')::int / 10000)
union all
select 'function', live.name, 'unknown', 'is called as one of ours, and is none: drop it'
from live
where live.kind = 'function'
    -- In schema pgmq, functions of yours may have such a name.
    and live.name !~ '^pgmq[.]'
    and not exists (select from spanmq_core.object_checksum known where known.kind = 'function'
                    and known.name = live.name)
    and exists (select from spanmq_core.object_checksum known
                where known.kind = 'function'
                    and pg_catalog.split_part(known.name, '(', 1) = pg_catalog.split_part(live.name, '(', 1))
union all
select known.kind, known.name, 'owner', pg_catalog.format('belongs to %s, not to %s', live.owner, right_owner.name)
from spanmq_core.object_checksum known
join live on live.kind = known.kind and live.name = known.name
cross join right_owner
where live.owner <> right_owner.name and known.kind <> 'view text'
union all
-- Objects of single queues: logs and other tables of ours, q_ views, archives.
select 'relation', pg_catalog.format('%I.%I', o.nspname, c.relname), 'owner',
    pg_catalog.format('belongs to %s, not to %s', pg_catalog.pg_get_userbyid(c.relowner), right_owner.name)
from pg_catalog.pg_class c
join home o on o.schema = c.relnamespace
cross join right_owner
where c.relkind in ('r', 'p', 'v', 'S')
    and pg_catalog.pg_get_userbyid(c.relowner) <> right_owner.name
    and (o.nspname = 'spanmq_core' and c.relname ~ '^[a-z_]+_[0-9]+(_|$)'
         or o.nspname = 'spanmq' and c.relname ~ '^log_[0-9]+$'
         or o.nspname = 'pgmq' and c.relname ~ '^q_' and c.relkind = 'v'
         or o.nspname = 'pgmq' and c.relname ~ '^a_' and exists (
             select from pg_catalog.pg_class q
             where q.relnamespace = c.relnamespace and q.relkind = 'v'
             and q.relname = 'q_' || pg_catalog.substr(c.relname, 3)))
union all
select 'index', pg_catalog.format('%I.%I', o.nspname, c.relname), 'invalid', 'left by a failed build: reindex it'
from pg_catalog.pg_index i
join pg_catalog.pg_class c on c.oid = i.indexrelid
join home o on o.schema = c.relnamespace
where not i.indisvalid
union
select * from (:strangers) stranger
order by 1, 2, 3
