-- PGMQ's tables of queues, throttles and topics, as views: they are read as in PGMQ. Queues and throttles are changed
-- by functions only, bindings also by inserts and deletes, which call the functions.
--
-- LOCK TABLE on a view locks what it reads, with the rights of the view's owner: a role with UPDATE or DELETE on one of
-- these could stop all queues. Where the view reads another one with security_invoker, LOCK asks for the rights of the
-- role that locks, and so fails. Such a guard, in the first column, is the first that LOCK meets, because LOCK begins
-- with the tables of the outer query, and a view has none there: it would wait for them, and others behind it. The
-- planner drops the guard: "true or ..." reads nothing.

create or replace view spanmq_core.guard with (security_invoker = true) as select q.queue_id from spanmq_core.queue q;

create or replace view pgmq.meta as
    select case when true or exists (select from spanmq_core.guard) then name end as queue_name,
    is_partitioned, is_unlogged, created_at
    from (select q.name, q.is_partitioned, q.is_unlogged, q.created_at from spanmq_core.queue q) q;
create or replace trigger spanmq_change instead of insert or update or delete on pgmq.meta
    for each row execute function spanmq_core.refuse_change('pgmq.create or pgmq.drop_queue');

create or replace view pgmq.notify_insert_throttle as
    select case when true or exists (select from spanmq_core.guard) then name end as queue_name,
    notify_ms as throttle_interval_ms,
    spanmq_core.last_notified_at(queue_id) as last_notified_at
    from (select q.queue_id, q.name, q.notify_ms from spanmq_core.queue q where q.notify_ms is not null) q;
create or replace trigger spanmq_change instead of insert or update or delete on pgmq.notify_insert_throttle
    for each row execute function
    spanmq_core.refuse_change('pgmq.enable_notify_insert, update_notify_insert or disable_notify_insert');

create or replace view pgmq.topic_bindings as
    select case when true or exists (select from spanmq_core.guard) then pattern end as pattern,
    queue_name, bound_at, compiled_regex
    from (select b.pattern, b.queue_name, b.bound_at, b.compiled_regex from spanmq_core.topic_binding b) b;

-- Binds and unbinds as the functions do, with the rights of the caller.
create or replace function spanmq_core.change_binding() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op <> 'DELETE' then
        perform pgmq.bind_topic(new.pattern, new.queue_name);
    end if;
    if tg_op <> 'INSERT' and (tg_op = 'DELETE'
                              or (old.pattern, old.queue_name) is distinct from (new.pattern, new.queue_name)) then
        perform pgmq.unbind_topic(old.pattern, old.queue_name);
    end if;
    return case tg_op when 'DELETE' then old else new end;
end $$;
create or replace trigger spanmq_change instead of insert or update or delete on pgmq.topic_bindings
    for each row execute function spanmq_core.change_binding();
