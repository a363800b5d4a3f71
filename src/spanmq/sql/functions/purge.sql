-- The extent of a purge, for state(). A message whose id was drawn before may be committed after the purge has looked for the last time: it
-- stays, and is a message like any other.

-- Ids of bulk writes of a queue that are reserved and not published. In a statement that also reads runs: one of the two it sees.
create or replace function spanmq_core.unpublished(this_queue int) returns int8multirange
language sql stable as $$
    select coalesce(range_agg(int8range(b.lo, b.hi, '[]')), '{}') from spanmq_core.bulk_block b
    where b.queue_id = coalesce((select p.log_id from spanmq_core.subscription p where p.queue_id = this_queue), this_queue)
$$;

create or replace function spanmq_core.note_purge(this_queue int, seen_in pg_snapshot, unpublished int8multirange) returns void
language plpgsql as $$
begin
    insert into spanmq_core.upkeep (queue_id, purged_in, purged_by, purged_on, spared)
        values (this_queue, seen_in, pg_current_xact_id(), (select c.system_identifier from pg_control_system() c), unpublished)
        -- Messages that an earlier purge spared are seen or spared by this one.
        on conflict (queue_id) do update
            set purged_in = excluded.purged_in, purged_by = excluded.purged_by, purged_on = excluded.purged_on, spared = excluded.spared;
end $$;

-- Whether a message that has a row in the log, written by this transaction, and is in no run was purged, or settled before a purge. Of what
-- was written under a savepoint the transaction is not known: it counts as purged if its savepoint was older than the purge's look.
create or replace function spanmq_core.was_purged(this_queue int, id bigint, written_by xid) returns boolean
language plpgsql stable as $$
declare
    this spanmq_core.upkeep;
    writer xid8;
begin
    select * into this from spanmq_core.upkeep u where u.queue_id = this_queue;
    if id > coalesce(this.purged_to, 0) then
        return false;
    elsif this.purged_on is distinct from (select c.system_identifier from pg_control_system() c) then
        -- Never purged (a subscription begins so), or in a database from which this one was restored.
        return true;
    end if;
    writer := spanmq_core.full_id(written_by, pg_snapshot_xmax(this.purged_in)::text::bigint)::text::xid8;
    return not this.spared @> id and (writer = this.purged_by or pg_visible_in_snapshot(writer, this.purged_in));
end $$;
