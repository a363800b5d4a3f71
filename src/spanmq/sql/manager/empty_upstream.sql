-- Drops PGMQ, an extension without queues, before spanmq is installed in its place.
do $empty$
begin
    lock table pgmq.meta in access exclusive mode;
    if exists (select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
               where n.nspname = 'pgmq' and c.relname ~ '^[qa]_' and c.relkind in ('r', 'p')) then
        raise exception 'this database holds queues of PGMQ'
            using errcode = 'MQ004', hint = 'Take them over with: spanmq schema adopt';
    end if;
    drop extension pgmq;
exception when dependent_objects_still_exist then
    raise exception 'this database holds PGMQ, and other objects depend on it'
        using errcode = 'MQ004', hint = 'They are listed by: spanmq schema adopt --dry-run';
end
$empty$;
