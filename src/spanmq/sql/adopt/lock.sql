-- Keeps everybody out of PGMQ's tables to the end of the transaction. In the order in which its calls lock them, so that a
-- call that is under way waits for us or we for it; a transaction over several queues may still end one of us in a deadlock.
do $lock$
declare
    this record;
begin
    lock table pgmq.meta in access exclusive mode;
    for this in
        select t.place, t.name, r.oid as relation
        from (select 1 as place, 'topic_bindings' as name
              union all select 2, p.prefix || lower(m.queue_name)
              from pgmq.meta m, (values ('q_'), ('a_')) p (prefix)
              union all select 3, 'notify_insert_throttle') t
        cross join lateral (select to_regclass(format('pgmq.%I', t.name)) as oid) r
        where r.oid is not null
        -- A queue before its archive, as pgmq.archive does it.
        order by t.place, substr(t.name, 2), t.name desc
    loop
        execute format('lock table %s in access exclusive mode', this.relation);
    end loop;
exception when lock_not_available then
    raise exception 'a transaction is using PGMQ''s tables and did not end in time'
        using errcode = '55P03', hint = 'End it, or give the take-over more time. Nothing was changed.';
end
$lock$;
