-- The view of a queue, pgmq.q_<name>, and what writes through it: an insert sends, an update of vt hides as set_vt()
-- does, a delete deletes. For other columns see view_row.sql. Rows come one by one: INSTEAD OF triggers are called so.

-- The view of a queue: each unsettled message with its read_ct and vt. The planner leaves out the look into the log
-- where a statement needs no column of it: it is an outer join of at most one row, as DISTINCT ON says. "+ 0" keeps it
-- from losing the condition that proves this where the id is a constant.
--
-- PostgreSQL brings no order, limit or range into a security_barrier view, so this is none. Instead, the first
-- condition costs nothing, so it is evaluated before all others: a function of the caller's sees no message of another
-- queue, however cheap it is. Columns within CASE have no statistics, which an operator of the caller's would be shown.
--
-- LOCK TABLE on the view would lock the tables that all queues share: see catalog_views.sql for the guard in the first
-- column that is not plain. It is the queue's own, because LOCK may have to wait for it. Outside of a subquery the view
-- names no table, because LOCK begins with these.
--
-- FOR UPDATE would lock rows of the log, which no read or delete looks at: the outer join makes it an error. Where
-- session_replication_role is replica, no trigger of a view is called: a statement that reads the view fails then, and
-- an insert by its defaults. A crash takes the bodies of an unlogged log: what is left of such messages is not shown.
create or replace function spanmq_core.make_view(queue_id int, view_name text) returns regclass
language plpgsql as $$
declare
    log regclass := format('spanmq_core.log_%s', queue_id)::regclass;
    is_unlogged boolean := exists (
        select from pg_class c where c.relpersistence = 'u' and c.oid = any (log::oid || array(
            select d.refobjid from pg_rewrite r join pg_depend d on d.classid = 'pg_rewrite'::regclass
                and d.objid = r.oid and d.refclassid = 'pg_class'::regclass
            where r.ev_class = log)));
begin
    execute format('create or replace view spanmq_core.guard_%1$s with (security_invoker = true) as'
                   ' select l.msg_id from spanmq_core.log_%1$s l', queue_id);
    perform spanmq_core.close_relation(format('spanmq_core.guard_%s', queue_id)::regclass, '{}');
    execute format($view$
        create or replace view pgmq.%1$I as
        select s.msg_id,
               case when s.queue_id = %2$s and (true or exists (select from spanmq_core.guard_%2$s)) then s.attempts
               end as read_ct,
               l.enqueued_at,
               case when s.queue_id = %2$s then s.last_read_at end as last_read_at,
               case when s.queue_id = %2$s then s.vt end as vt,
               l.message,
               l.headers
        from (select queue_id, msg_id, attempts, last_read_at, vt from spanmq_core.state
              union all
              select queue_id, msg_id, attempts, last_read_at, vt from spanmq_core.later) s
        left join lateral (
            select distinct on (g.msg_id) g.msg_id, g.enqueued_at, g.message, g.headers
            from spanmq_core.log_%2$s g where g.msg_id = s.msg_id) l on l.msg_id = s.msg_id + 0
        where ('[%2$s:%2$s]={true}'::boolean[])[s.queue_id] is not null and s.queue_id = %2$s
          and s.msg_id >= (select least(
              (select f.msg_id from spanmq_core.state f where f.queue_id = %2$s
               order by f.queue_id, f.msg_id limit 1),
              (select h.msg_id from spanmq_core.later h where h.queue_id = %2$s
               order by h.queue_id, h.msg_id limit 1))
              where current_setting('session_replication_role') <> 'replica' or spanmq_core.refuse_replica_role())
          %3$s
        $view$, view_name, queue_id, case when is_unlogged then format(
            'and exists (select from spanmq_core.log_%s g where g.msg_id = s.msg_id)', queue_id) end);
    -- Two columns that only a restore names both; each costs as much as a table.
    execute format('alter view pgmq.%I alter last_read_at set default'
                   ' spanmq_core.unless_replica_role(null::timestamptz),'
                   ' alter headers set default spanmq_core.unless_replica_role(null::jsonb)', view_name);
    -- These two are all that writes through the view: the right of the caller, and each row.
    execute format('create or replace trigger spanmq_before before insert or update or delete on pgmq.%I'
                   ' for each statement execute function spanmq_core.may_change_view(%s)', view_name, queue_id);
    execute format('create or replace trigger spanmq_change instead of insert or update or delete on pgmq.%I'
                   ' for each row execute function spanmq_core.change_view(%s)', view_name, queue_id);
    -- Of 0.1.0, which collected what the rows of a statement change.
    if exists (select from pg_trigger t where t.tgrelid = format('pgmq.%I', view_name)::regclass
               and t.tgname = 'spanmq_end') then
        execute format('drop trigger spanmq_end on pgmq.%I', view_name);
    end if;
    if not spanmq_core.is_following() then
        perform spanmq_core.close_relation(format('pgmq.%I', view_name)::regclass);
    end if;
    return format('pgmq.%I', view_name)::regclass;
end $$;

-- For the view of a queue, whose readers execute these functions.
create or replace function spanmq_core.refuse_replica_role() returns boolean
language plpgsql stable as $$
begin
    raise exception 'a queue can''t be read or written as a table while session_replication_role is replica'
        using errcode = 'MQ004', hint = 'Its triggers are not called then. Call the functions, or set it to origin.';
end $$;

create or replace function spanmq_core.unless_replica_role(value anyelement) returns anyelement
language plpgsql stable as $$
begin
    if pg_catalog.current_setting('session_replication_role') operator(pg_catalog.=) 'replica' then
        perform spanmq_core.refuse_replica_role();
    end if;
    return value;
end $$;

-- Raises 42501 unless the caller may do with the queue what a statement is about to do. Runs with the rights of the
-- caller.
create or replace function spanmq_core.may_change_view() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    verb text := case tg_op when 'INSERT' then 'send' else 'receive' end;
begin
    if not (spanmq_call.may(tg_argv[0]::int, verb)
            or spanmq_call.gains(substr(tg_table_name, 3), tg_argv[0]::int, verb)) then
        perform spanmq_call.refuse(substr(tg_table_name, 3), verb);
    end if;
    return null;
end $$;

-- The trigger of each row. What most queues need is done here, and the rest by the functions that calls use, too.
create or replace function spanmq_core.change_view() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this_queue int := tg_argv[0];
    this spanmq_core.queue;
    goes_to_later boolean;
begin
    if tg_op = 'INSERT' then
        return spanmq_core.send_row(this_queue, row(new.*)::pgmq.message_record);
    elsif tg_op = 'DELETE' then
        if (select q.settles_quietly from spanmq_core.queue q where q.queue_id = this_queue) then
            delete from spanmq_core.state s
                where s.queue_id = this_queue and s.msg_id = old.msg_id and s.lease_id >= 0;
            if not found then
                delete from spanmq_core.later l
                    where l.queue_id = this_queue and l.msg_id = old.msg_id and l.lease_id >= 0;
            end if;
            if found then
                return old;
            end if;
            return null;
        end if;
    elsif new.vt is null then
        raise exception 'null value in column "vt" of relation "%" violates not-null constraint', tg_table_name
            using errcode = '23502', hint = 'Pass a time; a past time makes the message visible at once.';
    elsif (new.msg_id, new.read_ct, new.enqueued_at, new.last_read_at, new.message, new.headers)
          is distinct from (old.msg_id, old.read_ct, old.enqueued_at, old.last_read_at, old.message, old.headers) then
        select * into this from spanmq_core.queue q where q.queue_id = this_queue;
        return case when spanmq_core.update_message(this, row(old.*)::pgmq.message_record,
                                                    row(new.*)::pgmq.message_record) then new end;
    elsif isfinite(new.vt) then
        -- As hide_until() does.
        update spanmq_core.state s set vt = new.vt, lease_id = 0
            from spanmq_core.queue q
            where q.queue_id = this_queue and (q.bells = 0 or spanmq_core.is_foreseen(new.vt))
              and s.queue_id = this_queue and s.msg_id = old.msg_id and s.lease_id >= 0
            returning s.vt > now() and not q.is_plain into goes_to_later;
        if goes_to_later then
            perform spanmq_core.move_to_later(this_queue, array[old.msg_id]);
        end if;
        if goes_to_later is not null then
            return new;
        end if;
    end if;
    select * into this from spanmq_core.queue q where q.queue_id = this_queue;
    return case tg_op
           when 'DELETE' then case when spanmq_core.remove(this, array[old.msg_id], null::bigint) <> '{}' then old end
           else case when spanmq_core.hide_until(this, array[old.msg_id], new.vt) <> '{}' then new end end;
end $$;

-- Sends the row of an insert and returns it as it was sent.
create or replace function spanmq_core.send_row(this_queue int, message pgmq.message_record) returns pgmq.message_record
language plpgsql as $$
declare
    name text := (select q.name from spanmq_core.queue q where q.queue_id = this_queue);
begin
    if message.msg_id is not null or message.last_read_at is not null or message.enqueued_at is not null
       or message.read_ct <> 0 then
        return spanmq_core.insert_message(spanmq_core.find_target(name), message);
    end if;
    message.msg_id := (
        select s from spanmq_call.send(name, message.message, message.headers, coalesce(message.vt, clock_timestamp()))
            s);
    select v.read_ct, v.enqueued_at, v.vt into message.read_ct, message.enqueued_at, message.vt
        from spanmq_core.look(spanmq_core.find_queue(name), message.msg_id, message.msg_id, 1) v;
    return message;
end $$;

