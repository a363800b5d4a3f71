-- The record of changes: what was done to queues, by which role, and by which token or command as the client says. For
-- people; it decides nothing.

-- Records a change, which the same statement makes: the client calls it beside the function `action`. actor is what the
-- client knows of its user, such as the name of a token; details are the arguments. Up to 10,000 changes of a role in a
-- day are recorded, then up to 1,000 of each actor, 20,000 in all. Raises MQ002 for a change without an action.
create or replace function spanmq.note_change(
    action text, queue text default null, actor text default null, details jsonb default null
) returns void
language plpgsql volatile as $$
begin
    perform spanmq_call.note_change(action, queue, actor, details, spanmq_call.prove_caller());
end $$;

create or replace function spanmq_call.note_change(
    action text, queue text, actor text, details jsonb, of_caller uuid
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    by_role name := spanmq_core.take_caller(of_caller);
begin
    perform spanmq_core.raise_if(note_change.action is null, 'action cannot be NULL',
                                 'Pass the name of the function that is called.');
    insert into spanmq_core.change (role, action, queue_name, actor, details)
        select by_role, left(note_change.action, 100), left(note_change.queue, 100), left(note_change.actor, 300),
               case when octet_length(note_change.details::text) <= 10000 then note_change.details end
        -- One token of the service, whose role is that of all, can't keep the changes of others from being recorded.
        where (select count(*) < 10000 or count(*) < 20000
               and count(*) filter (where c.actor is not distinct from left(note_change.actor, 300)) < 1000
               from (select c.actor from spanmq_core.change c where c.role = by_role
                     and c.changed_at > clock_timestamp() - interval '1 day'
                     limit 20000) c);
end $$;

-- The changes that were recorded of a queue, or all (queue null; only for a role that may look into all), the newest
-- first, at most qty; the next page is before the last change_id. They are kept for 90 days, also those of a queue that
-- was dropped. Raises 42P01 for a queue that does not exist and has none.
create or replace function spanmq_call.list_changes(queue text default null, before bigint default null,
                                                    qty integer default 100)
returns table (change_id bigint, changed_at timestamptz, role text, actor text, action text, queue_name text,
               details jsonb)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform spanmq_core.check_quantity(qty);
    if queue is not null
        and not exists (select from spanmq_core.change c where lower(c.queue_name) = lower(list_changes.queue)) then
        perform spanmq_core.find_queue(queue);
    end if;
    return query
        select c.change_id, c.changed_at, c.role::text, c.actor, c.action, c.queue_name, c.details
        from spanmq_core.change c
        where (list_changes.queue is null or lower(c.queue_name) = lower(list_changes.queue))
        and (before is null or c.change_id < before)
        order by c.change_id desc limit qty;
end $$;
