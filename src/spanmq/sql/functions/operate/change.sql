-- The record of changes: what was done to queues, by which role, and by which token or command as the client says. For
-- people; it decides nothing. The functions that entries.sql marks write it, whoever calls them (recorder_text).

-- Records a change that this transaction has made. The token or command is what spanmq.actor is set to: a role can
-- choose it, for its own changes only. In a day up to 1,000 changes of an actor are recorded, 10,000 without one, and
-- 20,000 of a role; the last one recorded says so. Details that are null are left out. A dry run is not a change.
create or replace function spanmq_core.record_change(
    by_role text, action text, queue text, details jsonb
) returns void
language plpgsql as $$
declare
    this spanmq_core.change;
    most int;
    last_one text;
begin
    if details ->> 'dry_run' = 'true' then
        return;
    end if;
    this.actor := left(nullif(current_setting('spanmq.actor', true), ''), 300);
    most := case when this.actor is null then 10000 else 1000 end;
    -- One probe each, however many there are. Transactions that are open do not see each other's.
    this.of_role := coalesce((
        select case when l.changed_at::date = clock_timestamp()::date then l.of_role end
        from (select * from spanmq_core.change c where c.role = by_role order by c.changed_at desc limit 1) l), 0) + 1;
    this.of_actor := coalesce((
        select case when l.changed_at::date = clock_timestamp()::date then l.of_actor end
        from (select * from spanmq_core.change c
              where c.role = by_role and coalesce(c.actor, '') = coalesce(this.actor, '')
              order by c.changed_at desc limit 1) l), 0) + 1;
    if this.of_role > 20000 or this.of_actor > most then
        return;
    end if;
    last_one := case when this.of_actor = most
                     then format('the last of %s of this token or command that are recorded today', most)
                     when this.of_role = 20000 then 'the last of 20000 of this role that are recorded today' end;
    insert into spanmq_core.change (role, action, queue_name, actor, details, of_role, of_actor)
        values (by_role, action,
                left(coalesce((select q.name from spanmq_core.queue q where q.folded_name = lower(queue collate "C")),
                              queue), 100), this.actor,
                case when last_one is not null then jsonb_build_object('limit', last_one)
                     else coalesce((select jsonb_object_agg(d.key, d.value) from jsonb_each(details) d
                                    where d.value <> 'null'), '{}') end,
                this.of_role, this.of_actor);
end $$;

-- An argument as the record shows it: JSON and arrays as they are, the rest as text, of both up to 500 characters.
create or replace function spanmq_core.shown(value anyelement) returns jsonb
language sql stable as $$
    select case when jsonb_typeof(v) in ('object', 'array') and length(v::text) <= 500 then v
                else to_jsonb(left(v #>> '{}', 500)) end
    from to_jsonb(value) v
$$;

-- Does nothing, because functions record their calls themselves. Clients of 0.1.0 still call it.
create or replace function spanmq.note_change(
    action text, queue text default null, actor text default null, details jsonb default null
) returns void
language sql immutable as $$ select null::pg_catalog.void $$;

-- The changes that were recorded of a queue since it was created, or all (queue null; only for a role that may look
-- into all), the newest first, at most qty; the next page is before the last change_id. They are kept for 90 days, also
-- those of a queue that was dropped, which its name shows until another queue has it. Raises 42P01 for a queue that
-- does not exist and has none.
create or replace function spanmq_call.list_changes(queue text default null, before bigint default null,
                                                    qty integer default 100)
returns table (change_id bigint, changed_at timestamptz, role text, actor text, action text, queue_name text,
               details jsonb)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    -- Whoever may look into this queue may not have been allowed to look into an earlier one of its name.
    since timestamptz := (select q.created_at from spanmq_core.queue q
                          where q.folded_name = lower(list_changes.queue collate "C"));
begin
    perform spanmq_core.check_quantity(qty);
    if queue is not null
        and not exists (select from spanmq_core.change c
                        where lower(c.queue_name collate "C") = lower(list_changes.queue collate "C")) then
        perform spanmq_core.find_queue(queue);
    end if;
    return query
        select c.change_id, c.changed_at, c.role::text, c.actor, c.action, c.queue_name, c.details
        from spanmq_core.change c
        where (list_changes.queue is null or lower(c.queue_name collate "C") = lower(list_changes.queue collate "C"))
        and (since is null or c.changed_at >= since) and (before is null or c.change_id < before)
        order by c.change_id desc limit qty;
end $$;
