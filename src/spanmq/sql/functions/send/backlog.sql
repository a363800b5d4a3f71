-- The limit on senders: how many messages a queue may hold, whatever their state (policy max_backlog).
--
-- Counting at each send would cost more than the send. So a sender that counts stores, in a sequence (reading and
-- setting it takes no lasting lock), the message id up to which all may send before the next count: as many as there is
-- room for, at least a 128th of the limit. For a full queue the sequence contains the time until which it is assumed to
-- be full: a negative number, milliseconds since 1970.

-- Raises MQ062 unless n more messages may be sent. Up to a 128th of the limit beyond it, and concurrent sends, are not
-- noticed. Waits only for a session that is counting.
create or replace function spanmq_core.check_room(this spanmq_core.queue, n int) returns void
language plpgsql as $$
declare
    last_id bigint := coalesce(pg_sequence_last_value(this.ids), 0);
    room bigint := coalesce(pg_sequence_last_value(this.room), 0);
    max_backlog bigint;
    backlog bigint;
    has_room boolean := false;
    now_ms bigint;
begin
    if this.room is null or last_id + n <= room then
        return;
    end if;
    begin
        -- The lock goes with the rollback of this block, the sequence keeps what it was set to.
        perform spanmq_core.lock(this.queue_id, 'room');
        now_ms := extract(epoch from clock_timestamp()) * 1000;
        last_id := coalesce(pg_sequence_last_value(this.ids), 0);
        room := coalesce(pg_sequence_last_value(this.room), 0);
        max_backlog := (select p.max_backlog from spanmq_core.policy p where p.queue_id = this.queue_id);
        if max_backlog is null or last_id + n <= room then
            has_room := true;
        -- Ignores a time that is too far ahead: the clock was set back.
        elsif -room not between now_ms and now_ms + 5000 then
            backlog := (spanmq_core.survey(this.queue_id, clock_timestamp())).backlog;
            if backlog < max_backlog then
                room := greatest(max_backlog - backlog, max_backlog / 128);
                has_room := n <= room;
                room := last_id + room;
            else
                -- Counting takes a twentieth of the time at most.
                room := -(now_ms + least(50 + 20 * (extract(epoch from clock_timestamp()) * 1000 - now_ms),
                                         5000))::bigint;
            end if;
            perform setval(this.room, room);
        end if;
        raise exception using errcode = 'MQ000';
    exception when sqlstate 'MQ000' then null;
    end;
    if not has_room then
        raise exception 'queue % is full', this.name
            using errcode = 'MQ062',
            detail = format('Its policy allows a backlog of %s messages; %s more would go beyond that.', max_backlog,
                            n),
                  hint = 'Nothing was sent. Try again when some have been settled.';
    end if;
end $$;
